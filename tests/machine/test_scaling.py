"""A machine with one changed figure is otherwise the same machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

import numpy as np
import pytest
from machines import network_1
from msgspec import Struct

from et_sim.machine import read_machine
from et_sim.machine.presets import entry, names, preset
from et_sim.machine.scaling import figures

GRID = {"topology": ["Ring", "Switch"], "npus_count": [2, 4], "bandwidth": [50, 25], "latency": [500, 700]}
SYSTEM = {
    "profile": "corrected",
    "endpoint-delay": 100,
    "peak-perf": 10,
    "local-mem-bw": 100,
    "all-reduce-implementation": ["ring", "ring"],
    "all-gather-implementation": ["ring", "ring"],
    "reduce-scatter-implementation": ["ring", "ring"],
    "all-to-all-implementation": ["direct", "direct"],
}
FABRIC = {
    "graph": {"generator": "leaf-spine", "leaves": 2, "spines": 2, "npus-per-leaf": 4, "bandwidth": "50GB/s"},
    "links": [],
    "routing": "ecmp",
    "seed": 3,
}
STAGES = [{"name": name, "count": 4, "bandwidth": 100, "latency": 50} for name in ("nic", "memory")]
POOL = {"memory-type": "HIERARCHICAL_POOL", "chunk": "64KiB", "stages": STAGES}
MACHINES: dict[str, dict[str, Any]] = {
    "grid": {"system": SYSTEM, "network": GRID},
    "protocol": {"system": SYSTEM, "network": GRID | {"protocol": {"preset": "roce"}}},
    "credits": {"system": SYSTEM, "network": GRID | {"credits": {"flit": 64, "packet": 1000}}},
    "uneven": {
        "system": SYSTEM,
        "network": GRID | {"links": [{"dimension": 1, "from": 3, "to": "switch", "latency": 900}]},
    },
    "levels": {
        "system": SYSTEM,
        "network": network_1([2, 4]) | {"nic-latency": [9, 8], "router-latency": [7, 6]},
    },
    "graph": {"system": SYSTEM, "network": FABRIC},
    "pool": {"system": SYSTEM, "network": GRID, "memory": POOL},
}
PRESETS = (*(f"{name}:{entry(name).fewest}" for name in names()), "h100-dgx:16", "h200-dgx:64")


def _machine(name: str) -> Any:
    if name in MACHINES:
        return read_machine(**MACHINES[name])
    known = preset(name)
    return read_machine(system=known.system, network=known.network)


def _leaves(machine: Any) -> Iterator[tuple[str, Any]]:
    """Yield every value of a description with its path."""
    left: list[tuple[str, Any]] = [("machine", machine)]
    while left:
        path, value = left.pop()
        inner: Mapping[Any, Any] = {}
        if isinstance(value, Mapping):
            inner = value
        elif isinstance(value, Struct) or is_dataclass(value):
            inner = {name: getattr(value, name) for name in value.__struct_fields__}
        elif isinstance(value, tuple | list):
            inner = dict(enumerate(value))
        elif isinstance(value, np.ndarray):
            inner = dict(enumerate(value.tolist()))
        else:
            yield path, value if isinstance(value, int | float | str | Enum | None) else repr(value)
        left += [(f"{path}.{name}", each) for name, each in inner.items()]


@pytest.mark.parametrize("name", [*MACHINES, *PRESETS])
def test_only_the_figure_changes(name: str) -> None:
    machine = _machine(name)
    before = dict(_leaves(machine))
    scales = figures(machine)
    kernels = scales.pop("time of all kernels")
    assert len(scales) >= 2
    for figure, scale in scales.items():
        same, doubled = scale(1.0), scale(2.0)
        assert same is not None
        assert dict(_leaves(same[0])) == before, figure
        assert doubled is not None
        after = dict(_leaves(doubled[0]))
        assert after.keys() == before.keys(), figure
        changed = {path for path, value in before.items() if after[path] != value}
        assert changed, figure
        assert all(isinstance(before[path], int | float) for path in changed), figure
        assert any(math.isclose(after[path], before[path] * doubled[1]) for path in changed), figure
    slower = kernels(2.0)
    assert slower is not None
    after = dict(_leaves(slower[0]))
    assert {path: after[path] for path in before} == before


def test_loggops_has_no_links_whose_figures_could_change() -> None:
    constants = {"npus": 8, "L": 1000, "o": 200, "g": 5, "G": 0.04, "O": 0, "S": 65535}
    machine = read_machine(system={"profile": "corrected"}, network={"loggops": constants})
    assert not [name for name in figures(machine) if "dimension" in name]
    for scale in figures(machine).values():
        scaled = scale(2.0)
        assert scaled is not None
        assert scaled[0].network == machine.network
