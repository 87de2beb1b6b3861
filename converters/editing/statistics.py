"""What is in a trace, in figures: nodes, dependencies, depth, durations, communication, memory.

Figures of several ranks are added up; depths, paths and longest nodes are the largest of any rank.

Not here: figures as text (`figures_text`), and anything that depends on a machine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from converters.editing.delays import durations_ns
from converters.editing.inputs import Recorded, start_micros
from converters.editing.remove_nodes import Lists
from et_sim.basics.errors import TraceError
from et_sim.basics.group_names import group_key
from et_sim.trace import Trace
from et_sim.trace.columns import CollectiveKind, NodeKind, kind_name
from et_sim.trace.order import edges, fits_row_order, settle
from et_sim.trace.tensors import tensor_uses

# A number that is a word of a name, as in "layer 3 forward" or "all_reduce.7"; not a part, as in "conv2d".
_NUMBER = re.compile(r"(?:(?<=[._ :-])|#)[0-9]+(?=[._ :-]|$)")


@dataclass(slots=True)
class Tally:
    """How many, how long altogether, and the longest."""

    nodes: int = 0
    total_ns: int = 0
    longest_ns: int = 0
    longest: str = ""

    def add(self, other: Tally, times: int) -> None:
        """The figures of `times` ranks more."""
        self.nodes += times * other.nodes
        self.total_ns += times * other.total_ns
        if other.longest_ns > self.longest_ns:
            self.longest_ns, self.longest = other.longest_ns, other.longest


@dataclass(slots=True)
class Figures:
    """Of one trace, or of many together."""

    ranks: int = 0
    nodes: Counter[str] = field(default_factory=Counter)  # by kind
    host_nodes: int = 0
    dependencies: Counter[str] = field(default_factory=Counter)  # data, control, dangling
    first_nodes: int = 0  # that wait for nothing
    last_nodes: int = 0  # that nothing waits for
    depth: int = 0  # nodes on the longest way through the graph; 0 if there is a circle
    path_ns: int = 0  # longest sum of recorded durations on any way
    durations: dict[str, Tally] = field(default_factory=dict)  # by kind; computation by place
    names: dict[str, Tally] = field(default_factory=dict)  # a # stands for any number
    collectives: Counter[tuple[str, str, int]] = field(default_factory=Counter)  # (group, type, bytes)
    messages: Counter[int] = field(default_factory=Counter)  # sends, by bytes
    span_us: tuple[int, int] | None = None  # earliest recorded start, latest recorded end
    loaded_bytes: int = 0
    stored_bytes: int = 0
    tensors: int = 0
    tensor_bytes: int = 0

    def add(self, other: Figures, times: int) -> None:
        """The figures of `times` ranks that run the same trace."""
        self.ranks += times
        for name in ("host_nodes", "first_nodes", "last_nodes", "loaded_bytes", "stored_bytes"):
            setattr(self, name, getattr(self, name) + times * getattr(other, name))
        for name in ("nodes", "dependencies", "collectives", "messages"):
            counts = getattr(self, name)
            for key, count in getattr(other, name).items():
                counts[key] += times * count
        for name in ("durations", "names"):
            tallies = getattr(self, name)
            for key, tally in getattr(other, name).items():
                tallies.setdefault(key, Tally()).add(tally, times)
        for name in ("depth", "path_ns", "tensors", "tensor_bytes"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        if other.span_us:
            ends = (self.span_us or other.span_us, other.span_us)
            self.span_us = min(one[0] for one in ends), max(one[1] for one in ends)


def merged(parts: Iterable[tuple[Figures, int]]) -> Figures:
    """Of all ranks: the figures of each trace, and how many ranks run it."""
    whole = Figures()
    for figures, ranks in parts:
        whole.add(figures, ranks)
    return whole


def figures_of(recorded: Recorded) -> Figures:
    """The figures of one trace."""
    trace = recorded.trace
    found = Figures(ranks=1, host_nodes=int(trace.is_cpu.sum()))
    found.nodes.update(trace.kind_counts)
    _count_dependencies(found, trace)
    spans = durations_ns(trace)
    found.depth, found.path_ns = _depth_and_path(trace, spans)
    _tally(found, trace, spans)
    _count_communication(found, trace)
    _count_memory(found, trace)
    starts = start_micros(recorded)
    timed = trace.kind != NodeKind.METADATA
    if bool(starts[timed].any()):
        ends = starts[timed] + -(-spans[timed] // 1000)
        found.span_us = int(starts[timed].min()), int(ends.max())
    return found


def _count_dependencies(found: Figures, trace: Trace) -> None:
    counts = {
        "data": len(trace.data_deps),
        "control": len(trace.ctrl_deps),
        "dangling": trace.dropped_dependencies,
    }
    found.dependencies.update({name: count for name, count in counts.items() if count})
    has_parent = (np.diff(trace.data_start) > 0) | (np.diff(trace.ctrl_start) > 0)
    has_child = np.zeros(len(trace), np.bool_)
    has_child[trace.data_deps] = has_child[trace.ctrl_deps] = True
    found.first_nodes, found.last_nodes = int((~has_parent).sum()), int((~has_child).sum())


def _depth_and_path(trace: Trace, spans: Any) -> tuple[int, int]:
    """(nodes on the longest way, nanoseconds on the longest way); zeros if there is a circle."""
    parent, child = edges(trace)
    order, depth = settle(parent, child, np.ones(len(trace), np.uint8))
    if len(order) < len(trace):
        return 0, 0
    rows = range(len(trace)) if fits_row_order(parent, child) else order.tolist()
    data, ctrl = Lists(trace.data_start, trace.data_deps), Lists(trace.ctrl_start, trace.ctrl_deps)
    end: list[int] = spans.tolist()
    for row in rows:
        parents = (*data.of(row), *ctrl.of(row))
        if parents:
            end[row] += max(end[one] for one in parents if one != row)
    return int(depth.max(initial=0)), max(end, default=0)


def _tally(found: Figures, trace: Trace, spans: Any) -> None:
    """Recorded durations by kind, and by name."""
    is_host = trace.is_cpu & (trace.kind == NodeKind.COMP)
    kinds = [number for number in np.unique(trace.kind).tolist() if number != NodeKind.METADATA]
    places = {kind_name(number): (trace.kind == number) & ~is_host for number in kinds}
    for label, which in {"COMP on the host": is_host, **places}.items():
        rows = np.flatnonzero(which & (spans > 0))
        if len(rows):
            found.durations[label] = _one_tally(trace, spans, rows)
    rows = np.flatnonzero(spans > 0)
    by_name = rows[np.argsort(trace.name[rows], kind="stable")]
    for part in np.split(by_name, np.flatnonzero(np.diff(trace.name[by_name])) + 1):
        if len(part):
            stem = _NUMBER.sub("#", trace.node_name(int(part[0])))
            found.names.setdefault(stem, Tally()).add(_one_tally(trace, spans, part), 1)


def _one_tally(trace: Trace, spans: Any, rows: Any) -> Tally:
    longest = int(rows[np.argmax(spans[rows])])
    total = sum(spans[rows].tolist())  # of Python's numbers, which do not wrap around
    return Tally(len(rows), total, int(spans[longest]), f"{trace.describe(longest)} in {trace.source}")


def _count_communication(found: Figures, trace: Trace) -> None:
    names = {int(kind): kind.name.lower() for kind in CollectiveKind}
    rows = np.flatnonzero(trace.kind == NodeKind.COLL)
    has_type = trace.has("comm_type", rows)
    keys = zip(
        trace.group[rows].tolist(),
        np.where(has_type, trace.comm_type[rows], -1).tolist(),
        trace.comm_bytes[rows].tolist(),
        strict=True,
    )
    for (group, number, size), count in Counter(keys).items():
        kind = names.get(number, f"comm_type {number}" if number >= 0 else "no comm_type")
        found.collectives[group_key(trace.group_names[group]), kind, size] += count
    found.messages.update(trace.comm_bytes[trace.kind == NodeKind.SEND].tolist())


def _count_memory(found: Figures, trace: Trace) -> None:
    found.loaded_bytes = sum(trace.tensor_bytes[trace.kind == NodeKind.MEM_LOAD].tolist())
    found.stored_bytes = sum(trace.tensor_bytes[trace.kind == NodeKind.MEM_STORE].tolist())
    try:
        uses = tensor_uses(trace, trace.source)
    except TraceError:  # lists that are no tensors with sizes: a trace of other meaning
        return
    _, first = np.unique(uses.tensor, return_index=True)
    found.tensors, found.tensor_bytes = len(first), sum(uses.bytes[first].tolist())
