"""Exposed communication of a replayed recording equals an analysis of the recording itself.

Trace analysers such as HTA call it communication that no computing kernel overlaps: communication is named
nccl…, and Memcpy… and Memset… are memory operations, which overlap nothing. The part of a rank's time
that a faster network could save is hidden by these, too.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from machines import RING_2
from pytorch_cases import content
from test_pytorch_conversion import SYSTEM, events, named, nanoseconds

import et_sim
from et_sim.trace import Workload, decode
from et_sim.views.summary.parts import PARTS

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
RECORDINGS = (
    "dlrm_8r/et_0+kineto",
    "dlrm_8r/et_1+kineto",
    "megatron_tp8/et_0+kineto",
    "megatron_tp8/et_1+kineto",
    "device_only/nccl_ddp",
)


def covered(spans: Iterable[tuple[int, int]]) -> int:
    total, reached = 0, 0
    for start, end in sorted(spans):
        total += max(end - max(start, reached), 0)
        reached = max(reached, end)
    return total


@pytest.mark.parametrize("name", RECORDINGS)
def test_exposed_communication_equals_that_of_the_recording(name: str) -> None:
    recorded = named(name)
    assert recorded.device is not None
    communication, kernels, memory = [], [], []
    for event in events(recorded.device):
        if event.get("cat", "").lower() in ON_DEVICE:
            start = nanoseconds(event["ts"])
            is_memory = event["name"].startswith(("Memcpy", "Memset"))
            of = communication if event["name"].startswith("nccl") else memory if is_memory else kernels
            of.append((start, start + nanoseconds(event["dur"])))
    trace = decode(content(recorded), name)
    result = et_sim.simulate(Workload.of([trace, trace]), system=SYSTEM, network=RING_2)
    without_kernel = covered(communication + kernels) - covered(kernels)
    assert 0 < without_kernel < covered(communication + kernels + memory) - covered(kernels)
    assert result.comm_without_kernel_ns.tolist() == [without_kernel] * 2
    others = kernels + memory
    assert result.exposed_comm_ns.tolist() == [covered(communication + others) - covered(others)] * 2
    assert result.compute_ns.tolist() == [covered(others)] * 2
    assert result.transfer_ns.tolist() == [covered(communication)] * 2
    [entry] = result.summary()["per_rank"]
    assert sum(entry[part.figure] for part in PARTS) == result.makespan_ns
