"""Orders of dimensions: greedy ones against a transcription of their rules, and by hand."""

from __future__ import annotations

from itertools import permutations

from greedy_order import Dimension, planned
from hypothesis import assume, given
from hypothesis import strategies as st

from et_sim.collectives import PhaseOperation
from et_sim.machine.model import DimensionOrder
from et_sim.plan.dimension_order import (
    DimensionLoad,
    Order,
    OrderedDimension,
    Route,
    empty_loads,
    greedy_chunks,
    routes,
)
from et_sim.plan.phases import Chunks, bytes_to_cut, split_exactly, split_into_chunks

MIB = 1 << 20
GAP = 16.0
DIMENSIONS = st.lists(
    st.builds(
        Dimension,
        size=st.sampled_from([1, 2, 3, 4, 8, 16]),
        bandwidth=st.sampled_from([12.5, 25.0, 50.0, 100.0, 400.0]),
        involved=st.sampled_from([True, True, True, False]),
    ),
    min_size=1,
    max_size=4,
)
KINDS = st.sampled_from(["all_reduce", "reduce_scatter", "all_gather"])


def lanes_of(dimensions: list[Dimension]) -> list[OrderedDimension]:
    first = dimensions[0].bandwidth
    return [OrderedDimension(d.size, d.takes_part, d.bandwidth / first) for d in dimensions]


def lanes(*sizes_and_speeds: tuple[int, float]) -> list[OrderedDimension]:
    return [OrderedDimension(members, True, speed) for members, speed in sizes_and_speeds]


@given(
    kind=KINDS,
    dimensions=DIMENSIONS,
    total=st.integers(1, 1 << 26),
    splits=st.integers(1, 40),
    exact=st.booleans(),
    flexible=st.booleans(),
)
def test_greedy_orders_follow_the_rules(
    kind: str, dimensions: list[Dimension], total: int, splits: int, exact: bool, flexible: bool
) -> None:
    assume(any(d.takes_part for d in dimensions))
    operation = PhaseOperation[kind.upper()]
    if exact:
        runs = split_exactly(total, splits)
    else:
        ranks = 1
        for d in dimensions:
            ranks *= d.size
        runs = split_into_chunks(operation, total, splits, ranks)
    assume(sum(run.number for run in runs) <= 2000)
    to_cut = bytes_to_cut(total, splits, runs)
    recommended = [run.size for run in runs for _ in range(run.number)]
    expected = planned(kind, to_cut, recommended, dimensions, flexible)
    result = list(greedy_chunks(operation, to_cut, runs, lanes_of(dimensions), GAP, flexible=flexible))
    assert result == expected


@given(
    kind=KINDS,
    dimensions=DIMENSIONS,
    total=st.integers(1, 1 << 24),
    splits=st.integers(1, 40),
    scheduler=st.sampled_from(list(DimensionOrder)),
)
def test_every_order_visits_every_dimension_once_and_no_byte_is_lost(
    kind: str, dimensions: list[Dimension], total: int, splits: int, scheduler: DimensionOrder
) -> None:
    assume(any(d.takes_part for d in dimensions))
    runs = split_exactly(total, splits)
    result = routes(scheduler, PhaseOperation[kind.upper()], total, runs, lanes_of(dimensions), GAP)
    assert sum(route.chunks.number * route.chunks.size for route in result) == total
    possible = set(permutations(range(len(dimensions))))
    assert all(order in possible for route in result for order in route.orders)


@given(kind=KINDS, dimensions=DIMENSIONS, chunk=st.integers(1, 1 << 20), numbers=st.lists(st.integers(1, 9)))
def test_loads_carry_themis_from_one_collective_to_the_next(
    kind: str, dimensions: list[Dimension], chunk: int, numbers: list[int]
) -> None:
    """Compare collectives planned in one nanosecond with one that has the chunks of all."""
    assume(any(d.takes_part for d in dimensions) and numbers)
    operation, machine, loads = (
        PhaseOperation[kind.upper()],
        lanes_of(dimensions),
        empty_loads(len(dimensions)),
    )

    def plan(number: int, loads: list[DimensionLoad]) -> list[tuple[int, Order]]:
        runs = [Chunks(number, chunk)]
        scheduler = DimensionOrder.OFFLINE_GREEDY
        result = routes(scheduler, operation, number * chunk, runs, machine, GAP, loads)
        return [(chunk, route.orders[0]) for route in result for _ in range(route.chunks.number)]

    together = [step for number in numbers for step in plan(number, loads)]
    assert together == plan(sum(numbers), empty_loads(len(dimensions)))


