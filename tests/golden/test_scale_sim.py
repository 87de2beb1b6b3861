"""Every figure of SCALE-Sim's reports, for every layer of its runs."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from et_sim.compute.systolic.files import FileLayout, parse_topology
from et_sim.compute.systolic.model import reports
from et_sim.machine.systolic import Array, Dataflow, DramBandwidth

DATA = Path(__file__).parent / "data" / "scale_sim.jsonl.xz"
KINDS = ("small", "conv", "user", "calc", "test", "alexnet", "random")


@cache
def runs() -> list[dict[str, Any]]:
    return [json.loads(line) for line in lzma.decompress(DATA.read_bytes()).splitlines()]


def array_of(config: dict[str, Any]) -> Array:
    sizes = ("ArrayHeight", "ArrayWidth", "IfmapSramSzkB", "FilterSramSzkB", "OfmapSramSzkB")
    return Array(
        *(config[name] for name in sizes),
        dataflow=Dataflow(config["Dataflow"]),
        mode=DramBandwidth(config["InterfaceBandwidth"]),
        bandwidths=(config["Bandwidth"],),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_is_that_of_scale_sim(kind: str) -> None:
    of_kind = [run for run in runs() if run["id"].split("_")[0] == kind]
    assert of_kind
    for run in of_kind:
        layers = parse_topology(run["topology_csv"], run["id"], FileLayout(run["input_type"]))
        result = reports(layers, array_of(run["config"]))
        for ours, wanted in zip(result, run["layers"], strict=True):
            rows = {"compute": ours.compute_row, "bandwidth": ours.bandwidth_row, "access": ours.access_row}
            for name in rows.keys() & wanted.keys():
                assert {column: round(value, 9) for column, value in rows[name].items()} == wanted[name], run


def test_all_runs_are_compared() -> None:
    assert {run["id"].split("_")[0] for run in runs()} == set(KINDS)
    assert len(runs()) == 841
