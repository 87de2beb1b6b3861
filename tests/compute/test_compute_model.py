"""A compute model is one class and one line in the registry; this one is outside the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from machines import algorithms, ring

import et_sim
from et_sim.compute import Durations, Treatment, registry
from et_sim.compute.model import without
from et_sim.machine.model import Notice, System
from et_sim.trace.columns import BoolColumn, IntColumn, RowColumn, Trace

RANKS = 8
SYSTEM = {"endpoint-delay": 1, "preferred-dataset-splits": 1} | algorithms("ring")
NETWORK = ring(RANKS)


@dataclass(frozen=True)
class OperatorTable:
    """Times of kernels by their names, twice as long on the upper half of the ranks."""

    has_rules = False

    @classmethod
    def of(cls, system: System) -> OperatorTable | None:
        return cls() if system.peak_perf == 42 else None

    def lacking(self, trace: Trace, rank: int) -> Mapping[str, BoolColumn]:  # noqa: ARG002
        return without(trace, "num_ops")

    def durations(self, trace: Trace, rows: IntColumn, rank: int) -> Durations:
        times = {"matmul": 100, "softmax": 7, "view": 0}
        times_of_names = np.array([times.get(name, 1) for name in trace.names])
        nanoseconds = times_of_names[trace.name[rows]] * (2 if rank >= RANKS // 2 else 1)
        how = np.where(nanoseconds > 0, Treatment.MODELLED, Treatment.INSTANT).astype(np.uint8)
        return Durations(nanoseconds, how)

    def rank_classes(self, ranks: int) -> RowColumn | None:
        return (np.arange(ranks) >= ranks // 2).astype(np.int32)

    def notices(self) -> tuple[Notice, ...]:
        return ()


@pytest.fixture(autouse=True)
def _operator_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MODELS", (OperatorTable, *registry.MODELS))


def simulated(*kernels: dict[str, Any], peak: float = 42, **options: Any) -> et_sim.Result:
    build = et_sim.TraceBuilder()
    for kernel in kernels:
        build.compute(**{"micros": 3, **kernel})
    trace = build.build()
    workload = et_sim.Workload((trace,), np.zeros(RANKS, np.int32))
    return et_sim.simulate(workload, system={**SYSTEM, "peak-perf": peak}, network=NETWORK, **options)


STEP = [{"name": name, "num_ops": 1} for name in ("matmul", "softmax", "view", "other")]


@pytest.mark.parametrize("fold", [True, False])
def test_kernels_take_the_time_of_the_model_on_their_rank(fold: bool) -> None:
    result = simulated(*STEP, fold=fold)
    assert result.finish_ns.tolist() == [108] * 4 + [216] * 4  # 100, 7, 0 and 1 in turn


def test_ranks_that_the_model_times_alike_are_folded() -> None:
    assert simulated(*STEP).summary()["folded"]["actors"] == 2


def test_kernels_timed_by_the_model_are_counted_as_modelled() -> None:
    coverage = simulated(*STEP).coverage
    assert (coverage["modelled"], coverage["instant"]) == (3 * RANKS, RANKS)


def test_a_kernel_that_lacks_attributes_takes_its_recorded_time_and_is_counted() -> None:
    result = simulated(*STEP, {"name": "odd", "micros": 5})
    assert result.finish_ns.tolist() == [5108] * 4 + [5216] * 4
    assert (result.coverage["modelled"], result.coverage["replayed"]) == (3 * RANKS, RANKS)
    [output] = [warning for warning in result.manifest["warnings"] if "lack" in warning["text"]]
    assert output["text"] == (
        '8 of 40 kernels lack num_ops and take their recorded time; the first is node 4 "odd"'
    )


def test_a_kernel_that_lacks_attributes_and_a_recorded_time_is_refused() -> None:
    with pytest.raises(et_sim.TraceError, match="lacks the attribute 'num_ops'"):
        simulated({"name": "matmul", "micros": 0})


def test_a_system_without_a_model_replays() -> None:
    assert simulated(*STEP, peak=0).makespan_ns == 12_000


def test_a_kernel_under_the_roofline_fully_uses_its_bound_to_the_last_digit() -> None:
    draw = np.random.default_rng(1)
    operations, size = draw.integers(1, 1 << 40, 1000), draw.integers(1, 1 << 32, 1000)
    used = registry.Roofline(312.0, 1555.0).utilisation(operations, size)
    is_bound = used.is_memory_bound
    assert 200 < is_bound.sum() < 800
    assert set(used.memory[is_bound].tolist()) == {1.0}
    assert set(used.compute[~is_bound].tolist()) == {1.0}
    assert (used.memory[~is_bound] <= 1).all()
    assert (used.compute[is_bound] < 1).all()
