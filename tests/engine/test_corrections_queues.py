"""Corrections of chunks, queues and orders, each on one small example, to the nanosecond.

Machines have 50 GB/s and 500 ns unless an example states otherwise; endpoint delay 10 ns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from correction_examples import group_before_all
from hypothesis import given
from hypothesis import strategies as st
from machines import finish_times, network, of_all_ranks, simulate, system

from et_sim.basics.errors import MachineError
from et_sim.collectives import PhaseOperation
from et_sim.engine.stall import explain_stall
from et_sim.engine.state import kinds
from et_sim.engine.state.records import MESSAGE_FIELDS
from et_sim.engine.state.run import TOP_PRIORITY, new_run
from et_sim.engine.state.traffic_tables import new_traffic
from et_sim.machine import read_machine
from et_sim.machine.model import AllReducePlan
from et_sim.network import analytical
from et_sim.plan import build_plan
from et_sim.plan.phases import PhasePart, PhaseRules, plan_phases
from et_sim.plan.records import LoweredPlan, record
from et_sim.trace import TraceBuilder, Workload

MIB = 1 << 20
FOUR = network(["FullyConnected"], [4])
CUBE = network(["FullyConnected"] * 3, [2, 2, 2], latency=5000) | {"bandwidth": [400, 50, 400]}
ORDERS = ("ascending", "roundRobin", "offlineGreedy", "offlineGreedyFlex", "onlineGreedy")


def last_finish(builders: list[TraceBuilder], net: dict[str, Any], **keys: Any) -> int:
    return max(finish_times(builders, net, system(dimensions=len(net["npus_count"]), **keys)))


@pytest.mark.parametrize(
    ("size", "reference", "corrected"),
    [
        (MIB, 88720, 88720),
        (MIB + 1, 110900, 88720),  # five chunks of 262144 bytes; or one of 262145 and three of 262144
        (1000003, 106520, 85216),  # five chunks of 250000 bytes; or three of 250001 and one of 250000
        (1, 12280, 3070),  # four chunks of four bytes; or one of one byte
        (0, 12280, 0),
    ],
)
def test_exact_chunks_move_no_more_than_requested(size: int, reference: int, corrected: int) -> None:
    keys = {"preferred-dataset-splits": 4}
    builders = of_all_ranks(4, "all_reduce", size)
    assert last_finish(builders, FOUR, **keys) == reference
    assert last_finish(builders, FOUR, **keys, corrections={"exact-chunks": True}) == corrected


def test_an_exact_all_reduce_gathers_the_shares_that_it_scattered() -> None:
    order = [PhasePart(d, members, whole_pieces=True) for d, members in enumerate((3, 2, 2))]
    phases = plan_phases(PhaseOperation.ALL_REDUCE, 1022, order, PhaseRules(AllReducePlan.LOCAL_BW_AWARE))
    assert [phase.size for phase in phases] == [1022, 341, 171, 171, 341]
    assert [phase.output for phase in phases] == [341, 171, 171, 341, 1022]


@pytest.mark.parametrize(
    ("queues", "active", "reference", "corrected"),
    [(1, 2, 44360, 44360), (2, 2, 88720, 44360), (2, 4, 44360, 22180), (4, 4, 44360, 22180)],
)
def test_an_all_reduce_over_one_dimension_uses_all_queues(
    queues: int, active: int, reference: int, corrected: int
) -> None:
    keys = {
        "preferred-dataset-splits": 4,
        "num-queues-per-dim": queues,
        "active-chunks-per-dimension": active,
    }
    builders = of_all_ranks(4, "all_reduce", MIB)
    assert last_finish(builders, FOUR, **keys) == reference
    assert last_finish(builders, FOUR, **keys, corrections={"all-queues": True}) == corrected


def skewed(*micros: int) -> list[TraceBuilder]:
    """Return ranks that reach the same all-reduce at different times."""
    builders = [TraceBuilder() for _ in micros]
    for builder, late in zip(builders, micros, strict=True):
        before = [builder.compute("late", micros=late)] if late else []
        builder.collective("all_reduce", 10000, after=before)
    return builders


# The smallest known knot: one chunk goes out where the other comes in, and each waits for the other's room.
KNOT = (20, 20, 0, 100, 0, 20, 0, 0)


def test_chunks_on_their_way_in_and_out_wait_for_each_other_in_the_reference() -> None:
    result = simulate(skewed(*KNOT), CUBE, system(dimensions=3, **{"preferred-dataset-splits": 2}))
    assert result.finish_ns.tolist() == [-1] * 8
    text = explain_stall(result.outcome, result.workload).text
    assert "waits behind" in text
    assert "in a queue of dimension 1" in text


@pytest.mark.parametrize(
    ("keys", "at_ports"),
    [
        ({"corrections": {"two-way-queues": True}}, (0, 0, 0, 0)),
        ({"profile": "corrected", "corrections": {"ends-when-sent": False}}, (6, 6, 6, 6)),
        ({"profile": "corrected"}, (19, 6, 19, 6)),
    ],
)
def test_two_way_queues_untie_the_knot(keys: dict[str, Any], at_ports: tuple[int, ...]) -> None:
    """Check that with ports, messages to even ranks wait until their own have left."""
    described = system(dimensions=3, **{"preferred-dataset-splits": 2}, **keys)
    even, odd = [130581, 135604, 125580, 130603], [135547, 140497, 130546, 135496]
    times = finish_times(skewed(*KNOT), CUBE, described)
    assert times[::2] == [time + at_port for time, at_port in zip(even, at_ports, strict=True)]
    assert times[1::2] == odd


def test_blocked_queues_admit_their_oldest_chunk_when_no_event_is_left() -> None:
    """Check that chunks in different orders block each other even with queues for both directions."""
    keys = {
        "preferred-dataset-splits": 3,
        "num-queues-per-dim": 2,
        "inter-dimension-scheduling": "roundRobin",
    }
    orders = {"dimension-schedulers": True}
    builders = skewed(20, 20, 0, 10, 50, 20, 20, 10)
    stuck = finish_times(builders, CUBE, system(dimensions=3, **keys, corrections=orders))
    assert stuck == [-1] * 8
    untied = orders | {"two-way-queues": True}
    times = finish_times(builders, CUBE, system(dimensions=3, **keys, corrections=untied))
    assert times == [95474, 95474, 95426, 95426, 100489, 100475, 95458, 100461]


def test_chunks_of_equal_priority_begin_in_the_order_in_which_they_came() -> None:
    """Check that with LIFO, chunks of a later collective overtake the earlier one's, and not each other."""
    builders = of_all_ranks(4, "all_reduce", MIB)
    builders[0].collective("all_reduce", MIB)  # which is that of all
    described = system(**{"preferred-dataset-splits": 4}, corrections={"concurrent-communication": True})
    result = simulate(builders, FOUR, described, detail="phases")
    assert result.phases is not None
    began = np.sort(np.concatenate(list(result.phases.blocks())), order=["actor", "start_ns"])
    assert began["node"].reshape(-1, 8).tolist() == [[0, 1, 1, 1, 1, 0, 0, 0]] * len(began[::8])
    assert began["chunk"].reshape(-1, 8).tolist() == [[0, 0, 1, 2, 3, 1, 2, 3]] * len(began[::8])


