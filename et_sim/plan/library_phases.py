"""Collectives of a library as phases: its choice, as messages along the sides of a group, at its pace.

Where a group has ranks of one node only, or one rank of every node, its collectives run along that one side.
Else every channel of the library enters and leaves each node on another card. All channels together are two
chunks that run at the same time: one has all bytes within nodes, one all between them, and each ends with
short messages from all members along the other side. So links carry the bytes of the library, and every
member waits for all.

Rings take their own steps; trees and switches as many as they have levels, and so do broadcasts and reduces,
whose data is on all links of a ring at the same time. Copies of all pairs through uneven nodes are under way
together, each port with all the messages that pass it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import chain
from math import ceil, log2, prod
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.basics.units import LONGEST_NS, format_ns
from et_sim.collectives import Algorithm, PhaseOperation, StepProgram
from et_sim.collectives.shifts import paced
from et_sim.machine.collective_library import Call, Library, LibraryChoice
from et_sim.machine.collective_library.choice import ALL_TO_ALL, PAIRS
from et_sim.machine.collective_library.constants import (
    COLLNET_CHAIN,
    COLLNET_DIRECT,
    NVLS,
    NVLS_TREE,
    PAT,
    TREE,
)
from et_sim.machine.collective_library.engines import OF_ENGINES, ONE_SHOT
from et_sim.machine.model import DimensionShape, Network
from et_sim.plan.axes import SUBGROUP_ENDPOINT_NS, Axes, DimensionWay
from et_sim.plan.groups import GroupShape
from et_sim.plan.kernel_table import THOUSANDTHS
from et_sim.plan.layout import EqualLines, Layout
from et_sim.plan.library_bytes import BY_SWITCH, FROM_OR_TO_ROOT, UnlikeMessages, WireBytes

AROUND = Algorithm("ring")
WITHIN = 0
OVER_LEVELS = (TREE, NVLS, NVLS_TREE, COLLNET_DIRECT, COLLNET_CHAIN, PAT)


class PacedPhase(Struct, frozen=True):
    """A phase along a way, before it has a row."""

    way: DimensionWay
    program: StepProgram
    links: UnlikeMessages  # those whose messages differ from the program's


class LibraryCollective(Struct, frozen=True):
    """The collective of a library: the phases of each chunk; chunks run at the same time."""

    choice: LibraryChoice
    nodes: int  # number of nodes of its ranks
    held: int  # processors of each rank, or thousandths of its memory's bandwidth, taken from its kernels
    chunks: tuple[tuple[PacedPhase, ...], ...]
    call: Call
    parts: _Parts  # steps along its ways
    are_rounds_few: bool  # of the steps

    @property
    def is_within(self) -> bool:
        """Return whether it is one of a node, which uses no cards; all-to-alls may use them there."""
        steps = (*self.parts[0], *self.parts[1])
        are_near = all(part.way.dimension == WITHIN and not part.sharers for part in steps)
        return self.nodes == 1 and self.call.kind != ALL_TO_ALL and are_near

    def has_messages_of(self, other: LibraryCollective) -> bool:
        """Return whether both send the same messages along the same ways, each at a pace of its own."""
        if self.parts is other.parts and self.are_rounds_few == other.are_rounds_few:
            return True
        if [len(chunk) for chunk in self.chunks] != [len(chunk) for chunk in other.chunks]:
            return False
        pairs = zip(chain.from_iterable(self.chunks), chain.from_iterable(other.chunks), strict=True)
        return all(
            one.way == two.way and one.links == two.links and one.program.has_messages_of(two.program)
            for one, two in pairs
        )


class _WaySteps(Struct, frozen=True):
    """A way, and the steps that a collective takes along it."""

    way: DimensionWay
    steps: int
    distance: tuple[int, ...]
    size: int  # bytes that a member sends along it, over all; through uneven nodes, to another node
    at_once: int = 1  # steps
    through_port: int = 1  # of those, at a port
    links: UnlikeMessages = UnlikeMessages()  # links on which members send other bytes, over all
    sharers: int = 0  # members of the group that share a link to other nodes; 0: not known to be shared
    are_pairs: bool = False
    ahead: int | None = None  # bytes sent to each peer before they arrive; None: no limit
    blocks: int = 0  # nodes, where these hold different numbers of members
    at_the_same_time: int = 1  # phases like this one, each with its share of the bytes
    beside: float = 0.0  # mean bytes per ns that its members send through the same port meanwhile

    def message(self, size: int) -> int:
        """Return the bytes of one message when all messages hold `size` bytes."""
        return max(-(-size // (self.steps * self.at_the_same_time)), 1)

    @property
    def waits_for_all(self) -> bool:
        """Return whether no member completes before every member has begun."""
        return self.at_once > 1 or len(self.distance) > 1 or self.steps >= self.way.members - 1


_Parts = tuple[list[_WaySteps], list[_WaySteps]]  # within nodes, and between them


class LibraryPhases:
    """The phases of a library's collectives on a machine."""

    def __init__(self, library: Library, network: Network, endpoint_ns: int, memory_bw: float) -> None:
        self.figures = library, network.wiring, network.cards, network.node, endpoint_ns, memory_bw
        self._library, self._dimensions, self._cards = library, network.wiring, network.cards
        self._endpoint_ns, self._memory_bw = endpoint_ns, memory_bw
        self._has_one_port = network.cards is not None and network.cards.is_only_port
        self._has_node = network.node is not None
        self._has_cards = network.cards is not None
        shapes = tuple(dimension.shape for dimension in network.wiring)
        sharers = self._cards.sharers if self._cards else 0
        # With a choice, this is all that steps follow from.
        self._steps_by = library.buffers, shapes, sharers, self._has_one_port, self._has_node
        no_cards = replace(library, wires=replace(library.wires, card=0.0))
        nearest = network.wiring[WITHIN]
        # This is all that collectives within nodes follow from.
        self._within_by = no_cards, nearest, network.node, endpoint_ns, memory_bw, self._steps_by
        self._candidates = library.ways()

    def lower(
        self,
        operation: PhaseOperation,
        size: int,
        datatype: str,
        group: GroupShape,
        ways: Sequence[DimensionWay],
        layout: Layout,
    ) -> LibraryCollective | None:
        """Return the phases of a collective, or None if no bytes have to move."""
        members = prod(way.members for way in ways)
        if members == 1 or (size == 0 and operation is not PhaseOperation.BARRIER):
            return None
        assert not group.is_as_listed, "where a library is known, groups are laid out"
        nodes, least = self._nodes(ways, layout)
        counted = size * members if operation is PhaseOperation.ALL_GATHER else size
        call = Call(operation.name.lower(), members, nodes, counted, datatype, least)
        choice = self._library.choice(call, self._candidates)
        sent = WireBytes.of(choice.algorithm, choice.protocol, operation, counted, members, nodes)
        within, between = self._parts(sent, ways, layout)
        parts = self._with_buffers(within, choice, within=True), self._with_buffers(between, choice)
        return self._timed(call, choice, parts)

    def again(
        self,
        made: LibraryCollective,
        wanted: tuple[Any, ...],
        known: dict[tuple[Any, ...], _Parts],
        former: LibraryPhases,
    ) -> LibraryCollective | None:
        """Return what `lower` returns for what is wanted, which was made by the phases of another machine.

        Steps are taken from those that are known by choice; others are added to them.
        """
        if made.is_within and self._within_by == former._within_by:
            return made
        is_same = self._library == former._library
        choice = made.choice if is_same else self._library.choice(made.call, self._candidates)
        key = choice.algorithm, choice.protocol, choice.channels, *self._steps_by
        if (parts := known.get(key)) is not None:
            return self._timed(made.call, choice, parts)
        other = self.lower(*wanted)
        if other is not None:
            known[key] = other.parts
        return other

    def _timed(self, call: Call, choice: LibraryChoice, parts: _Parts) -> LibraryCollective:
        time = round(choice.time_us * 1000)
        if time > LONGEST_NS:
            raise MachineError(
                f"a collective of the library would take longer than {format_ns(LONGEST_NS)}",
                place="system configuration",
                remedy='correct "calibration" of the key "library"',
            )
        are_few = self._are_rounds_few(parts, time)
        chunks = self._chunks(parts, time, are_few=are_few)
        return LibraryCollective(
            choice, call.nodes, self._held(call, choice), tuple(chunks), call, parts, are_few
        )

    def _held(self, call: Call, choice: LibraryChoice) -> int:
        """Return the processors that a collective takes from kernels, or thousandths of memory."""
        library, whole = self._library, self._memory_bw
        if not library.shares_memory:
            return library.processors(call, choice)
        taken = THOUSANDTHS * library.memory(call, choice) / whole if whole else 0.0
        return min(round(taken), THOUSANDTHS)

    def _are_rounds_few(self, parts: _Parts, time_ns: int) -> bool:
        """Return whether steps are joined to few rounds: their messages would take longer than there is."""
        within, between = parts
        return sum(self._carried_ns(part, part.message(part.size)) for part in (*within, *between)) > time_ns

    def is_within(self, way: DimensionWay) -> bool:
        """Return whether a way leads through a node."""
        return self._has_node and way.dimension == 0 and way.own_rings <= 1 and way.axis >= 0

    def through_cards(
        self, axes: Axes, ways: list[DimensionWay], layout: Layout, group: GroupShape
    ) -> tuple[list[DimensionWay], Layout]:
        """Join the ways between nodes to one: a card is one port, whichever switches are behind it."""
        if not self._has_cards:
            return ways, layout
        joined, sides = list[DimensionWay](), list[EqualLines]()
        for way in ways:
            side = layout[way.number]
            before = sides[-1] if joined and not self.is_within(joined[-1]) else None
            follows = before is not None and before.stride * before.members == side.stride
            if before is None or not follows or before.blocks or side.blocks or self.is_within(way):
                joined.append(replace(way, number=len(sides)))
                sides.append(side)
                continue
            sides[-1] = replace(before, members=before.members * side.members)
            axis = axes.of_side(sides[-1], in_group=not group.spans_system)
            joined[-1] = replace(joined[-1], members=sides[-1].members, axis=axis)
        return joined, tuple(sides)

    def _nodes(self, ways: Sequence[DimensionWay], layout: Layout) -> tuple[int, int]:
        """Return the number of nodes of the group, and that of its ranks on the node with the fewest."""
        nodes = least = 1
        for way in ways:
            side = layout[way.number]
            if blocks := self._blocks(side):
                nodes, least = nodes * len(blocks), min(blocks)
            elif self._has_node and side.dimension == 0:
                least = way.members
            else:
                nodes *= way.members
        return nodes, least

    def _blocks(self, side: EqualLines) -> tuple[int, ...]:
        """Return members of each node of a side through uneven nodes; empty for other sides."""
        return side.blocks if side.uneven == 0 and self._has_node else ()

    def _parts(
        self, sent: WireBytes, ways: Sequence[DimensionWay], layout: Layout
    ) -> tuple[list[_WaySteps], list[_WaySteps]]:
        inner = [way for way in ways if self.is_within(way)]
        outer = [way for way in ways if not self.is_within(way)]
        here = Fraction(sent.ranks, sent.nodes)
        blocks = [self._blocks(layout[way.number]) for way in outer]
        within = sent.within(here, is_only_port=self._has_one_port)
        sharers = min(prod(way.members for way in inner), self._cards.sharers) if self._cards else 0
        sides = [len(each) or way.members for way, each in zip(outer, blocks, strict=True)]
        between = _between(sent, sides, outer, blocks) if outer else []
        return (
            [self._part(sent, way, ceil(within), sent.algorithm in BY_SWITCH) for way in inner],
            [
                replace(
                    self._part(sent, way, ceil(size), sent.algorithm in OVER_LEVELS),
                    sharers=sharers,
                    blocks=len(layout[way.number].blocks),
                    **_through_uneven_nodes(sent, way, each, size),
                )
                for way, size, each in zip(outer, between, blocks, strict=True)
            ],
        )

    def _part(self, sent: WireBytes, way: DimensionWay, size: int, is_over_levels: bool) -> _WaySteps:
        """Return the steps along a way, over all links that an NPU has there at once."""
        part = _part(sent, way, size, is_over_levels)
        links = way.members - 1
        if (
            self._dimensions[way.dimension].shape is not DimensionShape.FULLY_CONNECTED
            or way.axis < 0
            or links == 1
        ):
            return part
        rounds = 1 if part.are_pairs else part.steps
        return replace(part, steps=rounds * links, distance=tuple(range(1, way.members)), at_once=links)

    def _with_buffers(
        self, parts: Sequence[_WaySteps], choice: LibraryChoice, *, within: bool = False
    ) -> list[_WaySteps]:
        """Return the parts with the bytes that each connection buffers; rings share theirs among links."""
        buffers = self._library.buffers
        if choice.algorithm == PAIRS:
            return [replace(part, ahead=buffers.of_sends(within=within)) for part in parts]
        ahead = buffers.of_collective(choice.algorithm, choice.protocol, choice.channels)
        return [replace(part, ahead=ahead // part.at_once) for part in parts]

    def _chunks(self, parts: _Parts, time_ns: int, *, are_few: bool) -> list[tuple[PacedPhase, ...]]:
        """Return the chunks: all bytes along one side each, then short messages by which all wait for all.

        `are_few`: steps are joined to few rounds.
        """
        within, between = parts
        if are_few:
            within, between = ([_in_few_rounds(part) for part in side] for side in parts)
        bulks = [(bulk, others) for bulk, others in ((within, between), (between, within)) if bulk]
        wait_for_all = all(part.waits_for_all for bulk, _ in bulks for part in bulk)
        barriers = [
            [_barrier_along(part.way) for part in (others if wait_for_all else (*within, *between))]
            for _, others in bulks
        ]
        least = [[self._carried_ns(message, 1) for message in barrier] for barrier in barriers]
        last_ns = max(sum(each) for each in least)  # of all chunks, so that no short message meets bytes
        chunks = []
        for (bulk, others), barrier, each in zip(bulks, barriers, least, strict=True):
            rings = max(1 if part.are_pairs else part.way.own_rings for part in bulk)
            beside = sum(part.size for part in others) / time_ns if self._has_one_port else 0.0
            shares = [
                replace(part, at_the_same_time=rings, beside=beside, ahead=(part.ahead or 0) // rings)
                for part in bulk
            ]
            phases = self._paced(shares, time_ns - last_ns)
            for part, time in zip(
                barrier, [each[0] + last_ns - sum(each), *each[1:]] if each else [], strict=True
            ):
                phases.append(self._phase(part, time))
            chunks += [tuple(phases)] * rings
        return chunks

    def _paced(self, parts: Sequence[_WaySteps], time_ns: int) -> list[PacedPhase]:
        """Return phases one after the other that take the time together, each its part by steps."""
        steps = sum(part.steps for part in parts)
        phases, before = [], 0
        for part in parts:
            until = before + part.steps
            time = time_ns * until // steps - time_ns * before // steps
            phases.append(self._phase(part, time))
            before = until
        return phases

    def _phase(self, part: _WaySteps, time_ns: int) -> PacedPhase:
        size = part.message(part.size)
        pause = time_ns - self._carried_ns(part, size)
        program = paced(
            part.way.members,
            part.distance,
            part.steps,
            size,
            pause,
            part.at_once,
            pauses_last=part.blocks > 0,
            window=None if part.ahead is None else part.ahead // size,
            copy_ns=self._copy_ns(part, size),
        )
        within = tuple(map(part.message, part.links.within))
        return PacedPhase(part.way, program, replace(part.links, within=within))

    def _copy_ns(self, part: _WaySteps, size: int) -> int:
        """Return the time in which memory reads and writes a message, at most the time of its flight."""
        copy_ns = 2 * size / self._memory_bw if self._memory_bw else 0.0
        return int(min(copy_ns, self._flight_ns(part, size)))

    def _carried_ns(self, part: _WaySteps, size: int) -> int:
        """Return the time of a part's messages without pauses."""
        endpoint = SUBGROUP_ENDPOINT_NS if part.way.axis < 0 else self._endpoint_ns
        rounds = part.steps // part.at_once
        time = rounds * self._flight_ns(part, size) + (rounds + 1) * endpoint
        if part.blocks and not part.are_pairs:  # the other steps do not leave their node
            within = rounds - min(-(-rounds * part.blocks // part.way.members), rounds)
            time -= int(within * (self._hops_ns(part.way.dimension) - self._hops_ns(WITHIN)))
        return time

    def _hops_ns(self, number: int) -> float:
        dimension = self._dimensions[number]
        return (2 if dimension.shape is DimensionShape.SWITCH else 1) * dimension.latency_ns

    def _flight_ns(self, part: _WaySteps, size: int) -> int:
        """Return the time of a message while only its group sends; through uneven nodes, from node to node.

        Two that share a port get at least a half of it each.
        """
        dimension = self._dimensions[part.way.dimension]
        rate = dimension.bytes_per_ns
        if part.sharers and self._cards is not None:
            rate = min(rate / part.sharers, self._cards.port.bytes_per_ns)
        if part.beside and self._cards is not None:
            port = self._cards.port.bytes_per_ns
            rate = min(rate, max(port - part.beside, port / 2))
        return int(self._hops_ns(part.way.dimension) + size * part.through_port / rate)


def _between(
    sent: WireBytes, sides: Sequence[int], outer: Sequence[DimensionWay], blocks: Sequence[tuple[int, ...]]
) -> list[Fraction]:
    """Return bytes of a member along each of the ways between nodes; of uneven nodes, over the rings through
    them.
    """
    if sent.algorithm == PAIRS:
        return [sent.of_pairs(way.members) for way in outer]
    here = Fraction(sent.ranks, sent.nodes)
    return [size if each else size / here for size, each in zip(sent.between(sides), blocks, strict=True)]


def _through_uneven_nodes(
    sent: WireBytes, way: DimensionWay, blocks: tuple[int, ...], between: Fraction
) -> dict[str, Any]:
    """Return the changed fields of a way through nodes of different numbers of members."""
    if not blocks:
        return {}
    if sent.algorithm == PAIRS:
        return {"at_once": way.members - 1, "through_port": way.members - min(blocks)}
    within = [sent.within(Fraction(here)) * here / max(here - 1, 1) for here in blocks]
    differ = any(size != between for size, here in zip(within, blocks, strict=True) if here > 1)
    return {"links": UnlikeMessages(sent.root_side, blocks, tuple(map(ceil, within)))} if differ else {}


def _part(sent: WireBytes, way: DimensionWay, size: int, is_over_levels: bool) -> _WaySteps:
    """Return the steps of the algorithm: to the next member, except for copies of all pairs."""
    others, levels = way.members - 1, ceil(log2(way.members))
    if sent.algorithm == PAIRS:
        return _WaySteps(way, others, tuple(range(1, way.members)), size, are_pairs=True)
    if sent.algorithm in OF_ENGINES:
        distances = _doubling(way) * (1 if sent.algorithm == ONE_SHOT else 2)
        return _WaySteps(way, len(distances), distances, size)
    if sent.operation in FROM_OR_TO_ROOT:
        return _WaySteps(way, levels, (1,), size, links=UnlikeMessages(sent.root_side))
    if is_over_levels:
        times = 1 if sent.algorithm in (NVLS, PAT) else 2
        return _WaySteps(way, times * levels, (1,), size)
    return _WaySteps(way, sent.passes * others, (1,), size)


def _barrier_along(way: DimensionWay) -> _WaySteps:
    """Return steps of short messages after which every member has waited for all."""
    distances = _doubling(way)
    return _WaySteps(way, len(distances), distances, len(distances))


def _in_few_rounds(part: _WaySteps) -> _WaySteps:
    """Return concurrent copies of all pairs in few rounds, as delays of rounds would add up."""
    if part.at_once > 1 or not part.are_pairs:
        return part
    distances = _doubling(part.way)
    return replace(part, steps=len(distances), distance=distances)


def _doubling(way: DimensionWay) -> tuple[int, ...]:
    return tuple(1 << level for level in range(ceil(log2(way.members))))
