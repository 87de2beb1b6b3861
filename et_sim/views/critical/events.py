"""Causal events of a run, read block by block, and the nodes that they belong to.

Events are in causal order: the predecessors of an event precede it. The record of a large run is too long to
be held as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import UsageError
from et_sim.tables.declaration import SHARED_LINKS
from et_sim.views.run.columns import Words, integers, numbers, words
from et_sim.views.run.directory import AGAIN, RunDirectory
from et_sim.views.run.rows import RunGroups
from et_sim.views.run.selection import recorded_part
from et_sim.views.text import shortened

NONE = -1
# Values of the column `kind`; events in which time passes come first.
TIMES = ("late_start", "node", "contention", "latency", "serialisation", "endpoint", "reduction", "bus")
LIBRARY = "library"  # time of a collective library besides the wires
PACKETS = ("window", "packet_queue", "resending")  # of messages as packets
SWITCHES = ("switch", "switch_rate")
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
SETS_DURATIONS = (*TIMES, LIBRARY, *PACKETS, *SWITCHES)
KINDS = (*SETS_DURATIONS, *QUEUES, *MEETINGS, *OTHERS)


def is_kind(kind: Any, *names: str) -> Any:
    """Return which events are of these kinds, given their codes."""
    return np.array([name in names for name in KINDS])[kind]


def narrow(count: int) -> type:
    """Return the smallest integer type for indices of this many events."""
    return np.int32 if count < np.iinfo(np.int32).max else np.int64


BY_LOAD = ("offlineGreedy", "offlineGreedyFlex", "themis", "themisFlex")  # orders of dimensions
TO = "->"  # in the names of links of a graph, which are unique by themselves
PART_FIGURES = ("launch_ns", "arithmetic_ns", "traffic_ns")
PART_WORDS = ("peak", "efficiency", "level", "memory_efficiency")
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


class PathNodes(Struct, frozen=True, eq=False):
    """Columns of the timeline that paths need."""

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
    parts: Mapping[str, Any] | None  # of the times of kernels; None: they follow from utilisation


def _adapts(configuration: Any) -> bool:
    """Return whether collectives are chosen by figures of the machine, so that other figures change them."""
    system = configuration.get("system") if isinstance(configuration, Mapping) else None
    if not isinstance(system, Mapping):
        return True  # the run does not hold its configuration
    return "library" in system or system.get("inter-dimension-scheduling") in BY_LOAD


class RecordedEvents:
    """The causal events of a run; -1 stands for none."""

    def __init__(self, run: RunDirectory) -> None:
        if not run.holds("path"):
            raise UsageError(
                "did not record its causal events",
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
        self.is_exact = SHARED_LINKS.encode() not in run.metadata("path")  # no shared links
        self.adapts = _adapts(run.manifest.get("configuration"))
        self._run, self.place = run, str(run.table_path("path"))

    def __len__(self) -> int:
        return sum(self.lengths)

    @cached_property
    def lengths(self) -> list[int]:
        """Return the number of events of each block."""
        return [len(rows) for rows in self._run.batches("path", ("kind",))]

    def blocks(self, columns: Sequence[str], chosen: Sequence[int] | None = None) -> Iterator[dict[str, Any]]:
        """Yield these columns of all blocks, or of the `chosen` ones; -1 stands for none."""
        for rows in self._run.batches("path", columns, chosen):
            yield {name: self._column(name, rows[name]) for name in columns}

    def _column(self, name: str, column: Any) -> Any:
        if name == "kind":
            return _recoded(words(column), self.place)
        if name == "link":
            return words(column)
        return integers(column.view("int64") if name == "node" else column, missing=NONE)

    @cached_property
    def link_names(self) -> list[str]:
        """Return the names of links, by index."""
        columns = self._run.table("resources").select(["dimension", "actor", "link"]).to_pydict()
        rows = zip(columns["dimension"], columns["actor"], columns["link"], strict=True)
        ranks = self._run.actors()["ranks"].to_pylist()
        owners = [f"rank{'' if text.isdecimal() else 's'} {shortened(text, 16)}" for text in ranks]
        return [
            link if TO in link or actor is None else f"dimension {dimension}: {owners[actor]} {link}"
            for dimension, actor, link in rows
        ]

    def check_links(self, resource: Any) -> None:
        """Refuse indices of links that do not exist."""
        if len(resource) and not 0 <= resource.min() <= resource.max() < len(self.link_names):
            raise UsageError("names links that resources.arrow has not", place=self.place, remedy=AGAIN)

    @cached_property
    def nodes(self) -> PathNodes:
        """Return all nodes of the run."""
        has_parts = PART_FIGURES[0] in self._run.columns("timeline")
        columns = (*NODE_COLUMNS, *((*PART_FIGURES, *PART_WORDS) if has_parts else ()))
        rows = self._run.table("timeline", columns).unify_dictionaries().combine_chunks()
        parts: dict[str, Any] = {}
        if has_parts:
            parts = {name: numbers(rows[name]) for name in PART_FIGURES}
            parts |= {name: words(rows[name]) for name in PART_WORDS}
        names = words(rows["name"])
        stems, groups, actor = self._run.stems, words(rows["group"]), numbers(rows["actor"]).astype(np.int64)
        return PathNodes(
            actor=actor,
            node=numbers(rows["node"]),
            kind=words(rows["kind"]),
            name=names,
            stem=Words(stems.texts, stems.codes[names.codes]),
            group=RunGroups(self._run).together(actor, groups.codes, groups.texts),
            lane=words(rows["lane"]),
            treatment=words(rows["treatment"]),
            start_cause=words(rows["start_cause"]),
            compute_utilisation=numbers(rows["compute_utilisation"]),
            memory_utilisation=numbers(rows["memory_utilisation"]),
            parts=parts or None,
        )

    def nodes_of(self, actor: Any, node: Any) -> Any:
        """Return the rows in `nodes` of these actors and their nodes; -1: none."""
        ids, known = self._row_keys
        if not len(known):
            return np.full(len(actor), NONE)
        wanted = actor.astype(np.int64) * len(ids) + np.searchsorted(ids, node.view(np.uint64))
        row = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.where((actor != NONE) & (known[row] == wanted), row, NONE)

    @cached_property
    def _row_keys(self) -> tuple[Any, Any]:
        """Return the distinct ids of nodes, and an ascending number for each row of the timeline."""
        ids, code = np.unique(self.nodes.node, return_inverse=True)
        return ids, self.nodes.actor * len(ids) + code.reshape(-1)


def _recoded(kinds: Words, place: str) -> Any:
    unknown = [text for text in kinds.texts if text is not None and text not in KINDS]
    if unknown:
        raise UsageError(f"holds events of an unknown kind, {unknown[0]!r}", place=place, remedy=AGAIN)
    of_code = np.array([KINDS.index(text) if text else 0 for text in kinds.texts], np.int8)
    return of_code[kinds.codes]
