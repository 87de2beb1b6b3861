"""A run that cannot complete reports who waits for whom, the missing provider, and near misses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from msgspec.structs import replace

from et_sim.basics.errors import StallError
from et_sim.basics.units import ranks_text
from et_sim.engine.driver import run_plan
from et_sim.engine.outcome import Outcome
from et_sim.engine.stall import Stall, explain_stall
from et_sim.engine.stall.report import MOST_HOPS, MOST_JOBS, MOST_NEAREST, MOST_REMEDIES, MOST_WAITS
from et_sim.engine.stall.state import find_cycles
from et_sim.engine.stall.waits import KnotHop, Wait
from et_sim.machine.corrections import Behaviour, Correction, Profile
from et_sim.machine.model import (
    AllReducePlan,
    Dimension,
    DimensionShape,
    Implementations,
    Machine,
    MemoryKind,
    Network,
    RemoteMemory,
    System,
)
from et_sim.network.registry import model_named
from et_sim.plan import build_plan
from et_sim.trace import write_workload
from et_sim.trace.builder import TraceBuilder
from et_sim.trace.columns import Trace
from et_sim.trace.workload import Workload

MIB = 1 << 20
PLACE = "<python>"  # the place of traces that a program makes
SENT, EXPECTED = f'(node 0 "send" in {PLACE})', f'(node 0 "receive" in {PLACE})'


def machine(*npus: int, groups: dict[int, tuple[int, ...]] | None = None, **system: object) -> Machine:
    dimensions = tuple(Dimension(DimensionShape.RING, count, 50.0, 500.0) for count in npus)
    names = ("ring",) * len(npus)
    described = {"splits": 4, "implementations": Implementations(names, names, names, names)} | system
    memory = RemoteMemory(MemoryKind.POOL, 100, 3)
    return Machine(Network.of_dimensions(dimensions), System(**described), memory, groups=groups or {})  # type: ignore[arg-type]


def run(traces: list[Trace], on: Machine) -> tuple[Outcome, Workload]:
    workload = Workload.of(traces)
    return run_plan(build_plan(workload, on), on.network, model_named("analytical")), workload


def stall_of(traces: list[Trace], on: Machine) -> Stall:
    outcome, workload = run(traces, on)
    assert not outcome.is_complete
    return checked(explain_stall(outcome, workload))


def checked(stall: Stall) -> Stall:
    """Check the rules of every report, and return it."""
    assert "explanation itself failed" not in stall.text, stall.text
    assert "{" not in stall.text
    assert len(stall.text.splitlines()) <= 41
    json.dumps(stall.as_dict())
    assert {wait.rank for wait in stall.waits} == set(stall.unfinished)
    for hop, after in zip(stall.knot, [*stall.knot[1:], *stall.knot[:1]], strict=True):
        assert hop.waits_for == after.rank
    return stall


def idle(micros: int = 1) -> Trace:
    build = TraceBuilder()
    build.compute("idle", micros=micros)
    return build.build()


def collectives(*each: tuple[str, int, str]) -> Trace:
    """Return collectives (kind, bytes, group), one after the other."""
    build, before = TraceBuilder(), []
    for kind, size, group in each:
        before = [build.collective(kind, size, group, after=before)]
    return build.build()


# Point to point


def receive_then_send(peer: int, receive_tag: int, send_tag: int) -> Trace:
    build = TraceBuilder()
    got = build.receive(peer, 1000, receive_tag, name="get")
    build.send(peer, 1000, send_tag, name="put", after=[got])
    return build.build()


def test_two_ranks_that_receive_before_they_send_are_a_knot() -> None:
    stall = stall_of([receive_then_send(1, 0, 1), receive_then_send(0, 1, 0)], machine(2))
    assert [(hop.rank, hop.waits_for) for hop in stall.knot] == [(0, 1), (1, 0)]
    assert 'receive "get" (node 0)' in stall.knot[0].reason
    assert 'send "put" (node 1) is not reached' in stall.knot[0].reason
    assert stall.knots == 1
    assert not stall.dead_ends
    assert {wait.kind for wait in stall.waits} == {"send-pending"}


def test_a_receive_without_any_send_names_the_rank_that_never_sent() -> None:
    build = TraceBuilder()
    build.receive(0, 1000, 1)
    stall = stall_of([idle(), build.build()], machine(2))
    assert stall.unfinished == (1,)
    assert not stall.knot
    assert stall.dead_ends == ("rank 1 waits for 1000 B with tag 1 from rank 0, which never sent it",)
    assert stall.waits[0].text == "1000 B with tag 1 from rank 0, which never sent it"
    assert stall.waits[0].provider == (0,)
    node = f'(node 0 "receive" in {PLACE})'
    assert stall.nearest == (f"rank 1 expects 1000 B with tag 1 from rank 0 {node}; rank 0 never sends it",)


def send_to(rank: int, size: int, tag: int) -> Trace:
    build = TraceBuilder()
    build.send(rank, size, tag)
    return build.build()


def receive_from(rank: int, size: int, tag: int) -> Trace:
    build = TraceBuilder()
    build.receive(rank, size, tag)
    return build.build()


@pytest.mark.parametrize(
    ("sent", "near"),
    [
        (
            send_to(1, 8 * MIB, 7),
            f"rank 0 sends 8 MiB with tag 7 to rank 1 {SENT}; rank 1 expects 6 MiB {EXPECTED}",
        ),
        (
            send_to(1, 6 * MIB, 3),
            f"rank 0 sends 6 MiB with tag 3 to rank 1 {SENT}; rank 1 expects tag 7 {EXPECTED}",
        ),
        (
            send_to(1, 5, 3),
            f"rank 0 sends 5 B with tag 3 to rank 1 {SENT}; rank 1 expects 6 MiB with tag 7 {EXPECTED}",
        ),
        (
            send_to(2, 6 * MIB, 7),
            f"rank 0 sends 6 MiB with tag 7 to rank 2 {SENT}; rank 1 expects it from rank 0 {EXPECTED}",
        ),
    ],
    ids=["size", "tag", "size and tag", "target"],
)
def test_a_message_that_almost_matches_is_the_nearest_mismatch(sent: Trace, near: str) -> None:
    stall = stall_of([sent, receive_from(0, 6 * MIB, 7), idle()], machine(3))
    assert stall.nearest == (near,)
    assert near in stall.text


def test_a_message_from_another_rank_is_a_near_miss_too() -> None:
    stall = stall_of([idle(), receive_from(0, 100, 7), send_to(1, 100, 7)], machine(3))
    assert stall.nearest == (
        f"rank 2 sends 100 B with tag 7 to rank 1 {SENT}; rank 1 expects it from rank 0 {EXPECTED}",
    )


def test_sizes_that_print_alike_are_reported_in_bytes() -> None:
    stall = stall_of([send_to(1, MIB + 1, 7), receive_from(0, MIB, 7)], machine(2))
    assert "1048577 B" in stall.nearest[0]
    assert "1 MiB" in stall.nearest[0]


def test_a_chain_of_ranks_ends_at_the_message_that_is_missing() -> None:
    build = TraceBuilder()
    got = build.receive(2, 10, 1)
    build.send(0, 10, 1, after=[got])
    stall = stall_of([receive_from(1, 10, 1), build.build(), idle()], machine(3))
    assert stall.unfinished == (0, 1)
    assert not stall.knot
    assert [wait.kind for wait in stall.waits] == ["send-pending", "send-missing"]
    assert stall.cause.startswith("2 of 3 ranks cannot finish: rank 1 expects 10 B")


def test_a_ready_node_names_the_node_that_occupies_its_lane() -> None:
    build = TraceBuilder()
    build.collective("all_reduce", MIB, name="grad")
    build.send(1, 10, 1, name="late")
    build.send(1, 20, 1, name="later")
    stall = stall_of([build.build(), receive_from(0, 10, 1)], machine(2))
    lane = [wait for wait in stall.waits if wait.kind == "lane"]
    assert len(lane) == 1
    assert 'all_reduce "grad" (node 0) occupies (and 1 more nodes with it)' in lane[0].text
    ready = "the all_reduce of 1 MiB, which is not in the trace there"
    assert stall.dead_ends == (f"rank 0 waits for rank 1 to issue {ready}",)


# Dependencies


def cyclic() -> Trace:
    build = TraceBuilder()
    first = build.compute("first", micros=1)
    build.compute("a", micros=1, after=[first, 3], node_id=1)
    build.compute("b", micros=1, after=[1], node_id=2)
    build.compute("c", micros=1, after=[2], ctrl_after=[1], node_id=3)
    build.compute("below", micros=1, after=[3], node_id=4)
    return build.build()


def test_a_dependency_cycle_is_named_by_its_shortest_form() -> None:
    stall = stall_of([cyclic(), cyclic()], machine(2))
    assert 'dependency cycle of 2 nodes: node 1 "a" waits for node 3 "c" (data)' in stall.cause
    assert "a dependency cycle in the trace to end: node 1 after 3 after 1" in stall.text
    assert [hop.reason for hop in stall.knot] == [
        'compute "a" (node 1) comes after compute "c" (node 3)',
        'compute "c" (node 3) comes after compute "a" (node 1)',
    ]
    assert "ranks 0-1 wait" in stall.text
    assert stall.remedies == ("remove one of these dependencies: no node of a cycle can start",)


def test_a_send_that_follows_a_cycle_leads_to_the_cycle() -> None:
    build = TraceBuilder()
    build.compute("a", after=[1], node_id=0)
    build.compute("b", after=[0], node_id=1)
    build.send(1, 10, 1, after=[1], node_id=2)
    build.compute("free", micros=3, node_id=3)
    stall = stall_of([build.build(), receive_from(0, 10, 1)], machine(2))
    assert [hop.rank for hop in stall.knot] == [0, 0]
    assert {wait.kind for wait in stall.waits} == {"cycle", "send-pending"}


def test_a_node_that_depends_on_itself_is_a_cycle() -> None:
    build = TraceBuilder()
    build.compute("free", micros=1)
    build.compute("self", micros=1, after=[1], node_id=1)
    stall = stall_of([build.build(), idle()], machine(2))
    assert "node 1 after 1" in stall.text
    assert [(hop.rank, hop.waits_for) for hop in stall.knot] == [(0, 0)]


def test_cycles_are_those_that_networkx_finds() -> None:
    random = np.random.default_rng(7)
    for _ in range(40):
        count = int(random.integers(2, 9))
        build = TraceBuilder()
        edges = [(int(a), int(b)) for a, b in random.integers(0, count, (count, 2))]
        for row in range(count):
            build.compute(after=[parent for parent, child in edges if child == row], node_id=row)
        build.compute("free", micros=1)
        on = machine(2)
        plan = build_plan(Workload.of([build.build(), idle()]), on)
        cycles = find_cycles(plan, 0)
        graph = nx.DiGraph(edges)
        knots = [c for c in nx.strongly_connected_components(graph) if len(c) > 1]
        loops = [{n} for n in nx.nodes_with_selfloops(graph) if not any(n in c for c in knots)]
        assert {frozenset(c) for c in knots + loops} == {
            frozenset(row for row, home in cycles.home.items() if home == cycle[0])
            for cycle in cycles.minimal
        }
        for cycle in cycles.minimal:
            assert [cycles.parent[row] for row in cycle] == [*cycle[1:], cycle[0]]
            assert all(
                (parent, row) in edges for row, parent in zip(cycle, cycle[1:] + cycle[:1], strict=True)
            )


def send_then_receive(peer: int, send_tag: int, receive_tag: int, size: int = 8 * MIB) -> Trace:
    build = TraceBuilder()
    put = build.send(peer, size, send_tag, name="put")
    build.receive(peer, size, receive_tag, name="get", after=[put])
    return build.build()


def test_with_rendezvous_two_ranks_that_send_before_they_receive_are_a_knot() -> None:
    traces = [send_then_receive(1, 7, 8), send_then_receive(0, 8, 7)]
    assert run(traces, machine(2))[0].is_complete
    stall = stall_of(traces, machine(2, rendezvous=True))
    assert stall.waits[0].text == "rank 1 to post the receive of 8 MiB with tag 7 (rendezvous)"
    assert "rank 0 waits for rank 1 to post the receive of 8 MiB with tag 7 (rendezvous)" in stall.cause
    assert {wait.kind for wait in stall.waits} == {"receive-pending"}
    assert [(hop.rank, hop.waits_for) for hop in stall.knot] == [(0, 1), (1, 0)]
    assert stall.knot[0].reason == 'send "put" (node 0); there receive "get" (node 1) is not reached'
    assert not stall.dead_ends
    assert "post receives before the sends" in stall.remedies[0]
    assert "turn rendezvous-protocol off" in stall.remedies[0]


def test_with_rendezvous_a_send_without_a_receive_is_a_dead_end() -> None:
    stall = stall_of([send_to(1, 8 * MIB, 7), idle()], machine(2, rendezvous=True))
    assert stall.unfinished == (0,)
    assert stall.waits[0].kind == "receive-missing"
    assert stall.dead_ends == (
        "rank 0 waits for rank 1 to post the receive of 8 MiB with tag 7 (rendezvous), which is not in the"
        " trace there",
    )
    assert "add the missing receive" in stall.remedies[0]


def test_with_rendezvous_a_receive_with_another_tag_is_the_nearest_mismatch_of_a_held_send() -> None:
    stall = stall_of([send_to(1, 8 * MIB, 7), receive_from(0, 8 * MIB, 3)], machine(2, rendezvous=True))
    assert {wait.kind for wait in stall.waits} == {"receive-missing", "send-missing"}
    assert "rank 1 to post the receive of 8 MiB with tag 7 (rendezvous)" in stall.dead_ends[0]
    assert stall.nearest == (
        f"rank 0 sends 8 MiB with tag 7 to rank 1 {SENT}; rank 1 expects tag 3 {EXPECTED}",
    )


def test_with_rendezvous_held_sends_wait_for_the_receives_that_are_left_in_order() -> None:
    """Check two pairs: the first receive releases the first send; the second pair blocks crosswise."""

    def trace(peer: int) -> Trace:
        build = TraceBuilder()
        build.receive(peer, 1000, 0, name="first get")
        put = build.send(peer, 1000, 0, name="first put")
        again = build.send(peer, 1000, 0, name="put", after=[put])
        build.receive(peer, 1000, 0, name="get", after=[again])
        return build.build()

    stall = stall_of([trace(1), trace(0)], machine(2, rendezvous=True))
    assert stall.knot[0].reason == 'send "put" (node 2); there receive "get" (node 3) is not reached'


def test_with_rendezvous_a_collective_is_explained_by_the_member_that_lags() -> None:
    build = TraceBuilder()
    put = build.send(1, 1000, 0, name="put")
    build.collective("all_reduce", MIB, after=[put])
    other = TraceBuilder()
    summed = other.collective("all_reduce", MIB)
    other.receive(0, 1000, 0, name="get", after=[summed])
    stall = stall_of([build.build(), other.build()], machine(2, rendezvous=True))
    assert {wait.kind for wait in stall.waits} == {"receive-pending", "member-elsewhere"}
    assert [(hop.rank, hop.waits_for) for hop in stall.knot] == [(0, 1), (1, 0)]


def custom_all_reduce(prefix: Path, traces: list[Trace], *, rendezvous: bool) -> Machine:
    write_workload(Workload.of(traces), prefix)
    chosen = {"all_reduce": str(prefix)}
    return machine(len(traces), rendezvous=rendezvous, custom_implementations=chosen, splits=1)


def test_with_rendezvous_a_custom_collective_that_sends_before_it_receives_is_a_knot(tmp_path: Path) -> None:
    traces = [send_then_receive(1, 7, 8), send_then_receive(0, 8, 7)]
    workload = [collectives(("all_reduce", MIB, ""))] * 2
    on = custom_all_reduce(tmp_path / "program", traces, rendezvous=False)
    assert run(workload, on)[0].is_complete
    stall = stall_of(workload, custom_all_reduce(tmp_path / "program", traces, rendezvous=True))
    assert stall.waits[0].text == (
        "rank 1 to post the receive of 8 MiB with tag 7 within the all_reduce of 1 MiB (rendezvous)"
    )
    assert [(hop.rank, hop.waits_for) for hop in stall.knot] == [(0, 1), (1, 0)]
    assert "turn rendezvous-protocol off" in stall.remedies[0]


def test_a_receive_that_waits_is_explained_beside_custom_collectives(tmp_path: Path) -> None:
    programs = [send_to(1, 10, 0), receive_from(0, 10, 0)]
    on = custom_all_reduce(tmp_path / "program", programs, rendezvous=False)

    def trace(peer: int, tag: int) -> Trace:
        build = TraceBuilder()
        summed = build.collective("all_reduce", MIB)
        got = build.receive(peer, 1000, tag, name="get", after=[summed])
        build.send(peer, 1000, 1 - tag, name="put", after=[got])
        return build.build()

    stall = stall_of([trace(1, 0), trace(0, 1)], on)
    assert [(hop.rank, hop.waits_for) for hop in stall.knot] == [(0, 1), (1, 0)]


# Collectives


def test_a_collective_missing_on_one_rank_names_that_rank() -> None:
    reduce = collectives(("all_reduce", MIB, ""))
    stall = stall_of([reduce, reduce, reduce, idle()], machine(4))
    assert stall.unfinished == (0, 1, 2)
    assert stall.dead_ends == (
        "ranks 0-2 wait for rank 3 to issue the all_reduce of 1 MiB, which is not in the trace there",
    )
    assert all(wait.kind == "member-absent" and wait.provider == (3,) for wait in stall.waits)
    assert "ranks 0-2 wait for rank 3" in stall.text
    assert not stall.knot


def test_overlapping_groups_in_opposite_order_are_a_knot() -> None:
    first = collectives(("all_reduce", 1000, "1"), ("all_reduce", 1000, "2"))
    other = collectives(("all_reduce", 1000, "2"), ("all_reduce", 1000, "1"))
    stall = stall_of([first, other, idle(), idle()], machine(4, groups={"1": (0, 1), "2": (0, 1)}))
    assert [(hop.rank, hop.waits_for) for hop in stall.knot] == [(0, 1), (1, 0)]
    assert "of group 1" in stall.knot[0].reason
    assert "(node 1) of group 1 is not reached" in stall.knot[0].reason
    assert "rank 0 waits for rank 1 to issue the all_reduce of 1000 B over group 1" in stall.text


def test_collectives_of_one_group_in_opposite_order_are_a_mismatch() -> None:
    first = collectives(("all_reduce", 4000, ""), ("all_gather", 1000, ""))
    other = collectives(("all_gather", 1000, ""), ("all_reduce", 4000, ""))
    stall = stall_of([first, first, first, other], machine(4))
    assert stall.nearest == (
        "collectives of the group of all ranks: the same 2, in a different order (they would be matched by"
        f' order and hang): the 1st is on ranks 0-2 all_reduce of 4000 B (node 0 "all_reduce" in {PLACE}) and'
        f' on rank 3 all_gather of 1000 B (node 0 "all_gather" in {PLACE})',
    )
    assert {wait.kind for wait in stall.waits} == {"member-mismatch"}
    assert "give all members one order, by dependencies or by ascending node ids" in stall.remedies


def test_an_earlier_difference_in_size_explains_a_later_stall() -> None:
    """Run four chunks against five: the first collective ends on one rank, without its fifth chunk."""
    odd = collectives(("all_reduce", MIB + 1, ""), ("all_gather", 1000, ""))
    even = collectives(("all_reduce", MIB, ""), ("all_gather", 1000, ""))
    stall = stall_of([odd, odd, odd, even], machine(4))
    assert any(
        "on rank 3 all_reduce of 1 MiB" in text and "on ranks 0-2 all_reduce of 1048577 B" in text
        for text in stall.nearest
    )


def test_a_subgroup_collective_shifts_the_numbers_of_the_whole_system() -> None:
    """Check B-6 of the reference: a group takes numbers from the system's count on its members only."""
    all_ranks = collectives(("all_reduce", MIB, ""))
    after_group = collectives(("all_reduce", MIB, "1"), ("all_reduce", MIB, ""))
    stall = stall_of([all_ranks, all_ranks, after_group, after_group], machine(4, groups={"1": (2, 3)}))
    assert stall.unfinished == (0, 1, 2, 3)
    assert stall.nearest == (
        'the 1st collective of all ranks (node 0 "all_reduce" on rank 0) is number 0 on ranks 0-1 and number'
        " 4 on ranks 2-3, because collectives of groups take numbers from the count of all ranks in this"
        " profile; they hang",
    )
    assert {wait.kind for wait in stall.waits} == {"member-renumbered"}
    assert len(stall.remedies) == 1
    assert "group-counters" in stall.remedies[0]


