"""Custom collectives: wide programs, and events that need large pools at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import finish_times, network, system

from et_sim.api import simulate
from et_sim.basics.errors import StallError
from et_sim.trace import TraceBuilder, Workload, write_workload

RANKS = 8
CLEAR = 8192  # bytes of a rendezvous request


def all_reduce() -> list[TraceBuilder]:
    builder = TraceBuilder()
    builder.collective("all_reduce", 1 << 20)
    return [builder] * RANKS


def custom(folder: Path, builders: list[TraceBuilder], **keys: object) -> dict:
    prefix = str(folder / "program")
    write_workload(Workload.of([builder.build() for builder in builders]), prefix)
    return system(**{"all-reduce-implementation-custom": [prefix]}, **keys)


@pytest.mark.parametrize("nodes", [1, 33, 50, 3000])
def test_all_computations_of_a_program_run_at_once(tmp_path: Path, nodes: int) -> None:
    builders = [TraceBuilder() for _ in range(RANKS)]
    for builder in builders:
        for number in range(nodes):
            builder.compute(micros=1 + number)
    times = finish_times(all_reduce(), network(["Ring"], [RANKS]), custom(tmp_path, builders))
    assert times == [nodes * 1000] * RANKS


@pytest.mark.parametrize("rendezvous", [False, True])
@pytest.mark.parametrize("messages", [1, 40, 600, pytest.param(3000, marks=pytest.mark.deep)])
def test_all_sends_of_a_program_leave_at_once(tmp_path: Path, messages: int, rendezvous: bool) -> None:
    builders = [TraceBuilder() for _ in range(RANKS)]
    for number in range(messages):
        for peer in range(1, RANKS):
            builders[0].send(peer, 1000, tag=number)
            builders[peer].receive(0, 1000, tag=number)
    flight = 500 + int(1000 / 53.6870912)
    request = 500 + int(CLEAR / 53.6870912) if rendezvous else 0
    described = custom(tmp_path, builders, **{"rendezvous-protocol": rendezvous})
    times = finish_times(all_reduce(), network(["FullyConnected"], [RANKS]), described)
    assert times == [flight + request] * RANKS


@pytest.mark.parametrize("algorithm", ["doubleBinaryTree", "ring", "direct", "halvingDoubling"])
def test_a_thousand_chunks_at_once_with_rendezvous_need_no_more_room_than_there_is(algorithm: str) -> None:
    builders = [TraceBuilder() for _ in range(RANKS)]
    for rank, builder in enumerate(builders):
        first = builder.receive(rank - 1, 1000) if rank % 2 else builder.send(rank + 1, 1000)
        builder.collective("all_reduce", 1 << 20, after=[first])
    keys = {
        "preferred-dataset-splits": 1000,
        "active-chunks-per-dimension": 1000,
        "rendezvous-protocol": True,
    }
    times = finish_times(builders, network(["Switch"], [RANKS]), system(algorithm, **keys))
    assert min(times) > 0


def test_an_empty_program_completes_at_once(tmp_path: Path) -> None:
    described = custom(tmp_path, [TraceBuilder()] * RANKS)
    assert finish_times(all_reduce(), network(["Ring"], [RANKS]), described) == [0] * RANKS


@pytest.mark.parametrize("ranks", [3, 4])  # the group is all ranks, or some
def test_a_stall_over_a_list_out_of_order_names_the_correction(tmp_path: Path, ranks: int) -> None:
    chain = [TraceBuilder() for _ in range(3)]
    for place, builder in enumerate(chain):
        got = [builder.receive(place - 1, 1000)] if place else []
        if place < 2:
            builder.send(place + 1, 1000, after=got)
    described = custom(tmp_path, chain)
    traces = []
    for rank in range(ranks):
        builder = TraceBuilder()
        if rank < 3:
            builder.collective("all_reduce", 1000, group="1")
        traces.append(builder.build())
    machine = {"network": network(["Ring"], [ranks]), "groups": {"1": [2, 0, 1]}}
    with pytest.raises(StallError) as stall:
        simulate(Workload.of(traces), system=described, **machine)
    assert "switch the correction custom-by-position on" in stall.value.remedy
    corrected = described | {"corrections": {"custom-by-position": True}}
    assert simulate(Workload.of(traces), system=corrected, **machine).makespan_ns > 0
