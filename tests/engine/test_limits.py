"""Durations and sizes beyond the limits are refused in a sentence; no number overflows."""

from __future__ import annotations

from typing import Any

import pytest
from machines import network, simulate, system

from et_sim.basics.errors import EtSimError, InputError, MachineError, TraceError
from et_sim.trace import TraceBuilder

RING = network(["Ring"], [4])


def single_node(**node: Any) -> list[TraceBuilder]:
    builder = TraceBuilder()
    builder.compute(**node)
    return [builder] * 4


def collective(size: int) -> list[TraceBuilder]:
    builder = TraceBuilder()
    builder.collective("all_reduce", size)
    return [builder] * 4


@pytest.mark.parametrize("micros", [2**52, 2**60, 2**62])
def test_a_node_of_more_than_a_hundred_days_is_refused(micros: int) -> None:
    with pytest.raises(TraceError, match="takes longer than"):
        simulate(single_node(micros=micros), RING)


def test_nodes_that_together_take_too_long_are_refused() -> None:
    builder = TraceBuilder()
    last: list[int] = []
    for _ in range(4):
        last = [builder.compute(micros=2**42, after=last)]
    with pytest.raises(InputError, match="simulated time passed"):
        simulate([builder] * 4, RING)


@pytest.mark.parametrize("keys", [{"latency": [9e15]}, {"bandwidth": [1e-300]}])
@pytest.mark.parametrize("model", ["analytical", "link"])
def test_a_network_without_end_is_refused(keys: dict[str, Any], model: str) -> None:
    with pytest.raises(MachineError, match="in dimension 0"):
        simulate(collective(1 << 20), {**RING, **keys}, model=model)


def test_a_roofline_without_end_is_refused() -> None:
    keys = {"roofline-enabled": 1, "peak-perf": 1e-30, "local-mem-bw": 50}
    with pytest.raises(TraceError, match="takes longer than"):
        simulate(single_node(num_ops=10**9, tensor_bytes=10**6), RING, system(**keys))


def test_a_reduction_without_end_is_refused() -> None:
    with pytest.raises(MachineError, match="local-mem-bw"):
        simulate(collective(1 << 20), RING, system(**{"local-mem-bw": 1e-30}))


def test_a_bus_without_end_is_refused() -> None:
    keys = {"model-shared-bus": 1, "L": 1, "o": 1, "g": 1, "G": 1e300}
    with pytest.raises(EtSimError, match="G"):
        simulate(collective(1 << 20), RING, system(**keys))


def test_collectives_of_impossible_size_are_refused() -> None:
    with pytest.raises(TraceError, match="moves more than"):
        simulate(collective(2**62), RING)
    builder = TraceBuilder()
    builder.collective("all_gather", 2**52)
    with pytest.raises(MachineError, match="bytes per rank"):
        simulate([builder] * 8, network(["Ring"] * 3, [2, 2, 2]))
    builder = TraceBuilder()
    builder.collective("all_gather", 2**53)  # what a rank has then counts, too
    with pytest.raises(MachineError, match=f"would hold {2**54} bytes per rank"):
        simulate([builder] * 2, network(["Ring"], [2]))
