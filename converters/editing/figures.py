"""Figures of a trace: nodes, dependencies, depth, durations, communication, memory; as data and as text.

Figures of several ranks are summed; depth, path, longest nodes and tensors are the maximum over ranks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field

from converters.editing.files import RecordedTrace, start_micros
from converters.editing.stripping import durations_ns
from et_sim.basics.alignment import aligned
from et_sim.basics.errors import TraceError
from et_sim.basics.group_names import group_key
from et_sim.basics.unique import unique
from et_sim.basics.units import exact_bytes, format_bytes, format_ns, plural
from et_sim.trace import Trace
from et_sim.trace.columns import NodeKind, collective_name, kind_name
from et_sim.trace.order import dependency_lists, edges, fits_row_order, settle
from et_sim.trace.tensors import tensor_uses

# a number that is a word of a name, as in "layer 3 forward" or "all_reduce.7", but not in "conv2d"
_NUMBER = re.compile(r"(?:(?<=[._ :-])|#)[0-9]+(?=[._ :-]|$)")


class NodeTally(Struct):
    """A number of nodes, their total time, and the longest of them."""

    nodes: int = 0
    total_ns: int = 0
    longest_ns: int = 0
    longest: str = ""

    def add(self, other: NodeTally, times: int) -> None:
        """Add the figures of `times` ranks."""
        self.nodes += times * other.nodes
        self.total_ns += times * other.total_ns
        if other.longest_ns > self.longest_ns:
            self.longest_ns, self.longest = other.longest_ns, other.longest


class TraceFigures(Struct):
    """The figures of one trace, or of many together."""

    ranks: int = 0
    nodes: Counter[str] = field(default_factory=Counter)  # by kind
    host_nodes: int = 0
    dependencies: Counter[str] = field(default_factory=Counter)  # data, control, dangling
    first_nodes: int = 0  # without dependencies
    last_nodes: int = 0  # without dependents
    depth: int = 0  # nodes on the longest path through the graph; 0 if there is a cycle
    path_ns: int = 0  # longest sum of recorded durations on any path
    durations: dict[str, NodeTally] = field(default_factory=dict)  # by kind; computation by place
    names: dict[str, NodeTally] = field(default_factory=dict)  # a # stands for any number
    collectives: Counter[tuple[str, str, int]] = field(default_factory=Counter)  # (group, type, bytes)
    messages: Counter[int] = field(default_factory=Counter)  # sends, by bytes
    span_us: tuple[int, int] | None = None  # earliest recorded start, latest recorded end
    loaded_bytes: int = 0
    stored_bytes: int = 0
    tensors: int = 0
    tensor_bytes: int = 0

    def add(self, other: TraceFigures, times: int) -> None:
        """Add the figures of `times` ranks that run the same trace."""
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
                tallies.setdefault(key, NodeTally()).add(tally, times)
        for name in ("depth", "path_ns", "tensors", "tensor_bytes"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        if other.span_us:
            ends = (self.span_us or other.span_us, other.span_us)
            self.span_us = min(span[0] for span in ends), max(span[1] for span in ends)


def merged(parts: Iterable[tuple[TraceFigures, int]]) -> TraceFigures:
    """Return the figures of all ranks, given those of each trace and its number of ranks."""
    whole = TraceFigures()
    for figures, ranks in parts:
        whole.add(figures, ranks)
    return whole


def figures_of(recorded: RecordedTrace) -> TraceFigures:
    """Return the figures of one trace."""
    trace = recorded.trace
    figures = TraceFigures(ranks=1, host_nodes=int(trace.is_cpu.sum()))
    figures.nodes.update(trace.kind_counts)
    _count_dependencies(figures, trace)
    spans = durations_ns(trace)
    figures.depth, figures.path_ns = _depth_and_path(trace, spans)
    _add_tallies(figures, trace, spans)
    _count_communication(figures, trace)
    _count_memory(figures, trace)
    starts = start_micros(recorded)
    timed = trace.kind != NodeKind.METADATA
    if bool(starts[timed].any()):
        ends = starts[timed] + -(-spans[timed] // 1000)
        figures.span_us = int(starts[timed].min()), int(ends.max())
    return figures


def _count_dependencies(figures: TraceFigures, trace: Trace) -> None:
    counts = {
        "data": len(trace.data_deps),
        "control": len(trace.ctrl_deps),
        "dangling": trace.dropped_dependencies,
    }
    figures.dependencies.update({name: count for name, count in counts.items() if count})
    has_parent = (np.diff(trace.data_start) > 0) | (np.diff(trace.ctrl_start) > 0)
    has_child = np.zeros(len(trace), np.bool_)
    has_child[trace.data_deps] = has_child[trace.ctrl_deps] = True
    figures.first_nodes, figures.last_nodes = int((~has_parent).sum()), int((~has_child).sum())


def _depth_and_path(trace: Trace, spans: Any) -> tuple[int, int]:
    """Return (nodes on the longest path, nanoseconds of the longest path); zeros if there is a cycle."""
    parent, child = edges(trace)
    order, depth = settle(parent, child, np.ones(len(trace), np.uint8))
    waits_for_itself = len(parent) < len(trace.data_deps) + len(trace.ctrl_deps)
    if len(order) < len(trace) or waits_for_itself:
        return 0, 0
    rows = range(len(trace)) if fits_row_order(parent, child) else order.tolist()
    data, ctrl = dependency_lists(trace)
    end: list[int] = spans.tolist()
    for row in rows:
        parents = (*data.of(row), *ctrl.of(row))
        end[row] += max((end[parent] for parent in parents), default=0)
    return int(depth.max(initial=0)), max(end, default=0)


def _add_tallies(figures: TraceFigures, trace: Trace, spans: Any) -> None:
    """Add recorded durations by kind and by name."""
    is_host = trace.is_cpu & (trace.kind == NodeKind.COMP)
    kinds = [number for number in unique(trace.kind).tolist() if number != NodeKind.METADATA]
    places = {kind_name(number): (trace.kind == number) & ~is_host for number in kinds}
    for label, which in {"COMP on the host": is_host, **places}.items():
        rows = np.flatnonzero(which & (spans > 0))
        if len(rows):
            figures.durations[label] = _one_tally(trace, spans, rows)
    rows = np.flatnonzero(spans > 0)
    by_name = rows[np.argsort(trace.name[rows], kind="stable")]
    for part in np.split(by_name, np.flatnonzero(np.diff(trace.name[by_name])) + 1):
        if len(part):
            stem = _NUMBER.sub("#", trace.node_name(int(part[0])))
            figures.names.setdefault(stem, NodeTally()).add(_one_tally(trace, spans, part), 1)


def _one_tally(trace: Trace, spans: Any, rows: Any) -> NodeTally:
    longest = int(rows[np.argmax(spans[rows])])
    total = sum(spans[rows].tolist())  # as Python integers, which do not wrap around
    return NodeTally(len(rows), total, int(spans[longest]), f"{trace.describe(longest)} in {trace.source}")


def _count_communication(figures: TraceFigures, trace: Trace) -> None:
    rows = np.flatnonzero(trace.kind == NodeKind.COLL)
    has_type = trace.has("comm_type", rows)
    keys = zip(
        trace.group[rows].tolist(),
        np.where(has_type, trace.comm_type[rows], -1).tolist(),
        trace.comm_bytes[rows].tolist(),
        strict=True,
    )
    for (group, number, size), count in Counter(keys).items():
        kind = collective_name(number) if number >= 0 else "no comm_type"
        figures.collectives[group_key(trace.group_names[group]), kind, size] += count
    figures.messages.update(trace.comm_bytes[trace.kind == NodeKind.SEND].tolist())


def _count_memory(figures: TraceFigures, trace: Trace) -> None:
    figures.loaded_bytes = sum(trace.tensor_bytes[trace.kind == NodeKind.MEM_LOAD].tolist())
    figures.stored_bytes = sum(trace.tensor_bytes[trace.kind == NodeKind.MEM_STORE].tolist())
    try:
        uses = tensor_uses(trace, trace.source)
    except TraceError:  # tensor lists of another format
        return
    _, first = np.unique(uses.tensor, return_index=True)
    figures.tensors, figures.tensor_bytes = len(first), sum(uses.bytes[first].tolist())


_LABEL_WIDTH = 14
_LONGEST_NAME = 48


def as_lines(figures: TraceFigures, top: int) -> Iterator[str]:
    """Yield the figures under a title that the caller prints; tables are cut after `top` rows."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in figures.nodes.items())
    host = f"; {figures.host_nodes:,} on the host" if figures.host_nodes else ""
    yield _row("nodes", f"{figures.nodes.total():,}: {kinds}{host}" if figures.nodes else "none")
    listed = ", ".join(f"{count:,} {kind}" for kind, count in figures.dependencies.items()) or "none"
    ends = f"{plural(figures.first_nodes, 'node')} at the beginning, {figures.last_nodes:,} at the end"
    yield _row("dependencies", f"{listed}; {ends}")
    if figures.nodes:
        yield _row("depth", _depth(figures))
    if figures.span_us:
        begin, end = (format_ns(1000 * at) for at in figures.span_us)
        yield _row("recorded", f"from {begin} to {end}: {format_ns(1000 * _span(figures))}")
    for kind, tally in figures.durations.items():
        yield _row("time", f"{kind}: {_spent(tally)}; longest {format_ns(tally.longest_ns)}, {tally.longest}")
    yield from _memory_lines(figures)
    yield from _communication_lines(figures, top)
    yield from _name_lines(figures, top)


