"""Configurations that the reference completed, and its example files, are readable unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from et_sim.machine import DimensionShape, read_machine

DATA = Path(__file__).parent / "data"
CASES = [json.loads(line) for line in (DATA / "golden_configurations.jsonl").read_text().splitlines()]
SYSTEM_FILES = ["HGX-H100-validated_sys.json", "Ring_4chunks.json", "roof.json"]
NETWORK_FILES = sorted(path.name for path in DATA.glob("*.yml"))


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_golden_configuration_is_readable(case: dict[str, Any]) -> None:
    given = {part: case.get(part) for part in ("system", "network", "memory", "groups")}
    machine = read_machine(**given)
    assert [dimension.npus for dimension in machine.network.grid.dimensions] == case["network"]["npus_count"]
    assert machine.groups == {name: tuple(ranks) for name, ranks in (case.get("groups") or {}).items()}


@pytest.mark.parametrize("network", NETWORK_FILES)
@pytest.mark.parametrize("system", SYSTEM_FILES)
def test_example_files_are_readable_unchanged(system: str, network: str) -> None:
    machine = read_machine(
        system=DATA / system, network=DATA / network, memory=DATA / "no_memory_expansion.json"
    )
    assert [notice.key for notice in machine.warnings] == ["boost-mode"]


def test_the_h100_example_has_the_stated_figures() -> None:
    machine = read_machine(
        system=DATA / "HGX-H100-validated_sys.json", network=DATA / "HGX-H100-validated.yml"
    )
    dimension = machine.network.fabric.dimensions[0]
    assert (dimension.shape, dimension.npus, dimension.bandwidth) == (DimensionShape.SWITCH, 8, 400.0)
    assert dimension.latency_ns == 936.25
    assert (machine.system.splits, machine.system.active_chunks, machine.system.local_mem_bw) == (
        4,
        2,
        3350.0,
    )
