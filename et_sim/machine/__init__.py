"""The machine: hardware descriptions, read once and validated completely."""

from et_sim.machine.model import (
    AllReducePlan,
    Dimension,
    DimensionShape,
    Implementations,
    Machine,
    MemoryKind,
    Network,
    Notice,
    RemoteMemory,
    SharedBus,
    StreamPolicy,
    System,
)
from et_sim.machine.readers import read_machine, read_network_alone, read_system_alone

__all__ = [
    "AllReducePlan",
    "Dimension",
    "DimensionShape",
    "Implementations",
    "Machine",
    "MemoryKind",
    "Network",
    "Notice",
    "RemoteMemory",
    "SharedBus",
    "StreamPolicy",
    "System",
    "read_machine",
    "read_network_alone",
    "read_system_alone",
]