def as_plain(figures: TraceFigures) -> dict[str, Any]:
    """Return all figures as plain data."""
    return {
        "ranks": figures.ranks,
        "nodes": dict(figures.nodes),
        "host_nodes": figures.host_nodes,
        "dependencies": dict(figures.dependencies),
        "first_nodes": figures.first_nodes,
        "last_nodes": figures.last_nodes,
        "depth": figures.depth,
        "path_ns": figures.path_ns,
        "recorded_us": list(figures.span_us) if figures.span_us else None,
        "durations": {kind: _plain_tally(tally) for kind, tally in figures.durations.items()},
        "names": {name: _plain_tally(tally) for name, tally in _by_time(figures)},
        "collectives": [
            {"group": group, "type": kind, "bytes": size, "nodes": count}
            for (group, kind, size), count in _by_bytes(figures)
        ],
        "messages": [{"bytes": size, "sends": count} for size, count in sorted(figures.messages.items())],
        "loaded_bytes": figures.loaded_bytes,
        "stored_bytes": figures.stored_bytes,
        "tensors": figures.tensors,
        "tensor_bytes": figures.tensor_bytes,
    }


def _depth(figures: TraceFigures) -> str:
    if not figures.depth:
        return "none: nodes wait for each other in a circle, which et-sim check names"
    path = f"; longest way by recorded durations {format_ns(figures.path_ns)}" if figures.path_ns else ""
    return f"{plural(figures.depth, 'node')} one after the other{path}"


