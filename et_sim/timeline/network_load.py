"""Load of the network: the bottleneck, and ranks that sent more than their ports can carry.

The bottleneck is the link with the most bytes for its bandwidth, and its tier, on models that count them. The
time of the run may have other causes (`statistics`).

Overloads are searched burst by burst on models without contention. A burst is a time in which a rank always
has communication in progress. The bytes that a rank sends in a burst along a dimension have to fit through
its ports there in this time, and all that it sends, or receives, through all its ports. This follows from the
plan and the times of nodes: bytes sent in a collective are in flight until all members have finished, bytes
received from the first member's start on.

`engine.outcome` holds the bytes on links, `own_bytes` those that differ by member.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import unique
from et_sim.basics.units import format_ns, format_ranks
from et_sim.engine.outcome import NetworkLoad, Outcome
from et_sim.machine.model import DimensionShape, GraphFabric, GridFabric, LevelFabric, Network, bytes_per_ns
from et_sim.plan.records import Action, LoweredPlan
from et_sim.timeline.own_bytes import ByteDirection, Phases, by_members, differs_by_member, received, together

MOST_LETTERS = 40  # of a list of ranks
TOLERANCE = 1.01  # each message is rounded down to whole nanoseconds
REMEDY = "--profile corrected, or --network-model flow,"
ALL_PORTS = (-1, 0)
Port = tuple[int, int]  # a dimension, and the distance among fully connected NPUs; else 0


class Overload(Struct, frozen=True):
    """The burst with the most bytes relative to the bandwidth of its ports."""

    ranks: str
    port: Port
    factor: float
    begin_ns: int
    length_ns: int
    verb: str
    remedy: str

    @property
    def sentence(self) -> str:
        """Return the warning."""
        dimension, distance = self.port
        where = f"along dimension {dimension}" if dimension >= 0 else "over all its ports"
        where += f" to ranks {distance} further on" if distance else ""
        who = f"rank {self.ranks}" if self.ranks.isdecimal() else f"each of ranks {self.ranks}"
        return (
            f"{who} {self.verb} {self.factor:.3g} times what its links carry {where}, within"
            f" {format_ns(self.length_ns)} from {format_ns(self.begin_ns)} on: messages do not wait for each"
            f" other on this model and profile; {self.remedy} keeps to bandwidths"
        )


def overload(outcome: Outcome, network: Network) -> Overload | None:
    """Return the worst burst in which more was sent than links carry; None if there is none, or with
    contention.
    """
    plan = outcome.plan
    if outcome.has_contention or network.loggops is not None:
        return None
    ports, worst = _Ports(network), _Worst()
    counts = plan.templates["nodes"][plan.actors["template"]]
    actor = np.repeat(np.arange(len(plan.actors)), counts)
    row = np.arange(len(actor))
    node = (
        plan.templates["node_first"][plan.actors["template"][actor]] + row - plan.actors["node_first"][actor]
    )
    action, start, end = plan.nodes["action"][node], outcome.nodes["start_ns"], outcome.nodes["end_ns"]
    sends = (action == Action.COLLECTIVE) | (action == Action.SEND)
    begun = np.flatnonzero(sends & (start >= 0))
    last = np.where(end < 0, outcome.end_ns, end)[begun]
    who, node_row, since = actor[begun], node[begun], start[begun]
    first, until = together(plan, who, node_row, since, last)
    who, node_row, since, first, until, last = (
        column[end[begun] >= 0] for column in (who, node_row, since, first, until, last)
    )
    sizes = _Sizes(plan, ports)
    worst.look("sends", ports, who, since, until, sizes.sent(who, node_row))
    joint = plan.nodes["action"][node_row] == Action.COLLECTIVE
    begin, over, of_receives = received(outcome, actor, node)
    spans = np.concatenate((first[joint], begin)), np.concatenate((last[joint], end[over]))
    whose = np.concatenate((who[joint], actor[over]))
    size = np.concatenate((sizes.got(who[joint], node_row[joint]), of_receives))
    worst.look("gets", ports, whose, *spans, [(0, size)])
    if not worst.factor > TOLERANCE:
        return None
    ranks = format_ranks(np.flatnonzero(np.isin(plan.actor_of_rank, worst.whose)).tolist())
    if len(ranks) > MOST_LETTERS:
        ranks = f"{ranks[:MOST_LETTERS].rpartition(',')[0]},…"
    remedy = "a network file in the form of 2.x with --profile corrected" if network.levels else REMEDY
    return Overload(ranks, worst.port, worst.factor, worst.begin_ns, worst.length_ns, worst.verb, remedy)


class _Worst:
    """The worst burst so far."""

    def __init__(self) -> None:
        self.factor, self.port, self.begin_ns, self.length_ns = TOLERANCE, ALL_PORTS, 0, 0
        self.verb, self.whose = "", np.zeros(0, np.int64)

    def look(
        self, verb: str, ports: _Ports, actor: Any, start: Any, end: Any, sizes: Iterable[tuple[int, Any]]
    ) -> None:
        """Evaluate transfers with their actors, times, and sizes by port."""
        if not len(actor):
            return
        order = np.lexsort((start, actor))
        actor = actor[order]
        begin, until, first = _bursts(actor, start[order], end[order])
        lengths = until - begin + 1  # times are rounded down to whole nanoseconds
        for number, size in sizes:
            factors = np.add.reduceat(size[order], first) / (ports.rates[number] * lengths)
            most = float(factors.max())
            if most > self.factor:
                burst = int(factors.argmax())
                alike = factors >= most * (1 - 1e-9)
                self.whose = unique(actor[first[alike & (begin == begin[burst])]])
                self.factor, self.port, self.verb = most, ports.place(number), verb
                self.begin_ns, self.length_ns = int(begin[burst]), int(until[burst] - begin[burst])


def _bursts(actor: Any, start: Any, end: Any) -> tuple[Any, Any, Any]:
    """Return begin, end and first row of the times in which an actor's nodes follow each other without a
    break.
    """
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
    """Ports of an NPU: all together, all of each dimension, and by distance where NPUs are fully connected.

    `rates`: bytes per nanosecond of the fastest such port.
    """

    def __init__(self, network: Network) -> None:
        fabric = network.fabric
        self.pairs: dict[int, int] = {}  # by fully connected dimension, its NPUs
        self.first = [1]  # by dimension, the number of its first port
        rates: list[Any] = []
        if isinstance(fabric, GridFabric):
            for number, dimension in enumerate(fabric.dimensions):
                bandwidths = [link.bytes_per_ns for link in fabric.links if link.dimension == number]
                fastest, npus = max([dimension.bytes_per_ns, *bandwidths]), dimension.npus
                if dimension.shape is DimensionShape.FULLY_CONNECTED:
                    self.pairs[number] = npus
                    links = np.where(2 * np.arange(1, npus // 2 + 1) == npus, 1, 2)
                else:
                    links = np.array([2 if dimension.shape is DimensionShape.RING and npus > 2 else 1])
                rates.append(links * fastest)
        everything = float(sum(rates_of_level.sum() for rates_of_level in rates))
        if isinstance(fabric, LevelFabric):
            of_level = [level.links_used * bytes_per_ns(level.link_bandwidth) for level in fabric.levels]
            rates = [np.array([of_level[level]]) for level in fabric.level_of]
            everything = sum(of_level)
        if isinstance(fabric, GraphFabric):
            both = [
                np.bincount(ends, fabric.graph.bytes_per_ns, len(fabric.graph))[fabric.graph.npus].max()
                for ends in (fabric.graph.sources, fabric.graph.targets)
            ]
            everything = float(max(both))
        for rates_of_level in rates:
            self.first.append(self.first[-1] + len(rates_of_level))
        self.rates = np.concatenate(([everything], *rates))

    def __len__(self) -> int:
        return len(self.rates)

    def used_by(self, dimension: int, distances: Any) -> Any:
        """Return the ports through which messages over these distances leave."""
        if dimension not in self.pairs:
            return np.full(len(distances), self.first[dimension])
        npus = self.pairs[dimension]
        ahead = distances % npus
        return self.first[dimension] + np.minimum(ahead, npus - ahead) - 1

    def of_all(self, dimension: int) -> int:
        """Return the port of all messages along a dimension; 0: there are several, or no such dimension."""
        is_one = 0 <= dimension < len(self.first) - 1 and dimension not in self.pairs
        return self.first[dimension] if is_one else 0

    def place(self, port: int) -> Port:
        """Return dimension and distance of a port."""
        if port == 0:
            return ALL_PORTS
        dimension = int(np.searchsorted(self.first, port, side="right")) - 1
        return dimension, port - self.first[dimension] + 1 if dimension in self.pairs else 0


class _Sizes:
    """Bytes that communicating nodes send and receive, by port."""

    def __init__(self, plan: LoweredPlan, ports: _Ports) -> None:
        self._plan, self._ports, self._collectives = plan, ports, list(_phases(plan))
        sent = [_of_program(plan, ports, program) for program in plan.programs]
        self._of_program = np.stack(sent or [np.zeros(len(ports))])
        self._times = np.zeros((len(plan.collectives), len(self._of_program)))
        for row, phases in self._collectives:
            for phase, chunks in phases:
                self._times[row, int(plan.phases[phase]["program"])] += chunks

    def sent(self, actor: Any, node: Any) -> Iterator[tuple[int, Any]]:
        """Yield the bytes that nodes send by port, all ports last; of ports with equal use, only
        the first.
        """
        own_bytes = self._own(actor, node, ByteDirection.OUT)
        by_port = {0: sum(own_bytes.values(), np.zeros(len(node)))}
        by_port |= {
            self._ports.of_all(port): sent for port, sent in own_bytes.items() if self._ports.of_all(port)
        }
        _, alike = np.unique(
            np.concatenate((self._of_program, [self._ports.rates])).round(9), axis=1, return_index=True
        )
        used = alike[self._of_program[:, alike].any(axis=0)].tolist()
        for port in sorted({*by_port, *used}, reverse=True):
            yield port, self._alike(port)[node] + by_port.get(port, 0)

    def got(self, actor: Any, node: Any) -> Any:
        """Return the bytes that collectives receive; where all members send alike, as many as they send."""
        own_bytes = self._own(actor, node, ByteDirection.IN).values()
        return self._alike(0)[node] + sum(own_bytes, np.zeros(len(node)))

    def _own(self, actor: Any, node: Any, way: ByteDirection) -> dict[int, Any]:
        return by_members(self._plan, self._collectives, actor, node, way)

    def _alike(self, port: int) -> Any:
        """Return the bytes that each node of the plan sends, for any actor."""
        action, detail = self._plan.nodes["action"], self._plan.nodes["detail"]
        is_collective, is_send = action == Action.COLLECTIVE, action == Action.SEND
        sent = np.zeros(len(action))
        sent[is_collective] = (self._times @ self._of_program[:, port])[detail[is_collective]]
        if port == 0:
            sent[is_send] = self._plan.nodes["bytes"][is_send]
        return sent


def _phases(plan: LoweredPlan) -> Iterator[tuple[int, Phases]]:
    """Yield the row of each collective, with its phases and their numbers of chunks."""
    for row, collective in enumerate(plan.collectives):
        phases: Phases = []
        chunk, plan_row, turns = 0, int(collective["chunk_plan_first"]), int(collective["rotations"])
        while chunk < collective["chunks"]:
            chunk_end, first = plan.chunk_plans[plan_row].tolist()
            chunks = (chunk_end - chunk) // turns  # the run decides which turn is first
            phases += [(first + number, chunks) for number in range(turns * int(collective["phases"]))]
            chunk, plan_row = chunk_end, plan_row + 1
        yield row, phases


def _of_program(plan: LoweredPlan, ports: _Ports, program: Any) -> Any:
    """Return the bytes that a member sends in a phase, by port."""
    sent = np.zeros(len(ports))
    if differs_by_member(program):
        return sent
    first, period = int(program["step_first"]), int(program["step_period"])
    laps, rest = divmod(int(program["sends"]), period) if period else (0, 0)
    steps = plan.steps[first : first + period]
    sizes = steps["bytes"].astype(float) * (laps + (np.arange(len(steps)) < rest))
    dimension = int(program["dimension"])
    if 0 <= dimension < len(ports.first) - 1:
        np.add.at(sent, ports.used_by(dimension, steps["distance"]), sizes)
    sent[0] = sizes.sum()
    return sent


AS_LOADED = 0.99  # of the most loaded link: links above this count as equally loaded
SAME = 1 - 1e-9  # of it: smaller differences are rounding errors


def busiest(load: NetworkLoad | None, actor_of_rank: Any, time_ns: int) -> tuple[str, float] | None:
    """Return the tier of the most loaded link, or class of switches, and its use (`bottleneck`)."""
    if load is None or time_ns == 0 or not load.bytes.any():
        return None
    used, (name, of_switches) = _used(load) / time_ns, _busiest_switches(load, time_ns)
    if of_switches > used.max():
        return name, round(of_switches, 6)
    at = _first(load.resources, np.flatnonzero(used >= SAME * used.max()), actor_of_rank)
    return load.resources.tier_names[int(load.resources.tier[at])], round(float(used[at]), 6)


def bottleneck(load: NetworkLoad | None, actor_of_rank: Any, time_ns: int) -> dict[str, Any] | None:
    """Return the most loaded link and its tier, or class of switches; None if nothing was carried
    or counted.
    """
    if load is None or time_ns == 0 or not load.bytes.any():
        return None
    resources, used = load.resources, _used(load) / time_ns
    name, of_switches = _busiest_switches(load, time_ns)
    if of_switches > used.max():
        return _of_switches(load, name, of_switches)
    has_bandwidth = (resources.bytes_per_ns > 0).any()
    alike_links = resources.links_like(actor_of_rank)
    links = alike_links * ((resources.bytes_per_ns > 0) | ~has_bandwidth)
    counts = np.bincount(resources.tier, links, len(resources.tier_names))
    sums = np.bincount(resources.tier, used * alike_links, len(counts))
    at = _first(resources, np.flatnonzero(used >= SAME * used.max()), actor_of_rank)
    tier, most = int(resources.tier[at]), float(used[at])
    alike = (resources.tier == tier) & (used >= AS_LOADED * most)
    named, as_loaded, ranks = 1, int(links[alike].sum()), None
    if resources.are_owned:
        alike &= resources.port == resources.port[at]
        owners = np.isin(actor_of_rank, resources.actor[alike])
        named, ranks = int(links[alike].sum()), format_ranks(np.flatnonzero(owners).tolist())
    return {
        "tier": resources.tier_names[tier],
        "link": resources.port_names[resources.port[at]],
        "ranks": ranks,
        "used": round(most, 6),
        "links": int(named),
        "links_as_loaded": as_loaded,
        "tier_links": int(counts[tier]),
        "tier_used": round(float(sums[tier] / counts[tier]), 6),
        "of": "bandwidth" if has_bandwidth else "time",
        "has_contention": resources.are_links,
        "times_slower": _times_slower(resources.bytes_per_ns, resources.tier == tier, links, at),
    }


def _times_slower(rates: Any, of_tier: Any, links: Any, at: int) -> float:
    """Return how many times slower a link is than most links of its tier, at least 1.0."""
    rows = np.flatnonzero(of_tier & (links > 0) & (rates > 0))
    if not len(rows) or not rates[at]:
        return 1.0
    rows = rows[np.argsort(rates[rows], kind="stable")]
    reached = np.cumsum(links[rows])
    usual = float(rates[rows[np.searchsorted(2 * reached, reached[-1])]])
    return max(round(usual / float(rates[at]), 6), 1.0)


def _busiest_switches(load: NetworkLoad, time_ns: int) -> tuple[str, float]:
    kind = max(load.switches_ns, key=lambda name: load.switches_ns[name], default="")
    return kind, load.switches_ns.get(kind, 0.0) / time_ns


def _of_switches(load: NetworkLoad, kind: str, used: float) -> dict[str, Any]:
    """Return the bottleneck of switches; their number is left out, because folded ranks share them."""
    names = ("link", "ranks", "links", "links_as_loaded", "tier_links", "tier_used", "times_slower")
    unset = dict.fromkeys(names)
    contention = {"has_contention": load.resources.are_links}
    return {"tier": kind, "used": round(used, 6), "of": "rate", **contention, **unset}


def _first(resources: Any, rows: Any, actor_of_rank: Any) -> int:
    """Return the first of equally loaded links, the same whether links are folded or not."""
    if len(rows) == 1:
        return int(rows[0])
    if not resources.are_owned:
        return int(rows[np.argmin(resources.port[rows])])
    lowest = np.unique(actor_of_rank, return_index=True)[1][resources.actor[rows]]
    return int(rows[np.lexsort((resources.port[rows], lowest, resources.tier[rows]))[0]])


def _used(load: NetworkLoad) -> Any:
    """Return how many nanoseconds each resource needs at full speed."""
    rate = load.resources.bytes_per_ns
    return np.where(rate > 0, load.bytes / np.where(rate > 0, rate, 1), load.busy_ns)
