"""The shared bus by hand: the order of senders, the time of a transfer, and requests processed at a time."""

from __future__ import annotations

import heapq
from types import SimpleNamespace
from typing import Any

import pytest

from et_sim.engine.collectives import bus
from et_sim.engine.collectives.bus import INNER_MEMORY, INNER_NPU, MEMORY, NPU
from et_sim.engine.state.kinds import BUS_PROCESSED, BUS_RECEIVED, BUS_SENT
from et_sim.engine.state.run import NONE

LATENCY_NS, OVERHEAD_NS, GAP_NS, GAP_PER_BYTE, REDUCTION_NS = 7, 3, 40, 0.5, 11
SIDES, FIFOS = 4, 3


class Silent:
    """An observer that records nothing."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_: 0


class Sides:
    """The four sides of one actor, and their events in the order of time."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int, int, int]] = []
        self.sent: list[tuple[int, int]] = []  # (side, when)
        self.received: list[int] = []
        self.processed: list[int] = []
        side = {"state": bus.FREE, "before": bus.FREE, "streak": 0, "last_ns": 0, "processing": 0}
        self.run: Any = SimpleNamespace(
            bus_sides=[SimpleNamespace(**side) for _ in range(SIDES)],
            bus_fifos=[SimpleNamespace(head=NONE, tail=NONE) for _ in range(SIDES * FIFOS)],
            bus_requests=[],
            clock=[SimpleNamespace(now=0)],
            plan=SimpleNamespace(
                bus=[
                    SimpleNamespace(
                        latency_ns=LATENCY_NS,
                        overhead_ns=OVERHEAD_NS,
                        gap_ns=GAP_NS,
                        gap_per_byte=GAP_PER_BYTE,
                        reduction_delay_ns=REDUCTION_NS,
                    )
                ]
            ),
        )

    def schedule(self, run: Any, _actor: int, delay: int, kind: int, side: int, *_: int) -> None:
        heapq.heappush(self.events, (run.clock[0].now + delay, len(self.sent) + len(self.events), kind, side))

    def queue(self, side: int, size: int, *, reduces: int = 0) -> None:
        """Add a request to those that a side is to send."""
        self.run.bus_requests.append(
            SimpleNamespace(bytes=size, next=NONE, outer=NONE, reduces=reduces, returns=0)
        )
        bus._queue_send(self.run, side, len(self.run.bus_requests) - 1)

    def play(self) -> None:
        """Let everything happen."""
        for side in range(SIDES):
            bus.consider_sending(self.run, side)
        while self.events:
            now, _, kind, side = heapq.heappop(self.events)
            self.run.clock[0].now = now
            if kind == BUS_SENT:
                self.sent.append((side, now))
                bus.end_sending(self.run, side)
            elif kind == BUS_RECEIVED:
                self.received.append(now)
                bus.end_receiving(self.run, side)
            else:
                assert kind == BUS_PROCESSED
                self.processed.append(now)
                bus.end_processing(self.run, side)
            bus.consider_sending(self.run, side)


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> Sides:
    made = Sides()
    monkeypatch.setattr(bus, "observe", Silent())
    monkeypatch.setattr(bus, "schedule_own", made.schedule)
    monkeypatch.setattr(bus, "_inner_trip", lambda *_: None)
    return made


def test_requests_of_a_side_begin_the_gap_after_the_one_before(sides: Sides) -> None:
    for size in (101, 201, 1):
        sides.queue(NPU, size)
    sides.play()
    first = OVERHEAD_NS + 100 // 2
    assert sides.sent == [(NPU, first), (NPU, first + GAP_NS + 100), (NPU, first + 2 * GAP_NS + 100)]
    assert sides.received == [when + LATENCY_NS + OVERHEAD_NS for _, when in sides.sent]


def test_the_inner_bus_has_a_gap_per_byte_of_its_own(sides: Sides) -> None:
    sides.queue(INNER_MEMORY, 100_001)
    sides.play()
    assert sides.sent == [(INNER_MEMORY, OVERHEAD_NS + 380)]
    assert sides.run.bus_sides[INNER_NPU].state == bus.FREE


@pytest.mark.parametrize("side", [NPU, MEMORY])
def test_a_side_that_has_sent_nine_lets_its_waiting_partner_send(sides: Sides, side: int) -> None:
    for _ in range(20):
        sides.queue(side, 1)
    partner = MEMORY if side == NPU else NPU
    bus.consider_sending(sides.run, side)
    sides.queue(partner, 1)
    sides.queue(partner, 1)
    sides.play()
    assert [sender for sender, _ in sides.sent] == [*[side] * 9, *[partner] * 2, *[side] * 11]
    assert [when for _, when in sides.sent[:9]] == [OVERHEAD_NS + GAP_NS * number for number in range(9)]


def test_a_side_sends_as_many_as_it_has_while_its_partner_has_nothing(sides: Sides) -> None:
    for _ in range(20):
        sides.queue(NPU, 1)
    sides.play()
    assert [sender for sender, _ in sides.sent] == [NPU] * 20


def test_a_side_processes_one_request_at_a_time(sides: Sides) -> None:
    """Queue two requests that arrive before the first is processed; every whole 100 bytes take a delay."""
    for size in (200_000, 1_999):
        sides.queue(NPU, size, reduces=1)
    sides.play()
    first = sides.received[0] + 2_000 * REDUCTION_NS + 50
    assert sides.received[1] < first
    assert sides.processed == [first, first + 19 * REDUCTION_NS + 50]