GROUPS = {"1": [0, 1, 2, 3], "2": [4, 5, 6, 7], "3": [0, 4], "4": [7, 6, 5, 4, 3, 2, 1, 0]}
COLLECTIVES = st.tuples(
    st.sampled_from(["all_reduce", "reduce_scatter", "all_gather", "all_to_all"]),
    st.integers(1, 50_000),
    st.sampled_from(["", "", *GROUPS]),
)


@given(
    collectives=st.lists(COLLECTIVES, min_size=1, max_size=5),
    lateness=st.lists(st.lists(st.integers(0, 120), min_size=5, max_size=5), min_size=8, max_size=8),
    splits=st.integers(1, 6),
    active=st.integers(1, 3),
    queues=st.integers(1, 3),
    policy=st.sampled_from(["LIFO", "FIFO", "EXPLICIT"]),
    order=st.sampled_from(ORDERS),
    within=st.sampled_from(["FIFO", "RG", "smallestFirst", "lessRemainingPhaseFirst"]),
)
def test_corrected_queues_never_block_with_any_skew(
    collectives: list[tuple[str, int, str]],
    lateness: list[list[int]],
    splits: int,
    active: int,
    queues: int,
    policy: str,
    order: str,
    within: str,
) -> None:
    """Run collectives of several groups side by side, each later on some ranks than on others."""
    builders = [TraceBuilder() for _ in range(8)]
    for rank, builder in enumerate(builders):
        last: dict[str, list[int]] = {}
        for (kind, size, group), micros in zip(collectives, lateness[rank], strict=False):
            if group and rank not in GROUPS[group]:
                continue
            before = last.get(group, []) + ([builder.compute(micros=micros)] if micros else [])
            last[group] = [builder.collective(kind, size, group=group, after=before)]
    keys = {
        "profile": "corrected",
        "scheduling-policy": policy,
        "preferred-dataset-splits": splits,
        "active-chunks-per-dimension": active,
        "num-queues-per-dim": queues,
        "inter-dimension-scheduling": order,
        "intra-dimension-scheduling": within,
    }
    assert min(finish_times(builders, CUBE, system(dimensions=3, **keys), groups=GROUPS)) >= 0


