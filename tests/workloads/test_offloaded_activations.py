"""Activations that wait in remote memory: bytes, time and the memory that they spare."""

from __future__ import annotations

from typing import Any

import pytest
from machines import network, system
from msgspec.structs import replace
from training_jobs import decoder, memory

from et_sim.api import run
from et_sim.basics.errors import TraceError
from et_sim.trace import NodeKind
from et_sim.workloads import Plan, make_training
from et_sim.workloads.training.bounds import bounds_of
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.units import activation_bytes

HOST = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 1, "remote-mem-bw": 1_000_000}
HOWS = [
    {},
    {"pipeline": 2, "micro_batches": 4},
    {"pipeline": 2, "micro_batches": 4, "schedule": "zero-bubble"},
    {"recompute": "full"},
    {"data": 2, "zero": 3, "recompute": "norms+activation"},
]


def done(plan: Plan, **remote: Any) -> Any:
    return run(
        make_training(decoder(), plan),
        system=system(**{"profile": "corrected", "track-local-mem": 1}),
        network=network(["FullyConnected"], [plan.ranks], bandwidth=1e6),
        memory=HOST | remote,
    )


@pytest.mark.parametrize("how", HOWS, ids=str)
def test_layers_but_the_last_of_each_part_store_and_load_activations(
    how: dict[str, Any],
) -> None:
    plan = Plan(**{"micro_batches": 3, **how}, offload_activations=True)
    each = activation_bytes(ModelLayers(decoder(), plan), 0)
    expected = [each] * plan.micro_batches * (decoder().layers // plan.pipeline - 1)
    for trace in make_training(decoder(), plan).templates:
        for kind in (NodeKind.MEM_STORE, NodeKind.MEM_LOAD):
            assert trace.tensor_bytes[trace.kind == kind].tolist() == expected


@pytest.mark.parametrize("how", HOWS, ids=str)
def test_on_a_fast_link_the_step_takes_as_long_and_needs_less_memory(how: dict[str, Any]) -> None:
    plan = Plan(**{"micro_batches": 2, **how}, tflops=0.01)
    offloaded = replace(plan, offload_activations=True)
    kept, moved = done(plan), done(offloaded)
    transfers = 2 * decoder().layers * plan.micro_batches
    assert kept.makespan_ns <= moved.makespan_ns <= kept.makespan_ns + 3 * transfers
    assert moved.statistics.peak_memory_bytes[0] < kept.statistics.peak_memory_bytes[0]
    least = bounds_of(decoder(), offloaded, lambda trace, rows, _: trace.duration_us[rows] * 1000)
    assert least.memory_bytes <= moved.statistics.peak_memory_bytes.max()


def test_activations_of_two_layers_at_most_are_there_at_once() -> None:
    model, plan = decoder(layers=8), Plan(offload_activations=True, micro_batches=2)
    each = activation_bytes(ModelLayers(model, plan), 0)
    assert memory(model, plan).activations <= 2 * each
    assert memory(model, replace(plan, offload_activations=False)).activations == 8 * each


def test_a_slow_link_holds_the_step_up() -> None:
    plan = Plan(micro_batches=2, tflops=0.1, offload_activations=True)
    fast, slow = done(plan), done(plan, **{"remote-mem-latency": 10_000_000})
    assert slow.makespan_ns > fast.makespan_ns + 4 * 10_000_000


def test_a_machine_without_remote_memory_is_refused() -> None:
    workload = make_training(decoder(), Plan(offload_activations=True))
    with pytest.raises(TraceError) as caught:
        run(workload, system=system(profile="corrected"), network=network(["Ring"], [1]))
    assert "activations store" in str(caught.value)
    assert "describe one with --memory" in str(caught.value)