def test_a_listed_group_of_all_ranks_is_the_remedy_for_shifted_numbers() -> None:
    groups = {"1": (2, 3), "2": (0, 1, 2, 3)}
    all_ranks = collectives(("all_reduce", MIB, "2"))
    after_group = collectives(("all_reduce", MIB, "1"), ("all_reduce", MIB, "2"))
    outcome, _ = run([all_ranks, all_ranks, after_group, after_group], machine(4, groups=groups))
    assert outcome.is_complete


def test_a_member_that_is_elsewhere_is_reported_with_its_wait() -> None:
    build = TraceBuilder()
    got = build.receive(0, 10, 1, name="go")
    build.collective("all_reduce", MIB, after=[got])
    reduce = collectives(("all_reduce", MIB, ""))
    stall = stall_of([reduce, build.build()], machine(2))
    kinds = {wait.rank: wait.kind for wait in stall.waits}
    assert kinds == {0: "member-elsewhere", 1: "send-missing"}
    assert stall.waits[0].provider == (1,)
    assert stall.dead_ends == ("rank 1 waits for 10 B with tag 1 from rank 0, which never sent it",)


def test_a_message_and_a_collective_can_be_one_knot() -> None:
    build = TraceBuilder()
    done = build.collective("all_reduce", MIB)
    build.send(1, 10, 1, after=[done])
    late = TraceBuilder()
    got = late.receive(0, 10, 1)
    late.collective("all_reduce", MIB, after=[got])
    stall = stall_of([build.build(), late.build()], machine(2))
    assert [(hop.rank, hop.waits_for) for hop in stall.knot] == [(0, 1), (1, 0)]
    assert "all_reduce" in stall.knot[0].reason
    assert "receive" in stall.knot[1].reason


