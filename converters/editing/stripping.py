"""A trace without the operators of the host: what the devices do, and in which order.

Computation marked `is_cpu_op` leaves. Communication of the host stays, because partners wait for it; metadata
and memory nodes stay. Without delays the time of the host is gone; with delays every other node can start
when it could start before.

Not here: how dependencies are bridged (`remove_nodes`) and times kept (`delays`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from converters.editing.delays import LONGEST_NS, Delays, delay, durations_ns
from converters.editing.inputs import Recorded
from converters.editing.remove_nodes import Rewiring, remove_nodes
from converters.editing.writing import Change, edited
from et_sim.basics.errors import TraceError
from et_sim.basics.units import format_ns, plural
from et_sim.trace.columns import NodeKind
from et_sim.trace.schema import messages

# What would make a model of the machine, or of memory, see more than a wait.
_NOT_OF_A_DELAY = frozenset(("duration_ns", "num_ops", "tensor_size", "inputs", "outputs"))


@dataclass(frozen=True, slots=True)
class Stripped:
    """A new file and what became of the nodes and dependencies of the old one."""

    content: bytes
    notes: tuple[tuple[str, str], ...]


def strip(recorded: Recorded, *, keep_delays: bool) -> Stripped:
    """The trace without the operators of the host."""
    trace = recorded.trace
    leaves = trace.is_cpu & (trace.kind == NodeKind.COMP)
    total = sum(durations_ns(trace)[leaves].tolist())
    label = f"{plural(int(leaves.sum()), 'operator')} of the host, {format_ns(total)} in all"
    if not keep_delays:
        bridges = remove_nodes(recorded, ~leaves)
        notes = (("removed", label), *dependency_notes(bridges))
        return Stripped(edited(recorded, ~leaves, bridges), notes)
    found = delay(recorded, leaves)
    if max((*found.spans.values(), *(span for _, span in found.extra)), default=0) > LONGEST_NS:
        raise TraceError(
            "recorded durations add up to more than 64 bits hold",
            place=recorded.source,
            remedy="correct duration_micros, which is in microseconds, or strip without --keep-delays",
        )
    keep = ~leaves
    keep[list(found.spans)] = True
    changes: dict[int, Change] = {row: partial(_as_delay, span=span) for row, span in found.spans.items()}
    content = edited(recorded, keep, found.bridges, changes, list(_extra(recorded, found)))
    kept = sum(found.spans.values()) + sum(span for _, span in found.extra)
    delays = f"{plural(len(found.spans) + len(found.extra), 'delay')}, {format_ns(kept)} in all"
    notes = (("removed", label), ("delays", delays), *dependency_notes(found.bridges))
    return Stripped(content, notes)


def dependency_notes(bridges: Rewiring) -> Iterator[tuple[str, str]]:
    """What became of dependencies on nodes that left."""
    if bridges.bridged:
        made = plural(bridges.added, "dependency", "dependencies")
        yield "bridged", f"{_dependencies(bridges.bridged)} on nodes that left, by {made} instead"
    if bridges.dropped:
        yield "dropped", f"{_dependencies(bridges.dropped)} on nodes that left and came after none that stays"


def _dependencies(count: int) -> str:
    return plural(count, "dependency", "dependencies")


def _as_delay(node: Any, span: int) -> None:
    """Turn an operator into a wait; it keeps its place: thread, id and what else its attributes say."""
    node.name = f"delay: {node.name}" if node.name else "delay"
    for field in ("inputs", "outputs"):
        node.ClearField(field)
    kept = [attribute for attribute in node.attr if attribute.name not in _NOT_OF_A_DELAY]
    node.ClearField("attr")
    node.attr.extend(kept)
    _set_span(node, span)


def _extra(recorded: Recorded, found: Delays) -> Iterator[Any]:
    """New nodes for time that is needed on one way only; they take no turn of the host."""
    ids = recorded.trace.node_id
    first = int(ids[-1]) + 1 if len(ids) else 0
    if first + len(found.extra) > 2**64:
        raise TraceError(
            "there is no id left for a delay after the largest one",
            place=recorded.source,
            remedy="strip without --keep-delays",
        )
    for number, (parent, span) in enumerate(found.extra):
        node = messages().Node(id=first + number, name="delay", type=NodeKind.COMP)
        if parent >= 0:
            node.data_deps.append(int(ids[parent]))
        node.attr.add(name="is_cpu_op", bool_val=True)
        node.attr.add(name="concurrent", bool_val=True)
        _set_span(node, span)
        yield node


def _set_span(node: Any, span: int) -> None:
    """Exactly in an attribute; in whole microseconds for readers that do not know it."""
    node.duration_micros = (span + 500) // 1000
    node.attr.add(name="duration_ns", int64_val=span)
