"""The record of what let everything happen, as columns that the analyses share.

Events stand in the order in which they came about: whatever one needs stands above it. Not here: what is
read off it (`path`, `slack`, `sensitivity`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from et_sim.errors import UsageError
from et_sim.tables.kinds import SHARED_LINKS
from et_sim.tables.registry import table_named
from et_sim.views.run.columns import Words, coded, integers, numbers, words
from et_sim.views.run.directory import AGAIN, RunDirectory
from et_sim.views.run.groups import Groups
from et_sim.views.run.names import stems_of
from et_sim.views.run.recorded_part import recorded_part
from et_sim.views.text import shortened

NONE = -1
TO = "->"  # in the names of links of a graph, which say all by themselves
# The words of the column `kind` that the views know; those in which time passes come first.
TIMES = ("late_start", "node", "contention", "latency", "serialisation", "endpoint", "reduction", "bus")
PACKETS = ("window", "packet_queue", "resending")  # and there, of messages as packets
SWITCHES = ("switch", "switch_rate")  # time passes there, too
QUEUES = ("link_queue", "server_queue", "bus_queue")
MEETINGS = (
    "begin",
    "node_start",
    "node_end",
    "chunk_queued",
    "chunk_start",
    "parents",
    "lane",
    "queue_slot",
    "link",
)
OTHERS = (
    "server",
    "bus_side",
    "receive",
    "request",
    "endpoint_transfers",
    "half",
    "chunks",
    "barrier",
    "bound",
)
KINDS = (*TIMES, *PACKETS, *SWITCHES, *QUEUES, *MEETINGS, *OTHERS)
PART_FIGURES = ("launch_ns", "arithmetic_ns", "traffic_ns")
PART_WORDS = ("peak", "efficiency", "level", "memory_efficiency")
AT_ONCE = 1 << 20  # events
NODE_COLUMNS = (
    "actor",
    "node",
    "name",
    "kind",
    "lane",
    "treatment",
    "group",
    "start_cause",
    "compute_utilisation",
    "memory_utilisation",
)


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The timeline's rows, as far as paths are concerned."""

    actor: Any
    node: Any
    kind: Words
    name: Words
    stem: Words
    group: Words
    lane: Words
    treatment: Words
    start_cause: Words
    compute_utilisation: Any
    memory_utilisation: Any
    parts: Mapping[str, Any] | None  # what times of kernels consist of; None: their utilisation says it


