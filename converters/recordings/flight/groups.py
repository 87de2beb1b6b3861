"""The operations of each process group by rank and sequence number, and the first one that went wrong.

Sequence numbers count the operations of a group. A buffer begins where older entries were overwritten: what
came before is taken as done. A rank whose numbers end before one has never come to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from converters.recordings.flight.dumps import Dump, Entry, members_of

WORLD = "default_pg"  # the description of the group of all ranks
# Operations of which each rank passes as many bytes as all others.
EQUAL = (
    "all_reduce",
    "allreduce",
    "broadcast",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all_single",
)
MISSING, ORDER, SIZE, DEAD, STUCK = "missing", "order", "size", "dead", "stuck"


class Operations(Struct, frozen=True):
    """A group: its members, and the entry of each rank by sequence number."""

    name: str
    label: str
    members: frozenset[int]
    is_stated: bool  # whether a dump lists the members
    of_rank: Mapping[int, Mapping[int, Entry]]
    last: Mapping[
        int, int
    ]  # the highest number of each rank with a dump; ranks whose end is unknown lack one

    def present(self, number: int) -> dict[int, Entry]:
        """Return the entries of a number by rank."""
        return {rank: of[number] for rank, of in self.of_rank.items() if number in of}

    def absent(self, number: int) -> list[int]:
        """Return the members with a dump that never came to a number."""
        return sorted(rank for rank in self.members if self.last.get(rank, number) < number)


class Fault(Struct, frozen=True):
    """The operation of a group that went wrong: `ranks` are at fault, as far as the dumps show."""

    kind: str
    group: Operations
    number: int
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]


def operations(dumps: Sequence[Dump]) -> list[Operations]:
    """Return the groups in the order of their names."""
    stated = dict(members_of(dumps))
    labels: dict[str, str] = {}
    for dump in dumps:
        for entry in dump.entries:
            labels.setdefault(entry.process_group[0], entry.process_group[1])
    world = frozenset(dump.rank for dump in dumps).union(*stated.values())
    groups = []
    for name, label in sorted(labels.items()):
        of_rank = {dump.rank: _by_number(dump, name) for dump in dumps}
        of_rank = {rank: numbered for rank, numbered in of_rank.items() if numbered}
        members = stated.get(name) or (world if label == WORLD else None)
        if not of_rank:
            continue
        known = members if members is not None else frozenset(of_rank)
        last = {dump.rank: _last(dump, of_rank.get(dump.rank, {})) for dump in dumps if dump.rank in known}
        ends = {rank: number for rank, number in last.items() if number is not None}
        plain = label if label and label != "undefined" else f"group {name}"
        groups.append(Operations(name, plain, known, members is not None, of_rank, ends))
    return groups


def _by_number(dump: Dump, name: str) -> dict[int, Entry]:
    """Return the collectives of a group by sequence number; of coalesced ones, the first."""
    numbered: dict[int, Entry] = {}
    for entry in dump.entries:
        if entry.process_group[0] == name and not entry.is_p2p:
            numbered.setdefault(entry.collective_seq_id, entry)
    return numbered


def _last(dump: Dump, numbered: Mapping[int, Entry]) -> int | None:
    """Return the highest number that a rank came to; None if its buffer cannot show it."""
    if not numbered:
        has_all = not dump.entries or dump.entries[0].record_id == 0
        return 0 if has_all else None
    status = dump.status.get(str(next(iter(numbered.values())).pg_id))
    return max(*numbered, -1, status.last_enqueued_collective if status is not None else -1)


def fault_of(group: Operations, without_dump: frozenset[int]) -> Fault | None:
    """Return the first fault of a group, or None if all of its operations are over."""
    numbers = sorted({number for of in group.of_rank.values() for number in of})
    dead = sorted(group.members & without_dump)
    for number in numbers:
        present, absent = group.present(number), group.absent(number)
        is_last = number == numbers[-1]
        waiting = tuple(sorted(rank for rank, entry in present.items() if not entry.is_over))
        if not (waiting or absent or is_last):
            continue
        side = tuple(sorted(present))
        if others := _others({rank: entry.operation for rank, entry in present.items()}):
            return Fault(ORDER, group, number, others, tuple(rank for rank in side if rank not in others))
        sizes = {rank: entry.size for rank, entry in present.items() if _is_equal(entry)}
        if others := _others(sizes):
            return Fault(SIZE, group, number, others, tuple(rank for rank in side if rank not in others))
        if absent:
            return Fault(MISSING, group, number, tuple(absent), waiting or side)
        if dead and (waiting or is_last):
            return Fault(DEAD, group, number, tuple(dead), waiting or side)
        if waiting:
            return Fault(STUCK, group, number, (), waiting)
    return None


def _is_equal(entry: Entry) -> bool:
    return entry.operation.lstrip("_") in EQUAL


def _others(values: Mapping[int, str]) -> tuple[int, ...]:
    """Return the ranks whose value is not the most frequent one; of equally frequent ones, the lowest rank's
    counts.
    """
    if len(set(values.values())) < 2:
        return ()
    listed = [values[rank] for rank in sorted(values)]
    usual = max(dict.fromkeys(listed), key=listed.count)
    return tuple(rank for rank in sorted(values) if values[rank] != usual)
