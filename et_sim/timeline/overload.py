"""Whether ranks sent more than their ports can carry, on models where messages do not notice each other.

A burst is a time in which a rank has communication under way without a break. What a rank sends in a burst
along a dimension has to fit through its ports there in this time, and all it sends through all its ports.
Both follow from the plan and the times of nodes; trees, custom collectives and exchanges with sizes of their
own for each pair are left out, so that what is found is never too much.

Not here: what links carry on models that know it (`engine.load`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.engine.outcome import Outcome
from et_sim.machine.model import GraphFabric, GridFabric, Network, Shape
from et_sim.plan.tables import Action, Plan
from et_sim.units import format_ns, format_ranks

MOST_LETTERS = 40  # of a list of ranks
TOLERANCE = 1.01  # messages are cut to whole nanoseconds
ALL_PORTS = (-1, 0)
Port = tuple[int, int]  # a dimension, and the distance among fully connected NPUs; else 0


@dataclass(frozen=True, slots=True)
class Overload:
    """The burst in which most was sent, measured by what its ports can carry."""

    ranks: str
    port: Port
    factor: float
    begin_ns: int
    length_ns: int

    @property
    def sentence(self) -> str:
        """What users are told."""
        dimension, distance = self.port
        where = f"along dimension {dimension}" if dimension >= 0 else "over all its ports"
        where += f" to ranks {distance} further on" if distance else ""
        who = f"rank {self.ranks}" if self.ranks.isdecimal() else f"each of ranks {self.ranks}"
        return (
            f"{who} sends {self.factor:.3g} times what its links carry {where}, within"
            f" {format_ns(self.length_ns)} from {format_ns(self.begin_ns)} on: messages do not wait for each"
            " other on this model and profile; --profile corrected, or --model flow, keeps to bandwidths"
        )


def overload(outcome: Outcome, network: Network) -> Overload | None:
    """The worst burst in which more was sent than links carry; None: there is none, or nobody knows."""
    plan = outcome.plan
    if outcome.has_contention or network.levels or network.loggops is not None:
        return None
    rates, sizes = _rates(network), _bytes_of_nodes(plan, network)
    row, actor = _communication(plan, outcome)
    if not len(row):
        return None
    begin, end, first = _bursts(actor, outcome.nodes["start_ns"][row], outcome.nodes["end_ns"][row])
    lengths = np.maximum(end - begin, 1)
    of_node = _rows_of_plan(plan, row, actor)
    worst: tuple[float, Port, int] = (TOLERANCE, ALL_PORTS, -1)
    for port, bytes_of_node in ((one, sizes[one]) for one in sorted(sizes, reverse=True)):  # all ports last
        sent = np.add.reduceat(bytes_of_node[of_node], first)
        factors = sent / (rates[port] * lengths)
        most = float(factors.max())
        if most > worst[0]:
            worst = (most, port, int(factors.argmax()))
            alike = factors >= most * (1 - 1e-9)
            whose = np.unique(actor[first[alike & (begin == begin[worst[2]])]])
    factor, port, burst = worst
    if burst < 0:
        return None
    ranks = format_ranks(np.flatnonzero(np.isin(plan.actor_of_rank, whose)).tolist())
    if len(ranks) > MOST_LETTERS:
        ranks = f"{ranks[:MOST_LETTERS].rpartition(',')[0]},…"
    return Overload(ranks, port, factor, int(begin[burst]), int(lengths[burst]))


def _communication(plan: Plan, outcome: Outcome) -> tuple[Any, Any]:
    """(rows of the nodes that sent something and are done, whose they are), each actor's by their starts."""
    counts = plan.templates["nodes"][plan.actors["template"]]
    actor = np.repeat(np.arange(len(plan.actors)), counts)
    row = np.arange(len(actor))
    action = plan.nodes["action"][_rows_of_plan(plan, row, actor)]
    sends = (action == Action.COLLECTIVE) | (action == Action.SEND)
    is_done = sends & (outcome.nodes["start_ns"] >= 0) & (outcome.nodes["end_ns"] >= 0)
    row, actor = row[is_done], actor[is_done]
    order = np.lexsort((outcome.nodes["start_ns"][row], actor))
    return row[order], actor[order]


def _rows_of_plan(plan: Plan, row: Any, actor: Any) -> Any:
    """Rows of `Plan.nodes` for those of the run."""
    template = plan.templates["node_first"][plan.actors["template"][actor]]
    return template + row - plan.actors["node_first"][actor]


