"""The machine as frozen, validated values.

Only the readers (`readers`) make these values from files, so other code needs no further checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from et_sim.documents.keys import Notice
from et_sim.machine.networks import (
    AT_SWITCH,
    FRACTION_BITS,
    GIB,
    MOST_RANKS,
    Dimension,
    DimensionShape,
    Failure,
    GraphFabric,
    GridFabric,
    Level,
    LevelFabric,
    LogicalDimension,
    LogicalGrid,
    Network,
    Reducer,
    Routing,
    UnevenLink,
    bytes_per_ns,
    strides_of,
)
from et_sim.machine.remote_memory import MemoryKind, RemoteMemory
from et_sim.machine.system import (
    AllReducePlan,
    DimensionOrder,
    Implementations,
    LayerSettings,
    QueueOrder,
    StreamPolicy,
    System,
)
from et_sim.machine.system_parts import (
    LimitedWork,
    LocalMemory,
    SharedBus,
    SlowedWork,
    Straggler,
    StreamWork,
    TimeFactors,
    WhenFull,
    WorkKind,
)

__all__ = [
    "AT_SWITCH",
    "FRACTION_BITS",
    "GIB",
    "MOST_RANKS",
    "AllReducePlan",
    "Dimension",
    "DimensionOrder",
    "DimensionShape",
    "GraphFabric",
    "GridFabric",
    "Implementations",
    "LayerSettings",
    "Level",
    "LevelFabric",
    "LimitedWork",
    "LocalMemory",
    "LogicalDimension",
    "LogicalGrid",
    "Machine",
    "MemoryKind",
    "Network",
    "Notice",
    "QueueOrder",
    "Reducer",
    "RemoteMemory",
    "Routing",
    "SharedBus",
    "SlowedWork",
    "Straggler",
    "StreamPolicy",
    "StreamWork",
    "System",
    "TimeFactors",
    "UnevenLink",
    "WhenFull",
    "WorkKind",
    "bytes_per_ns",
    "strides_of",
]


class Machine(Struct, frozen=True):
    """The hardware, and the remarks on its description."""

    network: Network
    system: System
    memory: RemoteMemory = field(default_factory=RemoteMemory)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)  # communicator groups
    layers: LayerSettings = field(default_factory=LayerSettings)
    warnings: tuple[Notice, ...] = ()
    defaults: tuple[Notice, ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()  # (path, content hash) of every file read
    names_profile: bool = True  # else the reference's is the default, which a caller may replace
    configuration: Mapping[str, Any] = field(default_factory=dict)  # as read, by role
    slow: tuple[Failure, ...] = ()  # GPUs that slow down within a run

    def network_of(self, *, has_contention: bool) -> Network:
        """Return the network with the unit of time of a model: 1.0 with contention has fractions of ns."""
        has_fractions = self.system.behaviour.has_fractions_of_ns and has_contention
        if not has_fractions or self.system.shared_bus is not None:
            return self.network
        return replace(self.network, fraction_bits=FRACTION_BITS)

    @property
    def straggling_ranks(self) -> int:
        """Return the number of ranks that are stragglers."""
        pieces = [piece.ranks for piece in self.system.stragglers]
        if None in pieces:
            return self.network.ranks
        return len({rank for ranks in pieces for piece in ranks or () for rank in piece})
