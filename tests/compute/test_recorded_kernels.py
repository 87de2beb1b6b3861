"""Kernels of recordings keep their times on machines by name unless `--retime` is given."""

from __future__ import annotations

from typing import Any

import pytest

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.machine.presets import preset
from et_sim.trace import Workload

MACHINE, RECORDED_NS = "h100-dgx:2", 7_654_000
SHAPE: dict[str, Any] = {"layer_shape": "gemm 4096 4096 4096", "dtype": "bf16"}
KEPT = "2 of 4 kernels were recorded and keep their times; --retime computes their times from the machine"


def workload() -> Workload:
    """Return two ranks with the same product twice: recorded by a profiler, and generated."""
    build = et_sim.TraceBuilder()
    micros = RECORDED_NS // 1000
    recorded = build.compute("recorded", micros=micros, attributes={"stream": 7}, **SHAPE)
    build.compute("made", micros=micros, after=[recorded], **SHAPE)
    return Workload.of([build.build()] * 2)


def times(**how: Any) -> tuple[list[int], list[str]]:
    """Return the times of the two kernels, and the remarks on them."""
    result = et_sim.simulate(workload(), **how)
    rows = result.timeline.to_pylist()[:2]
    output = [notice["text"] for notice in result.manifest["warnings"] if "--retime" in notice["text"]]
    return [row["end_ns"] - row["start_ns"] for row in rows], output


def test_a_machine_by_name_keeps_recorded_times_and_reports_it() -> None:
    (recorded, made), output = times(machine=MACHINE)
    assert recorded == RECORDED_NS
    assert made < RECORDED_NS // 5
    assert output == [KEPT]


def test_with_retime_recorded_kernels_are_timed_like_all_others() -> None:
    (recorded, made), output = times(machine=MACHINE, retime=True)
    assert recorded == made
    assert output == []


def test_the_files_of_a_machine_give_the_results_of_its_name() -> None:
    known = preset(MACHINE)
    assert times(system=known.system, network=known.network) == times(machine=MACHINE)


def test_retime_is_refused_for_a_system_that_times_recorded_kernels_anyway() -> None:
    known = preset(MACHINE)
    system = {key: value for key, value in known.system.items() if key != "replay-recorded-kernels"}
    (recorded, made), _ = times(system=system, network=known.network)
    assert recorded == made
    with pytest.raises(UsageError, match="--retime has no effect"):
        times(system=system, network=known.network, retime=True)


def test_a_run_with_new_times_is_repeated_by_its_configuration() -> None:
    result = et_sim.simulate(workload(), machine=MACHINE, retime=True)
    again = et_sim.simulate(workload(), **result.manifest["configuration"])
    assert again.makespan_ns == result.makespan_ns
