"""The reference's rules, written a second time: objects and callbacks, one event after the other.

It models computations, point-to-point messages, rendezvous, groups, custom collectives, and collectives by
ring and direct, on both network models. It reads cases as `cases.Case` does, and shares no
code with et-sim. Queues have no priorities: a rank has one collective under way.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import yaml
from cases import Case, ranks_of
from reference_phases import DirectPhase, PhasePlan, RingPhase, chunk_sizes, plan_phases

Callback = Callable[[], None]
REQUEST_BYTES, MOST_TAGS, REQUEST_TAGS = 8192, 5 * 10**8, 10**9
TYPES = {"ALL_REDUCE": "AR", "ALL_GATHER": "AG", "REDUCE_SCATTER": "RS", "ALL_TO_ALL": "A2A"}
KEYS = {"AR": "all-reduce", "AG": "all-gather", "RS": "reduce-scatter", "A2A": "all-to-all"}


class Calendar:
    """Slots of time, and a bucket per rank and time in the slot of its first entry."""

    def __init__(self) -> None:
        self.now = 0
        self._slots: dict[int, deque[Callback]] = {}
        self._times: list[int] = []
        self._buckets: dict[tuple[int, int], deque[Callback]] = {}

    def at(self, time: int, happen: Callback) -> None:
        if time not in self._slots:
            self._slots[time] = deque()
            heapq.heappush(self._times, time)
        self._slots[time].append(happen)

    def own(self, rank: int, delay: int, happen: Callback) -> None:
        """Schedule an event of a rank for itself."""
        key = (rank, self.now + delay)
        if key not in self._buckets:
            self._buckets[key] = deque()
            self.at(self.now + delay, lambda: self._drain(key))
        self._buckets[key].append(happen)

    def _drain(self, key: tuple[int, int]) -> None:
        while self._buckets[key]:
            self._buckets[key].popleft()()
        del self._buckets[key]

    def run(self) -> None:
        while self._times:
            self.now = self._times[0]
            slot = self._slots[self.now]
            while slot:
                slot.popleft()()
            del self._slots[self.now]
            heapq.heappop(self._times)


class Network:
    """Messages in flight, or from link to link."""

    def __init__(self, calendar: Calendar, described: dict[str, Any], is_link: bool) -> None:
        self._calendar, self._is_link = calendar, is_link
        self.npus = described["npus_count"]
        self._shapes, self._latency = described["topology"], described["latency"]
        self._speed = [b * 2**30 / 1e9 for b in described["bandwidth"]]
        self._queues: dict[tuple[int, int], deque[Callback]] = {}  # of busy links

    def carry(self, source: int, target: int, size: int, arrive: Callback) -> None:
        through_switch = self._is_link and self._shapes == ["Switch"]
        if source == target and not through_switch:  # the reference aborts; this is et-sim's rule
            self._calendar.at(self._calendar.now, arrive)
            return
        if self._is_link:
            self._hop(self._route(source, target), size, arrive)
            return
        stride = 1
        for shape, npus, latency, speed in zip(
            self._shapes, self.npus, self._latency, self._speed, strict=True
        ):
            ahead = (target // stride - source // stride) % npus
            if ahead:
                hops = {"Ring": min(ahead, npus - ahead), "FullyConnected": 1, "Switch": 2}[shape]
                self._calendar.at(self._calendar.now + int(hops * latency + size / speed), arrive)
                return
            stride *= npus

    def _route(self, source: int, target: int) -> list[int]:
        [shape], [npus] = self._shapes, self.npus
        if shape != "Ring":
            return [source, npus, target] if shape == "Switch" else [source, target]
        ahead = (target - source) % npus
        step = 1 if ahead <= npus - ahead else -1
        return [(source + step * hop) % npus for hop in range(min(ahead, npus - ahead) + 1)]

    def _hop(self, route: list[int], size: int, arrive: Callback) -> None:
        if len(route) == 1:
            arrive()
            return
        link = (route[0], route[1])
        if link in self._queues:
            self._queues[link].append(lambda: self._occupy(link, route, size, arrive))
        else:
            self._occupy(link, route, size, arrive)

    def _occupy(self, link: tuple[int, int], route: list[int], size: int, arrive: Callback) -> None:
        self._queues.setdefault(link, deque())
        now, serial = self._calendar.now, size / self._speed[0]
        self._calendar.at(now + int(self._latency[0] + serial), lambda: self._hop(route[1:], size, arrive))
        self._calendar.at(now + int(serial), lambda: self._free(link))

    def _free(self, link: tuple[int, int]) -> None:
        waiting = self._queues.pop(link)
        if waiting:
            first = waiting.popleft()
            self._queues[link] = waiting
            first()


class Transport:
    """Sends and receives: the k-th ones of a tag, source, target and size are matched."""

    def __init__(self, calendar: Calendar, network: Network, rendezvous: bool) -> None:
        self._calendar, self._network, self._rendezvous = calendar, network, rendezvous
        self._sent: Counter[Any] = Counter()
        self._posted: Counter[Any] = Counter()
        self._waiting: dict[Any, Callback] = {}
        self._arrived: set[Any] = set()

    def send(self, source: int, target: int, size: int, tag: int, done: Callback) -> None:
        def inject() -> None:
            self._inject(source, target, size, tag, done)

        if self._rendezvous:
            self._post(target, source, REQUEST_BYTES, tag + REQUEST_TAGS, inject)
        else:
            inject()

    def receive(self, source: int, target: int, size: int, tag: int, done: Callback) -> None:
        def post() -> None:
            self._post(source, target, size, tag, done)

        if self._rendezvous:
            self._inject(target, source, REQUEST_BYTES, tag + REQUEST_TAGS, post)
        else:
            post()

    def _inject(self, source: int, target: int, size: int, tag: int, done: Callback) -> None:
        key = (tag, source, target, size)
        self._sent[key] += 1
        message = (key, self._sent[key])

        def arrive() -> None:
            done()
            if message in self._waiting:
                self._waiting.pop(message)()
            else:
                self._arrived.add(message)

        self._network.carry(source, target, size, arrive)

    def _post(self, source: int, target: int, size: int, tag: int, done: Callback) -> None:
        key = (tag, source, target, size)
        self._posted[key] += 1
        message = (key, self._posted[key])
        if message in self._arrived:
            self._arrived.remove(message)
            self._calendar.at(self._calendar.now, done)
        else:
            self._waiting[message] = done


class Machine:
    """The state that all ranks share."""

    def __init__(self, case: Case) -> None:
        content, self.system = case.content, case.system
        self.calendar = Calendar()
        self.network = Network(self.calendar, content["network"], content["backend"] == "aware")
        self.transport = Transport(self.calendar, self.network, bool(self.system.get("rendezvous-protocol")))
        self.npus = content["network"]["npus_count"]
        self.ranks = math.prod(self.npus)
        self.groups = {"": list(range(self.ranks)), **(content["comm_groups"] or {})}
        self.programs = {
            prefix: nodes_by_rank(workload, workload.get("nranks", self.ranks))
            for prefix, workload in (content.get("extra_et") or {}).items()
        }
        by_node = (content.get("extra_files") or {}).get(self.system.get("per-node-custom-implementation"))
        self.program_of_node: dict[int, str] = yaml.safe_load(by_node) if by_node else {}
        self.queues = int(self.system.get("num-queues-per-dim", 1))
        self.limit = -(-int(self.system.get("active-chunks-per-dimension", 1)) // self.queues)
        self.endpoint = int(self.system.get("endpoint-delay", 10))

    def corrects(self, name: str) -> bool:
        return bool(self.system.get("corrections", {}).get(name))

    def reduction_ns(self, size: int) -> int:
        bandwidth = self.system.get("local-mem-bw", 0)
        return 3 * int(size / (bandwidth * 1e9) * 1e9) if bandwidth else 0


class Graph:
    """Nodes that wait for each other, by id."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self.nodes = {node["i"]: node for node in nodes}
        self._parents = {n["i"]: set(n.get("d", [])) | set(n.get("c", [])) for n in nodes}
        self.ready = {node for node, parents in self._parents.items() if not parents}

    def finish(self, done: int) -> None:
        del self._parents[done]
        for node, parents in self._parents.items():
            if done in parents:
                parents.remove(done)
                if not parents:
                    self.ready.add(node)

    def is_done(self) -> bool:
        return not self._parents


