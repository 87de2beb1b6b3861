"""The templates of a workload to the file of each rank, with everything that the templates say.

Distances become ranks, and groups that follow a rule become numbers, which a groups file lists.

Not here: workloads that are made in Python and have no files (`et_sim.trace.files`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from converters.editing.attributes import set_attributes
from converters.editing.groups import groups_text
from converters.files import trace_path
from converters.records import frame_bytes, split
from et_sim.trace import GroupRule, Workload, decode
from et_sim.trace.columns import Has, NodeKind
from et_sim.trace.files import groups_path
from et_sim.trace.process_groups import group_key
from et_sim.trace.schema import messages


class Files:
    """Writes the files of all ranks of a workload whose templates are `contents`."""

    def __init__(self, workload: Workload, contents: list[bytes], prefix: str) -> None:
        self._workload = workload
        self._prefix = prefix
        self._templates = [
            _Template(content, workload.has_relative_peers(at), workload.group_rules)
            for at, content in enumerate(contents)
        ]
        self._first = _first_numbers(workload)

    def of_ranks(self) -> Iterator[tuple[Path, bytes]]:
        """One file after the other."""
        last: dict[int, tuple[tuple[int, ...], bytes]] = {}  # by template, what was written last
        for rank, number in enumerate(self._workload.template_of_rank.tolist()):
            template = self._templates[number]
            groups = {name: first + self._rule(name).index(rank) for name, first in self._first.items()}
            key = (rank if template.names_peers else -1, *groups.values())
            if number not in last or last[number][0] != key:
                last[number] = key, template.of_rank(rank, self._workload.ranks, groups)
            yield trace_path(self._prefix, rank), last[number][1]

    def groups(self) -> list[tuple[Path, bytes]]:
        """The groups file, if there are groups by rule."""
        listed = {}
        for name, first in self._first.items():
            rule = self._rule(name)
            for rank in range(self._workload.ranks):
                if rule.position(rank) == 0:
                    listed[str(first + rule.index(rank))] = rule.members(rank)
        return [(groups_path(self._prefix), groups_text(listed))] if listed else []

    def _rule(self, name: str) -> GroupRule:
        return self._workload.group_rules[name]


class _Template:
    """The records of a template; those that differ from rank to rank as messages."""

    def __init__(self, content: bytes, is_relative: bool, rules: Mapping[str, GroupRule]) -> None:
        trace = decode(content)
        self.records: list[Any] = list(split(content))
        self._changes: list[tuple[int, str, list[str]]] = []  # record, group, columns with distances
        row_of = {node_id: row for row, node_id in enumerate(trace.node_id.tolist())}
        kind = messages().Node
        has_ends = {Has.COMM_SRC: "comm_src", Has.COMM_DST: "comm_dst"}
        for at, record in enumerate(self.records[1:], start=1):
            node = kind.FromString(record)
            row = row_of[node.id]
            name = trace.group_names[int(trace.group[row])]
            group = name if trace.kind[row] == NodeKind.COLL and name in rules else ""
            is_message = trace.kind[row] in (NodeKind.SEND, NodeKind.RECV)
            present = int(trace.present[row])
            ends = [column for bit, column in has_ends.items() if present & bit]
            if group or (is_relative and is_message):
                self.records[at] = node
                self._changes.append((at, group, ends if is_message else []))
        self._trace, self._row_of = trace, row_of
        self.names_peers = any(ends for _, _, ends in self._changes)

    def of_rank(self, rank: int, ranks: int, groups: Mapping[str, int]) -> bytes:
        """The file of one rank."""
        records = self.records.copy()
        for at, group, ends in self._changes:
            node = messages().Node()
            node.CopyFrom(self.records[at])
            row = self._row_of[node.id]
            values: dict[str, Any] = {
                column: (rank + int(getattr(self._trace, column)[row])) % ranks for column in ends
            }
            if group:
                values["pg_name"] = str(groups[group])
            set_attributes(node, values)
            records[at] = node.SerializeToString(deterministic=True)
        return frame_bytes(records)


def _first_numbers(workload: Workload) -> dict[str, int]:
    """The number of the first group of every rule, above all numbers that traces give groups."""
    named = [group_key(name) for trace in workload.templates for name in trace.group_names]
    taken = [int(name) for name in named if name.isdecimal() and name not in workload.group_rules]
    following = max(taken, default=0) + 1
    numbers = {}
    for name, rule in workload.group_rules.items():
        numbers[name] = following
        following += workload.ranks // rule.size
    return numbers