def test_a_member_that_has_yet_to_issue_several_collectives_is_awaited_at_the_same_one() -> None:
    build = TraceBuilder()
    done = build.collective("all_reduce", MIB)
    build.send(1, 10, 1, after=[done])
    late = TraceBuilder()
    got = late.receive(0, 10, 1)
    for size in (3 * MIB, 2 * MIB, MIB, MIB):
        late.collective("all_reduce", size, after=[got])
    stall = stall_of([build.build(), late.build()], machine(2))
    assert [(hop.rank, hop.waits_for) for hop in stall.knot] == [(0, 1), (1, 0)]
    assert 'there all_reduce "all_reduce" (node 3) is not reached' in stall.knot[0].reason


def test_rings_that_turn_different_ways_are_recognised() -> None:
    """Check an all-gather in a group, which moves the queue cursors of its members only."""
    groups = {"1": (0, 1), "2": (0, 1, 2, 3)}
    first = collectives(("all_gather", 1000, "1"), ("all_gather", 1000, "2"))
    second = collectives(("all_gather", 1000, "2"))
    on = machine(4, groups=groups, splits=1, queues_per_dim=2, all_reduce_plan=AllReducePlan.BASELINE)
    stall = stall_of([first, first, second, second], on)
    assert {wait.kind for wait in stall.waits} == {"member-turned"}
    what = "the ring of the all_gather of 1000 B over group 2"
    assert stall.dead_ends[0] == f"ranks 0-1 wait for ranks 2-3, where {what} turns the other way"
    assert [wait.provider for wait in stall.waits] == [(2, 3), (2, 3), (0, 1), (0, 1)]
    assert "num-queues-per-dim" in stall.remedies[0]


