"""Runs of ASTRA-sim 1.0: reading of the data, and replay of their layer files on the oracle."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

from one_npu import GIB_PER_SECOND, Machine1, Play, Ring

from et_sim.layerfile import LayerProgram, LayerTable, layer_program, layer_table, parse_layer_file

DATA = Path(__file__).parent / "data"


@cache
def records(name: str) -> list[dict[str, Any]]:
    """Return the objects of a data file."""
    return [json.loads(line) for line in lzma.decompress((DATA / name).read_bytes()).splitlines()]


def sizes_of(case: dict[str, Any]) -> list[int]:
    """Return the machine's dimensions."""
    sizes: list[int] = case["args"].get("units-count", case["network"]["units-count"])
    return sizes


def program_of(case: dict[str, Any]) -> LayerProgram:
    """Return the case's layer file, unrolled for its machine."""
    args = case["args"]
    return layer_program(
        parse_layer_file(case["workload"], case["id"]),
        args.get("num-passes", 1),
        sizes_of(case),
        args.get("compute-scale", 1.0),
        args.get("comm-scale", 1.0),
    )


def machine_of(case: dict[str, Any], program: LayerProgram) -> Machine1:
    """Return the machine; halves of a split dimension use the same links, the outer one over more hops."""
    network, system, sizes, logical = case["network"], case["system"], sizes_of(case), program.logical
    links = case["args"].get("links-count", network["links-count"])
    rings = []
    for at in range(len(logical.sizes) if logical else len(sizes)):
        physical = logical.physical[at] if logical else at
        is_outer = bool(logical and at and logical.physical[at - 1] == physical)
        rings.append(
            Ring(
                logical.sizes[at] if logical else sizes[at],
                network["link-latency"][physical],
                network["link-bandwidth"][physical] * GIB_PER_SECOND * (links[physical] // 2 * 2),
                logical.sizes[at - 1] if logical and is_outer else 1,
            )
        )
    return Machine1(
        tuple(rings),
        int(system.get("endpoint-delay", 10)),
        int(system["preferred-dataset-splits"]),
        system["scheduling-policy"] == "LIFO",
        system.get("collective-optimization") != "localBWAware",
        int(system.get("active-chunks-per-dimension", 1)),
    )


def played(case: dict[str, Any]) -> LayerTable:
    """Return the oracle's result of a case."""
    program = program_of(case)
    return layer_table(program, *Play(machine_of(case, program), program.trace).run())