def _bursts(actor: Any, start: Any, end: Any) -> tuple[Any, Any, Any]:
    """(begin, end, first row) of the times in which an actor's nodes follow each other without a break."""
    span = int(end.max()) + 1  # actors one after the other on one axis of time
    shifted_start, shifted_end = actor * span + start, actor * span + end
    until = np.maximum.accumulate(shifted_end)
    breaks = np.concatenate(([True], shifted_start[1:] > until[:-1]))
    breaks[1:] |= actor[1:] != actor[:-1]
    first = np.flatnonzero(breaks)
    last = np.concatenate((first[1:], [len(actor)])) - 1
    return start[first], until[last] - actor[last] * span, first


def _rates(network: Network) -> dict[Port, float]:
    """Bytes per nanosecond of an NPU's ports together: the fastest that there are."""
    fabric = network.fabric
    if isinstance(fabric, GraphFabric):
        out = np.bincount(fabric.graph.sources, fabric.graph.bytes_per_ns, len(fabric.graph))
        return {ALL_PORTS: float(out[fabric.graph.npus].max())}
    assert isinstance(fabric, GridFabric)
    rates = {ALL_PORTS: 0.0}
    for number, dimension in enumerate(fabric.dimensions):
        own = [link.bytes_per_ns for link in fabric.links if link.dimension == number]
        fastest, npus = max([dimension.bytes_per_ns, *own]), dimension.npus
        if dimension.shape is Shape.FULLY_CONNECTED:
            here = {ahead: 1 if 2 * ahead == npus else 2 for ahead in range(1, npus // 2 + 1)}
        else:
            here = {0: 2 if dimension.shape is Shape.RING and npus > 2 else 1}
        for ahead, ports in here.items():
            rates[number, ahead] = ports * fastest
            rates[ALL_PORTS] += ports * fastest
    return rates


def _bytes_of_nodes(plan: Plan, network: Network) -> dict[Port, Any]:
    """What each node of the plan sends, by port."""
    action, detail = plan.nodes["action"], plan.nodes["detail"]
    of_collective: dict[Port, Any] = {ALL_PORTS: np.zeros(len(plan.collectives))}
    of_program = [list(_of_program(plan, network, program)) for program in plan.programs]
    for row, phases in _phases(plan):
        for phase, times in phases:
            for port, size in of_program[int(plan.phases[phase]["program"])]:
                known = of_collective.setdefault(port, np.zeros(len(plan.collectives)))
                known[row] += times * size
    is_collective, found = action == Action.COLLECTIVE, {}
    for port, sizes in of_collective.items():
        found[port] = np.zeros(len(plan.nodes))
        found[port][is_collective] = sizes[detail[is_collective]]
    is_send = action == Action.SEND
    found[ALL_PORTS][is_send] = plan.nodes["bytes"][is_send]
    return found


def _phases(plan: Plan) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """(row of a collective, its phases and how many chunks have each)."""
    for row, collective in enumerate(plan.collectives):
        phases: list[tuple[int, int]] = []
        chunk, plan_row, turns = 0, int(collective["chunk_plan_first"]), int(collective["rotations"])
        while chunk < collective["chunks"]:
            chunk_end, first = plan.chunk_plans[plan_row].tolist()
            chunks = (chunk_end - chunk) // turns  # which turn is first follows from the run
            phases += [(first + number, chunks) for number in range(turns * int(collective["phases"]))]
            chunk, plan_row = chunk_end, plan_row + 1
        yield row, phases


def _of_program(plan: Plan, network: Network, program: Any) -> Iterator[tuple[Port, float]]:
    """What a member sends in a phase, by port."""
    if program["tree_first"] >= 0 or program["custom_first"] >= 0 or program["own_steps"]:
        return
    first, period = int(program["step_first"]), int(program["step_period"])
    laps, rest = divmod(int(program["sends"]), period) if period else (0, 0)
    dimension = int(program["dimension"])
    along = None
    if isinstance(network.fabric, GridFabric) and dimension >= 0:
        along = network.fabric.dimensions[dimension]
    for number, step in enumerate(plan.steps[first : first + period]):
        size = float(step["bytes"]) * (laps + (number < rest))
        yield ALL_PORTS, size
        if along is not None:
            ahead = int(step["distance"]) % along.npus
            is_pair = along.shape is Shape.FULLY_CONNECTED
            yield (dimension, min(ahead, along.npus - ahead) if is_pair else 0), size