# Queues


def queue_deadlock(earlier: int = 0, **system: object) -> tuple[Outcome, Workload]:
    """Return the smallest known case of chunks that block each other's queues of a middle dimension, after
    some earlier collectives.
    """
    latency = 5000.0
    dimensions = tuple(
        Dimension(DimensionShape.FULLY_CONNECTED, 2, bw, latency) for bw in (400.0, 50.0, 400.0)
    )
    ring = Implementations(("ring",) * 3)
    described = System(splits=2, implementations=ring, local_mem_bw=50.0)
    on = Machine(Network.of_dimensions(dimensions), replace(described, **system))  # type: ignore[arg-type]
    traces = []
    for micros in (20, 20, 0, 100, 0, 20, 0, 0):
        build, last = TraceBuilder(), list[int]()
        for _ in range(earlier):
            last = [build.collective("all_reduce", 8, after=last)]
        before = build.compute("skew", micros=micros, after=last)
        build.collective("all_reduce", 10000, name="g", after=[before])
        traces.append(build.build())
    return run(traces, on)


@pytest.mark.parametrize("earlier", [0, 3])
def test_chunks_that_block_a_middle_queue_are_a_knot_through_that_queue(earlier: int) -> None:
    stall = checked(explain_stall(*queue_deadlock(earlier)))
    assert stall.unfinished == tuple(range(8))
    assert [(hop.rank, hop.waits_for) for hop in stall.knot] == [(1, 3), (3, 1)]
    for hop in stall.knot:
        assert re.search(
            r"chunk \d \(\w+\) waits behind chunk \d \(\w+\) in a queue of dimension 1", hop.reason
        )
    assert "num-queues-per-dim to 2 or more" in stall.remedies[0]
    assert "active-chunks-per-dimension" in stall.remedies[0]
    assert not stall.dead_ends


