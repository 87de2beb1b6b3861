"""Sends into the buffers of a collective library: messages ahead of their receives, and held messages."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from machines import ring, system

import et_sim
from et_sim.machine.presets import preset
from et_sim.run.result import Result
from et_sim.trace import TraceBuilder, Workload

MIB = 1 << 20
ROOM = 2 * MIB  # of NCCL between nodes: 8 slots of 128 KiB in each of 2 channels
SENDER, RECEIVER, RANKS = 0, 8, 16  # on two nodes
WORK_US = 2000
Message = tuple[int, int]  # bytes, tag


def exchange(
    messages: Sequence[Message], order: Sequence[int] | None = None, *, at_once: bool = False, **keys: Any
) -> Result:
    """Send messages to a node that receives them after a computation, in an order; at once or in turn."""
    found = preset(f"h100-dgx:{RANKS}")
    here, there = TraceBuilder(), TraceBuilder()
    how: dict[str, int | str] = {"concurrent": 1} if at_once else {}
    sent, received = list[int](), [there.compute("work", micros=WORK_US)]
    for number, (size, tag) in enumerate(messages):
        node = here.send(RECEIVER, size, tag=tag, name=f"send {number}", after=sent, attributes=how)
        sent = [] if at_once else [node]
    for number in order or range(len(messages)):
        size, tag = messages[number]
        node = there.receive(SENDER, size, tag=tag, name=f"receive {number}", after=received)
        received = received if at_once else [node]
    others = TraceBuilder()
    others.compute("work", micros=1)
    programs = {SENDER: here, RECEIVER: there}
    workload = Workload.of([programs.get(rank, others).build() for rank in range(RANKS)])
    described = found.system | {"library": dict(found.system["library"]) | keys}
    return et_sim.simulate(workload, system=described, network=found.network, model="flow", detail="messages")


def nodes(result: Result, kind: str) -> list[dict[str, Any]]:
    return [row for row in result.timeline.to_pylist() if row["kind"] == kind]


def sent_ns(result: Result) -> list[int]:
    return [row["sent_ns"] for row in result.table("messages").to_pylist()]


def test_sends_that_fit_into_the_buffer_go_ahead_of_their_receives() -> None:
    sends = nodes(exchange([(MIB, 0), (MIB, 1)]), "send")
    assert all(send["end_ns"] < WORK_US * 1000 for send in sends)
    assert [send["waiting_ns"] for send in sends] == [0, 0]


def test_a_send_that_is_larger_than_the_buffer_waits_for_its_receive() -> None:
    result = exchange([(ROOM + 1, 0)])
    [send], [receive] = nodes(result, "send"), nodes(result, "receive")
    assert sent_ns(result) == [WORK_US * 1000]
    assert send["waiting_ns"] == WORK_US * 1000 == receive["start_ns"]
    assert send["moving_ns"] == send["end_ns"] - WORK_US * 1000


@pytest.mark.parametrize(("first", "goes_ahead"), [(ROOM - 1, True), (ROOM, False)])
def test_a_message_without_bytes_takes_the_room_of_one(first: int, goes_ahead: bool) -> None:
    times = sent_ns(exchange([(first, 0), (0, 1)]))
    assert [time < WORK_US * 1000 for time in times] == [True, goes_ahead]


@pytest.mark.parametrize("tags", [(0, 0, 0, 0), (0, 1, 2, 3), (5, 5, 7, 7)])
def test_messages_of_all_tags_between_two_ranks_share_one_buffer(tags: tuple[int, ...]) -> None:
    result = exchange([(MIB, tag) for tag in tags])
    assert [time < WORK_US * 1000 for time in sent_ns(result)] == [True, True, False, False]
    assert [send["waiting_ns"] > 0 for send in nodes(result, "send")] == [False, False, True, False]


def test_a_held_message_that_fills_the_buffer_starts_when_it_is_empty() -> None:
    result = exchange([(ROOM, 0), (ROOM, 1)])
    assert sent_ns(result)[1] == WORK_US * 1000
    assert nodes(result, "receive")[1]["start_ns"] > WORK_US * 1000


def test_messages_that_were_held_start_in_their_order() -> None:
    result = exchange([(MIB, 0)] * 6, at_once=True)
    assert sent_ns(result) == sorted(sent_ns(result))
    assert [row["end_ns"] for row in nodes(result, "receive")] == sorted(
        row["end_ns"] for row in nodes(result, "receive")
    )


def test_a_receive_that_is_posted_first_lets_its_message_pass_those_that_are_held() -> None:
    """Post the receives in the order 2, 0, 1; only message 0 fits into the buffer."""
    result = exchange([(ROOM, 0), (ROOM, 1), (ROOM + 1, 2)], order=[2, 0, 1], at_once=True)
    assert result.finish_ns[RECEIVER] > WORK_US * 1000
    assert sorted(sent_ns(result)) == [0, WORK_US * 1000, WORK_US * 1000]


def test_a_message_that_waited_is_copied_at_the_speed_of_memory() -> None:
    memory = preset(f"h100-dgx:{RANKS}").system["local-mem-bw"]
    for size in (4096, MIB, ROOM):
        [receive] = nodes(exchange([(size, 0)]), "receive")
        assert receive["end_ns"] - receive["start_ns"] == int(2 * size / memory)


def arrived_and_copied_ns(count: int, work_ns: int) -> tuple[int, list[int]]:
    """Return when the last of messages sent in turn arrives, and how long each is copied."""
    found, here, there = preset(f"h100-dgx:{RANKS}"), TraceBuilder(), TraceBuilder()
    sent = list[int]()
    for _ in range(count):
        sent = [here.send(RECEIVER, MIB, after=sent)]
    work = there.compute("work", nanos=work_ns)
    for _ in range(count):
        there.receive(SENDER, MIB, after=[work], attributes={"concurrent": 1})
    others = TraceBuilder()
    others.compute("work", micros=1)
    programs = {SENDER: here, RECEIVER: there}
    workload = Workload.of([programs.get(rank, others).build() for rank in range(RANKS)])
    result = et_sim.simulate(
        workload, system=found.system, network=found.network, model="flow", detail="messages"
    )
    arrived = result.table("messages").to_pylist()[-1]["arrived_ns"]
    return arrived, [row["end_ns"] - work_ns for row in nodes(result, "receive")]


def test_the_last_message_to_arrive_is_copied_for_no_longer_than_it_has_waited() -> None:
    """Check that messages that arrived before the last one have waited for longer than a copy takes."""
    copy_ns = int(2 * MIB / preset(f"h100-dgx:{RANKS}").system["local-mem-bw"])
    for count in (1, 2):
        arrived, copied = arrived_and_copied_ns(count, WORK_US * 1000)
        assert copied == [copy_ns] * count
        for waited in (100, copy_ns - 1, copy_ns + 1):
            _, copied = arrived_and_copied_ns(count, arrived + waited)
            assert copied == [copy_ns] * (count - 1) + [min(waited, copy_ns)]


def test_direct_transfers_never_start_before_their_receives() -> None:
    result = exchange([(1, 0), (MIB, 1)], buffers={"direct": True})
    assert min(sent_ns(result)) == WORK_US * 1000


def test_without_a_library_no_send_waits() -> None:
    here, there = TraceBuilder(), TraceBuilder()
    here.send(1, 1 << 30, tag=0)
    there.receive(0, 1 << 30, tag=0, after=[there.compute("work", micros=WORK_US)])
    workload = Workload.of([here.build(), there.build()])
    result = et_sim.simulate(
        workload, system=system(profile="corrected"), network=ring(2), model="link", detail="messages"
    )
    assert sent_ns(result) == [0]


def test_no_more_bytes_run_ahead_of_receives_than_the_buffer_holds() -> None:
    for seed in range(6):
        draw = Random(seed)
        messages = [(draw.choice((1000, MIB // 3, MIB, ROOM, 3 * MIB)), draw.randint(0, 3)) for _ in range(8)]
        result = exchange(messages, at_once=draw.random() < 0.7)
        rows = result.table("messages").to_pylist()
        early = [row["bytes"] for row in rows if row["sent_ns"] < WORK_US * 1000]
        assert sum(early) <= ROOM
        assert len(rows) == len(messages)


def test_a_held_message_starts_when_nothing_else_is_left_to_happen() -> None:
    """Post the receive of the second message first; its sender sends it after the first."""
    result = exchange([(ROOM + 1, 3), (8, 4)], order=[1, 0])
    assert sent_ns(result)[0] == WORK_US * 1000
    assert (result.finish_ns > 0).all()


def test_held_messages_of_all_pairs_start_together_when_nothing_else_is_left_to_happen() -> None:
    found, programs = preset(f"h100-dgx:{RANKS}"), [TraceBuilder() for _ in range(RANKS)]
    for rank, build in enumerate(programs):
        peer = (rank + RECEIVER) % RANKS
        if rank < RECEIVER:
            build.send(peer, 8, tag=4, after=[build.send(peer, ROOM + 1, tag=3)])
        else:
            build.receive(peer, ROOM + 1, tag=3, after=[build.receive(peer, 8, tag=4)])
    described = {"system": found.system, "network": found.network, "model": "flow", "detail": "messages"}
    workload = Workload.of([build.build() for build in programs])
    result = et_sim.simulate(workload, **described, fold=False)
    rows = result.table("messages").to_pylist()
    assert {row["sent_ns"] for row in rows if row["bytes"] == ROOM + 1} == {0}


def in_a_circle(ranks: int, sizes: Sequence[int], others_us: int = 1) -> Workload:
    """Send messages to the next rank of a circle, one after the other, and then receive those of the last."""
    programs = [TraceBuilder() for _ in range(RANKS)]
    for rank, build in enumerate(programs):
        if rank >= ranks:
            build.compute("other work", micros=others_us)
            continue
        last = list[int]()
        for tag, size in enumerate(sizes):
            last = [build.send((rank + 1) % ranks, size, tag=tag, after=last)]
        for tag, size in enumerate(sizes):
            last = [build.receive((rank - 1) % ranks, size, tag=tag, after=last)]
    return Workload.of([build.build() for build in programs])


@pytest.mark.parametrize("model", ["flow", "link", "analytical"])
@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("ranks", [2, 3, RANKS])
def test_ranks_that_send_in_a_circle_before_they_receive_start_at_once(
    ranks: int, fold: bool, model: str
) -> None:
    """Check that the time does not depend on other ranks."""
    found, finish = preset(f"h100-dgx:{RANKS}"), []
    for others_us in (1, 1_000_000):
        result = et_sim.simulate(
            in_a_circle(ranks, [64 * MIB, 1, 64 * MIB], others_us),
            system=found.system | {"library": dict(found.system["library"]) | {"buffers": {"slots": 1}}},
            network=found.network,
            model=model,
            fold=fold,
            detail="messages",
        )
        finish.append(result.finish_ns[:ranks].tolist())
        assert sorted(sent_ns(result))[:ranks] == [0] * ranks
    assert finish[0] == finish[1]


def test_a_message_that_starts_beyond_the_buffer_may_take_others_along() -> None:
    """Send a tiny message, after which a rank posts a receive while others still wait for their turn."""
    found = preset("h100-dgx:8")
    programs = [TraceBuilder() for _ in range(8)]
    for rank in range(3):
        build, small = programs[rank], 1 if rank == 0 else MIB
        first = build.send((rank + 1) % 3, 128 * MIB, tag=0)
        second = build.send((rank + 1) % 3, small, tag=1, after=[first])
        for tag, size in ((0, 128 * MIB), (1, 1 if rank == 1 else MIB)):
            build.receive((rank - 1) % 3, size, tag=tag, after=[second])
    for build in programs[3:]:
        build.compute("other work", micros=1)
    workload = Workload.of([build.build() for build in programs])
    for model in ("flow", "link", "analytical"):
        result = et_sim.simulate(workload, system=found.system, network=found.network, model=model)
        assert (result.finish_ns > 0).all()


def pipeline(stages: int, micro_batches: int, slow: int, work_us: int, slow_us: int, size: int) -> Workload:
    """Pass micro-batches forward through stages, each with a tag of its own."""
    traces = []
    for stage in range(stages):
        build, last = TraceBuilder(), list[int]()
        for number in range(micro_batches):
            after = last
            if stage > 0:
                after = [*last, build.receive(stage - 1, size, tag=number)]
            last = [build.compute("pass", micros=slow_us if stage == slow else work_us, after=after)]
            if stage + 1 < stages:
                build.send(stage + 1, size, tag=number, after=last)
        traces.append(build.build())
    return Workload.of(traces)


@pytest.mark.parametrize("model", ["flow", "link", "analytical"])
def test_a_pipeline_takes_at_least_its_micro_batches_times_its_slow_stage(model: str) -> None:
    for seed in range(5):
        draw = Random(seed)
        slow, count, size = (
            draw.randrange(8),
            draw.randint(2, 9),
            draw.choice((1000, MIB, 64 * MIB, 256 * MIB)),
        )
        found = preset("h100-dgx:8")
        workload = pipeline(8, count, slow, 10, 700, size)
        took = et_sim.simulate(workload, system=found.system, network=found.network, model=model).makespan_ns
        filled = np.sum([10_000] * 7)
        assert took >= count * 700_000 + filled
        assert took <= count * 700_000 + filled + 2 * (count + 8) * (size / 400 + 5000)