def plan_of(builders: list[TraceBuilder], groups: dict[str, list[int]], **keys: Any) -> LoweredPlan:
    machine = read_machine(system=system(**keys), network=FOUR, groups=groups)
    return build_plan(Workload.of([builder.build() for builder in builders]), machine)


@pytest.mark.parametrize("concurrent", [False, True])
def test_groups_that_run_side_by_side_have_queues_of_their_own(concurrent: bool) -> None:
    builders = [TraceBuilder() for _ in range(4)]
    for rank, builder in enumerate(builders):
        group_before_all(rank, builder)
    plan = plan_of(builders, {"1": [2, 3]}, corrections={"concurrent-communication": concurrent})
    machine = read_machine(system=system(), network=FOUR)
    tables = analytical.tables(machine.network, plan)
    traffic = new_traffic(0, 0, links=False, bits=0)
    run = new_run(plan, tables, traffic, record(*MESSAGE_FIELDS), resources=0)
    first = run.members["cursor_first"]
    assert len(run.queues) == (6 if concurrent else 4)
    for member, other in ((2, 4), (3, 5)):  # of ranks 2 and 3: in the whole system, and in group 1
        assert plan.members["actor"][member] == plan.members["actor"][other]
        assert (first[member] != first[other]) == concurrent


def test_the_reference_warns_that_it_does_not_read_orders() -> None:
    described = system(**{"inter-dimension-scheduling": "themis", "intra-dimension-scheduling": "RG"})
    machine = read_machine(system=described, network=FOUR)
    assert {notice.key for notice in machine.warnings} == {
        "inter-dimension-scheduling",
        "intra-dimension-scheduling",
    }
    assert all("dimension-schedulers" in notice.text for notice in machine.warnings)


@pytest.mark.parametrize(
    ("key", "value"),
    [("inter-dimension-scheduling", "offlinegreedy"), ("intra-dimension-scheduling", "lifo")],
)
def test_an_unknown_order_is_refused_where_orders_are_read(key: str, value: str) -> None:
    described = system(**{key: value}, profile="corrected")
    with pytest.raises(MachineError, match=f'key "{key}" is "{value}".*allowed: '):
        read_machine(system=described, network=FOUR)


def test_kinds_of_events_differ() -> None:
    numbers = [number for name, number in vars(kinds).items() if name.isupper()]
    assert len(numbers) == len(set(numbers))


UNEVEN = network(["FullyConnected"] * 2, [4, 4]) | {"bandwidth": [50, 200]}


@pytest.mark.parametrize(
    ("kind", "size", "times"),
    [
        ("all_reduce", 64 * MIB, (2018576, 1279920, 649932, 669050, 2018576)),
        ("reduce_scatter", 64 * MIB, (1063115, 669448, 348868, 376328, 1063115)),
        ("all_gather", 4 * MIB, (967328, 610552, 275162, 275162, 967328)),
        ("all_to_all", 64 * MIB, (1956458, 1924096, 1956458, 1956458, 1956458)),
    ],
)
def test_greedy_orders_keep_the_fast_dimension_busy(kind: str, size: int, times: tuple[int, ...]) -> None:
    """Run 4 x 4 ranks, the outer dimension four times as fast: 16 chunks, one at a time in each dimension."""
    keys = {"preferred-dataset-splits": 16, "local-mem-bw": 1600}
    corrected = {"dimension-schedulers": True}
    builders = of_all_ranks(16, kind, size)
    for order, time in zip(ORDERS, times, strict=True):
        named = {"inter-dimension-scheduling": order}
        assert last_finish(builders, UNEVEN, **keys, **named, corrections=corrected) == time
        assert last_finish(builders, UNEVEN, **keys, **named) == times[0]  # the reference reads no such key


@pytest.mark.parametrize(("profile", "top"), [("astra-1.0", 1 << 30), ("corrected", 1 << 62)])
def test_priorities_of_1_0_from_a_limit_on_go_before_the_policy(profile: str, top: int) -> None:
    result = simulate(
        of_all_ranks(2, "all_reduce", 1024), network(["Ring"], [2]), system() | {"profile": profile}
    )
    assert result.outcome.run.plan.settings[TOP_PRIORITY] == top
