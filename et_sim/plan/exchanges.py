"""All-to-alls with bytes for each pair of members: the whole matrix of each, from what its members say.

A trace says what its rank sends to each member. The k-th such all-to-all of a group on one member is the
k-th on all others, in the order of their programs, so that all know what they receive. Equal matrices have
one number. Not here: what becomes of a matrix (`exchange_phases`), and what a trace may say (`trace.splits`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.basics.errors import TraceError
from et_sim.basics.units import plural
from et_sim.plan.groups import WHOLE_SYSTEM, GroupTable
from et_sim.trace.columns import IntColumn, Trace
from et_sim.trace.order import edges, fits_row_order, issue_order
from et_sim.trace.process_groups import read_process_groups
from et_sim.trace.splits import ATTRIBUTE, has_splits, sizes_of_texts, split_faults
from et_sim.trace.workload import Workload

PLAIN = -1  # the number of a collective that is none of these
_NONE = -1


@dataclass(slots=True)
class _Program:
    """What a template exchanges in a group, in order."""

    rows: IntColumn
    texts: tuple[int, ...]


class Exchanges:
    """The matrices of a workload, by number; `numbers[t][row]` is that of a node of template t."""

    def __init__(self, workload: Workload, groups: GroupTable, *, communicates: bool) -> None:
        self._workload, self._groups = workload, groups
        self._sizes: list[IntColumn] = []  # by text
        self._text: dict[str, int] = {}
        self._matrices: list[Any] = []
        self._number: dict[tuple[int, ...], int] = {}  # by the texts of all members
        self.numbers: list[Any] = [None] * len(workload.templates)
        programs: dict[str, dict[int, _Program]] = {}  # by canonical name of a group, then by template
        for template in np.unique(workload.template_of_rank).tolist():
            trace = workload.templates[template]
            if communicates and has_splits(trace).any():
                self._read(template, trace, trace.source or workload.source, programs)
        for name in sorted(programs):
            self._match(name, programs[name])

    @property
    def are_any(self) -> bool:
        """Whether any collective is one of these."""
        return bool(self._matrices)

    def matrix(self, number: int) -> Any:
        """Bytes from each member (a row) to each member, in the order of their positions."""
        return self._matrices[number]

    def of_rows(self, template: int, rows: Any) -> Any:
        """The numbers of nodes."""
        known = self.numbers[template]
        return np.full(len(rows), PLAIN, np.int64) if known is None else known[rows]

    def _read(
        self, template: int, trace: Trace, place: str, programs: dict[str, dict[int, _Program]]
    ) -> None:
        for fault in split_faults(trace):
            node = trace.describe(int(np.argmax(fault.wrong)))
            raise TraceError(f"{node} {fault.what}", place=place, remedy=fault.remedy)
        rows = np.flatnonzero(has_splits(trace)).astype(np.int32)
        rows = rows if fits_row_order(*edges(trace)) else issue_order(trace, rows)[0]
        own, sizes = read_process_groups(trace), sizes_of_texts(trace)
        name_of = {
            group: self._groups.canonical(trace.group_names[group], place, own)
            for group in np.unique(trace.group[rows]).tolist()
        }
        names = np.array([name_of[group] for group in trace.group[rows].tolist()])
        text_of = [self._known_text(text, of) for text, of in zip(trace.split_texts, sizes, strict=True)]
        for name in dict.fromkeys(names.tolist()):
            of_name = rows[names == name]
            texts = tuple(text_of[text] for text in trace.splits[of_name].tolist())
            programs.setdefault(name, {})[template] = _Program(of_name, texts)
        self.numbers[template] = np.full(len(trace), PLAIN, np.int64)

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
        contents, first, of_group = np.unique(of_member, axis=0, return_index=True, return_inverse=True)
        of_group, listed = of_group.reshape(-1), list(different)
        for number, (content, at) in enumerate(zip(contents.tolist(), first.tolist(), strict=True)):
            texts = [listed[of] if of != _NONE else () for of in content]
            self._check(name, members[at], texts)
            numbers = np.array([self._numbered(row, order) for row in zip(*texts, strict=True)], np.int64)
            self._note(name, members[of_group == number], numbers, programs)

    def _check(self, name: str, members: Any, texts: list[tuple[int, ...]]) -> None:
        """Refuse members that exchange more often than others, and lists that do not fit the group."""
        shown = self._groups.used(name).name or "all"
        counts = [len(of) for of in texts]
        if min(counts) != max(counts):
            few, many = (int(members[counts.index(count)]) for count in (min(counts), max(counts)))
            raise TraceError(
                f"rank {many} has {plural(max(counts), 'all-to-all')} with {ATTRIBUTE} in communicator group"
                f" {shown}, and rank {few} {min(counts) or 'none'}",
                place=self._workload.source,
                remedy=f"give all members of an all-to-all {ATTRIBUTE}, or none of them",
            )
        for rank, of in zip(members.tolist(), texts, strict=True):
            for text in of:
                if len(self._sizes[text]) != len(members):
                    raise TraceError(
                        f"rank {rank} lists {plural(len(self._sizes[text]), 'size')} in {ATTRIBUTE}, and"
                        f" communicator group {shown} has {plural(len(members), 'member')}",
                        place=self._workload.trace(rank).source or self._workload.source,
                        remedy="list what the rank sends to every member, its own share included",
                    )

    def _numbered(self, texts: tuple[int, ...], order: Any) -> int:
        """The number of a matrix whose rows are texts; columns are in the order of the listed group."""
        key = (*texts, *order.tolist())
        if key not in self._number:
            self._number[key] = len(self._matrices)
            self._matrices.append(np.stack([self._sizes[text] for text in texts])[:, order])
        return self._number[key]

    def _note(self, name: str, members: Any, numbers: IntColumn, programs: dict[int, _Program]) -> None:
        for template in np.unique(self._workload.template_of_rank[members]).tolist():
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