class PathRecord:
    """The causal events of a run; -1 stands for none."""

    def __init__(self, run: RunDirectory) -> None:
        if not run.holds("path"):
            raise UsageError(
                "did not record what let everything happen",
                place=str(run.path),
                remedy="simulate again with et-sim run … --detail path",
            )
        kept = recorded_part(run)
        if kept:
            raise UsageError(
                f"holds only the nodes of {kept}, and a critical path leads through all of them",
                place=str(run.path),
                remedy="simulate again without --ranks and --window",
            )
        self.makespan_ns: int = run.summary["makespan_ns"]
        self.is_complete = run.summary["status"] == "complete"
        self.is_exact = SHARED_LINKS.encode() not in run.metadata("path")  # as long as the path is the same
        self._run, place = run, str(run.table_path("path"))
        columns = _columns(run, place)
        self.critical_parent, self.other_parent = columns["critical_parent"], columns["other_parent"]
        self.resource, self.actor = columns["resource"], columns["actor"]
        self.start_ns, self.end_ns = columns["start_ns"], columns["end_ns"]
        self.node_id, self.kind, self.link = columns["node"], columns["kind"], columns["link"]
        self._check(place)

    def __len__(self) -> int:
        return len(self.critical_parent)

    def _check(self, place: str) -> None:
        """Whatever an analysis relies on."""
        in_order = len(self) > 0
        for first in range(0, len(self), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            rows = np.arange(first, min(first + AT_ONCE, len(self)))
            in_order &= bool(
                (self.critical_parent[part] < rows).all() and (self.other_parent[part] < rows).all()
            )
            in_order = in_order and bool((self.start_ns[part] == self._needed_ns(part)).all())
        if not in_order:
            raise UsageError("its events do not follow from each other", place=place, remedy=AGAIN)

    def _needed_ns(self, part: slice) -> Any:
        """When all that some events need had come."""
        by, also = self.critical_parent[part], self.other_parent[part]
        return np.maximum(np.where(by < 0, 0, self.end_ns[by]), np.where(also < 0, 0, self.end_ns[also]))

    def is_kind(self, *names: str) -> Any:
        """Which events are of these kinds."""
        return np.array([kind in names for kind in KINDS])[self.kind]

    @cached_property
    def link_names(self) -> list[str]:
        """What links are called, by their numbers."""
        columns = self._run.table("resources").select(["dimension", "actor", "link"]).to_pydict()
        rows = zip(columns["dimension"], columns["actor"], columns["link"], strict=True)
        ranks = self._run.actors()["ranks"].to_pylist()
        whose = [f"rank{'' if text.isdecimal() else 's'} {shortened(text, 16)}" for text in ranks]
        return [
            link if TO in link or actor is None else f"dimension {dimension}: {whose[actor]} {link}"
            for dimension, actor, link in rows
        ]

    @cached_property
    def last(self) -> int:
        """The event at which the run was over: the end of its last node; in a stall, whatever was last."""
        ends = np.flatnonzero(self.end_ns == self.makespan_ns)
        if self.is_complete:
            ends = ends[self.is_kind("node_end")[ends]]
        return int(ends[-1]) if len(ends) else 0

    @cached_property
    def nodes(self) -> Nodes:
        """All nodes of the run."""
        has_parts = PART_FIGURES[0] in self._run.columns("timeline")
        columns = (*NODE_COLUMNS, *((*PART_FIGURES, *PART_WORDS) if has_parts else ()))
        rows = self._run.table("timeline", columns).unify_dictionaries().combine_chunks()
        parts: dict[str, Any] = {}
        if has_parts:
            parts = {name: numbers(rows[name]) for name in PART_FIGURES}
            parts |= {name: words(rows[name]) for name in PART_WORDS}
        names = words(rows["name"])
        stems, groups, actor = stems_of(names), words(rows["group"]), numbers(rows["actor"]).astype(np.int64)
        return Nodes(
            actor=actor,
            node=numbers(rows["node"]),
            kind=words(rows["kind"]),
            name=names,
            stem=Words(stems.texts, stems.codes[names.codes]),
            group=Groups(self._run).together(actor, groups.codes, groups.texts),
            lane=words(rows["lane"]),
            treatment=words(rows["treatment"]),
            start_cause=words(rows["start_cause"]),
            compute_utilisation=numbers(rows["compute_utilisation"]),
            memory_utilisation=numbers(rows["memory_utilisation"]),
            parts=parts or None,
        )

    def nodes_of(self, events: Any) -> Any:
        """The row in `nodes` of what some events are about; -1: of nothing."""
        nodes = self.nodes
        ids, code = np.unique(nodes.node, return_inverse=True)
        known = nodes.actor * len(ids) + code.reshape(-1)  # ascending, as the timeline's rows are
        actor, node = self.actor[events], self.node_id[events].view(np.uint64)
        wanted = actor.astype(np.int64) * len(ids) + np.searchsorted(ids, node)
        row = np.minimum(np.searchsorted(known, wanted), max(len(known) - 1, 0))
        return np.where((actor != NONE) & (known[row] == wanted), row, NONE) if len(known) else actor * 0 - 1


def _columns(run: RunDirectory, place: str) -> dict[str, Any]:
    """The columns of the record, each as narrow as it can be: they are long."""
    count = sum(len(rows) for rows in run.batches("path", ("kind",)))
    narrow = np.int32 if count <= np.iinfo(np.int32).max else np.int64
    names = table_named("path").column_names
    kinds: dict[str, Any] = dict.fromkeys(names, np.int64)
    kinds |= {"critical_parent": narrow, "other_parent": narrow}
    kinds |= {"resource": np.int32, "actor": np.int32, "link": np.int32, "kind": np.int8}
    columns: dict[str, Any] = {name: np.empty(count, kind) for name, kind in kinds.items()}
    texts: tuple[str | None, ...] = (None,)
    first = 0
    for rows in run.batches("path", names):
        if first == 0:
            texts = (*rows["link"].dictionary.to_pylist(), None)  # the same in all batches
        here = slice(first, first + len(rows))
        for name in ("critical_parent", "other_parent", "resource", "actor", "start_ns", "end_ns"):
            columns[name][here] = integers(rows[name], missing=NONE)
        columns["node"][here] = integers(rows["node"].view("int64"), missing=0)
        columns["kind"][here] = _recoded(words(rows["kind"]), place)
        columns["link"][here] = coded(rows["link"])
        first += len(rows)
    columns["link"] = Words(texts, columns["link"])
    return columns


def _recoded(found: Words, place: str) -> Any:
    unknown = [text for text in found.texts if text is not None and text not in KINDS]
    if unknown:
        raise UsageError(f"holds events of an unknown kind, {unknown[0]!r}", place=place, remedy=AGAIN)
    of_code = np.array([KINDS.index(text) if text else 0 for text in found.texts], np.int8)
    return of_code[found.codes]
