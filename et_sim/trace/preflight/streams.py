"""Collectives that match each other, in the form of the checks, and cycles through dependencies.

If a rank's collectives share no lane, only dependencies delay their start. A collective ends after all
members have started it, so it waits for the dependencies of all of them: with one vertex for a collective and
one for every other node, a cycle stalls.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from et_sim.basics.units import exact_bytes, format_ranks
from et_sim.trace.columns import CollectiveKind, collective_name
from et_sim.trace.order import edges
from et_sim.trace.preflight.cycles import find_knots
from et_sim.trace.preflight.problem import Problem, TemplateIndex, not_spelled_out

# Collectives in which data goes to a root or comes from it.
TO_ROOT = (CollectiveKind.REDUCE, CollectiveKind.GATHER)
FROM_ROOT = (CollectiveKind.BROADCAST, CollectiveKind.SCATTER)
ONE_WAY = (*TO_ROOT, *FROM_ROOT)
SPLIT = -1  # replaces the bytes of an all-to-all with sizes for each member


class Stream(NamedTuple):
    """Collectives that are compared with each other: those of a group; broadcasts without waits are
    separate.
    """

    group: str  # "" is the group of all ranks
    is_broadcast: bool
    described: tuple[int, ...] = ()  # members, if the traces describe the group; ascending

    @property
    def name(self) -> str:
        """Return the name in messages: `group 3`, `group 3 (ranks 0-1)` or `the group of all ranks`."""
        members = f" (ranks {format_ranks(self.described)})" if self.described else ""
        return f"group {self.group}{members}" if self.group else "the group of all ranks"

    @property
    def noun(self) -> str:
        """Return the noun for the collectives of the stream."""
        return "broadcast" if self.is_broadcast else "collective"


class Sequence(NamedTuple):
    """The collectives of a template in a stream: rows, and (type, bytes, dimensions, root) of each."""

    rows: Any
    content: Any


Streams = Mapping[Stream, Mapping[int, Sequence]]


def follows_rule(index: TemplateIndex, stream: Stream) -> bool:
    """Return whether the stream represents all groups of a rule; descriptions in traces override rules."""
    return stream.group in index.workload.group_rules and not stream.described


def collective_text(index: TemplateIndex, rank: int, sequence: Sequence, at: int) -> str:
    """Return a collective in words, such as `all_reduce of 1 MiB (node 7 "grads" in x.0.et)`."""
    number, size = int(sequence.content[at, 0]), int(sequence.content[at, 1])
    node = index.workload.trace(rank).describe(int(sequence.rows[at]))
    size_text = "with sizes for each member" if size == SPLIT else f"of {exact_bytes(size)}"
    return f"{collective_name(number)} {size_text} ({node} in {index.file_of(rank)})"


_KNOTS = 3  # cycles that are printed


class _Graph(NamedTuple):
    """The graph: collectives come first, stream by stream; then the nodes of all templates."""

    streams: list[Stream]
    base: Any  # per stream: its first vertex
    parent: Any
    child: Any
    template: Any  # of every edge


def check_waiting(index: TemplateIndex, sequences: Streams) -> list[Problem]:
    """Return findings about cycles among groups whose members have the same collectives."""
    graph = _graph(index, sequences)
    if graph is None:
        return []
    vertices = int(max(graph.parent.max(initial=0), graph.child.max(initial=0))) + 1
    knots = find_knots(graph.parent.astype(np.int32), graph.child.astype(np.int32), vertices)
    knots = [knot for knot in knots if min(knot.cycle) < graph.base[-1]]  # `check` reports the others
    problems = [_circle(index, sequences, graph, cycle) for cycle, _ in knots[:_KNOTS]]
    if len(knots) > _KNOTS:
        more = len(knots) - _KNOTS
        problems.append(not_spelled_out("error", "collective-circle", more, "circle", "of collectives"))
    return problems


def _graph(index: TemplateIndex, sequences: Streams) -> _Graph | None:
    streams = sorted(
        stream for stream in sequences if not stream.is_broadcast and not follows_rule(index, stream)
    )
    if not streams:
        return None
    longest = [max(len(sequence.rows) for sequence in sequences[stream].values()) for stream in streams]
    base = np.concatenate(([0], np.cumsum(longest)))
    columns: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    first = int(base[-1])
    for template in index.used_templates():
        trace = index.workload.templates[template]
        vertex = first + np.arange(len(trace))
        first += len(trace)
        for at, stream in enumerate(streams):
            if template in sequences[stream]:
                rows = sequences[stream][template].rows
                vertex[rows] = base[at] + np.arange(len(rows))
        parent, child = edges(trace)
        for column, values in zip(
            columns, (vertex[parent], vertex[child], np.full(len(parent), template)), strict=True
        ):
            column.append(values)
    return _Graph(streams, base, *(np.concatenate(column) for column in columns))


def _circle(index: TemplateIndex, sequences: Streams, graph: _Graph, cycle: list[int]) -> Problem:
    """Return the finding about a cycle, which lists each vertex before one that it waits for."""
    last = int(graph.base[-1])
    turn = next(at for at, vertex in enumerate(cycle) if vertex < last)
    turned = [*cycle[turn:], *cycle[: turn + 1]]
    parts, ranks = [], []
    waiter = turned[0]
    for vertex, awaited in pairwise(turned):
        at = np.flatnonzero((graph.child == vertex) & (graph.parent == awaited))[0]
        template = int(graph.template[at])
        if awaited < last:
            rank = int(index.ranks_of(template)[0])
            ranks.append(rank)
            names = [_name(index, sequences, graph, vertex, template, rank) for vertex in (waiter, awaited)]
            parts.append(f"rank {rank} starts {names[0]} only after {names[1]}")
            waiter = awaited
    text = f"collectives wait for each other through dependencies (they hang): {'; '.join(parts)}"
    remedy = "give all ranks one order"
    return Problem("error", "collective-circle", format_ranks(ranks), text, remedy)


def _name(
    index: TemplateIndex, sequences: Streams, graph: _Graph, vertex: int, template: int, rank: int
) -> str:
    at = int(np.searchsorted(graph.base, vertex, side="right")) - 1
    stream = graph.streams[at]
    sequence = sequences[stream][template]
    return f"the {collective_text(index, rank, sequence, vertex - int(graph.base[at]))} of {stream.name}"
