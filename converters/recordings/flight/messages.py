"""Sends and receives in dumps that have no counterpart on the other rank."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from converters.recordings.flight.dumps import Dump, Entry
from converters.recordings.flight.groups import Operations

_ENDS = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})")


class Unanswered(Struct, frozen=True):
    """A send or a receive without its counterpart."""

    rank: int
    peer: int
    operation: str
    label: str
    number: int
    entry: Entry

    @property
    def line(self) -> str:
        """Return the wait."""
        place = f", at {self.entry.line}" if self.entry.line else ""
        operation = f"{self.operation} {self.number} of {self.label}"
        return f"rank {self.rank} waits for rank {self.peer} in {operation}{place}"

    @property
    def cause(self) -> str:
        """Return the fault of the other rank."""
        half = "receives" if self.operation == "send" else "sends"
        return f"rank {self.peer} never {half} the message {self.number} of rank {self.rank} in {self.label}"


def ends_of(entry: Entry, members: Mapping[str, Collection[int]]) -> tuple[str, int] | None:
    """Return `send` or `recv`, and the rank at the other end; None if an entry is no message."""
    ends = _ENDS.search(entry.profiling_name) if entry.is_p2p else None
    if ends is None:
        return None
    return ends[1], _rank_of(int(ends[3]), sorted(members.get(entry.process_group[0], ())))


def unanswered(dumps: Sequence[Dump], groups: Sequence[Operations]) -> list[Unanswered]:
    """Return the messages that are not over and whose other half was never issued."""
    members = {group.name: group.members for group in groups}
    open_ends: dict[tuple[str, int, int, str], list[tuple[Dump, Entry]]] = {}
    for dump in dumps:
        for entry in dump.entries:
            ends = None if entry.is_over else ends_of(entry, members)
            if ends is not None:
                key = (entry.process_group[0], dump.rank, ends[1], ends[0])
                open_ends.setdefault(key, []).append((dump, entry))
    lost = []
    for (name, rank, peer, kind), waiting in open_ends.items():
        answers = open_ends.get((name, peer, rank, "recv" if kind == "send" else "send"), [])
        for dump, entry in waiting[len(answers) :]:
            label = entry.process_group[1] or f"group {name}"
            lost.append(Unanswered(dump.rank, peer, kind, label, entry.p2p_seq_id, entry))
    return sorted(lost, key=lambda message: message.entry.time_created_ns)


def _rank_of(number: int, members: Sequence[int]) -> int:
    """Return the rank of a member of a group."""
    return members[number] if number < len(members) else number
