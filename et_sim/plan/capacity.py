"""Tensors that are there from the start, against the memory that an NPU has: known before anything runs.

Not here: what is alive later (`et_sim.memory`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from et_sim.basics.errors import MachineError
from et_sim.basics.units import exact_bytes
from et_sim.machine.model import LocalMemory, WhenFull
from et_sim.machine.system_parts import CAPACITY
from et_sim.trace.tensors import TensorUses

MOST_NAMED = 3


def refuse_too_much_at_start(memory: LocalMemory | None, tensors: Sequence[TensorUses], place: str) -> None:
    """Refuse programs whose tensors that nobody writes do not fit, unless it is only to be reported."""
    if memory is None or memory.when_full is not WhenFull.STOP:
        return
    for uses in tensors:
        sizes = given_from_the_start(uses)
        if sum(sizes.values()) <= memory.capacity_bytes:
            continue
        largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:MOST_NAMED]
        named = ", ".join(f"{name[:40]!r} ({exact_bytes(sizes[name])})" for name in largest)
        raise MachineError(
            f'key "{CAPACITY}" is {exact_bytes(memory.capacity_bytes)}, and a rank holds '
            f"{exact_bytes(sum(sizes.values()))} from the start, in tensors that it reads and nobody writes: "
            f"{named}{' and others' if len(sizes) > len(largest) else ''}",
            place=memory.place or place,
            remedy='correct it, or the sizes in the traces, or set "when-full": "report" to see the run',
        )


def given_from_the_start(uses: TensorUses) -> dict[str, int]:
    """Bytes of the tensors of a program that it reads and never writes: the first size mentioned."""
    is_written = np.zeros(len(uses.names), np.bool_)
    is_written[uses.tensor[uses.is_write]] = True
    read = ~is_written[uses.tensor]
    tensor, first = np.unique(uses.tensor[read], return_index=True)
    sizes = uses.bytes[read][first].tolist()
    return {uses.names[number]: size for number, size in zip(tensor.tolist(), sizes, strict=True)}
