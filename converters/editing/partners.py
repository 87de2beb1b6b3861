"""Matching of nodes of several ranks: partners outside a slice, and members that give different sizes.

As in a simulation, the k-th collective of a group on one rank matches the k-th on its other members, and the
k-th send of a channel its k-th receive, in the order of node ids. Ranks outside a slice have no nodes in it.
Nodes that are unmatched in the input are ignored.

Recordings without the splits of an all-to-all have members with different sizes. Without sizes for each
member, a simulation moves equal parts. If every member gives the largest size of any, a collective takes at
least as long as with the recorded sizes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from converters.editing.files import Rewiring, edited, recorded_as, set_attributes
from converters.editing.groups import WorkloadGroups
from converters.records import Dropped, without_dangling
from et_sim.basics.errors import TraceError
from et_sim.basics.group_names import group_key
from et_sim.basics.unique import unique
from et_sim.basics.units import plural
from et_sim.trace import Trace, Workload
from et_sim.trace.columns import TAG_RANGE, CollectiveKind, NodeKind, collective_name
from et_sim.trace.disk import read_unpacked
from et_sim.trace.group_attributes import has_splits

_EMPTY = np.zeros(0, np.int64)


class MatchedRanks(Struct, frozen=True):
    """Ranks that match, with the rows of each in the order of matching."""

    description: str
    rows: dict[int, Any]  # rank -> rows; of a message: sender and receiver
    name: str = ""  # of a group


class Open(Struct, frozen=True):
    """A row in the slice whose partner is outside."""

    description: str
    rank: int
    row: int
    partner: int
    partner_row: int


class Partners:
    """All matched ranks of a workload."""

    def __init__(self, workload: Workload, groups: WorkloadGroups) -> None:
        self._workload = workload
        used = collectives(workload, groups)
        self._meetings = [*(use for use in used if len(use.rows) > 1), *_messages(workload)]
        # groups with unknown members; their users are taken as members
        self.unknown = {use.name for use in used if groups.members(next(iter(use.rows)), use.name) is None}

    def find_open(self, chosen: Sequence[Any], in_slice: Any) -> tuple[Open | None, int]:
        """Return the first open row and the number of open rows; `chosen` is a mask per template."""
        first: Open | None = None
        count = 0
        for meeting in self._meetings:
            kept = self._kept(meeting, chosen, in_slice)
            everywhere = np.logical_and.reduce(list(kept.values()))
            for rank, mask in kept.items():
                wrong = np.flatnonzero(mask & ~everywhere)
                count += len(wrong)
                if len(wrong) and (first is None or rank < first.rank):
                    first = self._open(meeting, rank, int(wrong[0]), kept)
        return first, count

    def close(self, chosen: Sequence[Any], in_slice: Any) -> None:
        """Remove open rows from `chosen` until there are none."""
        changed = True
        of_rank = self._workload.template_of_rank
        while changed:
            changed = False
            for meeting in self._meetings:
                kept = self._kept(meeting, chosen, in_slice)
                everywhere = np.logical_and.reduce(list(kept.values()))
                for rank, mask in kept.items():
                    wrong = meeting.rows[rank][: len(mask)][mask & ~everywhere]
                    mask_of_template = chosen[int(of_rank[rank])]
                    wrong = wrong[mask_of_template[wrong]]
                    mask_of_template[wrong] = False
                    changed |= len(wrong) > 0

    def _kept(self, meeting: MatchedRanks, chosen: Sequence[Any], in_slice: Any) -> dict[int, Any]:
        """Return a mask of the rows in the slice per rank, cut to the shortest."""
        shortest = min(len(rows) for rows in meeting.rows.values())
        of_rank = self._workload.template_of_rank
        return {
            rank: chosen[int(of_rank[rank])][rows[:shortest]] if in_slice[rank] else np.zeros(shortest, bool)
            for rank, rows in meeting.rows.items()
        }

    def _open(self, meeting: MatchedRanks, rank: int, at: int, kept: dict[int, Any]) -> Open:
        partner = next(other for other, mask in kept.items() if not mask[at])
        return Open(
            meeting.description, rank, int(meeting.rows[rank][at]), partner, int(meeting.rows[partner][at])
        )


def open_error(workload: Workload, pair: Open, count: int, in_slice: Any) -> TraceError:
    """Return the error for a slice with an open row."""
    trace, other = workload.trace(pair.rank), workload.trace(pair.partner)
    where = "whose rank is" if not in_slice[pair.partner] else "which is"
    more = f"; {count - 1:,} more nodes likewise" if count > 1 else ""
    return TraceError(
        f"{trace.describe(pair.row)} of rank {pair.rank} is in the slice, and meets"
        f" {other.describe(pair.partner_row)} of rank {pair.partner} ({pair.description}), {where} not{more}",
        place=trace.source,
        remedy="choose so that partners are together, or leave such nodes out with --drop-open",
    )


def collectives(workload: Workload, groups: WorkloadGroups) -> list[MatchedRanks]:
    """Return one meeting per used group, even if only one rank uses it."""
    names = [_rows_by_group(trace) for trace in workload.templates]
    meetings: dict[tuple[Any, ...], MatchedRanks] = {}
    for rank, template in enumerate(workload.template_of_rank.tolist()):
        for name, rows in names[template].items():
            description = f"group {name}" if name else "the group of all ranks"
            instance = groups.instance(rank, name)
            meetings.setdefault(instance, MatchedRanks(description, {}, name)).rows[rank] = rows
    return list(meetings.values())


def _rows_by_group(trace: Trace) -> dict[str, Any]:
    rows = np.flatnonzero(trace.kind == NodeKind.COLL)
    keys = np.array([group_key(name) for name in trace.group_names], object)
    rows_of: dict[str, Any] = {}
    for number in unique(trace.group[rows]).tolist():
        of_number = rows[trace.group[rows] == number]
        name = str(keys[number])
        rows_of[name] = np.sort(np.concatenate((rows_of.get(name, _EMPTY), of_number)))
    return rows_of


def _messages(workload: Workload) -> list[MatchedRanks]:
    """Return one meeting per channel between two ranks."""
    ends = [_rows_by_channel(trace) for trace in workload.templates]
    sides: dict[tuple[int, ...], list[tuple[int, Any]]] = defaultdict(list)
    for rank, template in enumerate(workload.template_of_rank.tolist()):
        is_relative = workload.has_relative_peers(template)
        for (is_send, peer, tag, size), rows in ends[template].items():
            other = (peer + rank) % workload.ranks if is_relative else peer
            ranks = (rank, other) if is_send else (other, rank)
            sides[*ranks, tag, size].append((rank, rows))
    return [
        MatchedRanks(f"message from rank {key[0]} to rank {key[1]}", dict(pair))
        for key, pair in sides.items()
        if len(pair) == 2 and pair[0][0] != pair[1][0]
    ]


def _rows_by_channel(trace: Trace) -> dict[tuple[bool, int, int, int], Any]:
    is_send, is_receive = trace.kind == NodeKind.SEND, trace.kind == NodeKind.RECV
    rows = np.flatnonzero(is_send | is_receive)
    peers = np.where(is_send, trace.comm_dst, trace.comm_src)[rows].tolist()
    tags, sizes = (trace.comm_tag[rows] % TAG_RANGE).tolist(), trace.comm_bytes[rows].tolist()
    channels: dict[tuple[bool, int, int, int], list[int]] = defaultdict(list)
    for row, peer, tag, size in zip(rows.tolist(), peers, tags, sizes, strict=True):
        channels[bool(is_send[row]), peer, tag, size].append(row)
    return {key: np.array(held) for key, held in channels.items()}


def repaired(path: Path, trace: Trace) -> tuple[bytes, Dropped]:
    """Return the new content and the dropped dependencies; `trace` was read from `path` with
    `drop_dangling`.
    """
    content = read_unpacked(path)
    if not trace.dropped_dependencies:
        return content, Dropped()
    return without_dangling(content, set(trace.node_id.tolist()), str(path))


class SizeEqualiser:
    """The sizes that have to change, by rank."""

    def __init__(self, workload: Workload) -> None:
        self._sizes: dict[int, dict[int, int]] = {}  # rank -> row -> bytes
        self.uneven: Counter[str] = Counter()  # collectives by type
        for meeting in collectives(workload, WorkloadGroups(workload, {})):
            if len(meeting.rows) > 1:
                self._look_at(workload, meeting.rows)

    def _look_at(self, workload: Workload, rows: dict[int, Any]) -> None:
        """Give matching collectives of one type the largest size among the ranks."""
        shortest = min(map(len, rows.values()))
        traces = {rank: workload.trace(rank) for rank in rows}
        kinds = np.stack([traces[rank].comm_type[of_rank[:shortest]] for rank, of_rank in rows.items()])
        sizes = np.stack([traces[rank].comm_bytes[of_rank[:shortest]] for rank, of_rank in rows.items()])
        largest = sizes.max(axis=0)
        differs = (sizes != largest).any(axis=0) & (kinds == kinds[0]).all(axis=0)
        differs &= kinds[0] != CollectiveKind.BARRIER
        for rank, of_rank in rows.items():  # lists of sizes may differ between members
            differs &= ~has_splits(traces[rank])[of_rank[:shortest]]
        for number in kinds[0][differs].tolist():
            self.uneven[collective_name(number)] += 1
        for at, (rank, of_rank) in enumerate(rows.items()):
            for k in np.flatnonzero(differs & (sizes[at] != largest)).tolist():
                self._sizes.setdefault(rank, {})[int(of_rank[k])] = int(largest[k])

    def of_rank(self, rank: int, content: bytes, trace: Trace) -> tuple[bytes, int]:
        """Return the rank's file with the new sizes, and the number of changed nodes."""
        sizes = self._sizes.get(rank, {})
        if not sizes:
            return content, 0
        changes = {row: partial(set_attributes, values={"comm_size": size}) for row, size in sizes.items()}
        keep = np.ones(len(trace), np.bool_)
        return edited(recorded_as(trace, content), keep, Rewiring(), changes), len(sizes)

    def remark(self) -> str:
        """Return a sentence on the different sizes, or "" if there were none."""
        listed = ", ".join(plural(count, kind) for kind, count in sorted(self.uneven.items()))
        return f"members gave different sizes to {listed}: now all give the largest" if listed else ""