@pytest.mark.parametrize("system", [{"queues_per_dim": 2}, {"active_chunks": 2}])
def test_the_remedies_for_blocked_queues_work(system: dict[str, int]) -> None:
    outcome, _ = queue_deadlock(**system)
    assert outcome.is_complete


def test_queues_that_may_run_nothing_are_named() -> None:
    reduce = collectives(("all_reduce", MIB, ""))
    stall = stall_of([reduce, reduce], machine(2, active_chunks=0))
    assert {wait.kind for wait in stall.waits} == {"queue-closed"}
    assert stall.remedies == ("set active-chunks-per-dimension to 1 or more",)


# Matches by program


def all_reduces(count: int, late: bool) -> Trace:
    """Return all-reduces of one size, and a message after them that is late on the other rank, or before."""
    build, last = TraceBuilder(), list[int]()
    for number in range(count):
        last = [build.collective("all_reduce", MIB, after=last)]
        if late and number == 0:
            last = [build.receive(0, 10, 1, after=last)]
            build.collective("all_gather", MIB, after=last)
    if not late:
        build.send(1, 10, 1, after=last)
    return build.build()


def late_by_messages(**system: object) -> tuple[Outcome, Workload]:
    return run([all_reduces(2, late=False), all_reduces(4, late=True)], machine(2, **system))


