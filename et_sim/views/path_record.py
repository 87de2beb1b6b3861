"""The record of what let everything happen, as columns that the analyses share.

Moments stand in the order in which they came about: whatever one needs stands above it. Not here: what is
read off it (`critical_path`, `slack`, `sensitivity`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from et_sim.errors import UsageError
from et_sim.views.operations import Words, integers, stems_of, words
from et_sim.views.run_directory import AGAIN, PATH, RunDirectory

NONE = -1
# The words of the column `what` that the views know; those in which time passes come first.
TIMES = ("late_start", "node", "latency", "serialisation", "endpoint", "reduction", "bus")
QUEUES = ("link_queue", "server_queue", "bus_queue")
MEETINGS = (
    "begin",
    "node_start",
    "node_end",
    "chunk_queued",
    "chunk_start",
    "parents",
    "lane",
    "room",
    "link",
)
OTHERS = ("server", "bus_side", "receive", "request", "bundles", "half", "chunks", "together", "bound")
WHAT = (*TIMES, *QUEUES, *MEETINGS, *OTHERS)
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


class PathRecord:
    """The moments of a run; -1 stands for none."""

    def __init__(self, run: RunDirectory) -> None:
        table = run.path_record()
        if table is None:
            raise UsageError(
                "did not record what let everything happen",
                place=str(run.path),
                remedy="simulate again with et-sim run … --detail path",
            )
        self.makespan_ns: int = run.summary["makespan_ns"]
        self.is_complete = run.summary["status"] == "complete"
        self.by, self.also, self.place, self.actor = (
            integers(table[name], missing=NONE) for name in ("by", "also", "place", "actor")
        )
        self.start_ns, self.end_ns = (integers(table[name], missing=NONE) for name in ("start_ns", "end_ns"))
        self._node_id = integers(table["node"].combine_chunks().view("int64"), missing=0)
        self.what = _recoded(words(table["what"].unify_dictionaries()), str(run.path / PATH))
        self.link = words(table["link"].unify_dictionaries())
        self._run = run
        metadata = table.schema.metadata or {}
        self._links = json.loads(metadata.get(b"links", b"[]"))
        self.routes_by_bandwidth = metadata.get(b"routes") == b"by bandwidth"
        self._check(str(run.path / PATH))

    def __len__(self) -> int:
        return len(self.by)

    def _check(self, place: str) -> None:
        """Whatever an analysis relies on."""
        rows = np.arange(len(self))
        in_order = (self.by < rows).all() and (self.also < rows).all() and len(self) > 0
        if not in_order or not (self.start_ns == self.needed_ns()).all():
            raise UsageError("its moments do not follow from each other", place=place, remedy=AGAIN)

    def needed_ns(self) -> Any:
        """When all that a moment needs had come."""
        before = np.where(self.by < 0, 0, self.end_ns[self.by])
        return np.maximum(before, np.where(self.also < 0, 0, self.end_ns[self.also]))

    def is_what(self, *names: str) -> Any:
        """Which moments are of these kinds."""
        return np.isin(self.what, [WHAT.index(name) for name in names])

    def link_name(self, place: int) -> str:
        """What a link is called that has a number of its own (link model)."""
        dimension = max(row for row, one in enumerate(self._links) if one["first"] <= place)
        actor, port = divmod(place - self._links[dimension]["first"], len(self._links[dimension]["ports"]))
        return f"dimension {dimension}: actor {actor} {self._links[dimension]['ports'][port]}"

    @cached_property
    def last(self) -> int:
        """The moment at which the run was over: the end of its last node; in a stall, whatever was last."""
        ends = np.flatnonzero(self.end_ns == self.makespan_ns)
        if self.is_complete:
            ends = ends[self.is_what("node_end")[ends]]
        return int(ends[-1]) if len(ends) else 0

    @cached_property
    def nodes(self) -> Nodes:
        """All nodes of the run."""
        rows = self._run.timeline(NODE_COLUMNS).unify_dictionaries().combine_chunks()
        names = words(rows["name"])
        stems = stems_of(names)
        return Nodes(
            actor=rows["actor"].to_numpy().astype(np.int64),
            node=rows["node"].to_numpy(),
            kind=words(rows["kind"]),
            name=names,
            stem=Words(stems.texts, stems.codes[names.codes]),
            group=words(rows["group"]),
            lane=words(rows["lane"]),
            treatment=words(rows["treatment"]),
            start_cause=words(rows["start_cause"]),
            compute_utilisation=rows["compute_utilisation"].to_numpy(),
            memory_utilisation=rows["memory_utilisation"].to_numpy(),
        )

    def nodes_of(self, moments: Any) -> Any:
        """The row in `nodes` of what some moments are about; -1: of nothing."""
        nodes = self.nodes
        ids, code = np.unique(nodes.node, return_inverse=True)
        known = nodes.actor * len(ids) + code.reshape(-1)  # ascending, as the timeline's rows are
        actor, node = self.actor[moments], self._node_id[moments].view(np.uint64)
        wanted = actor * len(ids) + np.searchsorted(ids, node)
        row = np.minimum(np.searchsorted(known, wanted), max(len(known) - 1, 0))
        return np.where((actor != NONE) & (known[row] == wanted), row, NONE) if len(known) else actor * 0 - 1


def _recoded(found: Words, place: str) -> Any:
    unknown = [text for text in found.texts if text is not None and text not in WHAT]
    if unknown:
        raise UsageError(f"holds moments of an unknown kind, {unknown[0]!r}", place=place, remedy=AGAIN)
    of_code = np.array([WHAT.index(text) if text else 0 for text in found.texts], np.int8)
    return of_code[found.codes]
