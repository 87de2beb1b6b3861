"""All-to-alls with bytes for each pair of members: the whole matrix, and the messages of its phases.

A trace lists the bytes that its rank sends to each member. The k-th such all-to-all of a group on one member
is the k-th on all others, in the order of their programs; this gives the bytes that each receives. Equal
matrices have one number.

Chunks split the bytes of every pair evenly. Phases go the way of the plain all-to-all: along a dimension, a
rank sends each member of its line all that it holds for ranks at that member's place, whichever rank the
bytes came from. With equal bytes for all pairs, these are the messages of the plain one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import TraceError
from et_sim.basics.unique import groups_of_rows, unique
from et_sim.basics.units import plural
from et_sim.plan.axes import Axis
from et_sim.plan.groups import WHOLE_SYSTEM, GroupTable
from et_sim.plan.phases import Chunks
from et_sim.trace.columns import IntColumn, Trace
from et_sim.trace.group_attributes import (
    ATTRIBUTE,
    has_splits,
    read_process_groups,
    sizes_of_texts,
    split_faults,
)
from et_sim.trace.workload import Workload


class AxisLine(Struct, frozen=True):
    """The members along an axis: the rank at each distance ahead of each rank, and its place."""

    ahead: Any  # rank x distance
    place: Any


class ExchangePhase(Struct, frozen=True, eq=False):
    """The bytes that ranks send along a line, and the most that any holds before or after."""

    to_ahead: Any  # rank x distance
    most: int


def line_of(axis: Axis | None, members: int, ring: Any = None) -> AxisLine:
    """Return the line of an axis, perhaps in the order of a ring; without an axis, of a group."""
    if axis is None:
        place = np.arange(members)
        return AxisLine((place[:, None] + place) % members, place)
    rank, distance = np.arange(members), np.arange(axis.members)
    place = rank // axis.stride % axis.members
    order = distance if ring is None else np.asarray(ring)
    at = np.argsort(order)
    peer = order[(at[place][:, None] + distance) % axis.members]
    return AxisLine(rank[:, None] + (peer - place[:, None]) * axis.stride, place)


def split_pairs(matrix: Any, splits: int) -> list[Chunks]:
    """Return chunks that share the bytes of every pair: the number of equal ones, and the most that a member
    puts in.
    """
    count = min(splits, int(_between(matrix).max(initial=0)))
    runs: list[Chunks] = []
    ends = [*unique(matrix % count).tolist(), count] if count else []
    for begin, end in zip([0, *ends], ends, strict=False):
        if end > begin:
            runs.append(Chunks(end - begin, int(pairs_of_chunk(matrix, count, begin).sum(axis=1).max())))
    return runs


def pairs_of_chunk(matrix: Any, count: int, number: int) -> Any:
    """Return the bytes of every pair in a chunk; the first chunks hold the remainder."""
    return matrix // count + (matrix % count > number)


def _between(matrix: Any) -> Any:
    """Return a matrix without the bytes that members keep."""
    return matrix * ~np.eye(len(matrix), dtype=bool)


def pass_along(held: Any, line: AxisLine) -> tuple[ExchangePhase, Any]:
    """Return the phase in which ranks send bytes along a line, and the bytes that each holds afterwards."""
    places = line.ahead.shape[1]
    ranks = np.arange(len(held))
    by_place = np.argsort(line.place, kind="stable")
    starts = np.searchsorted(line.place[by_place], np.arange(places))
    for_place = np.add.reduceat(held[:, by_place], starts, axis=1)  # rank x place
    to_ahead = for_place[ranks[:, None], line.place[line.ahead]]
    of_line = np.zeros_like(held)
    for distance in range(places):
        of_line += held[line.ahead[:, distance]]
    stays = line.place[:, None] == line.place[None, :]
    after = np.where(stays, of_line, 0)
    most = max(int(held.sum(axis=1).max()), int(after.sum(axis=1).max()))
    return ExchangePhase(to_ahead, most), after


def refuse_partial(held: Any) -> None:
    """Refuse bytes that never reach their rank, because a dimension takes no part."""
    source, target = np.nonzero(_between(held))
    if len(source):
        raise TraceError(
            f"an all-to-all with {ATTRIBUTE} has bytes for rank {int(target[0])} that involved_dim, or the"
            " list of algorithms, keeps from getting there",
            remedy="let all dimensions take part, or use a communicator group instead of involved_dim",
        )


PLAIN = -1  # number of a collective without bytes for each pair
_NONE = -1


class _Program(Struct):
    """The exchanges of a template in a group, in order."""

    rows: IntColumn
    texts: tuple[int, ...]


class Exchanges:
    """The matrices of a workload, by number; `numbers[t][row]` is the number of a node of template t."""

    def __init__(self, workload: Workload, groups: GroupTable, *, communicates: bool) -> None:
        self._workload, self._groups = workload, groups
        self._sizes: list[IntColumn] = []  # by text
        self._text: dict[str, int] = {}
        self._matrices: list[Any] = []
        self._number: dict[tuple[int, ...], int] = {}  # by the texts of all members
        self.numbers: list[Any] = [None] * len(workload.templates)
        self.templates: list[int] = []  # templates with exchanges
        programs: dict[str, dict[int, _Program]] = {}  # by canonical name of a group, then by template
        used = workload.ranks_per_template > 0
        for stack in workload.stacks() if communicates else ():
            for at in unique(stack.of_row[has_splits(stack.trace)]).tolist():
                if used[stack.number + at]:
                    trace = stack.traces[at]
                    self._read(stack.number + at, trace, trace.source or workload.source, programs)
        for name in sorted(programs):
            self._match(name, programs[name])

    @property
    def are_any(self) -> bool:
        """Return whether any collective has bytes for each pair."""
        return bool(self._matrices)

    def matrix(self, number: int) -> Any:
        """Return the bytes from each member (a row) to each member, in the order of their positions."""
        return self._matrices[number]

    def of_rows(self, template: int, rows: Any) -> Any:
        """Return the numbers of the exchanges of nodes."""
        known = self.numbers[template]
        return np.full(len(rows), PLAIN, np.int64) if known is None else known[rows]

    def _read(
        self, template: int, trace: Trace, place: str, programs: dict[str, dict[int, _Program]]
    ) -> None:
        from et_sim.trace.order import edges, fits_row_order, issue_order

        for fault in split_faults(trace):
            node = trace.describe(int(np.argmax(fault.wrong)))
            raise TraceError(f"{node} {fault.text}", place=place, remedy=fault.remedy)
        rows = np.flatnonzero(has_splits(trace)).astype(np.int32)
        rows = rows if fits_row_order(*edges(trace)) else issue_order(trace, rows)[0]
        groups, sizes = read_process_groups(trace), sizes_of_texts(trace)
        name_of = {
            group: self._groups.canonical(trace.group_names[group], place, groups)
            for group in unique(trace.group[rows]).tolist()
        }
        names = np.array([name_of[group] for group in trace.group[rows].tolist()])
        text_of = [self._known_text(text, of) for text, of in zip(trace.split_texts, sizes, strict=True)]
        for name in dict.fromkeys(names.tolist()):
            of_name = rows[names == name]
            texts = tuple(text_of[text] for text in trace.splits[of_name].tolist())
            programs.setdefault(name, {})[template] = _Program(of_name, texts)
        self.numbers[template] = np.full(len(trace), PLAIN, np.int64)
        self.templates.append(template)

    def _known_text(self, text: str, sizes: IntColumn) -> int:
        if text not in self._text:
            self._text[text] = len(self._sizes)
            self._sizes.append(sizes)
        return self._text[text]

    def _match(self, name: str, programs: dict[int, _Program]) -> None:
        """Number the exchanges of all groups of a name."""
        different: dict[tuple[int, ...], int] = {}
        of_template = np.full(len(self._workload.templates), _NONE, np.int64)
        for template, program in programs.items():
            of_template[template] = different.setdefault(program.texts, len(different))
        members = self._groups.all_of(name)
        is_listed = len(members) == 1 and name != WHOLE_SYSTEM and not self._groups.is_rule(name)
        order = self._groups.order_of(name) if is_listed else np.arange(members.shape[1])
        of_member = of_template[self._workload.template_of_rank[members]]
        taking_part = (of_member != _NONE).any(axis=1)
        members, of_member = members[taking_part], of_member[taking_part]
        alike, listed = groups_of_rows(of_member), list(different)
        for number, at in enumerate(alike.first.tolist()):
            texts = [listed[of] if of != _NONE else () for of in of_member[at].tolist()]
            self._check(name, members[at], texts)
            numbers = np.array([self._numbered(row, order) for row in zip(*texts, strict=True)], np.int64)
            self._note(name, members[alike.of_row == number], numbers, programs)

    def _check(self, name: str, members: Any, texts: list[tuple[int, ...]]) -> None:
        """Refuse members that exchange more often than others, and lists that do not fit the group."""
        shown = self._groups.used(name).name or "all"
        counts = [len(of) for of in texts]
        if min(counts) != max(counts):
            few, many = (int(members[counts.index(count)]) for count in (min(counts), max(counts)))
            raise TraceError(
                f"rank {many} has {plural(max(counts), 'all-to-all')} with {ATTRIBUTE} in communicator group"
                f" {shown}, but rank {few} has {min(counts) or 'none'}",
                place=self._workload.source,
                remedy=f"give all members of an all-to-all {ATTRIBUTE}, or none of them",
            )
        for rank, of in zip(members.tolist(), texts, strict=True):
            for text in of:
                if len(self._sizes[text]) != len(members):
                    raise TraceError(
                        f"rank {rank} lists {plural(len(self._sizes[text]), 'size')} in {ATTRIBUTE}, but"
                        f" communicator group {shown} has {plural(len(members), 'member')}",
                        place=self._workload.trace(rank).source or self._workload.source,
                        remedy="list the bytes that the rank sends to every member, including itself",
                    )

    def _numbered(self, texts: tuple[int, ...], order: Any) -> int:
        """Return the number of a matrix whose rows are texts; its columns are in the order of the listed
        group.
        """
        key = (*texts, *order.tolist())
        if key not in self._number:
            self._number[key] = len(self._matrices)
            self._matrices.append(np.stack([self._sizes[text] for text in texts])[:, order])
        return self._number[key]

    def _note(self, name: str, members: Any, numbers: IntColumn, programs: dict[int, _Program]) -> None:
        for template in unique(self._workload.template_of_rank[members]).tolist():
            rows, known = programs[template].rows, self.numbers[template]
            if ((known[rows] != PLAIN) & (known[rows] != numbers)).any():
                trace = self._workload.templates[template]
                raise TraceError(
                    f"{trace.describe(int(rows[0]))} exchanges other bytes with its peers in one group"
                    f" {self._groups.used(name).name!r} than in another",
                    place=trace.source or self._workload.source,
                    remedy="expand the workload to a file per rank (et-convert expand)",
                )
            known[rows] = numbers