class Rank:
    """A rank that issues the nodes of a trace, one at a time per slot."""

    def __init__(self, machine: Machine, rank: int, nodes: list[dict[str, Any]]) -> None:
        self.machine, self.rank = machine, rank
        self._graph = Graph(nodes)
        self._busy: Counter[str] = Counter()
        self.start_ns: dict[int, int] = {}
        self.end_ns: dict[int, int] = {}
        self.finish_ns: int | None = None
        self.queues: dict[int, list[Stream]] = {}
        self.running: Counter[int] = Counter()
        self.cursors: Counter[tuple[int, str]] = Counter()
        self._counters: Counter[str] = Counter()
        self._algorithms: dict[tuple[str, str], str | None] = {}

    def issue(self) -> None:
        while True:
            for node in sorted(self._graph.ready):
                slot = _slot_of(self._graph.nodes[node])
                if slot == "none" or not self._busy[slot]:
                    self._graph.ready.remove(node)
                    self._busy[slot] += 1
                    self._start(self._graph.nodes[node])
            if self._busy.total() or not self._graph.ready:
                break
        if self._graph.is_done():
            self.finish_ns = self.machine.calendar.now

    def _start(self, node: dict[str, Any]) -> None:
        calendar, transport = self.machine.calendar, self.machine.transport
        attributes = node.get("a", {})
        self.start_ns[node["i"]] = calendar.now

        def done() -> None:
            self._end(node)
            self.issue()

        if node["t"] == "COMP":
            calendar.own(self.rank, node.get("us", 0) * 1000 or 1, done)
        elif node["t"] == "SEND":
            size, tag = attributes["comm_size"], attributes["comm_tag"] % MOST_TAGS
            transport.send(self.rank, attributes["comm_dst"], size, tag, done)
        elif node["t"] == "RECV":
            size, tag = attributes["comm_size"], attributes["comm_tag"] % MOST_TAGS
            transport.receive(attributes["comm_src"], self.rank, size, tag, done)
        elif node["t"] == "COLL":
            self._start_collective(node, done)
        else:
            self._end(node)

    def _end(self, node: dict[str, Any]) -> None:
        self._busy[_slot_of(node)] -= 1
        self.end_ns[node["i"]] = self.machine.calendar.now
        self._graph.finish(node["i"])

    def _start_collective(self, node: dict[str, Any], done: Callback) -> None:
        machine, attributes = self.machine, node["a"]
        group, kind = str(attributes.get("pg_name", "")), TYPES[attributes["comm_type"]]
        members = machine.groups[group]
        custom = self._custom_program(node["i"], group, kind)
        if custom is not None:
            sizes = [attributes["comm_size"]]
        else:
            exactly = machine.corrects("exact-chunks")
            splits = machine.system["preferred-dataset-splits"]
            sizes = chunk_sizes(kind, attributes["comm_size"], splits, machine.ranks, exactly)
        left = [len(sizes)]

        def chunk_done() -> None:
            left[0] -= 1
            if not left[0]:
                done()

        for size in sizes:
            if custom is None:
                phases = plan_phases(machine, kind, size, members, attributes.get("involved_dim"))
            else:
                phases = []
            sequence = self._counters[""]
            self._counters[""] += 1
            if group:
                sequence = int(group) * 10**6 + self._counters[group]
                self._counters[group] += 1
            queued = [(phase, *self._take_queue(phase)) for phase in phases]
            Stream(self, members, sequence, queued, custom, chunk_done).start()

    def _custom_program(self, node: int, group: str, kind: str) -> str | None:
        """Return the program of a collective; a group keeps the algorithm of its first one of a type."""
        by_kind = self.machine.system.get(f"{KEYS[kind]}-implementation-custom", [None])[0]
        chosen = self.machine.program_of_node.get(node, by_kind)
        return self._algorithms.setdefault((group, kind), chosen) if group else chosen

    def _take_queue(self, phase: PhasePlan) -> tuple[int, int]:
        """Return (queue, direction) by the cursors of the dimension."""
        count = self.machine.queues
        turn = self.cursors[phase.dimension, phase.cursor]
        self.cursors[phase.dimension, phase.cursor] += 1
        first = phase.dimension * count
        if phase.cursor == "next":
            queue = turn % count
            return first + queue, -1 if count > 1 and queue >= count // 2 else 1
        if phase.cursor == "first":
            return first + turn % max(count // 2, 1), 1
        return first + count // 2 + turn % (count - count // 2), -1


def _slot_of(node: dict[str, Any]) -> str:
    if node.get("cpu"):
        return "cpu"
    return {"COMP": "compute", "RECV": "none"}.get(node["t"], "communication")


class Stream:
    """A chunk on its way through the queues of its phases."""

    def __init__(
        self,
        rank: Rank,
        members: list[int],
        sequence: int,
        phases: list[tuple[PhasePlan, int, int]],
        custom: str | None,
        done: Callback,
    ) -> None:
        self._rank, self._members, self._phases = rank, members, phases
        self._tag = MOST_TAGS + sequence % MOST_TAGS
        self._custom, self._done = custom, done
        self._at = 0
        self.has_started = False

    @property
    def _queue(self) -> int:
        return self._phases[self._at][1] if self._phases else 0

    def start(self) -> None:
        self._rank.queues.setdefault(self._queue, []).append(self)
        _pump(self._rank, self._queue)

    def begin(self) -> None:
        self.has_started = True
        if self._custom is not None:
            CustomPhase(self._rank, self._members, self._custom, self._phase_done).issue()
            return
        plan, _, direction = self._phases[self._at]
        kind = DirectPhase if plan.algorithm.startswith("direct") else RingPhase
        kind(self._rank, plan, direction, self._tag, self._phase_done).start()

    def _phase_done(self) -> None:
        old, rank = self._queue, self._rank
        is_last = self._at + 1 >= len(self._phases)
        if is_last:
            self._done()
        rank.queues[old].remove(self)
        if not is_last:
            self._at += 1
            self.has_started = False
            rank.queues.setdefault(self._queue, []).append(self)
        rank.running[old] -= 1
        _pump(rank, old)
        if not is_last:
            _pump(rank, self._queue)


def _pump(rank: Rank, queue: int) -> None:
    while rank.running[queue] < rank.machine.limit:
        waiting = [stream for stream in rank.queues[queue] if not stream.has_started]
        if not waiting:
            return
        rank.running[queue] += 1
        waiting[0].begin()


class CustomPhase:
    """A custom program: all ready nodes at once, with messages among the workload's."""

    def __init__(self, rank: Rank, members: list[int], prefix: str, done: Callback) -> None:
        self._rank, self._members, self._done = rank, members, done
        place = sorted(members).index(rank.rank)
        self._graph = Graph(rank.machine.programs[prefix][place])

    def issue(self) -> None:
        for node in sorted(self._graph.ready):
            self._graph.ready.remove(node)
            self._start(self._graph.nodes[node])

    def _start(self, node: dict[str, Any]) -> None:
        machine, own, attributes = self._rank.machine, self._rank.rank, node.get("a", {})

        def done() -> None:
            self._graph.finish(node["i"])
            self.issue()
            if self._graph.is_done():
                self._done()

        if node["t"] == "COMP":
            machine.calendar.own(own, node.get("us", 0) * 1000 or 1, done)
            return
        size, tag = attributes["comm_size"], attributes["comm_tag"] % MOST_TAGS
        if node["t"] == "SEND":
            machine.transport.send(own, self._members[attributes["comm_dst"]], size, tag, done)
        else:
            machine.transport.receive(self._members[attributes["comm_src"]], own, size, tag, done)


def simulate(case: Case) -> list[Rank]:
    """Run a case to its end."""
    machine = Machine(case)
    traces = nodes_by_rank(case.content["workload"], machine.ranks)
    ranks = [Rank(machine, rank, nodes) for rank, nodes in enumerate(traces)]
    for rank in ranks:
        rank.issue()
    machine.calendar.run()
    return ranks


def nodes_by_rank(workload: dict[str, Any], count: int) -> list[list[dict[str, Any]]]:
    """Return the nodes of every rank, with the values of its variables."""
    nodes: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    for program in workload["programs"]:
        for rank in ranks_of(program["r"], count):
            for node in program["nodes"]:
                values = {name: _value(workload, rank, value) for name, value in node.get("a", {}).items()}
                nodes[rank].append({**node, "a": values})
    return nodes


def _value(workload: dict[str, Any], rank: int, value: Any) -> Any:
    is_variable = isinstance(value, str) and value.startswith("$")
    return workload["vars"][value[1:]][rank] if is_variable else value
