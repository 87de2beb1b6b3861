"""Durations and sizes beyond the limits are refused in a sentence; no number overflows."""

from __future__ import annotations

from typing import Any

import pytest
from machines import network, of_all_ranks, simulate, system

from et_sim.basics.errors import EtSimError, InputError, MachineError, TraceError
from et_sim.machine import read_machine
from et_sim.plan import build_plan
from et_sim.plan.records import REQUEST_BYTES
from et_sim.trace import TraceBuilder, Workload

RING = network(["Ring"], [4])
REDUCING = network(["Switch"], [4]) | {"in-network": [{"dimension": 0}]}
MIB = 1 << 20


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


def largest_message(
    builders: list[TraceBuilder], described: dict[str, Any], algorithm: str, splits: int
) -> int:
    on = system(algorithm, **{"preferred-dataset-splits": splits})
    machine = read_machine(system=on, network=described)
    return build_plan(Workload.of([builder.build() for builder in builders]), machine).largest_message


@pytest.mark.parametrize(
    ("kind", "described", "algorithm", "expected"),
    [
        ("all_reduce", RING, "ring", MIB),  # a quarter of the bytes
        ("reduce_scatter", RING, "ring", MIB),
        ("all_gather", RING, "ring", 4 * MIB),  # the part of a rank
        ("all_reduce", REDUCING, "inNetwork", 4 * MIB),
        ("all_gather", REDUCING, "inNetwork", 16 * MIB),  # the switch sends the parts of all ranks
    ],
)
@pytest.mark.parametrize("splits", [1, 4])
def test_the_largest_message_of_a_collective_is_that_of_its_algorithm(
    kind: str, described: dict[str, Any], algorithm: str, expected: int, splits: int
) -> None:
    builders = of_all_ranks(4, kind, 4 * MIB)
    assert largest_message(builders, described, algorithm, splits) == expected // splits


@pytest.mark.parametrize("size", [0, REQUEST_BYTES, REQUEST_BYTES + 1, MIB])
def test_the_largest_message_between_two_ranks_is_theirs_or_a_request(size: int) -> None:
    builders = [TraceBuilder() for _ in range(4)]
    builders[0].send(1, size)
    builders[1].receive(0, size)
    assert largest_message(builders, RING, "ring", 1) == max(size, REQUEST_BYTES)
