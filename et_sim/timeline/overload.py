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
from et_sim.machine.model import Dimension, GraphFabric, GridFabric, Network, Shape, UnevenLink
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
    ports = _Ports(network)
    sizes = _bytes_of_nodes(plan, ports)
    row, actor = _communication(plan, outcome)
    if not len(row):
        return None
    begin, end, first = _bursts(actor, outcome.nodes["start_ns"][row], outcome.nodes["end_ns"][row])
    lengths = np.maximum(end - begin, 1)
    of_node = _rows_of_plan(plan, row, actor)
    worst: tuple[float, Port, int] = (TOLERANCE, ALL_PORTS, -1)
    for number, bytes_of_node in sizes:
        sent = np.add.reduceat(bytes_of_node[of_node], first)
        factors = sent / (ports.rates[number] * lengths)
        most = float(factors.max())
        if most > worst[0]:
            worst = (most, ports.place(number), int(factors.argmax()))
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
    times, place = np.unique(np.concatenate((start, end)), return_inverse=True)
    first_place = actor * len(times)  # actors one after the other, on an axis of no more than these times
    shifted_start, shifted_end = first_place + place.reshape(2, -1)
    until = np.maximum.accumulate(shifted_end)
    breaks = np.concatenate(([True], shifted_start[1:] > until[:-1]))
    breaks[1:] |= actor[1:] != actor[:-1]
    first = np.flatnonzero(breaks)
    last = np.concatenate((first[1:], [len(actor)])) - 1
    return start[first], times[until[last] - first_place[last]], first


class _Ports:
    """An NPU's ports: all together, all of each dimension, and by distance where NPUs are fully connected.

    `rates`: bytes per nanosecond of each, the fastest that there are.
    """

    def __init__(self, network: Network) -> None:
        fabric = network.fabric
        self.dimensions: tuple[Dimension, ...] = ()
        uneven: tuple[UnevenLink, ...] = ()
        if isinstance(fabric, GridFabric):
            self.dimensions, uneven = fabric.dimensions, fabric.links
        self.first = [1]  # by dimension, the number of its first port
        rates: list[Any] = []
        for number, dimension in enumerate(self.dimensions):
            own = [link.bytes_per_ns for link in uneven if link.dimension == number]
            fastest, npus = max([dimension.bytes_per_ns, *own]), dimension.npus
            if dimension.shape is Shape.FULLY_CONNECTED:
                links = np.where(2 * np.arange(1, npus // 2 + 1) == npus, 1, 2)
            else:
                links = np.array([2 if dimension.shape is Shape.RING and npus > 2 else 1])
            rates.append(links * fastest)
            self.first.append(self.first[-1] + len(links))
        if isinstance(fabric, GraphFabric):
            out = np.bincount(fabric.graph.sources, fabric.graph.bytes_per_ns, len(fabric.graph))
            everything = float(out[fabric.graph.npus].max())
        else:
            everything = float(sum(one.sum() for one in rates))
        self.rates = np.concatenate(([everything], *rates))

    def __len__(self) -> int:
        return len(self.rates)

    def used_by(self, dimension: int, distances: Any) -> Any:
        """The ports through which messages over these distances leave."""
        along = self.dimensions[dimension]
        if along.shape is not Shape.FULLY_CONNECTED:
            return np.full(len(distances), self.first[dimension])
        ahead = distances % along.npus
        return self.first[dimension] + np.minimum(ahead, along.npus - ahead) - 1

    def place(self, port: int) -> Port:
        """Where a port is."""
        if port == 0:
            return ALL_PORTS
        dimension = int(np.searchsorted(self.first, port, side="right")) - 1
        is_pair = self.dimensions[dimension].shape is Shape.FULLY_CONNECTED
        return dimension, port - self.first[dimension] + 1 if is_pair else 0


def _bytes_of_nodes(plan: Plan, ports: _Ports) -> Iterator[tuple[int, Any]]:
    """What each node of the plan sends, by port, all ports last; of ports that are used alike, the first."""
    action, detail = plan.nodes["action"], plan.nodes["detail"]
    of_program = np.stack([_of_program(plan, ports, one) for one in plan.programs] or [np.zeros(len(ports))])
    times = np.zeros((len(plan.collectives), len(of_program)))
    for row, phases in _phases(plan):
        for phase, chunks in phases:
            times[row, int(plan.phases[phase]["program"])] += chunks
    use = np.concatenate((of_program, [ports.rates]))
    _, alike = np.unique(use.round(9), axis=1, return_index=True)
    is_collective, is_send = action == Action.COLLECTIVE, action == Action.SEND
    for port in sorted({0, *alike[of_program[:, alike].any(axis=0)].tolist()}, reverse=True):
        found = np.zeros(len(plan.nodes))
        found[is_collective] = (times @ of_program[:, port])[detail[is_collective]]
        if port == 0:
            found[is_send] = plan.nodes["bytes"][is_send]
        yield port, found


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


def _of_program(plan: Plan, ports: _Ports, program: Any) -> Any:
    """What a member sends in a phase, by port."""
    sent = np.zeros(len(ports))
    if program["tree_first"] >= 0 or program["custom_first"] >= 0 or program["own_steps"]:
        return sent
    first, period = int(program["step_first"]), int(program["step_period"])
    laps, rest = divmod(int(program["sends"]), period) if period else (0, 0)
    steps = plan.steps[first : first + period]
    sizes = steps["bytes"].astype(float) * (laps + (np.arange(len(steps)) < rest))
    dimension = int(program["dimension"])
    if 0 <= dimension < len(ports.dimensions):
        np.add.at(sent, ports.used_by(dimension, steps["distance"]), sizes)
    sent[0] = sizes.sum()
    return sent