def test_themis_gives_idle_fast_dimensions_to_chunks_after_the_first() -> None:
    """Check two dimensions of four, the second four times as fast; loads are in MiB of dimension 0.

    The first chunk has the usual order: 3/4 in dimension 0, then 1/4 * 3/4 / 4 = 3/64 in dimension 1. The
    second begins in dimension 1: 3/4 / 4 = 12/64 there, and 12/64 in dimension 0. Loads are now 60/64 and
    15/64. From then on a chunk adds 12/64 to both if it begins in dimension 1, always the less loaded one.
    """
    result = list(
        greedy_chunks(
            PhaseOperation.REDUCE_SCATTER,
            4 * MIB,
            [Chunks(4, MIB)],
            lanes((4, 1.0), (4, 4.0)),
            GAP,
            flexible=False,
        )
    )
    assert result == [(MIB, (0, 1)), (MIB, (1, 0)), (MIB, (1, 0)), (MIB, (1, 0))]


def test_the_flexible_order_cuts_a_chunk_that_levels_the_loads() -> None:
    """Check the same dimensions; after the first chunk the loads are 48/64 and 3/64.

    45/64 on dimension 1 would level them: 45/64 * 4 / (3/4) = 3.75 MiB, of which 3 MiB are left.
    """
    result = list(
        greedy_chunks(
            PhaseOperation.REDUCE_SCATTER,
            4 * MIB,
            [Chunks(4, MIB)],
            lanes((4, 1.0), (4, 4.0)),
            GAP,
            flexible=True,
        )
    )
    assert result == [(MIB, (0, 1)), (3 * MIB, (1, 0))]


def test_round_robin_turns_the_usual_order() -> None:
    machine = lanes((2, 1.0), (2, 1.0), (2, 1.0))
    [route] = routes(DimensionOrder.ROUND_ROBIN, PhaseOperation.ALL_REDUCE, 6, [Chunks(3, 2)], machine, GAP)
    assert route.orders == ((0, 1, 2), (1, 2, 0), (2, 0, 1))
    [route] = routes(DimensionOrder.ROUND_ROBIN, PhaseOperation.ALL_GATHER, 6, [Chunks(3, 2)], machine, GAP)
    assert route.orders == ((2, 1, 0), (1, 0, 2), (0, 2, 1))


def test_an_all_to_all_is_never_reordered_by_load() -> None:
    machine = lanes((4, 1.0), (4, 4.0))
    [route] = routes(
        DimensionOrder.OFFLINE_GREEDY, PhaseOperation.ALL_TO_ALL, 4 * MIB, [Chunks(4, MIB)], machine, GAP
    )
    assert route == Route(Chunks(4, MIB), ((0, 1),))


@given(size=st.integers(0, 10_000), splits=st.integers(1, 200))
def test_exact_chunks_add_up_and_differ_by_a_byte_at_most(size: int, splits: int) -> None:
    runs = split_exactly(size, splits)
    each = [run.size for run in runs for _ in range(run.number)]
    assert sum(each) == size
    assert len(each) == min(size, splits)
    assert not each or max(each) - min(each) <= 1


def test_a_load_of_a_dimension_that_takes_no_part_counts_as_the_largest() -> None:
    """Check the rule of the reference: earlier collectives may have filled that dimension."""
    both = [OrderedDimension(2, True, 1.0), OrderedDimension(2, True, 1.0), OrderedDimension(2, False, 1.0)]
    orders = {}
    for elsewhere in (0.0, 500.0):
        loads = [DimensionLoad(0, 1.0), DimensionLoad(1, 0.0), DimensionLoad(2, elsewhere)]
        runs = [Chunks(1, 64 * MIB)]
        chunks = greedy_chunks(
            PhaseOperation.REDUCE_SCATTER, 64 * MIB, runs, both, GAP, flexible=False, loads=loads
        )
        orders[elsewhere] = [order for _, order in chunks]
    assert orders == {0.0: [(0, 1, 2)], 500.0: [(1, 0, 2)]}


def test_chunks_that_were_not_raised_are_cut_from_the_size_alone() -> None:
    full = split_into_chunks(PhaseOperation.ALL_REDUCE, 11, 4, 2)
    assert full == [Chunks(6, 2)]
    assert bytes_to_cut(11, 4, full) == 11
    raised = split_into_chunks(PhaseOperation.ALL_REDUCE, 11, 4, 8)
    assert bytes_to_cut(11, 4, raised) == 4 * 8
