"""A memory model is one class and one line in the registry; this one is outside the package."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from machines import RING_4, algorithms

import et_sim
from et_sim.machine import Machine
from et_sim.memory import registry
from et_sim.trace.columns import IntColumn, RowColumn, Trace

SYSTEM = {"endpoint-delay": 1, "preferred-dataset-splits": 1} | algorithms("ring")


@dataclass(frozen=True)
class Striped:
    """Two ports, for even and for odd ranks, with one nanosecond per byte."""

    @classmethod
    def of(cls, machine: Machine) -> Striped | None:
        return cls() if machine.system.peak_perf == 42 else None

    def needs(self) -> tuple[str, ...]:
        return ("tensor_size",)

    def service_ns(self, trace: Trace, rows: IntColumn) -> IntColumn:
        return trace.tensor_bytes[rows]

    def server_of_ranks(self, ranks: RowColumn) -> RowColumn:
        return ranks % np.int32(2)


@pytest.fixture(autouse=True)
def _striped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MODELS", (Striped, *registry.MODELS))


def loaded(*, peak: float = 42, fold: bool = True) -> et_sim.Result:
    build = et_sim.TraceBuilder()
    build.load(100)
    workload = et_sim.Workload((build.build(),), np.zeros(4, np.int32))
    return et_sim.simulate(workload, system={**SYSTEM, "peak-perf": peak}, network=RING_4, fold=fold)


@pytest.mark.parametrize("fold", [True, False])
def test_requests_of_one_server_wait_for_each_other(fold: bool) -> None:
    assert loaded(fold=fold).finish_ns.tolist() == [100, 100, 200, 200]


def test_a_served_rank_goes_on_before_the_next_request_is_served() -> None:
    """Check two ranks whose next steps end together: the message of the first is first in a link's queue."""
    builders = [et_sim.TraceBuilder() for _ in range(4)]
    for rank in (0, 2):  # ranks that share a port; 0 requests first
        before = [builders[rank].load(100)]
        if rank == 0:
            before = [builders[rank].compute(nanos=100, after=before)]
        builders[rank].send(3, 5000, after=before)
        builders[3].receive(rank, 5000)
    result = et_sim.simulate(
        et_sim.Workload.of([builder.build() for builder in builders]),
        system={**SYSTEM, "peak-perf": 42},
        network={**RING_4, "topology": ["Switch"]},
        model="link",
    )
    received = [row["end_ns"] for row in result.timeline.to_pylist() if row["kind"] == "receive"]
    assert received == [200 + 2 * 500 + 2 * 93, 200 + 2 * 500 + 3 * 93]


def test_a_machine_without_a_memory_refuses_requests() -> None:
    with pytest.raises(et_sim.TraceError, match="the machine has no remote memory"):
        loaded(peak=0)
