"""The memory models there are."""

from __future__ import annotations

from et_sim.machine.model import Machine
from et_sim.memory.model import MemoryModel
from et_sim.memory.pool import Pool
from et_sim.memory.remote import Remote

MODELS: tuple[type[MemoryModel], ...] = (Remote, Pool)


def memory_model(machine: Machine) -> MemoryModel | None:
    """The model of a machine's remote memory: the first that claims it; None if it has none."""
    return next((model for kind in MODELS if (model := kind.of(machine)) is not None), None)
