"""A trace without the operators of the host: the work of the devices, and its order.

Computation marked `is_cpu_op` is removed. Communication of the host stays, because partners wait for it;
metadata and memory nodes stay. Without delays the time of the host is lost. With delays it is kept, in as few
delay nodes as preserve the start of every other node.

Invariant of delays: if every node starts as soon as its dependencies have ended, the nodes that stay start
when they started before, for any durations of those that are not delays, and the trace ends when it ended
before.

A removed node next to a node that stays becomes a delay and takes up the time of removed nodes before it;
time that is needed on one path to a node and not on another becomes a delay of its own. Times on all paths
are carried along as {ancestor: longest time since it ended}; within a chain, ancestors whose time is implied
by a later one are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct, field

from converters.editing.files import Change, RecordedTrace, Rewiring, edited
from converters.editing.remove_nodes import NodeChains, remove_nodes, row_order
from converters.files import watched
from et_sim.basics.errors import TraceError
from et_sim.basics.units import format_ns, plural
from et_sim.trace import Trace
from et_sim.trace.columns import IntColumn, NodeKind
from et_sim.trace.order import dependency_lists, edges
from et_sim.trace.schema import messages

LONGEST_NS = 2**63 - 1
_BEGIN = -1  # in place of an ancestor: the beginning of the trace
_TIDY = 8  # collections beyond this size are tidied

Times = dict[int, int]  # ancestor -> longest time of removed nodes since it ended


class Delays(Struct):
    """New parents, where numbers from `len(trace)` on are the `extra` delays, and times of delays."""

    bridges: Rewiring = field(default_factory=Rewiring)
    spans: dict[int, int] = field(default_factory=dict)  # rows that become delays -> nanoseconds
    extra: list[tuple[int, int]] = field(default_factory=list)  # (parent or -1, nanoseconds)


def durations_ns(trace: Trace) -> IntColumn:
    """Return the recorded duration of each row, cut to 64 bits; no run accepts longer ones."""
    exact = trace.has("duration_ns")
    return np.where(exact, trace.duration_ns, 1000 * np.minimum(trace.duration_us, LONGEST_NS // 1000))


def delay(recorded: RecordedTrace, leaves: Any) -> Delays:
    """Return the graph without the rows for which `leaves` holds, but with their time."""
    trace = recorded.trace
    order = row_order(recorded)
    anchors = _beside_others(trace, leaves)
    for _ in range(2):  # anchors without time of their own are not needed
        walk = _Walk(trace, leaves, anchors)
        for row in watched(order, len(trace), "nodes"):
            walk.visit(row)
        walk.end()
        idle = [row for row, span in walk.delays.spans.items() if span == 0]
        if not idle:
            break
        anchors[idle] = False
    return walk.delays


def _beside_others(trace: Trace, leaves: Any) -> Any:
    """Return a mask of removed rows with a parent or a child that stays."""
    parent, child = edges(trace)
    beside = np.zeros(len(trace), np.bool_)
    beside[parent[~leaves[child]]] = True
    beside[child[~leaves[parent]]] = True
    return beside & leaves


class _Walk:
    """A visit of all rows in order; `above[row]` is known for removed rows."""

    def __init__(self, trace: Trace, leaves: Any, anchors: Any) -> None:
        count = len(trace)
        self.count = count
        self.delays = Delays()
        self.leaves = leaves.tolist()
        self.gone = (leaves & ~anchors).tolist()
        self.data, self.ctrl = dependency_lists(trace)
        self.span = np.where(leaves, durations_ns(trace), 0).tolist()
        self.above: list[Times] = [{}] * count
        # of rows that stay: the least time from the beginning, and from the end of the first node of their
        # chain, until they end
        self.since_begin = [0] * count
        self.chains = NodeChains(trace, self.leaves)
        self.since_first = [0] * count
        self.number: dict[tuple[int, int], int] = {}  # of extra delays

    def visit(self, row: int) -> None:
        """Carry times past a row that leaves; settle them at one that stays."""
        data, ctrl = self.data.of(row), self.ctrl.of(row)
        if not self.leaves[row] and not any(map(self.gone.__getitem__, (*data, *ctrl))):
            self.settle(row, dict.fromkeys((*data, *ctrl), 0))
            return
        times = self.times(data)
        _merge(times, self.times(ctrl))
        if not data and not ctrl:
            times[_BEGIN] = 0
        if self.gone[row]:
            self.above[row] = self.carried(times, self.span[row])
        else:
            self.rewire(row, data, ctrl, self.tidied(times))

    def end(self) -> None:
        """Keep the time of removed nodes without successors."""
        times: Times = {}
        for row, children in enumerate(self.chains.children):
            if self.gone[row] and not children:
                _merge(times, self.above[row])
        for ancestor, time in self.tidied(times).items():
            self.delayed(ancestor, time)

    def times(self, parents: list[int]) -> Times:
        """Return the longest times that a list of parents implies."""
        times: Times = {}
        for parent in parents:
            _merge(times, self.above[parent] if self.gone[parent] else {parent: 0})
        return times

    def carried(self, times: Times, span: int) -> Times:
        if len(times) > _TIDY:
            times = self.tidied(times)
        return {ancestor: time + span for ancestor, time in times.items()}

    def tidied(self, times: Times) -> Times:
        """Remove ancestors whose time is implied by a later one of their chain, and the beginning if any
        implies it.
        """
        if len(times) < 2:
            return times
        real = [ancestor for ancestor in times if ancestor != _BEGIN]
        real.sort(key=lambda ancestor: (self.chains.of[ancestor], -self.chains.place[ancestor]))
        most: dict[int, int] = {}  # by chain: time since the end of its first node, by way of later ones
        kept: Times = {}
        for ancestor in real:
            time = self.since_first[ancestor] + times[ancestor]
            if time > most.get(self.chains.of[ancestor], -1):
                most[self.chains.of[ancestor]] = time
                kept[ancestor] = times[ancestor]
        surely = max((self.since_begin[ancestor] + time for ancestor, time in kept.items()), default=-1)
        if times.get(_BEGIN, -1) > surely:
            kept[_BEGIN] = times[_BEGIN]
        return kept

    def rewire(self, row: int, data: list[int], ctrl: list[int], times: Times) -> None:
        """Write the times as dependencies, as the row's own time, and as delays in between."""
        own_time = 0
        if self.leaves[row]:
            own_time = min(times.values())
            self.delays.spans[row] = own_time + self.span[row]
        lists = [[parent for parent in parents if not self.gone[parent]] for parents in (data, ctrl)]
        for ancestor, time in times.items():
            parent = self.delayed(ancestor, time - own_time)
            is_data = any(self.reaches(parent, ancestor, time) for parent in data) or not ctrl
            if parent >= 0 and parent not in lists[0] and parent not in lists[1]:
                lists[0 if is_data else 1].append(parent)
                self.delays.bridges.added += 1
        for parent in (*data, *ctrl):
            if self.gone[parent]:
                leads = any(ancestor != _BEGIN for ancestor in self.above[parent])
                self.delays.bridges.bridged += leads
                self.delays.bridges.dropped += not leads
        self.delays.bridges.data[row], self.delays.bridges.ctrl[row] = lists
        self.settle(row, times)

    def reaches(self, parent: int, ancestor: int, time: int) -> bool:
        return self.above[parent].get(ancestor) == time if self.gone[parent] else parent == ancestor

    def delayed(self, ancestor: int, time: int) -> int:
        """Return the ancestor itself, or a delay after it; -1 if there is nothing to wait for."""
        if time == 0:
            return ancestor
        key = ancestor, time
        if key not in self.number:
            self.number[key] = self.count + len(self.delays.extra)
            self.delays.extra.append(key)
        return self.number[key]

    def settle(self, row: int, times: Times) -> None:
        """Record the least times, and continue the chain of the ancestor with the fewest children."""
        own_time = self.span[row]
        for ancestor, time in times.items():
            begun = time if ancestor == _BEGIN else self.since_begin[ancestor] + time
            self.since_begin[row] = max(self.since_begin[row], begun + own_time)
        best = self.chains.link(row, (ancestor for ancestor in times if ancestor != _BEGIN))
        if best >= 0:
            self.since_first[row] = self.since_first[best] + times[best] + own_time


