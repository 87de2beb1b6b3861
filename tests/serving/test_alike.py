"""Replicas at different places of a machine: which of them take equal times."""

from __future__ import annotations

from typing import Any

import pytest
from training_jobs import decoder, with_experts

import et_sim
from et_sim.machine import Machine, read_machine
from et_sim.machine.presets import preset
from et_sim.run.options import RunOptions
from et_sim.serving.alike import are_alike
from et_sim.serving.replicas import BOTH, CachePool, SimulatedTimes
from et_sim.workloads import Batch, Model, Plan, Segment
from et_sim.workloads.inference.batch import GroupBatches
from et_sim.workloads.inference.forward import make_replica

DENSE, EXPERTS = decoder(sequence=4096), with_experts(sequence=4096)
BATCH = Batch.of([Segment(70), Segment(1, 300)])
UNEVEN = (Batch.of([Segment(1, 300)] * 5), Batch.of([Segment(1, 40)]))
RINGS = {
    "topology": ["Ring", "Switch"],
    "npus_count": [4, 2],
    "bandwidth": [50.0, 10.0],
    "latency": [500.0, 900.0],
}


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def machine_of(name: str) -> Machine:
    options = RunOptions(machine=name)
    return read_machine(**options.parts, profile=options.profile)


def pass_ns(of: Model, plan: Plan, batch: GroupBatches, first: int, ranks: int, **machine: Any) -> int:
    workload = make_replica(of, plan, batch, first=first, ranks=ranks)
    return int(et_sim.simulate(workload, **machine).makespan_ns)


@pytest.mark.parametrize(
    ("name", "ranks", "plan"),
    [
        ("h100-dgx:8", 8, Plan(tensor=2)),
        ("h100-dgx:8", 8, Plan(tensor=2, pipeline=2)),
        ("h200-dgx:8", 8, Plan(tensor=2, data=2, expert=4)),
        pytest.param("h200-dgx:32", 32, Plan(tensor=8), marks=pytest.mark.deep),
        pytest.param("h100-dgx:32", 32, Plan(tensor=8, data=2, expert=8), marks=pytest.mark.deep),
    ],
)
def test_replicas_of_whole_nodes_or_parts_of_one_take_equal_times(name: str, ranks: int, plan: Plan) -> None:
    assert are_alike(machine_of(name), plan.ranks)
    model, batch = (EXPERTS, UNEVEN) if plan.data > 1 else (DENSE, BATCH)
    firsts = {0, plan.ranks, ranks // 2, ranks - plan.ranks}
    assert len({pass_ns(model, plan, batch, first, ranks=ranks, machine=name) for first in firsts}) == 1


def test_replicas_on_rings_and_switches_take_equal_times() -> None:
    system = preset("h100-dgx:8").system
    machine = read_machine(system=system, network=RINGS, memory=None, profile=None)
    assert are_alike(machine, 2)
    of_places = {
        pass_ns(DENSE, Plan(tensor=2), BATCH, first, ranks=8, system=system, network=RINGS, model="flow")
        for first in (0, 2, 4, 6)
    }
    assert len(of_places) == 1


@pytest.mark.parametrize(
    ("network", "ranks"),
    [
        ({**RINGS, "npus_count": [6, 2]}, 4),  # the second replica is in two nodes
        ({**RINGS, "links": [{"dimension": 0, "from": 0, "to": 1, "bandwidth": 1.0}]}, 2),
    ],
)
def test_replicas_that_a_shift_does_not_move_to_each_other_are_not_alike(
    network: dict[str, Any], ranks: int
) -> None:
    machine = read_machine(system=preset("h100-dgx:8").system, network=network, memory=None, profile=None)
    assert not are_alike(machine, ranks)


def test_a_pass_of_replicas_that_are_alike_is_simulated_once() -> None:
    times = SimulatedTimes(DENSE, RunOptions(machine="h100-dgx:8"), 8)
    pools = [CachePool(BOTH, Plan(tensor=2), 1, first, 1000, 1) for first in (0, 2, 6)]
    found = [times.pass_ns(pool, BATCH) for pool in pools]
    assert len(set(found)) == 1
    assert len(times.passes) == 3
    assert sum(len(plan.passes) for plan in times.shared.plans.values()) == 1
