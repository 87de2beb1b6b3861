"""Steps that are kept for further use are those of their source: no two sources are taken for one."""

from __future__ import annotations

from typing import Any

import pytest
from machines import network, system

from et_sim.api import execute
from et_sim.goodput.sources import Simulator, Source, identity_of
from et_sim.run.options import RunOptions
from et_sim.trace import TraceBuilder, Workload


def workload(micros: int, late: int = 0) -> Workload:
    """Return two ranks that compute."""
    traces = []
    for rank in range(2):
        build = TraceBuilder()
        build.compute("work", micros=micros + late * rank)
        traces.append(build.build())
    return Workload.of(traces)


def source(made: Workload, **options: Any) -> Source:
    """Return the source of a workload, as a point of a sweep has it."""
    described = {"network": network(["Ring"], [2]), "system": system("ring", 1), **options}
    asked = RunOptions(**described, model="analytical")
    manifest = execute(made, asked).manifest
    parts, model = manifest["configuration"], manifest["model"]
    identity = identity_of(made, asked, parts, model)
    return Source(lambda: made, asked, parts["system"], parts["network"], model, identity)


def test_a_simulator_keeps_the_steps_of_each_source() -> None:
    simulator = Simulator()
    for micros, late, seconds in ((10, 0, 10e-6), (20, 0, 20e-6), (10, 5, 15e-6), (10, 0, 10e-6)):
        assert simulator.seconds(source(workload(micros, late))) == (pytest.approx(seconds),)
    assert simulator.simulated == 3


def test_sources_differ_by_workload_machine_and_options() -> None:
    usual = source(workload(10)).identity
    assert source(workload(10)).identity == usual
    others = [
        source(workload(11)).identity,
        source(workload(10), network=network(["Ring"], [2], latency=700)).identity,
        source(workload(10), system=system("direct", 1)).identity,
        source(workload(10), profile="corrected").identity,
    ]
    assert usual not in others
    assert all(others.count(other) == 1 for other in others)


def test_a_source_without_an_identity_is_a_fault_of_the_program() -> None:
    with pytest.raises(AssertionError, match="taken for one"):
        Source(lambda: workload(10), RunOptions(), {}, {}, None, {})