def _merge(into: Times, other: Times) -> None:
    for ancestor, time in other.items():
        if into.get(ancestor, -1) < time:
            into[ancestor] = time


# attributes that a model of computation or memory would use
_NOT_OF_A_DELAY = frozenset(("duration_ns", "num_ops", "tensor_size", "inputs", "outputs"))


class Stripped(Struct, frozen=True):
    """A new file, and the notes on the nodes and dependencies of the old one."""

    content: bytes
    notes: tuple[tuple[str, str], ...]


def strip(recorded: RecordedTrace, *, keep_delays: bool) -> Stripped:
    """Return the trace without the operators of the host."""
    trace = recorded.trace
    leaves = trace.is_cpu & (trace.kind == NodeKind.COMP)
    total = sum(durations_ns(trace)[leaves].tolist())
    label = f"{plural(int(leaves.sum()), 'operator')} of the host, {format_ns(total)} in all"
    if not keep_delays:
        bridges = remove_nodes(recorded, ~leaves)
        notes = (("removed", label), *dependency_notes(bridges))
        return Stripped(edited(recorded, ~leaves, bridges), notes)
    delays_kept = delay(recorded, leaves)
    if max((*delays_kept.spans.values(), *(span for _, span in delays_kept.extra)), default=0) > LONGEST_NS:
        raise TraceError(
            "recorded durations add up to more than 64 bits hold",
            place=recorded.source,
            remedy="correct duration_micros, which is in microseconds, or strip without --keep-delays",
        )
    keep = ~leaves
    keep[list(delays_kept.spans)] = True
    changes: dict[int, Change] = {
        row: partial(_as_delay, span=span) for row, span in delays_kept.spans.items()
    }
    content = edited(recorded, keep, delays_kept.bridges, changes, list(_extra(recorded, delays_kept)))
    kept = sum(delays_kept.spans.values()) + sum(span for _, span in delays_kept.extra)
    delays = f"{plural(len(delays_kept.spans) + len(delays_kept.extra), 'delay')}, {format_ns(kept)} in all"
    notes = (("removed", label), ("delays", delays), *dependency_notes(delays_kept.bridges))
    return Stripped(content, notes)