def absent(**system: object) -> tuple[Outcome, Workload]:
    return run([collectives(("all_reduce", MIB, "")), idle()], machine(2, **system))


def unlike(**system: object) -> tuple[Outcome, Workload]:
    traces = [collectives((kind, MIB, "")) for kind in ("all_reduce", "all_gather")]
    return run(traces, machine(2, **system))


def blocked(**system: object) -> tuple[Outcome, Workload]:
    return queue_deadlock(3, **system)


@pytest.mark.parametrize("stalled", [absent, unlike, late_by_messages, blocked])
def test_collectives_in_one_order_are_explained_alike_if_matched_by_program(
    stalled: Callable[..., tuple[Outcome, Workload]],
) -> None:
    by_order, by_program = (
        checked(explain_stall(*stalled(behaviour=Behaviour(Profile.REFERENCE, frozenset(corrections)))))
        for corrections in ((), (Correction.MATCH_BY_PROGRAM,))
    )
    assert by_program.waits == by_order.waits
    assert by_program.knot == by_order.knot
    assert bool(by_order.knot) == (stalled in (late_by_messages, blocked))


def test_other_orders_are_no_difference_for_collectives_that_are_matched_by_program() -> None:
    """Let rank 0 gather before it sends and reduces, and rank 1 reduce before it receives and gathers."""
    early, late = TraceBuilder(), TraceBuilder()
    gathered = early.collective("all_gather", MIB)
    early.send(1, 10, 1, after=[gathered])
    early.collective("all_reduce", MIB, after=[gathered])
    late.collective("all_reduce", MIB)
    late.collective("all_gather", MIB, after=[late.receive(0, 10, 1)])
    kinds = []
    for corrections in ((), (Correction.MATCH_BY_PROGRAM,)):
        behaviour = Behaviour(Profile.REFERENCE, frozenset(corrections))
        stall = stall_of([early.build(), late.build()], machine(2, behaviour=behaviour))
        kinds.append({wait.kind for wait in stall.waits})
    assert kinds == [{"member-mismatch", "send-pending"}, {"member-elsewhere", "send-pending"}]


