"""Local memory: how much of its own an NPU has, as the system file says.

Not here: what a run needs (`et_sim.memory`), and what becomes of one that needs more (`et_sim.timeline`).
"""

from __future__ import annotations

from typing import Any

from et_sim.basics.errors import MachineError
from et_sim.machine.model import LocalMemory, MemoryKind, RemoteMemory, System, WhenFull

CAPACITY, WHEN_FULL, TRACKS = "local-mem-capacity", "when-full", "track-local-mem"


def read_local_memory(given: dict[str, Any], place: str) -> LocalMemory | None:
    """What the keys about capacity say; None: nothing."""
    if CAPACITY not in given:
        if WHEN_FULL in given:
            raise MachineError(
                f'key "{WHEN_FULL}" has no effect without "{CAPACITY}"',
                place=place,
                remedy="give both, or neither",
            )
        return None
    if not given.get(TRACKS, True):
        raise MachineError(
            f'key "{CAPACITY}" needs to know what tensors are alive, and "{TRACKS}" is off',
            place=place,
            remedy=f'leave one of them out: "{CAPACITY}" tracks them',
        )
    return LocalMemory(given[CAPACITY], WhenFull(given.get(WHEN_FULL, WhenFull.STOP)), place)


def refuse_spilling_nowhere(system: System, memory: RemoteMemory, place: str) -> None:
    """Refuse to spill tensors where no remote memory takes them, or where moving them has no time."""
    if system.local_memory is None or system.local_memory.when_full is not WhenFull.SPILL:
        return
    if memory.kind is MemoryKind.NONE:
        raise MachineError(
            f'key "{WHEN_FULL}" is "{WhenFull.SPILL}", and the machine has no remote memory',
            place=place,
            remedy='describe one with --memory ("memory-type": "MEMORY_POOL", …), or choose another value',
        )
    if system.replay_only:
        raise MachineError(
            f'key "{WHEN_FULL}" is "{WhenFull.SPILL}", and with "replay-only" nodes take recorded times: '
            "stores and loads that are not in the traces have none",
            place=place,
            remedy='leave out "replay-only", or choose another value',
        )