def dependency_notes(bridges: Rewiring) -> Iterator[tuple[str, str]]:
    """Yield notes on the dependencies on removed nodes."""
    if bridges.bridged:
        made = plural(bridges.added, "dependency", "dependencies")
        yield "bridged", f"{_dependencies(bridges.bridged)} on nodes that left, by {made} instead"
    if bridges.dropped:
        yield "dropped", f"{_dependencies(bridges.dropped)} on nodes that left and came after none that stays"


def _dependencies(count: int) -> str:
    return plural(count, "dependency", "dependencies")


def _as_delay(node: Any, span: int) -> None:
    """Turn an operator into a delay; its thread, id and other attributes stay."""
    node.name = f"delay: {node.name}" if node.name else "delay"
    for name in ("inputs", "outputs"):
        node.ClearField(name)
    kept = [attribute for attribute in node.attr if attribute.name not in _NOT_OF_A_DELAY]
    node.ClearField("attr")
    node.attr.extend(kept)
    _set_span(node, span)


def _extra(recorded: RecordedTrace, delays: Delays) -> Iterator[Any]:
    """Yield new nodes for time that is needed on one path only; they occupy no thread of the host."""
    ids = recorded.trace.node_id
    first = int(ids[-1]) + 1 if len(ids) else 0
    if first + len(delays.extra) > 2**64:
        raise TraceError(
            "there is no id left for a delay after the largest one",
            place=recorded.source,
            remedy="strip without --keep-delays",
        )
    for number, (parent, span) in enumerate(delays.extra):
        node = messages().Node(id=first + number, name="delay", type=NodeKind.COMP)
        if parent >= 0:
            node.data_deps.append(int(ids[parent]))
        node.attr.add(name="is_cpu_op", bool_val=True)
        node.attr.add(name="concurrent", bool_val=True)
        _set_span(node, span)
        yield node


def _set_span(node: Any, span: int) -> None:
    """Set the span, exactly in an attribute, and in whole microseconds for other readers."""
    node.duration_micros = (span + 500) // 1000
    node.attr.add(name="duration_ns", int64_val=span)
