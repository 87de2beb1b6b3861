"""Issue of nodes by a rank: lanes, order, instant nodes, remote memory."""

from __future__ import annotations

import pytest
from machines import finish_times, network, simulate, system

from et_sim.basics.errors import MachineError, TraceError
from et_sim.trace import TraceBuilder

MIB = 1 << 20
RING = network(["Ring"], [4])


def alone(fill, **more):  # type: ignore[no-untyped-def]
    """Return the finish time of four ranks that all run the nodes that `fill` adds."""
    builder = TraceBuilder()
    fill(builder)
    times = finish_times([builder] * 4, RING, **more)
    assert len(set(times)) == 1
    return times[0]


def test_a_rank_has_one_collective_at_a_time() -> None:
    def two(builder: TraceBuilder) -> None:
        builder.collective("all_reduce", MIB)
        builder.collective("all_reduce", MIB)

    assert alone(two) == 2 * 79540


def test_computing_overlaps_with_communication() -> None:
    def both(builder: TraceBuilder) -> None:
        builder.compute(micros=5)
        builder.collective("all_reduce", MIB)

    assert alone(both) == 79540


def test_a_kernel_begins_when_the_one_before_ends_beside_any_other_node() -> None:
    def three(builder: TraceBuilder) -> None:
        builder.collective("all_reduce", MIB)
        builder.compute(micros=40, after=[builder.compute(micros=40)])

    assert alone(three) == 80_000


@pytest.mark.parametrize("is_host_first", [True, False])
@pytest.mark.parametrize(("first", "second", "cause"), [(4, 4, 0), (3, 4, 1), (4, 3, 0)])
def test_the_parent_that_ends_last_lets_a_node_begin_and_of_several_the_first_of_the_trace(
    first: int, second: int, cause: int, is_host_first: bool
) -> None:
    builder = TraceBuilder()
    parents = [
        builder.compute(micros=first, cpu=is_host_first),
        builder.compute(micros=second, cpu=not is_host_first),
    ]
    builder.compute(micros=1, after=parents)
    [*_, last] = simulate([builder] * 4, RING, fold=False).timeline.to_pylist()
    assert (last["ready_ns"], last["start_ns"]) == (1000 * max(first, second),) * 2
    assert (last["start_cause"], last["start_cause_node"]) == ("dependency", cause)


def test_kernels_take_turns() -> None:
    def kernels(builder: TraceBuilder) -> None:
        builder.compute(micros=3)
        builder.compute(micros=4)

    assert alone(kernels) == 7000


def test_the_cpu_works_beside_the_device() -> None:
    def both(builder: TraceBuilder) -> None:
        builder.compute(micros=3, cpu=True)
        builder.compute(micros=4)

    assert alone(both) == 4000


def test_a_node_without_duration_takes_one_nanosecond() -> None:
    assert alone(lambda builder: builder.compute(micros=0)) == 1


def test_an_empty_trace_finishes_at_zero() -> None:
    assert finish_times([TraceBuilder()] * 4, RING) == [0] * 4


def test_a_child_of_an_instant_node_waits_for_the_next_completion() -> None:
    def chain(builder: TraceBuilder) -> None:
        instant = builder.invalid()
        builder.compute(micros=5)
        builder.compute(micros=3, after=[instant])

    assert alone(chain) == 8000


def test_a_child_of_an_instant_node_is_issued_even_if_nothing_else_runs() -> None:
    def chain(builder: TraceBuilder) -> None:
        first = builder.invalid()
        second = builder.invalid(after=[first])
        builder.compute(micros=3, after=[second])

    assert alone(chain) == 3000


def test_control_dependencies_count_like_data_dependencies() -> None:
    def chain(builder: TraceBuilder) -> None:
        first = builder.compute(micros=3)
        builder.compute(micros=4, cpu=True, ctrl_after=[first], after=[first])

    assert alone(chain) == 7000


def test_ready_nodes_are_issued_by_ascending_id() -> None:
    builder = TraceBuilder()
    builder.compute(micros=2, node_id=9)
    builder.compute(micros=1, node_id=4)
    result = simulate([builder] * 4, RING)
    starts = {row["node"]: row["start_ns"] for row in result.timeline.slice(0, 2).to_pylist()}
    assert starts == {4: 0, 9: 1000}


def test_a_cycle_beside_other_nodes_is_not_reported_as_success() -> None:
    builder = TraceBuilder()
    builder.compute(micros=1)
    builder.compute(micros=1, node_id=7, after=[8])
    builder.compute(micros=1, node_id=8, after=[7])
    assert finish_times([builder] * 4, RING) == [-1] * 4


def test_roofline_takes_the_slower_of_arithmetic_and_memory() -> None:
    roofline = system(**{"roofline-enabled": 1, "peak-perf": 100, "local-mem-bw": 1000})

    def kernel(ops: int, size: int) -> int:
        return alone(lambda builder: builder.compute(num_ops=ops, tensor_bytes=size), sys=roofline)

    assert kernel(10**12, 10**6) == 10_000_000
    assert kernel(10**6, 10**9) == 1_000_000
    assert kernel(0, 10**9) == 1_000_000


def memory(kind: str, latency: int = 100, bandwidth: int = 3, **keys: int) -> dict:
    return {
        "memory-type": kind,
        "remote-mem-latency": latency,
        "remote-mem-bw": bandwidth,
        **keys,
    }


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        (memory("PER_NPU_MEMORY_EXPANSION"), [3433, 3433, 3433, 3433]),
        (memory("MEMORY_POOL"), [3433, 6866, 10299, 13732]),
        (
            memory("PER_NODE_MEMORY_EXPANSION", **{"num-nodes": 2, "num-npus-per-node": 2}),
            [3433, 6866, 3433, 6866],
        ),
        (
            memory("PER_NODE_MEMORY_EXPANSION", **{"num-nodes": 2, "num-npus-per-node": 3}),
            [3433, 6866, 10299, 3433],
        ),
    ],
)
def test_remote_memory_serves_one_request_at_a_time_per_server(description: dict, expected: list) -> None:
    builder = TraceBuilder()
    builder.load(10_000)
    assert finish_times([builder] * 4, RING, memory=description) == expected


def test_the_pool_serves_others_before_the_next_request_of_a_rank() -> None:
    builder = TraceBuilder()
    first = builder.load(MIB)
    builder.store(2 * MIB, after=[first])
    times = finish_times([builder] * 4, RING, memory=memory("MEMORY_POOL", 100, 512))
    assert times == [12788, 16984, 21180, 25376]


def test_memory_and_collectives_share_a_lane_except_on_the_cpu() -> None:
    def both(builder: TraceBuilder) -> None:
        builder.load(10_000)
        builder.collective("all_reduce", MIB)

    assert alone(both, memory=memory("PER_NPU_MEMORY_EXPANSION")) == 3433 + 79540


def test_memory_requests_need_a_memory() -> None:
    builder = TraceBuilder()
    builder.load(10_000)
    with pytest.raises(TraceError, match="no remote memory"):
        finish_times([builder] * 4, RING)


def test_a_collective_needs_an_algorithm() -> None:
    builder = TraceBuilder()
    builder.collective("all_to_all", MIB)
    without = system()
    del without["all-to-all-implementation"]
    with pytest.raises(MachineError, match="all-to-all-implementation"):
        finish_times([builder] * 4, RING, without)


def test_a_workload_must_have_a_rank_for_every_npu() -> None:
    with pytest.raises(TraceError, match="3 ranks, but the network connects 4"):
        finish_times([TraceBuilder()] * 3, RING)