# States that the engine cannot end in today are reported too


def test_a_memory_request_under_way_is_reported() -> None:
    build = TraceBuilder()
    build.load(3000, name="weights")
    outcome, workload = run([build.build(), idle()], machine(2))
    outcome.nodes["end_ns"][0] = -1
    outcome.finish_ns[0] = -1
    stall = checked(explain_stall(outcome, workload))
    assert stall.waits[0].kind == "memory"
    assert 'load "weights"' in stall.text


def test_a_compute_node_under_way_is_reported() -> None:
    outcome, workload = run([idle(), idle()], machine(2))
    outcome.nodes["end_ns"][1] = -1
    outcome.finish_ns[1] = -1
    assert checked(explain_stall(outcome, workload)).waits[0].kind == "unknown"


def test_explaining_never_raises() -> None:
    outcome, _ = run([idle(), receive_from(0, 10, 1)], machine(2))
    stall = explain_stall(outcome, Workload.of([]))
    assert "1 of 2 ranks cannot finish" in stall.text
    assert "the explanation itself failed" in stall.text
    assert isinstance(stall.as_error(), StallError)


# The report


def test_a_stall_becomes_an_error_with_status_one() -> None:
    error = stall_of([idle(), receive_from(0, 1000, 1)], machine(2)).as_error()
    assert error.exit_status == 1
    assert error.cause == (
        "1 of 2 ranks cannot finish: rank 1 expects 1000 B with tag 1 from rank 0"
        f' (node 0 "receive" in {PLACE}); rank 0 never sends it'
    )
    assert error.report.startswith(error.cause)
    assert error.remedy


@pytest.mark.deep
def test_thousands_of_ranks_are_explained_fast_and_briefly() -> None:
    ranks = 1024
    traces = []
    for rank in range(ranks):
        build = TraceBuilder()
        got = build.receive((rank - 1) % ranks, 1000, 0, name="from the left")
        build.send((rank + 1) % ranks, 1000, 0, name="to the right", after=[got])
        traces.append(build.build())
    outcome, workload = run(traces, machine(ranks))
    stall = checked(explain_stall(outcome, workload))
    assert len(stall.knot) == ranks
    assert "ranks 0-1023 wait for 1000 B with tag 0 from each other" in stall.text
    assert "1017 more" in stall.text


@pytest.mark.parametrize("ranks", [16, pytest.param(2048, marks=pytest.mark.deep)])
def test_one_missing_member_of_many_is_explained(ranks: int) -> None:
    reduce = collectives(("all_reduce", ranks, ""))
    traces = [reduce] * (ranks - 1) + [idle()]
    outcome, workload = run(traces, machine(ranks))
    stall = checked(explain_stall(outcome, workload))
    assert f"ranks 0-{ranks - 2} wait for rank {ranks - 1}" in stall.text


def lists_of(length: int, **lists: int) -> Stall:
    """Return a stall whose lists have a length, or one of their own."""

    def texts(name: str) -> tuple[str, ...]:
        return tuple(f"one {name} {number};" for number in range(lists.get(name, length)))

    return Stall(
        ranks=99,
        alike="alike",
        end_ns=5,
        unfinished=(0,),
        cause="cause",
        remedies=texts("remedy"),
        jobs=texts("job"),
        waits=tuple(Wait(0, 0, "", "", "lane", text, (), 0) for text in texts("wait")),
        knot=tuple(KnotHop(0, 1, text) for text in texts("hop")),
        nearest=texts("mistake"),
    )


def test_a_report_of_long_lists_has_some_forty_lines() -> None:
    """Count three lines, five titles, and five lists, of which each has one more line where it is cut."""
    most = MOST_JOBS + MOST_WAITS + MOST_HOPS + MOST_NEAREST + MOST_REMEDIES
    assert len(lists_of(50).text.splitlines()) == 3 + 5 + most + 5 == 44


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("job", MOST_JOBS),
        ("wait", MOST_WAITS),
        ("hop", MOST_HOPS),
        ("mistake", MOST_NEAREST),
        ("remedy", MOST_REMEDIES),
    ],
)
def test_a_list_of_a_report_is_cut_above_its_limit_only(name: str, most: int) -> None:
    full, cut = lists_of(1, **{name: most}).text, lists_of(1, **{name: most + 1}).text
    assert "more" not in full
    assert full.count(f"one {name} ") == most
    assert "… 1 more …" in cut if name == "hop" else "… and 1 more" in cut
    assert cut.count(f"one {name} ") == most
    assert (f"one {name} {most};" in cut) == (name == "hop")  # a knot is cut in its middle


