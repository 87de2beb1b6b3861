"""The schedules of a GOAL file of LogGOPSim or ATLAHS, as one trace per rank.

Operations become nodes of the same order: `calc` computes for so many ns, `send` and `recv` are messages. All
are concurrent: nothing but their dependencies, and on the LogGOPS model processor and NIC, orders them.
`requires` is a dependency. `irequires` waits for the beginning of another operation; a receive begins as soon
as what it depends on is done, so that whatever `irequires` it depends on the same. A send or a calculation
begins when processor and NIC are free, for which traces have no word: this is refused.

A file is read line by line: no more of it is kept than the schedules of one rank, and of some small ones.

Not here: the grammar (`goal_statements`), and simulation.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from converters.files import Progress
from converters.goal_statements import (
    CALC,
    IREQUIRES,
    RECEIVE,
    SEND,
    Dependency,
    End,
    Head,
    Operation,
    Statement,
    at,
    statements,
)
from et_sim.basics.errors import TraceError, did_you_mean
from et_sim.documents.limits import Ungzipped
from et_sim.trace.columns import ATTRIBUTES, BIT, TAG_RANGE, NodeKind, Trace

MOST_RANKS = 2**31 - 1
KINDS = {CALC: NodeKind.COMP, SEND: NodeKind.SEND, RECEIVE: NodeKind.RECV}
_PRESENT = {
    CALC: ("is_cpu_op", "duration_ns", "concurrent"),
    SEND: ("is_cpu_op", "comm_size", "comm_tag", "comm_dst", "concurrent"),
    RECEIVE: ("is_cpu_op", "comm_size", "comm_tag", "comm_src", "concurrent"),
}
Channel = tuple[int, int, int, int]  # source, target, tag, bytes


@dataclass(slots=True)
class _Messages:
    """Sends and receives that are not matched yet."""

    surplus: dict[Channel, int] = field(default_factory=dict)  # sends less receives
    first: dict[Channel, int] = field(default_factory=dict)  # the line of the first of those

    def add(self, rank: int, operation: Operation) -> None:
        """One more."""
        is_send = operation.kind == SEND
        ends = (rank, operation.peer) if is_send else (operation.peer, rank)
        channel = (*ends, operation.tag, operation.size)
        left = self.surplus.get(channel, 0)
        now = left + (1 if is_send else -1)
        if now == 0:
            del self.surplus[channel], self.first[channel]
            return
        self.surplus[channel] = now
        if left == 0:
            self.first[channel] = operation.line


@dataclass(slots=True)
class Totals:
    """What all ranks do."""

    ranks: int = 0
    count: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    size: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    requires: int = 0
    irequires: int = 0


@dataclass(slots=True)
class _Rank:
    """A schedule that is being read."""

    number: int
    line: int
    operations: list[Operation] = field(default_factory=list)
    row: dict[str, int] = field(default_factory=dict)  # by label
    after: list[list[int]] = field(default_factory=list)
    begins_with: list[tuple[int, int]] = field(default_factory=list)  # (row, the row of a receive)


def traces(given: Iterable[Statement], source: str, totals: Totals) -> Iterator[tuple[int, Trace]]:
    """(rank, trace), in the order of the file; `totals` are complete when all have been taken."""
    messages, done = _Messages(), set[int]()
    rank: _Rank | None = None
    for statement in given:
        if isinstance(statement, Head):
            rank = _head(statement, source, totals, rank, done) or rank
        elif rank is None:
            raise TraceError(
                "this stands in no rank",
                place=at(source, statement.line),
                remedy='write "rank R {" before it',
            )
        elif isinstance(statement, Operation):
            _add(rank, statement, source, totals)
            if statement.kind != CALC:
                messages.add(rank.number, statement)
        elif isinstance(statement, Dependency):
            _order(rank, statement, source, totals)
        elif isinstance(statement, End):
            done.add(rank.number)
            yield rank.number, _trace(rank, source)
            rank = None
    _check_end(rank, source, totals, done)
    _refuse_unmatched(messages, source)


def _head(head: Head, source: str, totals: Totals, rank: _Rank | None, done: set[int]) -> _Rank | None:
    place = at(source, head.line)
    if head.word == "num_ranks":
        if totals.ranks or not 1 <= head.number <= MOST_RANKS:
            cause = "num_ranks stands there twice" if totals.ranks else f"num_ranks is {head.number}"
            raise TraceError(cause, place=place, remedy=f"give it once, 1 to {MOST_RANKS}")
        totals.ranks = head.number
        return None
    if rank is not None:
        raise TraceError(
            f"rank {rank.number} of line {rank.line} is not closed", place=place, remedy='write "}" after it'
        )
    if not totals.ranks:
        raise TraceError("num_ranks is missing", place=place, remedy='write "num_ranks N" before all ranks')
    if head.number >= totals.ranks:
        raise TraceError(f"there is no rank {head.number}", place=place, remedy=_allowed(totals))
    if head.number in done:
        raise TraceError(f"rank {head.number} stands there twice", place=place, remedy="put both into one")
    return _Rank(head.number, head.line)


def _add(rank: _Rank, operation: Operation, source: str, totals: Totals) -> None:
    place = at(source, operation.line)
    if operation.label:
        if operation.label in rank.row:
            first = rank.operations[rank.row[operation.label]].line
            raise TraceError(
                f'label "{operation.label}" is that of line {first}, too', place=place, remedy="rename one"
            )
        rank.row[operation.label] = len(rank.operations)
    if operation.peer >= totals.ranks:
        verb = "to" if operation.kind == SEND else "from"
        cause = f"{operation.kind} {verb} rank {operation.peer}, which does not exist"
        raise TraceError(cause, place=place, remedy=_allowed(totals))
    if operation.tag >= TAG_RANGE:
        raise TraceError(
            f"tag {operation.tag} is too large for a trace", place=place, remedy=f"at most {TAG_RANGE - 1}"
        )
    rank.operations.append(operation)
    rank.after.append([])
    totals.count[operation.kind] += 1
    totals.size[operation.kind] += operation.size


def _order(rank: _Rank, dependency: Dependency, source: str, totals: Totals) -> None:
    place = at(source, dependency.line)
    later, earlier = (_row_of(rank, label, place) for label in (dependency.later, dependency.earlier))
    if later == earlier:
        raise TraceError(f'"{dependency.later}" waits for itself', place=place, remedy="leave the line out")
    if dependency.kind != IREQUIRES:
        rank.after[later].append(earlier)
        totals.requires += 1
        return
    kind = rank.operations[earlier].kind
    if kind != RECEIVE:
        raise TraceError(
            f'irequires "{dependency.earlier}", a {kind}: a trace cannot say that something waits for the'
            " beginning of one",
            place=place,
            remedy=f'write "{dependency.later} requires {dependency.earlier}" to wait for its end',
        )
    rank.begins_with.append((later, earlier))
    totals.irequires += 1


def _row_of(rank: _Rank, label: str, place: str) -> int:
    row = rank.row.get(label)
    if row is None:
        raise TraceError(
            f'label "{label}" has not been defined in rank {rank.number}',
            place=place,
            remedy=did_you_mean(label, tuple(rank.row)[-1000:]) or "define it on a line before",
        )
    return row


def _trace(rank: _Rank, source: str) -> Trace:
    operations, count = rank.operations, len(rank.operations)
    _resolve_beginnings(rank, source)
    kinds = [operation.kind for operation in operations]
    is_calc, is_send, is_receive = (
        np.array([kind == kind_meant for kind in kinds], bool) for kind_meant in KINDS
    )
    sizes = np.array([operation.size for operation in operations], np.int64)
    peers = np.array([operation.peer for operation in operations], np.int32)
    number = {name: row for row, name in enumerate(dict.fromkeys(kinds))}
    bits = {kind: sum(BIT[name] for name in of_kind) for kind, of_kind in _PRESENT.items()}
    columns: dict[str, Any] = {attribute.column: np.zeros(count, attribute.dtype) for attribute in ATTRIBUTES}
    columns["comm_bytes"] = np.where(is_calc, 0, sizes)
    columns["comm_tag"] = np.array([operation.tag for operation in operations], np.int64)
    columns["comm_dst"] = np.where(is_send, peers, 0)
    columns["comm_src"] = np.where(is_receive, peers, 0)
    columns["duration_ns"] = np.where(is_calc, sizes, 0)
    columns["is_concurrent"] = np.ones(count, bool)
    return Trace(
        node_id=np.arange(count, dtype=np.uint64),
        kind=np.array([KINDS[kind] for kind in kinds], np.uint8),
        name=np.array([number[kind] for kind in kinds], np.int32),
        duration_us=np.where(is_calc, sizes // 1000 + (sizes % 1000 >= 500), 0),
        involved_count=np.zeros(count, np.uint8),
        present=np.array([bits[kind] for kind in kinds], np.uint32),
        data_start=np.array([0, *accumulate(map(len, rank.after))], np.int64),
        data_deps=np.array([row for rows in rank.after for row in rows], np.int32),
        ctrl_start=np.zeros(count + 1, np.int64),
        ctrl_deps=np.zeros(0, np.int32),
        names=tuple(number),
        source=f"{source}, rank {rank.number}",
        **columns,
    )


def _resolve_beginnings(rank: _Rank, source: str) -> None:
    """Whatever begins with a receive comes after all that this comes after, which may begin with another."""
    waiting: dict[int, list[int]] = {}
    for later, receive in rank.begins_with:
        waiting.setdefault(later, []).append(receive)
    try:
        order = [*TopologicalSorter(waiting).static_order()]
    except CycleError as error:
        receive, later = error.args[1][:2]
        labels = " and ".join(f'"{rank.operations[row].label}"' for row in (later, receive))
        raise TraceError(
            f"{labels} wait for each other to begin",
            place=at(source, rank.operations[later].line),
            remedy="leave one irequires out",
        ) from None
    for later in order:
        for receive in waiting.get(later, ()):
            rank.after[later].extend(rank.after[receive])
    for row in waiting:
        rank.after[row] = sorted(set(rank.after[row]))


def _check_end(rank: _Rank | None, source: str, totals: Totals, done: set[int]) -> None:
    if rank is not None:
        raise TraceError(
            f"rank {rank.number} is not closed", place=at(source, rank.line), remedy='write "}" after it'
        )
    if not totals.ranks:
        raise TraceError("num_ranks is missing", place=source, remedy="is this a GOAL text?")
    if len(done) < totals.ranks:
        missing = next(number for number in range(totals.ranks) if number not in done)
        raise TraceError(
            f"there are {len(done)} of {totals.ranks} ranks, and rank {missing} is missing",
            place=source,
            remedy=f'write "rank {missing} {{ }}" if it does nothing',
        )


def _refuse_unmatched(messages: _Messages, source: str) -> None:
    if not messages.surplus:
        return
    channel = min(messages.first, key=messages.first.__getitem__)
    origin, target, tag, size = channel
    surplus = messages.surplus[channel]
    unmatched, other = ("send", "recv") if surplus > 0 else ("recv", "send")
    here, there = (origin, target) if surplus > 0 else (target, origin)
    message = f"{unmatched} of {size} bytes with tag {tag}"
    cause = f"rank {here} has a {message} that no {other} of rank {there} matches"
    near = _like(messages, channel)
    raise TraceError(cause, place=at(source, messages.first[channel]), remedy=near)


def _like(messages: _Messages, channel: Channel) -> str:
    """What may have been meant to match."""
    for other, surplus in messages.surplus.items():
        if surplus * messages.surplus[channel] < 0 and other[:2] == channel[:2]:
            return f"line {messages.first[other]} has {other[3]} bytes and tag {other[2]}"
    return "write the other half, with the same size and tag"


def _allowed(totals: Totals) -> str:
    return f"there are ranks 0 to {totals.ranks - 1}"


_AT_ONCE = 10_000  # operations of ranks that are written together


def in_portions(given: Iterable[tuple[int, Trace]]) -> Iterator[list[tuple[int, Trace]]]:
    """Ranks and their traces, many small ones at a time."""
    several: list[tuple[int, Trace]] = []
    operations = 0
    for rank, trace in given:
        several.append((rank, trace))
        operations += len(trace)
        if operations >= _AT_ONCE:
            yield several
            several, operations = [], 0
    if several:
        yield several


_LINES_BETWEEN_LOOKS = 10_000


def schedules(path: Path, totals: Totals) -> Iterator[tuple[int, Trace]]:
    """(rank, trace) of a file that may be gzipped, with progress on stderr."""
    source = str(path)
    try:
        with path.open("rb") as file:
            yield from traces(statements(_lines(file, path), source), source, totals)
    except UnicodeDecodeError as error:
        cause = f"byte {error.object[error.start]} is not UTF-8 text"
        raise TraceError(cause, place=source, remedy="GOAL is text; binary schedules are not read") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(
            f"the gzip data is damaged: {error}", place=source, remedy="fetch or compress the file again"
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceError(f"cannot be read: {reason}", place=source, remedy="name a readable file") from None


def _lines(file: BinaryIO, path: Path) -> Iterator[str]:
    is_packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    size = path.stat().st_size
    progress = Progress(path.name, size)
    content = Ungzipped(file, size, str(path), TraceError) if is_packed else file
    try:
        for number, line in enumerate(io.TextIOWrapper(content, encoding="utf-8-sig")):
            if number % _LINES_BETWEEN_LOOKS == 0:
                progress(file.tell())
            yield line
    finally:
        progress.close()
