"""Do collectives of different groups wait for each other in a circle?

A rank has one lane for communication. If one rank starts a collective of group 1 before one of group 2
and another rank the other way round, both wait for ever, though each group by itself is sound. Every
collective of a group is a vertex here, and every two that some rank starts one after the other an edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from et_sim.trace.columns import RowColumn
from et_sim.trace.preflight.cycles import find_knots
from et_sim.trace.preflight.order import certainly_before
from et_sim.trace.preflight.problem import Problem, Severity, Sharing, counted
from et_sim.trace.preflight.streams import Sequence, Stream, Streams, collective_text
from et_sim.units import format_ranks

_KNOTS = 3  # so many are spelled out


class _Board(NamedTuple):
    """All collectives as vertices: those of a stream one after the other, from `base` on."""

    sharing: Sharing
    streams: list[Stream]
    sequences: Streams
    started: Mapping[int, RowColumn]  # per template: rows in starting order
    base: Any

    def place(self, vertex: int, template: int) -> tuple[Stream, Sequence, int]:
        """(stream, its sequence on a template, position in it) of a vertex."""
        at = int(np.searchsorted(self.base, vertex, side="right")) - 1
        stream = self.streams[at]
        return stream, self.sequences[stream][template], vertex - int(self.base[at])


class _Edges(NamedTuple):
    """One entry for every two collectives that a template starts one after the other."""

    first: Any  # vertices
    second: Any
    template: Any


class _Wait(NamedTuple):
    """On a template, vertex `first` starts before vertex `second`."""

    template: int
    first: int
    second: int


def check_interleaving(
    sharing: Sharing, sequences: Streams, started: Mapping[int, RowColumn]
) -> list[Problem]:
    """Circles among groups whose members agree. `started`: rows in starting order, per template."""
    streams = sorted(stream for stream in sequences if not stream.is_broadcast)
    if len(streams) < 2:
        return []
    longest = [max(len(sequence.rows) for sequence in sequences[stream].values()) for stream in streams]
    board = _Board(sharing, streams, sequences, started, np.concatenate(([0], np.cumsum(longest))))
    edges = _edges(board)
    knots = find_knots(edges.first, edges.second, int(board.base[-1]))
    problems = [_circle(board, _waits(edges, cycle)) for cycle, _ in knots[:_KNOTS]]
    if len(knots) > _KNOTS:
        text = f"{counted(len(knots) - _KNOTS, 'more circle')} of collectives of different groups"
        problems.append(
            Problem("warning", "collective-circle", "", text, "repair the first ones and check again")
        )
    return problems


def _edges(board: _Board) -> _Edges:
    first, second, template = [], [], []
    for number, rows in board.started.items():
        vertex = np.full(int(rows.max()) + 1, -1, np.int32)
        for stream, base in zip(board.streams, board.base[:-1], strict=True):
            sequence = board.sequences[stream].get(number)
            if sequence is not None:
                vertex[sequence.rows] = base + np.arange(len(sequence.rows))
        path = vertex[rows]
        path = path[path >= 0]
        first.append(path[:-1])
        second.append(path[1:])
        template.append(np.full(max(len(path) - 1, 0), number, np.int32))
    return _Edges(*(np.concatenate(parts) for parts in (first, second, template)))


def _waits(edges: _Edges, cycle: list[int]) -> list[_Wait]:
    """The cycle as "this before that", with neighbouring steps on one template drawn together; the lowest
    template comes first."""
    forward = cycle[::-1]  # cycles list each vertex before one it waits for
    steps = []
    for first, second in zip(forward, [*forward[1:], forward[0]], strict=True):
        at = np.flatnonzero((edges.first == first) & (edges.second == second))[0]
        steps.append(_Wait(int(edges.template[at]), first, second))
    turn = next((k for k, step in enumerate(steps) if step.template != steps[k - 1].template), 0)
    waits: list[_Wait] = []
    for step in steps[turn:] + steps[:turn]:
        if waits and waits[-1].template == step.template:
            waits[-1] = waits[-1]._replace(second=step.second)
        else:
            waits.append(step)
    lowest = waits.index(min(waits))
    return waits[lowest:] + waits[:lowest]


def _circle(board: _Board, waits: list[_Wait]) -> Problem:
    certain = all(_is_certain(board, wait) for wait in waits)
    fate = "they hang" if certain else "they hang if they start like this"
    parts = "; ".join(_in_words(board, wait) for wait in waits)
    text = f"collectives of different groups wait for each other ({fate}): {parts}"
    severity: Severity = "error" if certain else "warning"
    remedy = "give all ranks one order, by dependencies or by ascending node ids"
    ranks = format_ranks(int(board.sharing.ranks_of(wait.template)[0]) for wait in waits)
    return Problem(severity, "collective-circle", ranks, text, remedy)


def _is_certain(board: _Board, wait: _Wait) -> bool:
    _, one, first = board.place(wait.first, wait.template)
    _, other, second = board.place(wait.second, wait.template)
    trace = board.sharing.workload.templates[wait.template]
    started = np.sort(board.started[wait.template])
    return certainly_before(trace, started, int(one.rows[first]), int(other.rows[second]))


def _in_words(board: _Board, wait: _Wait) -> str:
    """`rank 0 starts the all_reduce of … before the all_gather of …`."""
    rank = int(board.sharing.ranks_of(wait.template)[0])
    texts = []
    for vertex in (wait.first, wait.second):
        stream, sequence, at = board.place(vertex, wait.template)
        texts.append(f"the {collective_text(board.sharing, rank, sequence, at)} of {stream.name}")
    return f"rank {rank} starts {texts[0]} before {texts[1]}"
