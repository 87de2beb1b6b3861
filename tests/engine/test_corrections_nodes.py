"""Corrections of single messages and of nodes of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from correction_examples import EXAMPLES, Example
from machines import finish_times, network, sends, simulate, system

from et_sim.engine.stall import explain_stall
from et_sim.trace import TraceBuilder, Workload, write_workload

MIB = 1 << 20
RING = network(["Ring"], [4])
SERIAL, LATENCY = 19531, 500  # of 1 MiB on RING


def corrected(*names: str, **keys: Any) -> dict[str, Any]:
    return system(corrections=dict.fromkeys(names, True), **keys)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.correction.value)
def test_every_example_takes_the_times_it_states(example: Example) -> None:
    assert example.times(corrected=False) == example.reference
    assert example.times(corrected=True) == example.corrected


def exchange() -> list[TraceBuilder]:
    """Rank 0 sends twice to rank 1, then computes for a microsecond."""
    sender, receiver = TraceBuilder(), TraceBuilder()
    last = [sender.send(1, MIB, after=[sender.send(1, MIB)])]
    sender.compute(micros=1, after=last)
    receiver.receive(0, MIB)
    receiver.receive(0, MIB)
    return [sender, receiver, TraceBuilder(), TraceBuilder()]


@pytest.mark.parametrize("model", ["analytical", "link"])
def test_an_eager_send_ends_when_its_last_byte_has_left(model: str) -> None:
    times = finish_times(exchange(), RING, corrected("eager-sends"), model=model)
    assert times[:2] == [2 * SERIAL + 1000, 2 * SERIAL + LATENCY]


def test_an_eager_send_waits_for_its_link() -> None:
    """Send behind the first packet of the all-reduce, a quarter, which takes the link first."""
    builders = [TraceBuilder() for _ in range(4)]
    for rank, build in enumerate(builders):
        build.collective("all_reduce", MIB)
        if rank == 0:
            build.send(1, MIB, after=[build.compute(micros=1, cpu=True)])
        if rank == 1:
            build.receive(0, MIB)
    switches = corrected("eager-sends", "concurrent-communication")
    result = simulate(builders, RING, switches, model="link")
    (send,) = [row for row in result.timeline.to_pylist() if row["kind"] == "send"]
    assert (send["start_ns"], send["end_ns"]) == (1000, 10 + SERIAL // 4 + SERIAL)


@pytest.mark.parametrize("model", ["analytical", "link"])
def test_an_eager_send_to_oneself_ends_at_once(model: str) -> None:
    build = TraceBuilder()
    build.send(0, MIB)
    build.receive(0, MIB)
    builders = [build, TraceBuilder(), TraceBuilder(), TraceBuilder()]
    assert finish_times(builders, RING, corrected("eager-sends"), model=model) == [0] * 4


@pytest.mark.parametrize("model", ["analytical", "link"])
def test_eager_sends_wait_for_the_request_of_rendezvous(model: str) -> None:
    builders = exchange()
    keys = {"rendezvous-protocol": 1}
    request = LATENCY + 152  # 8192 bytes
    times = finish_times(builders, RING, corrected("eager-sends", **keys), model=model)
    assert times[0] == request + 2 * SERIAL + 1000
    assert times[1] == request + 2 * SERIAL + LATENCY


def test_the_whole_path_equals_the_link_model_on_idle_fully_connected_dimensions() -> None:
    square = network(["FullyConnected"] * 3, [2, 2, 2])
    builders = sends(8, [(0, 7, MIB)])
    whole = corrected("whole-path", dimensions=3)
    expected = [3 * (LATENCY + SERIAL), *[0] * 6, 3 * (LATENCY + SERIAL)]
    assert finish_times(builders, square, whole) == expected
    assert finish_times(builders, square, system(dimensions=3), model="link") == expected


def test_the_whole_path_serialises_once_on_a_ring_and_the_link_model_on_every_link() -> None:
    builders = sends(4, [(0, 2, MIB)])
    assert finish_times(builders, RING, corrected("whole-path"))[2] == 2 * LATENCY + SERIAL
    assert finish_times(builders, RING, model="link")[2] == 2 * (LATENCY + SERIAL)


def test_sends_take_turns_and_so_does_remote_memory_but_not_with_each_other() -> None:
    memory = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 100, "remote-mem-bw": 3}
    builders = [TraceBuilder() for _ in range(4)]
    for rank, build in enumerate(builders):
        for _ in range(2):
            build.load(30000)
            build.send((rank + 1) % 4, MIB)
            build.receive((rank - 1) % 4, MIB)
    times = finish_times(builders, RING, corrected("concurrent-communication"), memory=memory)
    assert times == [2 * (SERIAL + LATENCY)] * 4


def test_collectives_of_two_groups_overlap() -> None:
    groups = {"1": [0, 1], "2": [2, 3], "3": [0, 1]}
    builders = [TraceBuilder() for _ in range(4)]
    for rank, build in enumerate(builders):
        build.collective("all_reduce", MIB, "1" if rank < 2 else "2")
        if rank < 2:
            build.collective("all_reduce", MIB, "3")
    double, _, single, _ = finish_times(builders, RING, groups=groups)
    assert double == 2 * single
    together = finish_times(builders, RING, corrected("concurrent-communication"), groups=groups)
    assert together == [single] * 4


def test_nodes_that_are_ready_at_once_start_at_once() -> None:
    """Run hundreds of collectives, more than any pool holds at the beginning."""
    build = TraceBuilder()
    for _ in range(600):
        build.collective("all_gather", 1 << 10)
    result = simulate([build] * 4, RING, corrected("concurrent-communication"))
    assert result.is_complete
    assert set(result.timeline["start_ns"].to_pylist()) == {0}
    assert set(result.timeline["lane"].to_pylist()) == {"collective"}


def test_recorded_collectives_still_take_turns() -> None:
    build = TraceBuilder()
    for _ in range(2):
        build.collective("broadcast", 1 << 10, micros=5)
    result = simulate([build] * 4, RING, corrected("concurrent-communication"))
    assert result.makespan_ns == 10000
    assert set(result.timeline["lane"].to_pylist()) == {"communication"}


def test_instant_nodes_release_whole_chains_in_one_pass() -> None:
    build = TraceBuilder()
    build.compute(micros=7, cpu=True)
    last = build.invalid()
    for _ in range(5):
        last = build.invalid(after=[last])
    build.compute(micros=2, after=[last])
    assert finish_times([build] * 4, RING) == [9000] * 4
    assert finish_times([build] * 4, RING, corrected("issue-at-once")) == [7000] * 4


MATCHING = ("match-by-program", "concurrent-communication", "two-way-queues")


def orders(*of_rank: tuple[int, ...]) -> list[TraceBuilder]:
    """Return independent all-reduces of these sizes in MiB, in ascending node id."""
    builders = []
    for sizes in of_rank:
        builders.append(TraceBuilder())
        for size in sizes:
            builders[-1].collective("all_reduce", size * MIB)
    return builders


@pytest.mark.parametrize("model", ["analytical", "link"])
def test_ranks_may_issue_the_same_collectives_in_any_order(model: str) -> None:
    builders = orders((1, 2, 3), (3, 2, 1), (2, 3, 1), (1, 3, 2))
    assert finish_times(builders, RING, model=model) == [-1] * 4
    times = finish_times(builders, RING, corrected(*MATCHING), model=model)
    assert min(times) > 0
    keys = {"profile": "corrected", "active-chunks-per-dimension": 3, "preferred-dataset-splits": 4}
    assert min(finish_times(builders, RING, system(**keys), model=model)) > 0


def test_like_collectives_meet_in_program_order() -> None:
    """Delay the first of two like collectives on rank 0: no other rank matches it with the second one."""
    builders = [TraceBuilder() for _ in range(4)]
    for rank, build in enumerate(builders):
        late = [build.compute(micros=1000, cpu=True)] if rank == 0 else []
        build.collective("all_reduce", MIB, name="first", after=late)
        build.collective("all_reduce", MIB, name="second")
    result = simulate(builders, RING, system(profile="corrected", **{"active-chunks-per-dimension": 2}))
    rows = [row for row in result.timeline.to_pylist() if row["kind"] == "all_reduce"]
    numbers = {name: {row["sequence"] for row in rows if row["name"] == name} for name in ("first", "second")}
    assert numbers == {"first": {0}, "second": {1}}
    second = [row["end_ns"] for row in rows if row["name"] == "second"]
    assert max(second) < 1_000_000


def test_program_order_is_that_of_dependencies_where_these_run_against_the_ids() -> None:
    builders = [TraceBuilder() for _ in range(4)]
    for rank, build in enumerate(builders):
        ids = (7, 3) if rank % 2 else (3, 7)
        build.collective("all_reduce", MIB, node_id=ids[0])
        build.collective("all_reduce", MIB, node_id=ids[1], after=[ids[0]])
    assert finish_times(builders, RING, system(profile="corrected")) == [2 * 79540] * 4


def test_a_collective_that_one_member_lacks_is_named() -> None:
    result = simulate(orders((1, 2), (2, 1), (1, 2), (1, 3)), RING, system(profile="corrected"))
    report = explain_stall(result.outcome, result.workload).as_error().report
    assert "in place of the all_reduce of 2 MiB" in report
    assert "is on ranks 0-2 all_reduce of 2 MiB" in report
    assert 'and on rank 3 all_reduce of 3 MiB (node 1 "' in report
    assert "all_reduce of 1 MiB" not in report


def test_a_member_that_will_never_start_a_collective_is_named() -> None:
    result = simulate(orders((1, 2), (2, 1), (1, 2), (1,)), RING, system(profile="corrected"))
    report = explain_stall(result.outcome, result.workload).as_error().report
    assert "rank 3 (<python>) has 1 collective in the group of all ranks, but ranks 0-2 have 2" in report
    assert "ranks 0-2 wait for rank 3 to issue the all_reduce of 2 MiB, which is not in the trace" in report


def test_equal_custom_collectives_run_side_by_side(tmp_path: Path) -> None:
    """Check that each collective counts its own nodes."""
    programs = []
    for place in range(2):
        program = TraceBuilder()
        moved = [program.send(1 - place, 1000), program.receive(1 - place, 1000)]
        program.compute(micros=3, after=moved)
        programs.append(program.build())
    write_workload(Workload.of(programs), tmp_path / "exchange")
    keys = {
        "all-reduce-implementation-custom": [str(tmp_path / "exchange")],
        "profile": "corrected",
        "corrections": {"port-bandwidth": False},  # their messages cross the link together
    }
    build = TraceBuilder()
    for _ in range(3):
        build.collective("all_reduce", 1000)
    pair = network(["FullyConnected"], [2])
    for active, turns in ((1, 3), (2, 2), (3, 1)):
        times = finish_times([build] * 2, pair, system(**keys, **{"active-chunks-per-dimension": active}))
        assert times == [turns * (518 + 3000)] * 2
