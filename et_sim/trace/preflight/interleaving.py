"""The search for collectives of different groups that wait for each other in a cycle.

A rank has one lane for communication. If one rank starts a collective of group 1 before one of group 2 and
another rank the other way round, both wait for ever, though each group by itself is correct. In the graph
every collective of a group is a vertex, and every two that some rank starts one after the other an edge.
Collectives with a member that does not wait (a broadcast's root, a leaf of a reduce) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from et_sim.basics.units import format_ranks
from et_sim.trace.columns import RowColumn
from et_sim.trace.group_rule import NO_GROUP
from et_sim.trace.order import certainly_in_order
from et_sim.trace.preflight.cycles import find_knots
from et_sim.trace.preflight.problem import Problem, Severity, TemplateIndex, not_checked, not_spelled_out
from et_sim.trace.preflight.streams import (
    ONE_WAY,
    Sequence,
    Stream,
    Streams,
    collective_text,
    follows_rule,
)

_KNOTS = 3  # cycles that are printed
_MOST_COLLECTIVES = 5_000_000  # of all ranks; larger jobs are not checked


class _Agents(NamedTuple):
    """Ranks that run the same template in groups of the same classes, as one; columns by agent."""

    template: Any
    rank: Any  # one of them
    classes: Mapping[str, Any]  # group rule -> class of the agent's group


class _Board(NamedTuple):
    """All collectives as vertices: those of a stream, class by class, from `base` on."""

    programs: TemplateIndex
    streams: list[Stream]
    sequences: Streams
    started: Mapping[int, RowColumn]  # per template: rows in starting order
    agents: _Agents
    longest: list[int]  # collectives of a group, per stream
    base: Any

    def place(self, vertex: int, agent: int) -> tuple[Stream, Sequence, int]:
        """Return the stream of a vertex, its sequence on an agent, and the position in it."""
        at = int(np.searchsorted(self.base, vertex, side="right")) - 1
        stream = self.streams[at]
        sequence = self.sequences[stream][int(self.agents.template[agent])]
        return stream, sequence, (vertex - int(self.base[at])) % self.longest[at]


class _Edges(NamedTuple):
    """One entry for every two collectives that an agent starts one after the other."""

    first: Any  # vertices
    second: Any
    agent: Any


class _Wait(NamedTuple):
    """A start of vertex `first` before vertex `second` on an agent."""

    agent: int
    first: int
    second: int


def check_interleaving(
    index: TemplateIndex, sequences: Streams, started: Mapping[int, RowColumn]
) -> list[Problem]:
    """Return findings about cycles among groups with consistent members.

    `started` holds the rows in starting order, per template. Groups of a rule whose members run the same
    templates are first merged: if that graph has no cycle, there is none. Otherwise every group is checked by
    itself.
    """
    streams = sorted(stream for stream in sequences if not stream.is_broadcast)
    if len(streams) < 2:
        return []
    rules = sorted({stream.group for stream in streams if follows_rule(index, stream)})
    alike = {name: _classes_alike(index, name) for name in rules}
    problems = _circles(_board(index, streams, sequences, started, alike))
    if not problems or not rules:
        return problems
    single = {name: index.workload.group_rules[name].index(_all_ranks(index)) for name in rules}
    board = _board(index, streams, sequences, started, single)
    collectives = sum(len(started.get(template, ())) for template in board.agents.template.tolist())
    size = max(collectives, int(board.base[-1]))
    if size <= _MOST_COLLECTIVES:
        return _circles(board)
    question = "collectives of different groups wait for each other"
    return [not_checked(question, f"{collectives:,} collectives")]


def _all_ranks(index: TemplateIndex) -> Any:
    return np.arange(index.workload.ranks)


def _classes_alike(index: TemplateIndex, name: str) -> Any:
    """Return per rank the class of its group of a rule: equal if the members run the same templates."""
    rule, ranks = index.workload.group_rules[name], _all_ranks(index)
    by_group = np.asarray(index.workload.template_of_rank)[rule.groups(len(ranks))]
    of_group = np.unique(by_group, axis=0, return_inverse=True)[1].reshape(-1)
    return np.where(rule.has(ranks), of_group[rule.index(ranks)], NO_GROUP)


def _board(
    index: TemplateIndex,
    streams: list[Stream],
    sequences: Streams,
    started: Mapping[int, RowColumn],
    classes: Mapping[str, Any],
) -> _Board:
    """Return the graph's vertices; `classes` holds per group rule the class of every rank's group."""
    keys = np.stack([index.workload.template_of_rank, *classes.values()], axis=1)
    agents, rank = np.unique(keys, axis=0, return_index=True)
    longest = [max(len(sequence.rows) for sequence in sequences[stream].values()) for stream in streams]
    counts = [
        int(classes[stream.group].max()) + 1 if follows_rule(index, stream) else 1 for stream in streams
    ]
    sizes = [count * length for count, length in zip(counts, longest, strict=True)]
    return _Board(
        index,
        streams,
        sequences,
        started,
        _Agents(agents[:, 0], rank, {name: agents[:, 1 + at] for at, name in enumerate(classes)}),
        longest,
        np.concatenate(([0], np.cumsum(sizes))),
    )


def _circles(board: _Board) -> list[Problem]:
    edges = _edges(board)
    knots = find_knots(edges.first, edges.second, int(board.base[-1]))
    problems = [_circle(board, _waits(edges, cycle)) for cycle, _ in knots[:_KNOTS]]
    if len(knots) > _KNOTS:
        rest = "of collectives of different groups"
        problems.append(not_spelled_out("warning", "collective-circle", len(knots) - _KNOTS, "circle", rest))
    return problems


def _edges(board: _Board) -> _Edges:
    first, second, agents = [], [], []
    for agent, template in enumerate(board.agents.template.tolist()):
        rows = board.started.get(template)
        if rows is None:
            continue
        vertex = np.full(int(rows.max()) + 1, -1, np.int32)
        for stream, base, longest in zip(board.streams, board.base[:-1], board.longest, strict=True):
            sequence = board.sequences[stream].get(template)
            if sequence is not None:
                begin = base
                if follows_rule(board.programs, stream):
                    begin += int(board.agents.classes[stream.group][agent]) * longest
                waits = ~np.isin(sequence.content[:, 0], ONE_WAY)
                vertex[sequence.rows[waits]] = begin + np.flatnonzero(waits)
        path = vertex[rows]
        path = path[path >= 0]
        first.append(path[:-1])
        second.append(path[1:])
        agents.append(np.full(max(len(path) - 1, 0), agent, np.int32))
    return _Edges(*(np.concatenate(parts) for parts in (first, second, agents)))


def _waits(edges: _Edges, cycle: list[int]) -> list[_Wait]:
    """Return the cycle as pairs "first before second", with steps on one agent merged; the lowest agent comes
    first.
    """
    forward = cycle[::-1]  # cycles list each vertex before one it waits for
    steps = []
    for first, second in zip(forward, [*forward[1:], forward[0]], strict=True):
        at = np.flatnonzero((edges.first == first) & (edges.second == second))[0]
        steps.append(_Wait(int(edges.agent[at]), first, second))
    turn = next((k for k, step in enumerate(steps) if step.agent != steps[k - 1].agent), 0)
    waits: list[_Wait] = []
    for step in steps[turn:] + steps[:turn]:
        if waits and waits[-1].agent == step.agent:
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
    ranks = format_ranks(int(board.agents.rank[wait.agent]) for wait in waits)
    return Problem(severity, "collective-circle", ranks, text, remedy)


def _is_certain(board: _Board, wait: _Wait) -> bool:
    """Return whether the first must start before the second, and both positions in their groups are
    certain.
    """
    _, first_program, first = board.place(wait.first, wait.agent)
    _, other, second = board.place(wait.second, wait.agent)
    template = int(board.agents.template[wait.agent])
    trace = board.programs.workload.templates[template]
    started = np.sort(board.started[template])
    both = np.array([first_program.rows[first], other.rows[second]])
    return all(certainly_in_order(trace, started, rows) for rows in (both, first_program.rows, other.rows))


def _in_words(board: _Board, wait: _Wait) -> str:
    """Return a wait in words: `rank 0 starts the all_reduce of … before the all_gather of …`."""
    rank = int(board.agents.rank[wait.agent])
    texts = []
    for vertex in (wait.first, wait.second):
        stream, sequence, at = board.place(vertex, wait.agent)
        texts.append(f"the {collective_text(board.programs, rank, sequence, at)} of {stream.name}")
    return f"rank {rank} starts {texts[0]} before {texts[1]}"
