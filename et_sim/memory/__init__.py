"""Memory: models of remote memory behind one interface, and the use of local memory."""

from et_sim.memory.footprint import (
    CLASSES,
    Accesses,
    Changes,
    Lifetimes,
    changes,
    classes_of,
    lifetimes,
    peaks,
)
from et_sim.memory.registry import NO_SERVER, MemoryModel, memory_model

__all__ = [
    "CLASSES",
    "NO_SERVER",
    "Accesses",
    "Changes",
    "Lifetimes",
    "MemoryModel",
    "changes",
    "classes_of",
    "lifetimes",
    "memory_model",
    "peaks",
]