def test_ranks_are_written_as_ranges() -> None:
    assert ranks_text([6, 0, 2, 1, 3]) == "ranks 0-3,6"
    assert ranks_text([4]) == "rank 4"
    assert ranks_text(range(0, 40, 2)) == "ranks 0,2,4,6,8,10,… (20 in all)"


def test_collectives_whose_sizes_differ_never_exchange_messages() -> None:
    traces = [collectives(("all_reduce", (1 + rank % 2) << 19, "")) for rank in range(4)]
    outcome, workload = run(traces, machine(4))
    stall = checked(explain_stall(outcome, workload))
    assert stall.unfinished == (0, 1, 2, 3)
    assert "on ranks 0,2 all_reduce of 512 KiB" in stall.text
    assert "on ranks 1,3 all_reduce of 1 MiB" in stall.text


# ---- collectives over a tree


def busy_with(kind: str, *, root: int | None = None, first: tuple[str, int] | None = None) -> Trace:
    """Return a collective over all ranks, after a message if one is given."""
    build = TraceBuilder()
    before = []
    if first:
        way, peer = first
        before = [build.send(peer, 1000) if way == "send" else build.receive(peer, 1000)]
    build.collective(kind, MIB, root=root, after=before)
    return build.build()


def test_members_of_a_gather_wait_for_those_below_them_only() -> None:
    """Check the tree of four, in which rank 2 receives from rank 1, and rank 3 has no sender below it."""
    nothing = TraceBuilder().build()
    gather = busy_with("gather")
    stall = stall_of([gather, nothing, gather, gather], machine(4))
    assert {(wait.rank, wait.provider) for wait in stall.waits} == {(0, (1,)), (2, (1,))}
    awaited = "the gather of 1 MiB, which is not in the trace there"
    assert stall.dead_ends == (f"ranks 0,2 wait for rank 1 to issue {awaited}",)
    stall = stall_of([gather, gather, gather, nothing], machine(4))
    assert [(wait.rank, wait.provider) for wait in stall.waits] == [(0, (3,))]


def test_members_of_a_scatter_wait_for_those_above_them_only() -> None:
    nothing, scatter = TraceBuilder().build(), busy_with("scatter")
    stall = stall_of([scatter, scatter, nothing, scatter], machine(4))
    assert [(wait.rank, wait.provider) for wait in stall.waits] == [(1, (2,))]


def test_a_knot_through_a_reduce_names_the_rank_below() -> None:
    """Rank 1 would send to rank 2 after hearing from rank 0, which waits in the reduce for both."""
    reduce = busy_with("reduce")
    waits = busy_with("reduce", first=("receive", 0))
    build = TraceBuilder()
    summed = build.collective("reduce", MIB)
    build.send(1, 1000, after=[summed])
    stall = stall_of([build.build(), waits, reduce, reduce], machine(4))
    assert [(hop.rank, hop.waits_for) for hop in stall.knot] == [(0, 1), (1, 0)]


def test_members_with_different_roots_run_different_collectives() -> None:
    stall = stall_of([busy_with("gather", root=0), busy_with("gather", root=1)], machine(2))
    assert {wait.kind for wait in stall.waits} == {"member-mismatch"}


def test_a_barrier_waits_for_all() -> None:
    barrier = busy_with("barrier")
    stall = stall_of([barrier, barrier, barrier, TraceBuilder().build()], machine(4))
    assert {wait.provider for wait in stall.waits} == {(3,)}


# ---- custom programs


def test_a_wait_for_a_member_with_a_held_send_is_reported(tmp_path: Path) -> None:
    """Send first on ranks 0 and 1 (rendezvous); rank 2 waits for the message that rank 1 sends after that."""
    programs = [TraceBuilder() for _ in range(3)]
    for rank, peer in ((0, 1), (1, 0)):
        put = programs[rank].send(peer, 1000, 0)
        programs[rank].receive(peer, 1000, 0, after=[put])
        if rank == 1:
            programs[rank].send(2, 500, 5, after=[put])
    programs[2].receive(1, 500, 5)
    write_workload(Workload.of([program.build() for program in programs]), tmp_path / "program")
    on = machine(3, rendezvous=True, custom_implementations={"all_reduce": str(tmp_path / "program")})
    stall = stall_of([busy_with("all_reduce")] * 3, on)
    results = {wait.rank: (wait.kind, wait.text) for wait in stall.waits}
    assert results[2] == (
        "send-pending",
        "500 B with tag 5 from rank 1 within the all_reduce of 1 MiB, which has yet to send it",
    )
    assert results[0][0] == results[1][0] == "receive-pending"
    assert [(hop.rank, hop.waits_for) for hop in stall.knot] == [(0, 1), (1, 0)]
