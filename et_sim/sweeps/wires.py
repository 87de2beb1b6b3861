"""The least times of exchanges on a machine: by the ports of an NPU, and by the pace of its library.

With any algorithm, each member of an all-gather receives the parts of all others, each member of a
reduce-scatter passes on its part of the sums of all others, and each member of an all-reduce receives all
bytes once. The bytes of members on other nodes cross the ports between nodes of the members on this node.
A machine with a collective library moves the bytes of a collective at the pace of the library, or slower.
"""

from __future__ import annotations

from msgspec import Struct, field

from et_sim.machine import Machine
from et_sim.machine.collective_library import Call, Library
from et_sim.machine.networks import DimensionShape, GridFabric
from et_sim.trace.columns import CollectiveKind

ROUNDED = 0.999  # pieces and steps of a library are whole bytes and nanoseconds


class Wires(Struct, frozen=True):
    """The ports of an NPU: within its node, which is the innermost dimension, and to other nodes."""

    node: int
    inside: float  # bytes per nanosecond
    outside: float
    reduces: bool = False  # switches may reduce, so that a rank sends less than it receives, or the opposite
    library: Library | None = None
    _paced: dict[Call, int] = field(default_factory=dict)

    def collective_ns(self, kind: int, size: int, ranks: int, on_node: int) -> int:
        """Return the least time of a collective; `size` is that of the trace."""
        through_ports = self.ports_ns(kind, size, ranks, on_node)
        if self.library is None or ranks < 2 or not through_ports or ranks % on_node:
            return through_ports
        counted = size * ranks if kind == CollectiveKind.ALL_GATHER else size
        call = Call(CollectiveKind(kind).name.lower(), ranks, ranks // on_node, counted)
        if call not in self._paced:
            self._paced[call] = int(self.library.choice(call).time_us * 1000 * ROUNDED)
        return max(through_ports, self._paced[call])

    def ports_ns(self, kind: int, size: int, ranks: int, on_node: int) -> int:
        """Return the least time in which the bytes of a collective cross the ports of a rank."""
        is_near = on_node == ranks
        far = (ranks - on_node) / on_node
        if kind == CollectiveKind.ALL_GATHER:  # the size is that of one part
            parts = ranks - 1 if is_near else far
        elif kind == CollectiveKind.REDUCE_SCATTER:
            parts = (ranks - 1 if is_near else far) / ranks
        elif kind == CollectiveKind.ALL_REDUCE:
            parts = 1 if is_near else 1 / on_node
        elif kind == CollectiveKind.ALL_TO_ALL:
            parts = (ranks - 1 if is_near else ranks - on_node) / ranks
        else:
            parts = 0
        return int(size * parts / (self.inside if is_near else self.outside)) if ranks > 1 else 0

    def message_ns(self, size: int, *, leaves_node: bool) -> int:
        """Return the least time of a message between two NPUs."""
        return int(size / (self.outside if leaves_node else max(self.inside, self.outside)))


def wires_of(machine: Machine) -> Wires | None:
    """Return the ports of each NPU of a grid with even links; None: of another network."""
    network, fabric = machine.network, machine.network.fabric
    if not isinstance(fabric, GridFabric) or fabric.links or network.loggops or network.credits:
        return None
    first, *others = fabric.dimensions
    inside = _links(first.shape, first.npus) * first.bytes_per_ns
    outside = sum(_links(other.shape, other.npus) * other.bytes_per_ns for other in others)
    library = machine.system.library
    reduces = bool(fabric.reducers) or (library is not None and library.has_collnet)
    return Wires(first.npus, inside, outside or inside, reduces, library)


def _links(shape: DimensionShape, npus: int) -> int:
    """Return the number of links by which an NPU sends in a dimension."""
    if npus < 2 or shape is DimensionShape.SWITCH:
        return 1
    return npus - 1 if shape is DimensionShape.FULLY_CONNECTED else 2
