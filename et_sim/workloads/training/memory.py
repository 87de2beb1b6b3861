"""How much memory a rank needs at most: what is alive in its trace, on a network that keeps up.

Kernels follow one another. An exchange of shared weights or gradients beside them is over before the next
kernel ends, but not before it begins.

Not here: which tensors there are (`states`, `units`), and when a network lets them go (a run).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from et_sim.memory import CLASSES, Accesses, changes, classes_of, lifetimes
from et_sim.trace.columns import NodeKind, Trace
from et_sim.trace.tensors import tensor_uses


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one rank when it has most."""

    weights: int
    gradients: int
    optimizer: int
    activations: int  # of layers, until their backward pass
    temporary: int  # scores of all words; what is worked out again, gathered, or to be reduced
    workspace: int = 0  # of kernels and libraries, and what the allocator loses: assumed, if at all

    @property
    def total(self) -> int:
        """All of them at once."""
        return sum(getattr(self, one.name) for one in fields(self))

    def with_workspace(self, share: float) -> Memory:
        """With as much workspace as a share of all else."""
        return replace(self, workspace=round((self.total - self.workspace) * share))


def most_memory(trace: Trace) -> Memory:
    """What a rank with this trace needs."""
    uses, (start, end) = tensor_uses(trace, trace.source), _turns(trace)
    alive = lifetimes(
        Accesses(
            owner=np.zeros(len(uses.row), np.int64),
            tensor=uses.tensor,
            bytes=uses.bytes,
            is_write=uses.is_write,
            node=uses.row,
            start_ns=start[uses.row],
            end_ns=end[uses.row],
        )
    )
    found = changes(alive)
    if not len(found.time_ns):
        return Memory(0, 0, 0, 0, 0)
    time = found.time_ns[int(np.argmax(found.alive_bytes))]
    is_alive = (alive.start_ns <= time) & (time < alive.end_ns)
    sizes = np.zeros(len(CLASSES), np.int64)
    np.add.at(sizes, classes_of(uses.names)[alive.tensor[is_alive]], alive.bytes[is_alive])
    return Memory(**dict(zip(CLASSES[:-1], sizes.tolist(), strict=False)))


def _turns(trace: Trace) -> tuple[Any, Any]:
    """When each node begins and ends: kernels are long, and exchanges of states are short."""
    lengths = np.zeros(len(trace), np.int64)
    lengths[trace.tensors.row[np.diff(trace.tensors.start) > 0]] = 1
    lengths[trace.kind == NodeKind.COMP] = len(trace) + 1
    lists = [
        (start.tolist(), rows.tolist())
        for start, rows in ((trace.data_start, trace.data_deps), (trace.ctrl_start, trace.ctrl_deps))
    ]
    end = [0] * len(trace)
    for row, length in enumerate(lengths.tolist()):
        ready = 0
        for start, rows in lists:
            for other in rows[start[row] : start[row + 1]]:
                ready = max(ready, end[other])
        end[row] = ready + length
    ends = np.array(end, np.int64)
    return ends - lengths, ends
