"""The engine against algebra: collectives over a tree, and halving-doubling of any number of members.

On an idle, fully connected network of ranks that start together. E is the endpoint delay, L(s) the flight
of s bytes, R(s) the reduction of s bytes, C the size.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_closed_forms import BANDWIDTHS, LATENCIES, Costs, network, system

from et_sim.api import run
from et_sim.trace import TraceBuilder, Workload

E = 10
SIZES = st.integers(1, 1 << 24)


def finishes(kind: str, ranks: int, size: int, latency: float, bandwidth: float, **more: Any) -> list[int]:
    builder = TraceBuilder()
    root = more.pop("root", None)
    builder.collective(kind, size, root=root)
    described = system([more.pop("algorithm", "ring")], corrections=more.pop("corrections", {}), **more)
    net = network(["FullyConnected"], [ranks], [bandwidth], [latency])
    times: list[int] = run(
        Workload.of([builder.build()] * ranks), system=described, network=net
    ).finish_ns.tolist()
    return times


def halves(members: int) -> list[int]:
    """Return sizes of the subtrees of a root's children, among `members` including itself."""
    others = members - 1
    return [part for part in (-(-others // 2), others // 2) if part]


def below(members: int) -> list[int]:
    """Return the same for a member in the middle of its block."""
    return [part for part in (members // 2, members - 1 - members // 2) if part]


def up(costs: Costs, members: int, size: int, *, shares: bool, reduces: bool, root: bool = True) -> int:
    """Return the time at which a member has received from all members below it."""
    results = [E]
    for part in halves(members) if root else below(members):
        message = part * size if shares else size
        charge = costs.reduction(message) if reduces else 0
        received = up(costs, part, size, shares=shares, reduces=reduces, root=False)
        results.append(received + costs.flight(message) + E + charge)
    return max(results)


def down(costs: Costs, members: int, size: int, *, shares: bool, start: int, root: bool = True) -> list[int]:
    """Return the ends of members, the top member first."""
    times = [start]
    for part in halves(members) if root else below(members):
        arrived = start + costs.flight(part * size if shares else size) + E
        times += down(costs, part, size, shares=shares, start=arrived, root=False)
    return times


@given(
    kind=st.sampled_from(["reduce", "gather"]),
    ranks=st.integers(2, 33),
    root=st.integers(0, 32),
    size=SIZES,
    latency=LATENCIES,
    bandwidth=BANDWIDTHS,
)
def test_collectives_to_a_root_take_the_longest_path_up(
    kind: str, ranks: int, root: int, size: int, latency: float, bandwidth: float
) -> None:
    costs = Costs("FullyConnected", bandwidth, latency, E, 50)
    times = finishes(kind, ranks, size, latency, bandwidth, root=root % ranks)
    expected = up(costs, ranks, size, shares=kind == "gather", reduces=kind == "reduce")
    assert times[root % ranks] == max(times) == expected
    if kind == "reduce":
        levels = ranks.bit_length() - 1
        assert expected == E + levels * (costs.flight(size) + E + costs.reduction(size))


@given(
    kind=st.sampled_from(["broadcast", "scatter"]),
    ranks=st.integers(2, 33),
    root=st.integers(0, 32),
    size=SIZES,
    latency=LATENCIES,
    bandwidth=BANDWIDTHS,
)
def test_collectives_from_a_root_take_the_path_down(
    kind: str, ranks: int, root: int, size: int, latency: float, bandwidth: float
) -> None:
    costs = Costs("FullyConnected", bandwidth, latency, E, 50)
    switch = {"simulated-broadcast": True}
    times = finishes(kind, ranks, size, latency, bandwidth, root=root % ranks, corrections=switch)
    expected = down(costs, ranks, size, shares=kind == "scatter", start=E)
    assert sorted(times) == sorted(expected)
    assert times[root % ranks] == E
    if kind == "broadcast":
        assert max(times) == E + (ranks.bit_length() - 1) * (costs.flight(size) + E)


@given(ranks=st.integers(2, 33), size=st.integers(0, 1 << 20), latency=LATENCIES)
def test_a_barrier_of_any_size_is_a_byte_up_and_a_byte_down(ranks: int, size: int, latency: float) -> None:
    costs = Costs("FullyConnected", 50.0, latency, E, 50)
    hop, levels = costs.flight(1) + E, ranks.bit_length() - 1
    times = finishes("barrier", ranks, size, latency, 50.0)
    assert times[0] == min(times) == E + levels * hop
    assert max(times) == E + 2 * levels * hop


@pytest.mark.parametrize("splits", [1, 3, 7])
@pytest.mark.parametrize("kind", ["reduce", "gather", "scatter"])
def test_chunks_follow_each_other_up_and_down_a_tree(kind: str, splits: int) -> None:
    """Check that a member sends one chunk after the other; the last is full in the reference profile."""
    for size in (1 << 20, 1):
        chunk = max(size // splits, 1)
        chunks = math.ceil(size / chunk)
        single = max(finishes(kind, 8, chunk, 500.0, 50.0))
        together = finishes(kind, 8, size, 500.0, 50.0, **{"preferred-dataset-splits": splits})
        assert single <= max(together) <= chunks * single
        assert together[0 if kind == "scatter" else 1] == chunks * E


def test_collectives_of_each_kind_take_the_two_binary_trees_in_turn() -> None:
    """Check two trees whose roots are last and first: their roles are one member apart."""
    kinds = ("all_gather", "all_reduce", "all_gather", "all_reduce", "all_gather")
    builder, before = TraceBuilder(), list[int]()
    for kind in kinds:
        before = [builder.compute(micros=1000, after=before)]
        builder.collective(kind, 1 << 14, after=before)
    net = network(["FullyConnected"], [8], [50.0], [500.0])
    described = system(["doubleBinaryTree"])
    timeline = run(Workload.of([builder.build()] * 8), system=described, network=net).timeline.to_pylist()
    rows = sorted((row["node"], row["actor"], row["end_ns"] - row["start_ns"]) for row in timeline)
    taken = [[ns for node, _, ns in rows if node == 2 * number + 1] for number in range(len(kinds))]
    last_is_root, first_is_root = taken[0], taken[2]
    assert taken == [last_is_root, last_is_root, first_is_root, first_is_root, last_is_root]
    assert last_is_root != first_is_root == [last_is_root[-1], *last_is_root[:-1]]


def rounds(members: int) -> list[int]:
    """Return pieces of the messages of a reduce-scatter around a circulant."""
    results = []
    while members > 1:
        results.append(members // 2)
        members -= members // 2
    return results


@given(
    kind=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]),
    ranks=st.integers(3, 40).filter(lambda n: n & (n - 1)),
    size=st.integers(64, 1 << 24),
    latency=LATENCIES,
    bandwidth=BANDWIDTHS,
    corrected=st.booleans(),
)
def test_halving_doubling_of_any_number_takes_a_round_per_halving(
    kind: str, ranks: int, size: int, latency: float, bandwidth: float, corrected: bool
) -> None:
    costs = Costs("FullyConnected", bandwidth, latency, E, 50)
    piece = size if kind == "all_gather" else -(-size // ranks)
    flights = sum(costs.flight(pieces * piece) + E for pieces in rounds(ranks))
    reductions = sum(costs.reduction(pieces * piece) for pieces in rounds(ranks))
    expected = E + flights * (2 if kind == "all_reduce" else 1)
    expected += reductions if kind != "all_gather" else 0
    switch = {"exact-halving-doubling": corrected}
    times = finishes(kind, ranks, size, latency, bandwidth, algorithm="halvingDoubling", corrections=switch)
    assert times == [expected] * ranks


@given(levels=st.integers(1, 5), size=st.integers(64, 1 << 24), latency=LATENCIES)
def test_corrected_halving_doubling_in_pairs_charges_every_reduction(
    levels: int, size: int, latency: float
) -> None:
    costs, ranks = Costs("FullyConnected", 50.0, latency, E, 50), 1 << levels
    sizes = [-(-size // ranks) << level for level in range(levels)]
    expected = E + sum(2 * (costs.flight(s) + E) + costs.reduction(s) for s in sizes)
    switch = {"exact-halving-doubling": True}
    times = finishes(
        "all_reduce", ranks, size, latency, 50.0, algorithm="halvingDoubling", corrections=switch
    )
    assert times == [expected] * ranks
