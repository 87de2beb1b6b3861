"""Bytes that a library's collective puts on the wires: what a member sends along each side of its group.

S is what nccl-tests counts, n the ranks, N the nodes, k the ranks of a node. Forms are of data; a protocol
carries more than that: LL a flag beside each word (twice the data), LL128 120 bytes of data in lines of 128.

Ring. Each link of a ring carries D: 2 (n-1)/n S for an all-reduce, (n-1)/n S for an all-gather or a
reduce-scatter, S for a broadcast or a reduce, of which the link into (out of) the root carries nothing. On
several nodes there are k rings with a share of 1/k each; ring r leaves each node at another rank, so k-1 of
a rank's k links stay within its node: D (k-1)/k within, D/k between.
Tree. Within a node a chain, up and down: 2 S (k-1)/k in the mean of its ranks. Between nodes N-1 links, up
and down: 2 S (N-1)/N in the mean of nodes, over k cards.
Pairs. Each rank has S/n for each other. On several nodes they first pass on within their node what is for
ranks at another place, so that it leaves by that place's card: S (k-1)/k within, S (N-1)/N between.
NVLS. A switch reads all S of a rank to sum it, and a rank writes its part of the sum, S/k, which the switch
copies to all: S (k+1)/k. In an all-gather, S arrives; the model has no copies, so as much leaves.
NVLS tree: NVLS within, a tree between.
CollNet. Within, 2 S (k-1)/k of an all-reduce and half of it else. Switches between nodes sum: S/k up and
S/k down; of all-gathers and reduce-scatters (N-1)/N of that.
One shot and two shots of an engine (one node): S (n-1), as each rank reads the inputs of all others, and
2 S (n-1)/n.
PAT (one rank a node): all parts but one's own, S (n-1)/n.

Where the way between nodes has several sides (m1 nodes in a rack, m2 racks ...), a ring or tree goes through
a rack before it leaves that. Where nodes hold different numbers of ranks, one side goes through all ranks,
and links within nodes and links between them carry different numbers of bytes.

Not here: steps and pauses (`library_phases`), and the choice (`machine.collective_library`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.collectives import PhaseOperation, StepProgram
from et_sim.collectives.program import OwnBytes
from et_sim.machine.collective_library import LibraryProtocol
from et_sim.machine.collective_library.choice import BARRIER_BYTES, PAIRS
from et_sim.machine.collective_library.constants import (
    COLLNET_CHAIN,
    COLLNET_DIRECT,
    NVLS,
    NVLS_TREE,
    RING,
)
from et_sim.machine.collective_library.engines import ONE_SHOT
from et_sim.plan.axes import Axis

ON_WIRES: Mapping[LibraryProtocol, Fraction] = MappingProxyType(
    {
        LibraryProtocol.LL: Fraction(2),
        LibraryProtocol.LL128: Fraction(128, 120),
        LibraryProtocol.SIMPLE: Fraction(1),
    }
)
BY_SWITCH = (NVLS, NVLS_TREE)
OVER_COLLNET = (COLLNET_DIRECT, COLLNET_CHAIN)
TO_AND_FRO = (PhaseOperation.ALL_REDUCE, PhaseOperation.BARRIER)
FROM_OR_TO_ROOT = (PhaseOperation.BROADCAST, PhaseOperation.REDUCE)
PACE_BYTES = 1  # size of a message that carries no data and only keeps the pace


class WireBytes(Struct, frozen=True):
    """The bytes that a collective of `ranks` on `nodes` puts on wires; S is `size` there."""

    algorithm: str
    operation: PhaseOperation
    size: Fraction
    ranks: int
    nodes: int

    @staticmethod
    def of(
        algorithm: str,
        protocol: LibraryProtocol,
        operation: PhaseOperation,
        size: int,
        ranks: int,
        nodes: int,
    ) -> WireBytes:
        """Return the bytes of a choice; a barrier is a small all-reduce."""
        data = BARRIER_BYTES if operation is PhaseOperation.BARRIER else size
        return WireBytes(algorithm, operation, ON_WIRES[protocol] * data, ranks, nodes)

    @property
    def passes(self) -> int:
        """Return the number of times that data goes through the group."""
        return 2 if self.operation in TO_AND_FRO else 1

    def within(self, here: Fraction, *, is_only_port: bool = False) -> Fraction:
        """Return bytes that a rank sends within its node, which has `here` ranks of the group."""
        if self.algorithm == PAIRS:
            return self.size * (here - 1) / (self.ranks if is_only_port else here)
        if self.algorithm == RING:
            return self._on_ring * ((here - 1) / here if self.nodes > 1 else 1)
        if self.algorithm == ONE_SHOT:
            return self.size * (here - 1)
        if self.algorithm in BY_SWITCH:
            return self.size * (here + 1) / here if self.passes == 2 else self.size
        return self.passes * self.size * (here - 1) / here

    @property
    def _on_ring(self) -> Fraction:
        if self.operation in FROM_OR_TO_ROOT:
            return self.size
        return self.passes * self.size * (self.ranks - 1) / self.ranks

    def between(self, sides: Sequence[int]) -> list[Fraction]:
        """Return bytes that leave a node along each side between nodes, the innermost first; not of pairs."""
        links, before = list[Fraction](), 1  # of a tree, for each node
        for count in sides:
            links.append(Fraction(count - 1, before * count))
            before *= count
        if self.algorithm == RING or (self.algorithm in OVER_COLLNET and self.passes == 2):
            each = self._on_ring if self.algorithm == RING else self.size
            links[-1] = 1 - sum(
                links[:-1], Fraction()
            )  # which closes the ring; switches sum what all nodes send
            return [each * part for part in links]
        return [self.passes * self.size * part for part in links]

    @property
    def root_side(self) -> PhaseOperation | None:
        """Return the operation, if a root has no part in some of its links."""
        return self.operation if self.operation in FROM_OR_TO_ROOT else None

    def of_pairs(self, members: int) -> Fraction:
        """Return bytes that a rank sends to all others along a side, including those it forwards."""
        return self.size * (members - 1) / members


class UnlikeMessages(Struct, frozen=True):
    """The messages of a phase that differ from the others; as a rule, none."""

    root: PhaseOperation | None = None  # broadcast: messages to the root carry nothing; reduce: those from it
    blocks: tuple[int, ...] = ()  # members of each node, where these hold different numbers
    within: tuple[int, ...] = ()  # bytes of a message that stays in each

    @property
    def differ(self) -> bool:
        """Return whether any message differs."""
        return self != UnlikeMessages()


def with_own_bytes(program: StepProgram, links: UnlikeMessages, axis: Axis, is_root: Any) -> StepProgram:
    """Return the program of a phase along an axis, with the bytes of each member; `is_root` is by member."""
    member = np.arange(len(is_root))
    place = member // axis.stride % axis.members
    order = np.array(axis.ring or range(axis.members))
    at = np.argsort(order)[place]
    shape = (len(member), 2, len(program.distance))
    sent, received = np.empty(shape, np.int64), np.empty(shape, np.int64)
    for way, towards in enumerate((1, -1)):
        for step, distance in enumerate((program.distance * towards).tolist()):
            size = int(program.message_bytes[step])
            for bytes_of, ahead in ((sent, distance), (received, -distance)):
                peer = member + (order[(at + ahead) % axis.members] - place) * axis.stride
                source, target = (member, peer) if bytes_of is sent else (peer, member)
                bytes_of[:, way, step] = _on_links(links, size, source, target, is_root)
    own = OwnBytes(sent.reshape(-1, shape[2]), received.reshape(-1, shape[2]))
    return replace(program, message_bytes=sent.max(axis=(0, 1)), own=own)


def _on_links(links: UnlikeMessages, size: int, source: Any, target: Any, is_root: Any) -> Any:
    out = np.full(len(source), size)
    if links.within:
        node = np.repeat(np.arange(len(links.blocks)), links.blocks)
        node = np.tile(node, len(source) // len(node))
        stays = node[source] == node[target]
        out[stays] = np.array(links.within)[node[source[stays]]]
    if links.root is not None:
        out[is_root[target if links.root is PhaseOperation.BROADCAST else source]] = PACE_BYTES
    return out
