"""The position of a new chunk among those that wait in its queue, and the chunk admitted over the limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import pytest

from et_sim.engine.collectives import queues
from et_sim.engine.collectives.queues import ALL_GATHER, REDUCE_SCATTER
from et_sim.engine.state.run import NONE, QUEUE_ORDER
from et_sim.plan.records import WaitingOrder

OTHER = -7  # an operation that no order but that of priorities looks at


class Chunk(NamedTuple):
    priority: int = 0
    size: int = 0
    left: int = 0
    operation: int = ALL_GATHER
    started: int = 0


Place = Callable[[int, Sequence[Chunk], Chunk], int]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    """Return a function (order, queued chunks, new one) -> the chunk behind the new one; NONE: it is last."""

    def found(order: int, queued: Sequence[Chunk], new: Chunk) -> int:
        chunks = [*queued, new]
        for name, figure in (("priority_of", "priority"), ("_operation", "operation")):
            monkeypatch.setattr(queues, name, lambda _, row, figure=figure: getattr(chunks[row], figure))
        monkeypatch.setattr(queues, "_bytes", lambda _, row: chunks[row].size)
        monkeypatch.setattr(queues, "_phases_left", lambda _, row: chunks[row].left)
        last = len(queued) - 1
        waiting = next((row for row, chunk in enumerate(queued) if not chunk.started), NONE)
        visits = [
            SimpleNamespace(queue=0, next=row + 1 if row < last else NONE) for row in range(len(chunks))
        ]
        queue = SimpleNamespace(head=0 if queued else NONE, tail=last if queued else NONE, waiting=waiting)
        run: Any = SimpleNamespace(
            plan=SimpleNamespace(settings={QUEUE_ORDER: order}), queues=[queue], visits=visits, chunks=chunks
        )
        return int(queues.place_in_queue(run, len(queued)))

    return found


def test_priorities_are_served_first_and_equal_ones_in_the_order_of_their_arrival(place: Place) -> None:
    for order in (queues.PRIORITY, queues.SMALLEST_FIRST):
        queued = [Chunk(9, started=1), *(Chunk(priority, operation=OTHER) for priority in (5, 5, 3))]
        of = {priority: place(order, queued, Chunk(priority, operation=OTHER)) for priority in (9, 5, 4, 3)}
        assert of == {9: 1, 5: 3, 4: 3, 3: NONE}
    assert place(queues.PRIORITY, [], Chunk()) == NONE
    assert place(queues.PRIORITY, [Chunk(started=1)], Chunk(5)) == NONE


def test_chunks_wait_behind_smaller_ones_and_before_those_of_their_size(place: Place) -> None:
    queued = [Chunk(size=1, left=2, started=1), *(Chunk(size=size, left=2) for size in (3, 5, 5, 7))]
    for order in (queues.SMALLEST_FIRST, queues.SMALLEST_INPUT_FIRST):
        of = {size: place(order, queued, Chunk(size=size, left=2)) for size in (2, 3, 5, 6, 8)}
        assert of == {2: 1, 3: 1, 5: 2, 6: 4, 8: NONE}
    assert place(queues.SMALLEST_FIRST, queued, Chunk(size=2, left=1)) == NONE
    assert place(queues.SMALLEST_INPUT_FIRST, queued, Chunk(size=2, left=1)) == 1


def test_chunks_wait_behind_those_with_fewer_phases_left(place: Place) -> None:
    queued = [Chunk(left=1), Chunk(left=2), Chunk(left=2), Chunk(left=4)]
    of = {
        left: place(int(WaitingOrder.FEWEST_PHASES_FIRST), queued, Chunk(left=left))
        for left in (0, 1, 2, 3, 4, 5)
    }
    assert of == {0: 0, 1: 0, 2: 1, 3: 3, 4: 3, 5: NONE}


def test_reduce_scatters_and_all_gathers_take_turns(place: Place) -> None:
    def of(*queued: Chunk, priority: int = 0) -> int:
        return place(queues.ALTERNATING, queued, Chunk(priority))

    gather, scatter = Chunk(), Chunk(operation=REDUCE_SCATTER)
    assert of(gather) == 0  # nothing has started
    assert (
        of(gather._replace(started=1), scatter, gather) == NONE
    )  # it passes entries that differ from the one before
    assert of(scatter._replace(started=1), scatter, gather) == NONE
    assert of(gather._replace(started=1), gather, gather) == 2
    assert of(scatter._replace(started=1), scatter, scatter) == 2
    assert of(Chunk(priority=2), Chunk(priority=1), Chunk(priority=1), priority=1) == 1


class Queues(NamedTuple):
    """Queues in which chunks wait, the chunks that started, and the queues that are to admit one next."""

    run: Any
    started: list[int]
    planned: list[int]

    def waiting(self, queue: int) -> list[int]:
        """Return the chunks that wait in a queue, in their order."""
        at, found = self.run.queues[queue].waiting, []
        while at != NONE:
            found.append(at)
            at = self.run.visits[at].next
        return found


Blocked = Callable[[Sequence[Sequence[int]]], Queues]


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Blocked:
    """Return queues of chunks that wait in the order of the numbers in which they came."""

    def made(sequences: Sequence[Sequence[int]]) -> Queues:
        started, planned = list[int](), list[int]()
        chunks = [number for queued in sequences for number in queued]
        run: Any = SimpleNamespace(
            clock=[SimpleNamespace(now=0)],
            chunks=chunks,
            queues=[],
            visits=[SimpleNamespace() for _ in chunks],
        )
        rows = iter(range(len(chunks)))
        for queue, queued in enumerate(sequences):
            run.queues.append(SimpleNamespace(head=NONE, tail=NONE, waiting=NONE, running=1, started=0))
            for row in islice(rows, len(queued)):
                run.visits[row].queue = queue
                queues._link(run, row, NONE)
        monkeypatch.setattr(queues, "observe", MagicMock())
        monkeypatch.setattr(queues, "sequence_of", lambda number: number)
        monkeypatch.setattr(queues, "start_phase", lambda _, row: started.append(row))
        monkeypatch.setattr(queues, "schedule", lambda _run, _now, _kind, row, *_: planned.append(row))
        return Queues(run, started, planned)

    return made


def test_the_oldest_waiting_chunk_is_admitted_over_the_limit_and_the_others_keep_their_order(
    blocked: Blocked,
) -> None:
    for numbers, oldest in (([5, 3, 8, 4], 1), ([6, 4, 4], 1), ([2, 3, 4], 0), ([7, 6, 5], 2), ([1], 0)):
        found = blocked([numbers])
        queues.admit_over_limit(found.run, 0)
        assert found.started == [oldest]
        assert found.waiting(0) == [row for row in range(len(numbers)) if row != oldest]
        assert found.run.queues[0].head == oldest
        assert found.run.queues[0].running == 2


def test_every_blocked_queue_admits_one_chunk(
    blocked: Blocked,
) -> None:
    found = blocked([[9, 8], [7], [], [3, 4]])
    found.run.plan = SimpleNamespace(settings={queues.TWO_WAY_QUEUES: 1})
    assert queues.break_queue_deadlock(found.run)
    for queue in found.planned:  # grows while each admission plans the next one
        queues.admit_over_limit(found.run, queue)
    assert found.planned == [0, 1, 3]
    assert found.started == [1, 2, 3]
    assert [found.waiting(queue) for queue in range(4)] == [[0], [], [], [4]]


def test_no_chunk_is_admitted_where_none_waits_or_queues_may_block(
    blocked: Blocked,
) -> None:
    for sequences, two_way, is_admitted in (
        ([[], []], 1, False),
        ([[], [1]], 0, False),
        ([[], [1]], 1, True),
    ):
        found = blocked(sequences)
        found.run.plan = SimpleNamespace(settings={queues.TWO_WAY_QUEUES: two_way})
        assert queues.break_queue_deadlock(found.run) == is_admitted
        assert bool(found.planned) == is_admitted


def test_a_queue_that_is_empty_by_the_time_of_its_admission_passes_it_on(
    blocked: Blocked,
) -> None:
    found = blocked([[], [1]])
    queues.admit_over_limit(found.run, 0)
    assert (found.started, found.planned) == ([], [1])