def _memory_lines(figures: TraceFigures) -> Iterator[str]:
    if figures.loaded_bytes or figures.stored_bytes:
        loaded, stored = format_bytes(figures.loaded_bytes), format_bytes(figures.stored_bytes)
        yield _row("memory", f"{loaded} loaded, {stored} stored")
    if figures.tensors:
        each = " on the rank with most" if figures.ranks > 1 else ""
        yield _row("tensors", f"{figures.tensors:,}, {format_bytes(figures.tensor_bytes)} in all{each}")


def _communication_lines(figures: TraceFigures, top: int) -> Iterator[str]:
    ordered = _by_bytes(figures)
    if ordered:
        rows = [
            (group or "all ranks", kind, f"{count:,}", exact_bytes(size), format_bytes(size * count))
            for (group, kind, size), count in ordered[:top]
        ]
        yield from _table(("group", "collective", "nodes", "each", "together"), rows, len(ordered))
    if figures.messages:
        listed = sorted(figures.messages.items(), key=lambda item: (-item[0] * item[1], item[0]))
        cells = [
            (f"{count:,}", exact_bytes(size), format_bytes(size * count)) for size, count in listed[:top]
        ]
        yield from _table(("sends", "each", "together"), cells, len(listed))


def _name_lines(figures: TraceFigures, top: int) -> Iterator[str]:
    ordered = _by_time(figures)
    rows = []
    for name, tally in ordered[:top]:
        text = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        times = (format_ns(span) for span in (tally.total_ns, tally.total_ns / tally.nodes, tally.longest_ns))
        rows.append((" ".join(text.split()), f"{tally.nodes:,}", *times))
    if rows:
        yield from _table(("name", "nodes", "time", "mean", "longest"), rows, len(ordered))


def _table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], count: int) -> Iterator[str]:
    """Yield the table: text aligned left, figures aligned right."""
    sides = "".join("<" if heading in ("group", "collective", "name") else ">" for heading in headings)
    yield from aligned([("", *cells) for cells in (headings, *rows)], f"<{sides}")
    if count > len(rows):
        yield f"  … {count - len(rows):,} more"


def _by_bytes(figures: TraceFigures) -> list[tuple[tuple[str, str, int], int]]:
    return sorted(figures.collectives.items(), key=lambda item: (-item[0][2] * item[1], item[0]))


def _by_time(figures: TraceFigures) -> list[tuple[str, NodeTally]]:
    return sorted(figures.names.items(), key=lambda item: (-item[1].total_ns, item[0]))


def _span(figures: TraceFigures) -> int:
    begin, end = figures.span_us or (0, 0)
    return end - begin


def _spent(tally: NodeTally) -> str:
    return f"{format_ns(tally.total_ns)} in {plural(tally.nodes, 'node')}"


def _plain_tally(tally: NodeTally) -> dict[str, Any]:
    return {"nodes": tally.nodes, "total_ns": tally.total_ns, "longest_ns": tally.longest_ns}


def _row(label: str, text: str) -> str:
    return f"  {label:<{_LABEL_WIDTH}} {text}"
