"""The search for collectives that wait for each other in a cycle.

If a rank has one lane for communication, starts a collective of group 1 before one of group 2, and another
rank the other way round, both wait for ever, though each group by itself is correct. In the graph every
collective of a group is a vertex, and every two that some rank starts one after the other an edge.
Collectives with a member that does not wait (a broadcast's root, a leaf of a reduce) are no vertices.

If a rank's collectives share no lane, only dependencies delay their start: these are the edges then, and the
other nodes of ranks are vertices, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import groups_of, groups_of_rows
from et_sim.basics.units import format_ranks
from et_sim.trace.columns import RowColumn
from et_sim.trace.group_rule import NO_GROUP
from et_sim.trace.order import certainly_in_order, edges
from et_sim.trace.preflight.cycles import find_knots
from et_sim.trace.preflight.problem import Problem, Severity, TemplateIndex, not_checked, not_spelled_out
from et_sim.trace.preflight.streams import (
    ONE_WAY,
    CollectiveSequence,
    ComparedStream,
    Streams,
    collective_text,
    follows_rule,
)

_KNOTS = 3  # cycles that are printed
_MOST_VERTICES = 5_000_000  # of all ranks; larger jobs are not checked


class _Agents(Struct, frozen=True):
    """Ranks that run the same template in groups of the same classes, as one; columns by agent."""

    template: Any
    rank: Any  # one of them
    classes: Mapping[str, Any]  # group rule -> class of the agent's group


class _Board(Struct, frozen=True):
    """All collectives as vertices: those of a stream, class by class, from `base` on."""

    programs: TemplateIndex
    streams: list[ComparedStream]
    sequences: Streams
    started: Mapping[int, RowColumn]  # per template: rows in starting order
    side_by_side: bool  # collectives of a rank share no lane
    agents: _Agents
    longest: list[int]  # collectives of a group, per stream
    base: Any

    @property
    def size(self) -> int:
        """Return the number of starts on all agents: of all nodes, or of collectives alone."""
        counted = self.programs.workload.templates if self.side_by_side else self.started
        return sum(len(counted[at]) for at in self.agents.template.tolist() if at in self.started)

    def vertices(self, agent: int, count: int) -> Any:
        """Return the vertices of the first `count` rows of an agent; -1 of rows that are none."""
        template = int(self.agents.template[agent])
        vertex = np.full(count, -1, np.int32)
        for stream, base, longest in zip(self.streams, self.base[:-1], self.longest, strict=True):
            sequence = self.sequences[stream].get(template)
            if sequence is not None:
                begin = base
                if follows_rule(self.programs, stream):
                    begin += int(self.agents.classes[stream.group][agent]) * longest
                waits = ~np.isin(sequence.content[:, 0], ONE_WAY)
                vertex[sequence.rows[waits]] = begin + np.flatnonzero(waits)
        return vertex

    def place(self, vertex: int, agent: int) -> tuple[ComparedStream, CollectiveSequence, int]:
        """Return the stream of a vertex, its sequence on an agent, and the position in it."""
        at = int(np.searchsorted(self.base, vertex, side="right")) - 1
        stream = self.streams[at]
        sequence = self.sequences[stream][int(self.agents.template[agent])]
        return stream, sequence, (vertex - int(self.base[at])) % self.longest[at]


class _Edges(Struct, frozen=True):
    """One entry for every two vertices that an agent starts one after the other."""

    first: Any  # vertices
    second: Any
    agent: Any


class _Wait(NamedTuple):
    """A start of vertex `first` before vertex `second` on an agent."""

    agent: int
    first: int
    second: int


def check_interleaving(
    index: TemplateIndex, sequences: Streams, started: Mapping[int, RowColumn], *, side_by_side: bool
) -> list[Problem]:
    """Return findings about cycles among groups with consistent members.

    `started` holds the rows in starting order, per template; with `side_by_side`, the collectives of a rank
    do not wait for each other. Groups of a rule whose members run the same templates are first merged: if
    that graph has no cycle, there is none. Otherwise every group is checked by itself.
    """
    streams = sorted(stream for stream in sequences if not stream.is_broadcast)
    if len(streams) < (1 if side_by_side else 2):
        return []
    rules = sorted({stream.group for stream in streams if follows_rule(index, stream)})
    alike = {name: _classes_alike(index, name) for name in rules}
    problems = _circles(_board(index, streams, sequences, started, alike, side_by_side=side_by_side))
    if not problems or not rules:
        return problems
    single = {name: index.workload.group_rules[name].index(_all_ranks(index)) for name in rules}
    board = _board(index, streams, sequences, started, single, side_by_side=side_by_side)
    if max(board.size, int(board.base[-1])) <= _MOST_VERTICES:
        return _circles(board)
    what = "nodes" if side_by_side else "collectives"
    return [not_checked("collectives wait for each other", f"{board.size:,} {what}")]


def _all_ranks(index: TemplateIndex) -> Any:
    return np.arange(index.workload.ranks)


def _classes_alike(index: TemplateIndex, name: str) -> Any:
    """Return per rank the class of its group of a rule: equal if the members run the same templates."""
    rule, ranks = index.workload.group_rules[name], _all_ranks(index)
    by_group = np.asarray(index.workload.template_of_rank)[rule.groups(len(ranks))]
    of_group = groups_of_rows(by_group).of_row
    return np.where(rule.has(ranks), of_group[rule.index(ranks)], NO_GROUP)


def _board(
    index: TemplateIndex,
    streams: list[ComparedStream],
    sequences: Streams,
    started: Mapping[int, RowColumn],
    classes: Mapping[str, Any],
    *,
    side_by_side: bool,
) -> _Board:
    """Return the graph's vertices; `classes` holds per group rule the class of every rank's group."""
    keys = np.stack([index.workload.template_of_rank, *classes.values()], axis=1)
    rank = groups_of(*keys.T).first
    agents = keys[rank]
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
        side_by_side,
        _Agents(agents[:, 0], rank, {name: agents[:, 1 + at] for at, name in enumerate(classes)}),
        longest,
        np.concatenate(([0], np.cumsum(sizes))),
    )


def _circles(board: _Board) -> list[Problem]:
    links = _links(board)
    vertices = 1 + int(max(links.first.max(initial=-1), links.second.max(initial=-1)))
    knots = find_knots(links.first, links.second, vertices)
    circles = [waits for knot in knots if len(waits := _waits(links, knot.cycle)) > 1]
    problems = [_circle(board, waits) for waits in circles[:_KNOTS]]
    if len(circles) > _KNOTS:
        rest = "of collectives that wait for each other"
        more = len(circles) - _KNOTS
        problems.append(not_spelled_out("warning", "collective-circle", more, "circle", rest))
    return problems


def _links(board: _Board) -> _Edges:
    first, second, agents = [], [], []
    others = int(board.base[-1])  # the first vertex of the agent's other nodes
    for agent, template in enumerate(board.agents.template.tolist()):
        rows = board.started.get(template)
        if rows is None:
            continue
        if board.side_by_side:
            trace = board.programs.workload.templates[template]
            vertex = board.vertices(agent, len(trace))
            vertex = np.where(vertex < 0, others + np.arange(len(trace), dtype=np.int32), vertex)
            others += len(trace)
            before, after = (vertex[column] for column in edges(trace))
        else:
            path = board.vertices(agent, int(rows.max()) + 1)[rows]
            path = path[path >= 0]
            before, after = path[:-1], path[1:]
        first.append(before)
        second.append(after)
        agents.append(np.full(len(before), agent, np.int32))
    return _Edges(*(np.concatenate(parts) for parts in (first, second, agents)))


def _waits(edges: _Edges, cycle: list[int]) -> list[_Wait]:
    """Return the cycle as pairs "first before second", with steps on one agent merged; the lowest agent comes
    first. A cycle on one agent is a single pair: its dependencies are a cycle by themselves.
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
    certain = board.side_by_side or all(_is_certain(board, wait) for wait in waits)
    fate = "they hang" if certain else "they hang if they start like this"
    parts = "; ".join(_in_words(board, wait) for wait in waits)
    subject = "collectives of different groups wait for each other"
    if board.side_by_side:
        subject = "collectives wait for each other through dependencies"
    text = f"{subject} ({fate}): {parts}"
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
