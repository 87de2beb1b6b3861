"""Expansion of the templates of a workload to the file of each rank, with all content of the templates.

Distances become ranks, and groups that follow a rule become numbers, which a groups file lists. The rest of
each record is copied, so that fields which the simulator ignores survive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from converters.editing.files import recorded_as, set_attributes
from converters.editing.groups import groups_text
from converters.files import trace_path
from converters.records import frame_bytes
from et_sim.trace import Trace, Workload
from et_sim.trace.columns import NodeKind
from et_sim.trace.expansion import Expansion
from et_sim.trace.files import groups_path
from et_sim.trace.schema import messages

_ENDS = ("comm_src", "comm_dst")


class Files:
    """A writer of the files of ranks; the templates of the workload are read from `contents`."""

    def __init__(self, workload: Workload, contents: Sequence[bytes], prefix: str) -> None:
        self._workload = workload
        self._prefix = prefix
        self._expansion = Expansion(workload)
        self._templates = [
            _Template(workload, template, content) for template, content in enumerate(contents)
        ]

    def of_ranks(self, ranks: Sequence[int]) -> tuple[list[Path], Iterator[tuple[Path, bytes]]]:
        """Return the paths of all files, the groups file last, and an iterator of the files."""
        groups = self._groups()
        paths = [*(trace_path(self._prefix, rank) for rank in ranks), *(path for path, _ in groups)]
        return paths, chain(self._traces(ranks), groups)

    def _traces(self, ranks: Iterable[int]) -> Iterator[tuple[Path, bytes]]:
        last: dict[int, tuple[tuple[int, ...], bytes]] = {}  # by template: last variant and file
        for rank in ranks:
            template = int(self._workload.template_of_rank[rank])
            variant = self._expansion.variant(rank)
            if template not in last or last[template][0] != variant:
                content = self._templates[template].of_rank(rank, self._expansion.number)
                last[template] = variant, content
            yield trace_path(self._prefix, rank), last[template][1]

    def _groups(self) -> list[tuple[Path, bytes]]:
        """Return the groups file if there are groups by rule."""
        if not self._workload.group_rules:
            return []
        listed = self._expansion.groups
        return [(groups_path(self._prefix), groups_text(listed))]


class _Template:
    """The records of a template; those that differ from rank to rank are parsed messages."""

    def __init__(self, workload: Workload, template: int, content: bytes) -> None:
        trace = workload.templates[template]
        recorded = recorded_as(trace, content)
        self._template, self._ranks = template, workload.ranks
        self._records: list[Any] = [recorded.header, *recorded.records]
        self._changes: list[tuple[int, str, dict[str, int]]] = []  # record, group, distances
        is_relative = workload.has_relative_peers(template)
        for at, row in enumerate(recorded.row.tolist(), start=1):
            name = trace.group_names[int(trace.group[row])]
            group = name if name in workload.group_rules else ""
            ends = _ends(trace, row) if is_relative else {}
            if group or ends:
                self._records[at] = messages().Node.FromString(self._records[at])
                self._changes.append((at, group, ends))

    def of_rank(self, rank: int, number: Callable[[str, int, int], str]) -> bytes:
        """Return the file of one rank."""
        records = self._records.copy()
        for at, group, ends in self._changes:
            node = messages().Node()
            node.CopyFrom(self._records[at])
            values: dict[str, Any] = {end: (rank + distance) % self._ranks for end, distance in ends.items()}
            if group:
                values["pg_name"] = number(group, rank, self._template)
            set_attributes(node, values)
            records[at] = node.SerializeToString(deterministic=True)
        return frame_bytes(records)


def _ends(trace: Trace, row: int) -> dict[str, int]:
    """Return the ends of a message, which are distances."""
    if trace.kind[row] not in (NodeKind.SEND, NodeKind.RECV):
        return {}
    return {end: int(getattr(trace, end)[row]) for end in _ENDS if trace.has(end, row)}
