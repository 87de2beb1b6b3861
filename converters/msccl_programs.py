"""Programs of custom collectives from MSCCL algorithms: sends, receives and computations per GPU.

Steps of a threadblock run one after the other, as in MSCCL. A step that receives, reduces and sends becomes
three nodes in sequence. A `nop` becomes no node: its dependents depend on its dependencies. Messages of one
channel between two threadblocks have a tag of their own and match in the order of the steps.

Invariant: returned programs finish. Sends without receives and cycles are refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from msgspec import Struct

from converters.msccl_xml import MscclAlgorithm, MscclStep
from et_sim.basics.errors import TraceError
from et_sim.trace.builder import TraceBuilder
from et_sim.trace.columns import Trace

Place = tuple[int, int, int]  # GPU, threadblock, step
Connection = tuple[int, int, int]  # channel, source, target


class MscclCosts(Struct, frozen=True):
    """Costs that the XML lacks."""

    chunk_bytes: int
    reduce_micros: int


def chunk_bytes(size: int, chunks: int) -> int:
    """Return the bytes of a chunk, rounded up so that no byte is left out."""
    return -(-size // chunks)


def programs(algorithm: MscclAlgorithm, costs: MscclCosts, source: str) -> list[Trace]:
    """Return the program of every GPU."""
    steps = dict(_steps(algorithm))
    sends, receives = _by_connection(algorithm, steps, source)
    pairs = list(_matched(steps, sends, receives, source))
    places: list[list[Place]] = [[] for _ in algorithm.gpus]
    for place in _order(steps, pairs, source):
        places[place[0]].append(place)
    tags = {connection: tag for tag, connection in enumerate(sorted(sends))}
    return [_Program(algorithm, gpu, costs, tags).build(order, source) for gpu, order in enumerate(places)]


def connections(algorithm: MscclAlgorithm) -> int:
    """Return the number of pairs of threadblocks that exchange messages."""
    steps = dict(_steps(algorithm))
    return len({_connection(algorithm, place, True) for place, step in steps.items() if step.work.sends})


def _steps(algorithm: MscclAlgorithm) -> Iterator[tuple[Place, MscclStep]]:
    for gpu, blocks in enumerate(algorithm.gpus):
        for block in blocks.values():
            for number, step in enumerate(block.steps):
                yield (gpu, block.number, number), step


def _connection(algorithm: MscclAlgorithm, place: Place, sends: bool) -> Connection:
    block = algorithm.gpus[place[0]][place[1]]
    if sends:
        return block.channel, place[0], block.send_to
    return block.channel, block.receive_from, place[0]


Sides = dict[Connection, list[Place]]


def _by_connection(
    algorithm: MscclAlgorithm, steps: dict[Place, MscclStep], source: str
) -> tuple[Sides, Sides]:
    """Return the sending and the receiving steps of each connection, in the order of their threadblock."""
    sides: tuple[Sides, Sides] = (defaultdict(list), defaultdict(list))
    for place, step in steps.items():
        for side, takes_part, sends in zip(
            sides, (step.work.sends, step.work.receives), (True, False), strict=True
        ):
            if takes_part:
                side[_connection(algorithm, place, sends)].append(place)
    for side, does in zip(sides, ("send to", "receive from"), strict=True):
        for (channel, first, second), places in side.items():
            blocks = sorted({block for _, block, _ in places})
            if len(blocks) > 1:
                gpu, peer = (first, second) if does == "send to" else (second, first)
                raise TraceError(
                    f"threadblocks {blocks[0]} and {blocks[1]} of gpu {gpu} both {does} gpu {peer}"
                    f" on channel {channel}",
                    place=source,
                    remedy="use another channel for one of them",
                )
    return sides


def _matched(
    steps: dict[Place, MscclStep], sends: Sides, receives: Sides, source: str
) -> Iterator[tuple[Place, Place]]:
    """Yield pairs of a sending step and the step that receives its message."""
    for connection in sorted({*sends, *receives}):
        channel, sender, receiver = connection
        ends = sends.get(connection, []), receives.get(connection, [])
        if len(ends[0]) != len(ends[1]):
            raise TraceError(
                f"gpu {sender} has {len(ends[0])} sends to gpu {receiver} on channel {channel},"
                f" and gpu {receiver} has {len(ends[1])} receives for them",
                place=source,
                remedy="give every send its receive, on the same channel",
            )
        for number, pair in enumerate(zip(*ends, strict=True)):
            sent, taken = (steps[place].count for place in pair)
            if sent != taken:
                raise TraceError(
                    f"of message {number} from gpu {sender} to gpu {receiver} on channel {channel}, {sent}"
                    f" chunks are sent, and {taken} received",
                    place=source,
                    remedy="give both steps the same cnt",
                )
            yield pair


def _order(steps: dict[Place, MscclStep], pairs: list[tuple[Place, Place]], source: str) -> list[Place]:
    """Return all steps, each after its dependencies."""
    waiting = {place: list(_predecessors(place, step)) for place, step in steps.items()}
    for sender, receiver in pairs:
        waiting[receiver].append(sender)
    try:
        return [*TopologicalSorter(waiting).static_order()]
    except CycleError as error:
        raise _circle(error.args[1][:0:-1], source) from None


def _predecessors(place: Place, step: MscclStep) -> Iterator[Place]:
    gpu, block, number = place
    if number:
        yield gpu, block, number - 1
    if step.waits_for is not None:
        yield gpu, *step.waits_for


def _circle(knot: list[Place], source: str) -> TraceError:
    """Return the error for a cycle of steps, each of which waits for the next."""
    first = knot.index(min(knot))
    knot = knot[first:] + knot[:first]
    words = [f"gpu {gpu} threadblock {block} step {step}" for gpu, block, step in [*knot, knot[0]]]
    shown = words if len(words) <= 5 else [*words[:4], f"… ({len(knot) - 4} more) …", words[-1]]
    return TraceError(
        f"these steps wait for each other and can never run: {', which waits for '.join(shown)}",
        place=source,
        remedy="correct depid and deps, or the order of the steps",
    )


class _Program:
    """The program of one GPU under construction."""

    def __init__(
        self, algorithm: MscclAlgorithm, gpu: int, costs: MscclCosts, tags: dict[Connection, int]
    ) -> None:
        self._algorithm = algorithm
        self._gpu = gpu
        self._costs = costs
        self._tags = tags
        self._builder = TraceBuilder()
        self._first_id: dict[Place, int] = {}
        self._ends: dict[Place, tuple[int, ...]] = {}  # the nodes to wait for

    def build(self, order: list[Place], source: str) -> Trace:
        """Build the nodes; ids follow the numbers of threadblocks and steps."""
        self._builder.source = f"{source}, gpu {self._gpu}"
        next_id = 0
        for place in sorted(order):
            self._first_id[place] = next_id
            work = self._step(place).work
            next_id += work.receives + bool(work.computes) + work.sends
        for place in order:
            self._add(place)
        return self._builder.build()

    def _step(self, place: Place) -> MscclStep:
        gpu, block, number = place
        return self._algorithm.gpus[gpu][block].steps[number]

    def _add(self, place: Place) -> None:
        step = self._step(place)
        node_id = self._first_id[place]
        awaited = [self._ends[other] for other in _predecessors(place, step)]
        after = tuple(dict.fromkeys(node for nodes in awaited for node in nodes))
        for kind in self._kinds(step):
            self._add_node(kind, place, step, after, node_id)
            after = (node_id,)
            node_id += 1
        self._ends[place] = after

    def _kinds(self, step: MscclStep) -> Iterator[str]:
        if step.work.receives:
            yield "receive"
        if step.work.computes:
            yield step.work.computes
        if step.work.sends:
            yield "send"

    def _add_node(
        self, kind: str, place: Place, step: MscclStep, after: tuple[int, ...], node_id: int
    ) -> None:
        name = f"{kind} of {step.type}, threadblock {place[1]} step {place[2]}"
        if kind in ("reduce", "copy"):
            micros = self._costs.reduce_micros if kind == "reduce" else 0
            self._builder.compute(name, micros=micros, after=after, node_id=node_id)
            return
        connection = _connection(self._algorithm, place, kind == "send")
        _, sender, receiver = connection
        size, tag = step.count * self._costs.chunk_bytes, self._tags[connection]
        if kind == "send":
            self._builder.send(receiver, size, tag, name=name, after=after, node_id=node_id)
        else:
            self._builder.receive(sender, size, tag, name=name, after=after, node_id=node_id)
