"""The schedules of a GOAL file of LogGOPSim or ATLAHS, as one trace per rank.

Operations become nodes of the same order: `calc` computes for a number of ns, `send` and `recv` are messages.
All are concurrent: only their dependencies order them, and on the LogGOPS model also processor and NIC.
`requires` is a dependency. `irequires` waits for the beginning of another operation. A receive begins as soon
as its dependencies are done, so an `irequires` on it becomes these dependencies. A send or a calculation
begins when processor and NIC are free, which traces cannot express: this is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from typing import Any

import numpy as np
from msgspec import Struct, field

from et_sim.basics.errors import TraceError, did_you_mean
from et_sim.trace.columns import ATTRIBUTES, BIT, TAG_RANGE, NodeKind, Trace
from et_sim.trace.goal.columns import Messages, OperationColumns
from et_sim.trace.goal.lines import CALC_CODE, RECEIVE_CODE, SEND_CODE
from et_sim.trace.goal.programs import Programs
from et_sim.trace.goal.statements import (
    CALC,
    IREQUIRES,
    LARGEST,
    RECEIVE,
    SEND,
    Dependency,
    End,
    GoalOperation,
    Head,
    Statement,
    at,
)
from et_sim.trace.stack import Stack, TraceBlock, TraceHead

MOST_RANKS = 2**31 - 1
KINDS = {CALC: NodeKind.COMP, SEND: NodeKind.SEND, RECEIVE: NodeKind.RECV}
_PRESENT = {
    CALC: ("is_cpu_op", "duration_ns", "concurrent"),
    SEND: ("is_cpu_op", "comm_size", "comm_tag", "comm_dst", "concurrent"),
    RECEIVE: ("is_cpu_op", "comm_size", "comm_tag", "comm_src", "concurrent"),
}


class Totals(Struct):
    """The totals over all ranks."""

    ranks: int = 0
    count: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    size: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    requires: int = 0
    irequires: int = 0

    def add(self, columns: OperationColumns) -> None:
        """Add the totals of ranks without `irequires`."""
        for number, kind in enumerate(KINDS):
            size = columns.size[columns.code == number]
            self.count[kind] += len(size)
            is_small = len(size) * int(size.max(initial=0)) <= LARGEST
            self.size[kind] += int(size.sum()) if is_small else sum(size.tolist())
        self.requires += len(columns.after)


class _Rank(Struct):
    """A schedule that is being read."""

    number: int
    line: int
    operations: list[GoalOperation] = field(default_factory=list)
    row: dict[str, int] = field(default_factory=dict)  # by label
    after: list[list[int]] = field(default_factory=list)
    begins_with: list[tuple[int, int]] = field(default_factory=list)  # (row, the row of a receive)


class Reading(Struct):
    """The state of reading: the ranks so far, their totals and unmatched messages."""

    source: str
    totals: Totals
    messages: Messages = field(default_factory=Messages)
    programs: Programs = field(default_factory=Programs)
    done: set[int] = field(default_factory=set)

    def accepts(self, columns: OperationColumns) -> bool:
        """Return whether these ranks are correct and new; `num_ranks` may precede them."""
        totals = self.totals
        ranks = columns.declared or totals.ranks
        is_declared = 1 <= ranks <= MOST_RANKS and not (columns.declared and totals.ranks)
        numbers = columns.rank.tolist()
        is_new = len({*numbers}) == len(numbers) and self.done.isdisjoint(numbers)
        is_known = max(numbers, default=0) < ranks and int(columns.peer.max(initial=0)) < ranks
        return is_declared and is_new and is_known and int(columns.tag.max(initial=0)) < TAG_RANGE

    def add(self, columns: OperationColumns) -> bool:
        """Add accepted ranks; return whether they share a program, which is then among the programs."""
        self.totals.ranks = columns.declared or self.totals.ranks
        self.totals.add(columns)
        self.messages.add(columns)
        self.done.update(columns.rank.tolist())
        return self.programs.add(columns, self.totals.ranks)

    def statements(self, given: Iterable[Statement]) -> Iterator[OperationColumns]:
        """Yield ranks that are read statement by statement."""
        source, totals = self.source, self.totals
        rank: _Rank | None = None
        for statement in given:
            if isinstance(statement, Head):
                rank = _head(statement, source, totals, rank, self.done) or rank
            elif rank is None:
                raise TraceError(
                    "this statement is outside of a rank",
                    place=at(source, statement.line),
                    remedy='write "rank R {" before it',
                )
            elif isinstance(statement, GoalOperation):
                _add(rank, statement, source, totals)
            elif isinstance(statement, Dependency):
                _order(rank, statement, source, totals)
            elif isinstance(statement, End):
                self.done.add(rank.number)
                columns = _columns(rank, source)
                self.messages.add(columns)
                yield columns
                rank = None
        if rank is not None:
            raise TraceError(
                f"rank {rank.number} is not closed", place=at(source, rank.line), remedy='write "}" after it'
            )

    def check_end(self) -> None:
        """Check that all ranks were present and all messages are matched."""
        if not self.totals.ranks:
            raise TraceError("num_ranks is missing", place=self.source, remedy="is this a GOAL text?")
        if len(self.done) < self.totals.ranks:
            missing = next(number for number in range(self.totals.ranks) if number not in self.done)
            raise TraceError(
                f"there are {len(self.done)} of {self.totals.ranks} ranks, and rank {missing} is missing",
                place=self.source,
                remedy=f'write "rank {missing} {{ }}" if it does nothing',
            )
        if not self.programs.are_matched(self.totals.ranks):
            self.messages.refuse_unmatched(self.source)


def traces(given: Iterable[Statement], source: str, totals: Totals) -> Iterator[tuple[int, Trace]]:
    """Yield (rank, trace) in the order of the file; `totals` are complete at the end."""
    reading = Reading(source, totals)
    for columns in reading.statements(given):
        yield from zip(columns.rank.tolist(), stack_of_ranks(columns, source).traces, strict=True)
    reading.check_end()


def _head(head: Head, source: str, totals: Totals, rank: _Rank | None, done: set[int]) -> _Rank | None:
    place = at(source, head.line)
    if head.word == "num_ranks":
        if totals.ranks or not 1 <= head.number <= MOST_RANKS:
            cause = "num_ranks is given twice" if totals.ranks else f"num_ranks is {head.number}"
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
        raise TraceError(f"rank {head.number} is given twice", place=place, remedy="put both into one")
    return _Rank(head.number, head.line)


def _add(rank: _Rank, operation: GoalOperation, source: str, totals: Totals) -> None:
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
            f'irequires "{dependency.earlier}", a {kind}: a trace cannot express a wait for the'
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


def _columns(rank: _Rank, source: str) -> OperationColumns:
    """Return the columns of a rank that was read statement by statement."""
    operations, count = rank.operations, len(rank.operations)
    _resolve_beginnings(rank, source)
    codes = {kind: code for code, kind in enumerate(KINDS)}
    size, peer, tag, line = (
        np.array([getattr(operation, name) for operation in operations], np.int64)
        for name in ("size", "peer", "tag", "line")
    )
    return OperationColumns(
        declared=0,
        rank=np.array([rank.number], np.int64),
        first=np.array([0, count], np.int64),
        line=line,
        code=np.array([codes[operation.kind] for operation in operations], np.int8),
        size=size,
        peer=peer,
        tag=tag,
        after_start=np.array([0, *accumulate(map(len, rank.after))], np.int64),
        after=np.array([row for rows in rank.after for row in rows], np.int32),
    )


def stack_of_ranks(columns: OperationColumns, source: str, *, is_shared: bool = False) -> Stack:
    """Return a trace for each rank; one that is shared is not named after its rank."""
    code, size, peer = columns.code, columns.size, columns.peer.astype(np.int32)
    is_calc, count = code == CALC_CODE, len(code)
    name, names = _names(columns)
    zeros = {attribute.dtype: np.zeros(count, attribute.dtype) for attribute in ATTRIBUTES}
    bits = [reduce(int.__or__, (BIT[name] for name in present)) for present in _PRESENT.values()]
    of_node: dict[str, Any] = {attribute.column: zeros[attribute.dtype] for attribute in ATTRIBUTES} | {
        "node_id": (np.arange(count) - np.repeat(columns.first[:-1], np.diff(columns.first))).astype(
            np.uint64
        ),
        "kind": np.array([*KINDS.values()], np.uint8)[code],
        "name": name,
        "duration_us": np.where(is_calc, size // 1000 + (size % 1000 >= 500), 0),
        "involved_count": np.zeros(count, np.uint8),
        "present": np.array(bits, np.uint32)[code],
        "comm_bytes": np.where(is_calc, 0, size),
        "comm_tag": columns.tag,
        "comm_dst": np.where(code == SEND_CODE, peer, 0),
        "comm_src": np.where(code == RECEIVE_CODE, peer, 0),
        "duration_ns": np.where(is_calc, size, 0),
        "is_concurrent": np.ones(count, bool),
    }
    heads = [TraceHead(source if is_shared else f"{source}, rank {rank}") for rank in columns.rank.tolist()]
    return TraceBlock(
        of_node,
        columns.first,
        columns.after_start,
        columns.after,
        np.zeros(count + 1, np.int64),
        np.zeros(0, np.int32),
        names,
        heads,
        {},
    ).stack()


def _names(columns: OperationColumns) -> tuple[Any, list[tuple[str, ...]]]:
    """Return the name of each operation, and the names of each rank in the order of first use."""
    begin, end = columns.first[:-1], columns.first[1:]
    where = []
    for code in range(len(KINDS)):
        rows = np.append(np.flatnonzero(columns.code == code), len(columns.code))
        first = rows[np.searchsorted(rows[:-1], begin)]
        where.append(np.where(first < end, first, len(columns.code)))
    order = np.argsort(np.stack(where), axis=0, kind="stable")
    number = np.argsort(order, axis=0)
    has = np.array([first < end for first in where])
    kinds = tuple(KINDS)
    known: dict[tuple[int, ...], tuple[str, ...]] = {}
    names = []
    for codes in np.where(np.take_along_axis(has, order, axis=0), order, -1).T.tolist():
        key = tuple(codes)
        if key not in known:
            known[key] = tuple(kinds[code] for code in codes if code >= 0)
        names.append(known[key])
    ranks = np.repeat(np.arange(len(begin)), np.diff(columns.first))
    return number[columns.code, ranks].astype(np.int32), names


def _resolve_beginnings(rank: _Rank, source: str) -> None:
    """Give nodes that begin with a receive the dependencies of that receive, which may begin with another."""
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


def _allowed(totals: Totals) -> str:
    return f"there are ranks 0 to {totals.ranks - 1}"
