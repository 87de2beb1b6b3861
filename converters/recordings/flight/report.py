"""The report on a hang: which rank never came to which operation of which group, on which line of Python.

Ranks that wait are followed to those that they wait for, until a rank waits for none: it is at fault. If the
chain closes, ranks issue operations of several groups in different orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from converters.recordings.flight.clocks import ClockBounds, clock_bounds
from converters.recordings.flight.dumps import Dump, Entry
from converters.recordings.flight.groups import (
    DEAD,
    MISSING,
    ORDER,
    SIZE,
    STUCK,
    Fault,
    fault_of,
    operations,
)
from converters.recordings.flight.messages import Unanswered, unanswered
from et_sim.basics.units import format_ns, format_ranks, plural, ranks_text

MOST_LINES = 10
CROSSED, MESSAGE, NONE = "crossed", "message", "none"
REMEDIES = {
    MISSING: "see what {ranks} did after the last operation; each member of a group must come to each",
    ORDER: "let all members of the group issue the same operations in the same order",
    SIZE: "let all members of the group pass equal sizes, as with padded batches",
    DEAD: "see the log of {ranks}: a process that ended, or a host that failed",
    STUCK: "all came, so that the program is right: check links, NICs and devices, and NCCL's log",
    CROSSED: "let these ranks issue the operations of their groups in one order",
    MESSAGE: "post the receive, or do not send: each message needs both",
    NONE: "the dumps were made while the job ran, or its buffers were too short (TORCH_FR_BUFFER_SIZE)",
}


class HangReport(Struct, frozen=True):
    """A hang in words, and as plain values."""

    kind: str
    cause: str
    ranks: tuple[int, ...]  # at fault
    group: str
    number: int
    operation: str
    of: int  # ranks in all
    waits: tuple[str, ...]
    last: tuple[str, ...]  # the last operations of the ranks at fault
    notes: tuple[str, ...]

    @property
    def remedy(self) -> str:
        """Return what to do."""
        return REMEDIES[self.kind].format(ranks=ranks_text(self.ranks))

    def lines(self) -> Iterator[str]:
        """Yield the report."""
        yield self.cause
        for title, listed in (("Waiting:", self.waits), ("Last operations:", self.last)):
            if listed:
                yield title
                yield from (f"  {line}" for line in listed[:MOST_LINES])
            if len(listed) > MOST_LINES:
                yield f"  … and {len(listed) - MOST_LINES} more"
        yield "Remedies:"
        yield f"  {self.remedy}"
        yield from (f"note: {note}" for note in self.notes)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "kind": self.kind,
            "cause": self.cause,
            "ranks": format_ranks(self.ranks),
            "group": self.group,
            "sequence": self.number,
            "operation": self.operation,
            "waits": list(self.waits),
            "last": list(self.last),
            "remedies": [self.remedy],
            "notes": list(self.notes),
        }


def explain(dumps: Sequence[Dump]) -> HangReport:
    """Return the report on the dumps of all ranks."""
    groups = operations(dumps)
    world = frozenset(dump.rank for dump in dumps).union(*(group.members for group in groups))
    without = world - {dump.rank for dump in dumps} | _gaps(dumps)
    faults = [fault for group in groups if (fault := fault_of(group, without)) is not None]
    waits = [line for fault in faults for line in _wait_lines(fault)]
    lost = unanswered(dumps, groups)
    waits += [message.line for message in lost]
    clocks = clock_bounds(dumps, groups)
    notes = tuple(_notes(dumps, groups, without, clocks))
    chosen, is_crossed = _root(faults)
    if lost and (chosen is None or set(chosen.ranks) & {message.rank for message in lost}):
        return _of_message(lost[0], len(world | without), tuple(waits), notes)
    if chosen is None:
        cause = f"no rank of {len(world | without)} waits: all recorded operations are over"
        return HangReport(NONE, cause, (), "", 0, "", len(world), (), (), notes)
    stuck = {rank for fault in faults for rank in fault.waiting}
    entry = next(iter(chosen.group.present(chosen.number).values()))
    ranks = _knot(faults) if is_crossed else chosen.ranks
    cause = (
        f"{len(stuck)} of {len(world | without)} ranks wait: {_cause(chosen, ranks, is_crossed=is_crossed)}"
    )
    return HangReport(
        CROSSED if is_crossed else chosen.kind,
        cause,
        ranks,
        chosen.group.label,
        chosen.number,
        entry.operation,
        len(world),
        tuple(waits),
        tuple(_last_lines(dumps, ranks, clocks)),
        notes,
    )


def _gaps(dumps: Sequence[Dump]) -> frozenset[int]:
    """Return the ranks below the highest one that left no dump."""
    ranks = {dump.rank for dump in dumps}
    return frozenset(range(max(ranks) + 1)) - ranks if max(ranks) < 100 * len(ranks) else frozenset()


def _root(faults: Sequence[Fault]) -> tuple[Fault | None, bool]:
    """Return the fault that others follow from, and whether faults wait for each other in a circle."""
    certain = [fault for fault in faults if fault.kind in (ORDER, SIZE)]
    if certain or not faults:
        return (certain[0] if certain else None), False
    stands_in = {rank: fault for fault in reversed(faults) for rank in fault.waiting}
    fault, seen = faults[0], list[int]()
    while id(fault) not in seen:
        seen.append(id(fault))
        further = next((stands_in[rank] for rank in fault.ranks if rank in stands_in), None)
        if further is None or fault.kind == DEAD:
            return fault, False
        if idle := tuple(rank for rank in fault.ranks if rank not in stands_in):
            return replace(fault, ranks=idle), False
        fault = further
    return fault, True


def _knot(faults: Sequence[Fault]) -> tuple[int, ...]:
    """Return the ranks that wait for others and are waited for."""
    waiting = {rank for fault in faults for rank in fault.waiting}
    return tuple(sorted({rank for fault in faults for rank in fault.ranks if rank in waiting}))


def _cause(fault: Fault, ranks: tuple[int, ...], *, is_crossed: bool) -> str:
    """Return the fault in words."""
    present = fault.group.present(fault.number)
    others = ranks_text(fault.waiting)
    where = f"{next(iter(present.values())).operation} {fault.number} of {fault.group.label}"
    if is_crossed:
        return f"{ranks_text(ranks)} wait for each other in operations of different groups"
    if fault.kind == MISSING:
        return f"{ranks_text(ranks)} never came to {where}"
    if fault.kind == DEAD:
        return f"{ranks_text(ranks)} left no dump, and {others} stopped in {where}"
    if fault.kind == STUCK:
        return f"all recorded members came to {where}, and {others} did not finish it"
    own, usual = present[ranks[0]], present[fault.waiting[0]]
    if fault.kind == ORDER:
        text = (
            f"as operation {fault.number} of {fault.group.label}, {ranks_text(ranks)} came to {own.operation}"
        )
        return f"{text}, and {others} to {usual.operation}"
    return f"{ranks_text(ranks)} came to {where} with {own.size}, and {others} with {usual.size}"


def _wait_lines(fault: Fault) -> Iterator[str]:
    """Yield who waits for whom, by line of the program."""
    present = fault.group.present(fault.number)
    by_line: dict[tuple[str, str, str], list[int]] = {}
    for rank in sorted({*fault.waiting, *(fault.ranks if fault.kind in (ORDER, SIZE) else ())}):
        entry = present[rank]
        by_line.setdefault((entry.operation, entry.size, entry.line), []).append(rank)
    for (operation, size, line), ranks in by_line.items():
        verb = "waits" if len(ranks) == 1 else "wait"
        awaited = f" for {ranks_text(fault.ranks)}" if fault.kind in (MISSING, DEAD) else ""
        place = f", at {line}" if line else ""
        label = fault.group.label
        yield f"{ranks_text(ranks)} {verb}{awaited} in {operation} {fault.number} of {label} ({size}){place}"


def _last_lines(dumps: Sequence[Dump], ranks: tuple[int, ...], clocks: ClockBounds | None) -> Iterator[str]:
    """Yield the last operation that each rank recorded."""
    ahead = {dump.rank: clocks.ahead_ns(dump.rank) if clocks else 0 for dump in dumps}
    ends = [entry.time_created_ns - ahead[dump.rank] for dump in dumps for entry in dump.entries]
    end = max(ends, default=0)
    for dump in dumps:
        if dump.rank in ranks and dump.entries:
            entry = dump.entries[-1]
            before = format_ns(end - entry.time_created_ns + ahead[dump.rank])
            yield f"rank {dump.rank}: {_described(entry)}, {before} before the last one of all ranks"
        elif dump.rank in ranks:
            yield f"rank {dump.rank}: none was recorded"


def _described(entry: Entry) -> str:
    state = "over" if entry.is_over else entry.state or "not over"
    label = (
        entry.process_group[1] if entry.process_group[1] != "undefined" else f"group {entry.process_group[0]}"
    )
    number = entry.p2p_seq_id if entry.is_p2p else entry.collective_seq_id
    place = f", at {entry.line}" if entry.line else ""
    return f"{entry.operation} {number} of {label} ({state}){place}"


def _of_message(
    message: Unanswered, ranks: int, waits: tuple[str, ...], notes: tuple[str, ...]
) -> HangReport:
    cause = f"1 of {ranks} ranks waits: {message.cause}"
    return HangReport(
        MESSAGE,
        cause,
        (message.peer,),
        message.label,
        message.number,
        message.operation,
        ranks,
        waits,
        (),
        notes,
    )


def _notes(
    dumps: Sequence[Dump], groups: Sequence[Any], without: frozenset[int], clocks: ClockBounds | None
) -> Iterator[str]:
    """Yield what the dumps cannot show."""
    if without:
        yield f"{ranks_text(without)} left no dump"
    begun = {dump.rank: dump.entries[0].record_id for dump in dumps if dump.entries}
    if any(begun.values()):
        late = [rank for rank, first in begun.items() if first]
        most = f"up to {max(begun.values()):,} older entries are lost"
        yield f"the buffers of {ranks_text(late)} were full: {most}"
    guessed = [group.label for group in groups if not group.is_stated]
    if guessed:
        yield f"no dump lists the members of {', '.join(guessed[:3])}: those that recorded it are taken"
    if not any(entry.line for dump in dumps for entry in dump.entries):
        yield "no lines of the program were recorded: JSON dumps have none, pickles do"
    entries = sum(len(dump.entries) for dump in dumps)
    counted = plural(entries, "entry", "entries")
    yield f"{plural(len(dumps), 'dump')} of {counted}; times are those of the hosts' clocks"
    yield from clocks.notes() if clocks is not None else ()
