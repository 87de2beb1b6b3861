"""The engine against algebra: ring and direct collectives of ranks that start together.

E is the endpoint delay, L(s) the flight of s bytes, R(s) the reduction of s bytes, C the chunk, n the
members of a dimension. Within one dimension, all chunks together take as long as one after the other when
one chunk is active at a time.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import KINDS, collective
from machines import system as one_chunk

from et_sim.api import run
from et_sim.trace import TraceBuilder, Workload

LATENCIES = st.sampled_from([0.7, 50.7, 500.0, 936.25])
BANDWIDTHS = st.sampled_from([12.5, 50.0, 400.0])


def system(algorithms: list[str], **keys: Any) -> dict[str, Any]:
    return one_chunk(algorithms[0], len(algorithms), **{"scheduling-policy": "FIFO", **keys})


def network(
    shapes: list[str], npus: list[int], bandwidth: list[float], latency: list[float]
) -> dict[str, Any]:
    return {"topology": shapes, "npus_count": npus, "bandwidth": bandwidth, "latency": latency}


def finish(workload: Workload, system: dict[str, Any], network: dict[str, Any]) -> int:
    times = run(workload, system=system, network=network).finish_ns
    assert (times == times[0]).all()
    return int(times[0])


class Costs:
    """E, L and R of one dimension."""

    def __init__(self, shape: str, bandwidth: float, latency: float, endpoint: int, memory: float) -> None:
        self.hops = 2 if shape == "Switch" else 1
        self.bytes_per_ns = bandwidth * 1073741824 / 1000000000
        self.latency, self.endpoint, self.memory = latency, endpoint, memory

    def flight(self, size: int) -> int:
        return math.floor(self.hops * self.latency + size / self.bytes_per_ns)

    def reduction(self, size: int) -> int:
        return 3 * math.floor((size / (self.memory * 1e9)) * 1e9)

    def ring(self, kind: str, n: int, chunk: int) -> int:
        piece = chunk if kind == "all_gather" else chunk // n
        hop = self.flight(piece) + self.endpoint
        hops = {"all_reduce": 2 * (n - 1), "all_to_all": n * (n - 1) // 2}.get(kind, n - 1)
        reductions = n - 1 if kind in ("all_reduce", "reduce_scatter") else 0
        return self.endpoint + hops * hop + reductions * self.reduction(piece)

    def direct(self, kind: str, n: int, chunk: int) -> int:
        piece = chunk if kind == "all_gather" else chunk // n
        rounds = 2 if kind == "all_reduce" else 1
        reductions = 1 if kind in ("all_reduce", "reduce_scatter") else 0
        hop = self.flight(piece) + self.endpoint
        return self.endpoint + rounds * hop + reductions * self.reduction(piece)


def chunks_of(kind: str, size: int, splits: int, ranks: int) -> tuple[int, int]:
    chunk = size // splits
    if kind != "all_gather" and chunk < ranks:
        return splits, ranks
    return -(-size // chunk), chunk


@given(
    algorithm=st.sampled_from(["ring", "direct"]),
    kind=st.sampled_from(KINDS),
    shape=st.sampled_from(["Ring", "FullyConnected", "Switch"]),
    n=st.integers(2, 17),
    size=st.integers(64, 1 << 24),
    splits=st.integers(1, 9),
    latency=LATENCIES,
    bandwidth=BANDWIDTHS,
    endpoint=st.sampled_from([10, 1000]),
)
def test_one_dimension_takes_the_time_of_the_closed_form(
    algorithm: str,
    kind: str,
    shape: str,
    n: int,
    size: int,
    splits: int,
    latency: float,
    bandwidth: float,
    endpoint: int,
) -> None:
    if algorithm == "direct" and shape == "Ring":
        shape = "Switch"  # on a ring the peers of a direct exchange are unequally far
    chunks, chunk = chunks_of(kind, size, splits, n)
    costs = Costs(shape, bandwidth, latency, endpoint, 50)
    cost_ns = costs.ring(kind, n, chunk) if algorithm == "ring" else costs.direct(kind, n, chunk)
    measured = finish(
        collective(n, kind, size),
        system([algorithm], **{"preferred-dataset-splits": splits, "endpoint-delay": endpoint}),
        network([shape], [n], [bandwidth], [latency]),
    )
    assert measured == chunks * cost_ns


@given(
    kind=st.sampled_from(KINDS),
    npus=st.lists(st.integers(2, 5), min_size=2, max_size=4),
    shape=st.sampled_from(["Ring", "FullyConnected"]),
    algorithm=st.sampled_from(["ring", "direct"]),
    size=st.integers(1 << 12, 1 << 24),
    latency=LATENCIES,
    bandwidths=st.lists(BANDWIDTHS, min_size=4, max_size=4),
)
def test_dimensions_follow_each_other(
    kind: str,
    npus: list[int],
    shape: str,
    algorithm: str,
    size: int,
    latency: float,
    bandwidths: list[float],
) -> None:
    shape = "FullyConnected" if algorithm == "direct" else shape
    dimensions = range(len(npus))
    costs = [Costs(shape, bandwidths[d], latency, 10, 50) for d in dimensions]

    def phase(d: int, operation: str, chunk: int) -> int:
        form = costs[d].ring if algorithm == "ring" else costs[d].direct
        return form(operation, npus[d], chunk)

    total, chunk = 0, max(size, math.prod(npus)) if kind != "all_gather" else size
    if kind == "all_reduce":
        inner, last = list(dimensions)[:-1], dimensions[-1]
        for d in inner:
            total += phase(d, "reduce_scatter", chunk)
            chunk //= npus[d]
        total += phase(last, "all_reduce", chunk)
        for d in reversed(inner):
            total += phase(d, "all_gather", chunk)
            chunk *= npus[d]
    else:
        for d in reversed(dimensions) if kind == "all_gather" else dimensions:
            total += phase(d, kind, chunk)
            chunk = {"reduce_scatter": chunk // npus[d], "all_gather": chunk * npus[d]}.get(kind, chunk)
    measured = finish(
        collective(math.prod(npus), kind, size),
        system([algorithm] * len(npus)),
        network([shape] * len(npus), npus, bandwidths[: len(npus)], [latency] * len(npus)),
    )
    assert measured == total


TUTORIAL_SYSTEM = system(
    ["ring"], **{"preferred-dataset-splits": 4, "active-chunks-per-dimension": 1, "local-mem-bw": 50}
)
TUTORIAL_NETWORK = network(["Ring"], [8], [50.0], [500.0])


def test_the_ring_of_eight_takes_117780_ns() -> None:
    assert finish(collective(8, "all_reduce", 1 << 20), TUTORIAL_SYSTEM, TUTORIAL_NETWORK) == 117_780


def test_the_tutorial_step_takes_405520_ns() -> None:
    builder = TraceBuilder()
    first = builder.collective("all_reduce", 1 << 20)
    builder.collective("all_gather", 2 << 20, after=[first])
    builder.compute(micros=50, after=[first])
    workload = Workload.of([builder.build()] * 8)
    assert finish(workload, TUTORIAL_SYSTEM, TUTORIAL_NETWORK) == 405_520


@pytest.mark.parametrize(
    ("ranks", "all_reduce", "all_gather", "reduce_scatter", "all_to_all"),
    [(4, 43000, 64744, 22240, 41560), (8, 64440, 151016, 33080, 125480), (16, 99640, 323560, 50740, 391240)],
)
def test_rings_of_the_shipped_example(
    ranks: int, all_reduce: int, all_gather: int, reduce_scatter: int, all_to_all: int
) -> None:
    four_chunks = system(["ring"], **{"preferred-dataset-splits": 4, "local-mem-bw": 1600})
    machine = network(["Ring"], [ranks], [50.0], [500.0])
    times = [finish(collective(ranks, kind, 1 << 20), four_chunks, machine) for kind in KINDS]
    assert times == [all_reduce, all_gather, reduce_scatter, all_to_all]


def ring_of_four(**keys: Any) -> int:
    return finish(
        collective(4, "all_reduce", keys.pop("size", 1 << 20)),
        system(["ring"], **keys),
        network(["Ring"], [4], [50.0], [500.0]),
    )


@pytest.mark.parametrize(
    ("splits", "active", "queues", "expected"),
    [
        (1, 1, 1, 79540),
        (2, 1, 1, 82610),
        (2, 2, 1, 41305),
        (4, 1, 1, 88720),
        (4, 2, 1, 44360),
        (4, 4, 1, 22180),
        (4, 2, 2, 88720),
        (4, 4, 2, 44360),
        (4, 4, 4, 44360),
    ],
)
def test_chunks_queues_and_active_chunks(splits: int, active: int, queues: int, expected: int) -> None:
    keys = {
        "preferred-dataset-splits": splits,
        "active-chunks-per-dimension": active,
        "num-queues-per-dim": queues,
    }
    assert ring_of_four(**keys) == expected


def test_one_byte_more_than_a_multiple_of_the_chunk_costs_a_whole_chunk() -> None:
    assert ring_of_four(**{"preferred-dataset-splits": 4}, size=(1 << 20) + 1) == 110_900


def test_an_empty_all_reduce_still_moves_a_byte_per_rank_and_split() -> None:
    assert ring_of_four(size=0) == 3_070
    assert ring_of_four(size=0, **{"preferred-dataset-splits": 4}) == 12_280


def test_without_memory_bandwidth_a_reduction_takes_no_time() -> None:
    assert ring_of_four(**{"local-mem-bw": 0}) == 32_362


@pytest.mark.parametrize(
    ("algorithm", "reduce_scatter", "all_reduce", "all_to_all", "all_gather"),
    [
        ("direct1", 52119, 72776, 20667, 140297),
        ("direct2", 27540, 39344, 11814, 80174),
        ("direct3", 24589, 33442, 8863, 60133),
        ("direct4", 13775, 19677, 5912, 40092),
        ("direct", 10824, 13775, 2961, 20051),
    ],
)
def test_windows_of_the_direct_algorithm(
    algorithm: str, reduce_scatter: int, all_reduce: int, all_to_all: int, all_gather: int
) -> None:
    machine = network(["FullyConnected"], [8], [50.0], [500.0])
    kinds = ("reduce_scatter", "all_reduce", "all_to_all", "all_gather")
    times = [finish(collective(8, kind, 1 << 20), system([algorithm]), machine) for kind in kinds]
    assert times == [reduce_scatter, all_reduce, all_to_all, all_gather]


def two_dimensions(kind: str, **keys: Any) -> int:
    involved = keys.pop("involved", None)
    builder = TraceBuilder()
    builder.collective(kind, 1 << 20, involved_dims=involved)
    return finish(
        Workload.of([builder.build()] * 8),
        system(["ring", "ring"], **keys),
        network(["Ring", "Switch"], [4, 2], [50.0, 25.0], [500.0, 1000.0]),
    )


def test_two_unequal_dimensions() -> None:
    assert two_dimensions("all_reduce") == 101_207
    assert two_dimensions("all_reduce", **{"collective-optimization": "baseline"}) == 154_087
    assert two_dimensions("reduce_scatter") == 78_129
    assert two_dimensions("all_gather") == 159_808
    assert two_dimensions("all_to_all") == 53_913


def test_only_the_involved_dimensions_take_part() -> None:
    assert two_dimensions("all_reduce", involved=[True, False]) == 79_540
    assert two_dimensions("all_reduce", involved=[False, True]) == 74_547
