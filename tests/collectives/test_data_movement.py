"""The data itself, moved along the schedules: every member ends with the result of its collective.

Bytes per member and the engine's messages are compared as well. Where the reference's algorithm counts other
bytes than the data needs, a test states it; the corrected fixes are exact everywhere.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from data_simulation import assert_promise_kept, move
from hypothesis import given
from hypothesis import strategies as st
from machines import algorithms, network

from et_sim.api import run
from et_sim.basics.errors import MachineError
from et_sim.collectives import (
    AS_REFERENCE,
    CORRECTED,
    EXCHANGES,
    OVER_A_TREE,
    TREE,
    CostFixes,
    PhaseOperation,
    TreeProgram,
    lower,
    parse_algorithm,
)
from et_sim.collectives.movement import Movement, movement
from et_sim.collectives.schedule import DOWN, UP, Schedule, expand
from et_sim.trace import TraceBuilder, Workload

SEEDS = st.integers(0, 2**32)
MEMBERS = st.integers(2, 33)
POWERS = st.sampled_from([2, 4, 8, 16, 32])
NOT_POWERS = st.sampled_from([n for n in range(2, 34) if n & (n - 1)])
OPERATIONS = st.sampled_from(EXCHANGES)
SIZES = st.integers(33, 1 << 20)
ANY_SIZES = st.integers(1, 1 << 20)
DIRECT = st.sampled_from(["direct", *(f"direct{window}" for window in (1, 2, 3, 4, 5, 7, 16, 40))])
NOT_ALL_TO_ALL = st.sampled_from([op for op in EXCHANGES if op is not PhaseOperation.ALL_TO_ALL])
REDUCING = (PhaseOperation.ALL_REDUCE, PhaseOperation.REDUCE_SCATTER)
ACCOUNTINGS = st.sampled_from([AS_REFERENCE, CORRECTED])
FAMILIES = st.one_of(st.sampled_from(["ring", "halvingDoubling", "doubleBinaryTree"]), DIRECT)


def schedule_of(
    name: str,
    operation: PhaseOperation,
    members: int,
    size: int,
    fixes: CostFixes = AS_REFERENCE,
    **more: bool,
) -> Schedule:
    program = lower(parse_algorithm(name), operation, members, size, fixes=fixes)
    return expand(program, **more)


def moved_by(name: str, operation: PhaseOperation, members: int, fixes: CostFixes = AS_REFERENCE) -> Movement:
    return movement(parse_algorithm(name), operation, members, fixes=fixes)


def bytes_sent(schedule: Schedule) -> list[int]:
    sent = np.zeros(schedule.members, np.int64)
    np.add.at(sent, schedule.source, schedule.bytes)
    return [int(size) for size in sent]


def bytes_of_pieces(schedule: Schedule, moved: Movement, piece: int) -> bool:
    """Return whether every message has the bytes of the pieces that it carries."""
    columns = (schedule.source, schedule.target, schedule.step, schedule.bytes)
    return all(
        size == piece * len(moved.load(source, target, step).pieces)
        for source, target, step, size in zip(*(column.tolist() for column in columns), strict=True)
    )


# ---- every member ends with the result of the collective


@given(operation=OPERATIONS, members=MEMBERS, seed=SEEDS)
def test_a_ring_gives_every_member_all_it_must_have(
    operation: PhaseOperation, members: int, seed: int
) -> None:
    moved = moved_by("ring", operation, members)
    assert_promise_kept(move(schedule_of("ring", operation, members, 1000), moved, seed), moved)


@given(
    name=DIRECT,
    operation=OPERATIONS,
    members=MEMBERS,
    subgroup=st.booleans(),
    fixes=ACCOUNTINGS,
    seed=SEEDS,
)
def test_direct_with_any_window_gives_every_member_all_it_must_have(
    name: str, operation: PhaseOperation, members: int, subgroup: bool, fixes: CostFixes, seed: int
) -> None:
    moved = moved_by(name, operation, members, fixes)
    program = lower(parse_algorithm(name), operation, members, 1000, subgroup=subgroup, fixes=fixes)
    assert_promise_kept(move(expand(program), moved, seed), moved)


@given(operation=NOT_ALL_TO_ALL, members=MEMBERS, fixes=ACCOUNTINGS, seed=SEEDS)
def test_halving_doubling_gives_every_member_of_any_number_all_it_must_have(
    operation: PhaseOperation, members: int, fixes: CostFixes, seed: int
) -> None:
    moved = moved_by("halvingDoubling", operation, members, fixes)
    schedule = schedule_of("halvingDoubling", operation, members, 1000, fixes)
    assert_promise_kept(move(schedule, moved, seed), moved)


@given(operation=OPERATIONS, members=MEMBERS, second=st.booleans(), seed=SEEDS)
def test_reference_accounting_a_double_binary_tree_does_every_operation_as_an_all_reduce(
    operation: PhaseOperation, members: int, second: bool, seed: int
) -> None:
    """Check that every member ends with the sum of whole vectors, of the size given, for any operation.

    A reduce-scatter returns more than it promises; as all-gather and all-to-all, the reference counts *bytes*
    that are too few for the data of the operation.
    """
    moved = moved_by("doubleBinaryTree", operation, members)
    assert moved.operation is PhaseOperation.ALL_REDUCE
    schedule = schedule_of("doubleBinaryTree", operation, members, 1000, second_tree=second)
    assert_promise_kept(move(schedule, moved, seed, is_tree=True), moved)


@given(name=FAMILIES, operation=OPERATIONS, members=MEMBERS, size=ANY_SIZES, seed=SEEDS)
def test_corrected_every_algorithm_does_every_operation_that_it_accepts(
    name: str, operation: PhaseOperation, members: int, size: int, seed: int
) -> None:
    """Check any size, also smaller than the group: every byte of every piece is moved."""
    if name == "halvingDoubling" and operation is PhaseOperation.ALL_TO_ALL:
        return
    moved = moved_by(name, operation, members, CORRECTED)
    assert moved.operation is operation
    schedule = schedule_of(name, operation, members, size, CORRECTED)
    assert_promise_kept(move(schedule, moved, seed, is_tree=moved.family == "doubleBinaryTree"), moved)
    whole = size if operation is PhaseOperation.ALL_GATHER or moved.pieces == 1 else -(-size // members)
    assert bytes_of_pieces(schedule, moved, whole)
    assert whole * moved.pieces >= size
    charged = schedule.step < moved.reducing_steps
    assert (schedule.charged == charged).all()


@given(
    operation=st.sampled_from(OVER_A_TREE),
    members=MEMBERS,
    where=st.integers(0, 32),
    size=ANY_SIZES,
    seed=SEEDS,
)
def test_a_tree_gives_root_and_members_their_data(
    operation: PhaseOperation, members: int, where: int, size: int, seed: int
) -> None:
    root = where % members
    moved = movement(TREE, operation, members, root=root)
    schedule = expand(lower(TREE, operation, members, size, root=root))
    assert_promise_kept(move(schedule, moved, seed, is_tree=True), moved)
    assert bytes_of_pieces(schedule, moved, 1 if operation is PhaseOperation.BARRIER else size)
    assert schedule.charged.all() if operation is PhaseOperation.REDUCE else not schedule.charged.any()


@given(members=MEMBERS, where=st.integers(0, 32))
def test_a_rooted_tree_is_as_low_as_two_children_allow_and_hangs_blocks_of_neighbours(
    members: int, where: int
) -> None:
    root = where % members
    program = lower(TREE, PhaseOperation.BROADCAST, members, 8, root=root)
    assert isinstance(program, TreeProgram)
    assert program.parent[root] == -1
    assert (np.bincount(program.parent[program.parent >= 0]) <= 2).all()
    assert expand(program).rounds == members.bit_length() - 1
    gathered = expand(lower(TREE, PhaseOperation.GATHER, members, 8, root=root))
    moved = movement(TREE, PhaseOperation.GATHER, members, root=root)
    for source, target in zip(gathered.source.tolist(), gathered.target.tolist(), strict=True):
        places = [(piece - root) % members for piece in moved.load(source, target, UP).pieces]
        assert all(later == earlier + 1 for earlier, later in pairwise(places))


# ---- bytes


@given(name=st.one_of(st.just("ring"), DIRECT), operation=OPERATIONS, members=MEMBERS, size=SIZES)
def test_bytes_per_member_of_ring_and_direct_are_the_closed_form(
    name: str, operation: PhaseOperation, members: int, size: int
) -> None:
    """Check that a ring relays messages of an all-to-all: n(n-1)/2 blocks, where direct sends n-1."""
    piece = size if operation is PhaseOperation.ALL_GATHER else size // members
    times = 2 if operation is PhaseOperation.ALL_REDUCE else 1
    messages = times * (members - 1)
    if name == "ring" and operation is PhaseOperation.ALL_TO_ALL:
        messages = members * (members - 1) // 2
    schedule = schedule_of(name, operation, members, size)
    assert bytes_sent(schedule) == [messages * piece] * members
    assert bytes_of_pieces(schedule, moved_by(name, operation, members), piece)


@given(name=st.sampled_from(["ring", "direct", "direct3"]), members=MEMBERS, size=SIZES)
def test_reference_accounting_bytes_that_do_not_divide_among_the_members_are_not_sent(
    name: str, members: int, size: int
) -> None:
    """Check that messages have C // n bytes, so that C mod n bytes of every vector are not moved."""
    schedule = schedule_of(name, PhaseOperation.REDUCE_SCATTER, members, size)
    whole = schedule_of(name, PhaseOperation.REDUCE_SCATTER, members, size - size % members)
    assert bytes_sent(schedule) == bytes_sent(whole)


@given(operation=NOT_ALL_TO_ALL, members=POWERS, units=st.integers(1, 5000))
def test_bytes_of_halving_doubling_are_the_closed_form_for_sizes_that_halve_evenly(
    operation: PhaseOperation, members: int, units: int
) -> None:
    size = units if operation is PhaseOperation.ALL_GATHER else 2 * units * members
    schedule = schedule_of("halvingDoubling", operation, members, size)
    piece = size if operation is PhaseOperation.ALL_GATHER else size // members
    times = 2 if operation is PhaseOperation.ALL_REDUCE else 1
    assert bytes_sent(schedule) == [times * (members - 1) * piece] * members
    assert bytes_of_pieces(schedule, moved_by("halvingDoubling", operation, members), piece)


@given(operation=NOT_ALL_TO_ALL, members=NOT_POWERS, size=ANY_SIZES, fixes=ACCOUNTINGS)
def test_halving_doubling_of_other_numbers_takes_the_fewest_rounds_and_bytes(
    operation: PhaseOperation, members: int, size: int, fixes: CostFixes
) -> None:
    schedule = schedule_of("halvingDoubling", operation, members, size, fixes)
    piece = size if operation is PhaseOperation.ALL_GATHER else -(-size // members)
    times = 2 if operation is PhaseOperation.ALL_REDUCE else 1
    assert schedule.rounds == times * (members - 1).bit_length()
    assert bytes_sent(schedule) == [times * (members - 1) * piece] * members
    assert bytes_of_pieces(schedule, moved_by("halvingDoubling", operation, members, fixes), piece)


@given(members=POWERS, size=st.integers(66, 1 << 20))
def test_reference_accounting_halving_doubling_truncates_sizes_and_loses_bytes_on_the_way_back(
    members: int, size: int
) -> None:
    """Check that sizes are halved with truncation, once more than they are used, and then doubled."""
    levels = members.bit_length() - 1
    halves = [size >> level for level in range(1, levels + 1)]
    smallest = size >> (levels + 1)
    doubles = [smallest << level for level in range(1, levels + 1)]
    schedule = schedule_of("halvingDoubling", PhaseOperation.ALL_REDUCE, members, size)
    assert bytes_sent(schedule) == [sum(halves) + sum(doubles)] * members
    assert sum(doubles) <= sum(halves)


@given(operation=NOT_ALL_TO_ALL, members=MEMBERS, size=ANY_SIZES, fixes=ACCOUNTINGS)
def test_halving_doubling_never_sends_an_empty_message(
    operation: PhaseOperation, members: int, size: int, fixes: CostFixes
) -> None:
    """Check that sizes are rounded up where truncation would give 0 bytes, on which the reference aborts."""
    assert schedule_of("halvingDoubling", operation, members, size, fixes).bytes.min() > 0


@given(members=MEMBERS, size=SIZES, second=st.booleans(), fixes=ACCOUNTINGS)
def test_a_double_tree_sends_the_whole_chunk_once_up_and_once_down_every_edge(
    members: int, size: int, second: bool, fixes: CostFixes
) -> None:
    schedule = schedule_of(
        "doubleBinaryTree", PhaseOperation.ALL_REDUCE, members, size, fixes, second_tree=second
    )
    up, down = schedule.step == UP, schedule.step == DOWN
    edges = {*zip(schedule.source[up].tolist(), schedule.target[up].tolist(), strict=True)}
    assert edges == {*zip(schedule.target[down].tolist(), schedule.source[down].tolist(), strict=True)}
    assert len(edges) == members - 1
    assert sum(bytes_sent(schedule)) == 2 * (members - 1) * size


# ---- the order of the rounds


@given(name=FAMILIES, operation=OPERATIONS, members=MEMBERS, fixes=ACCOUNTINGS)
def test_messages_that_another_waits_for_arrived_in_earlier_rounds(
    name: str, operation: PhaseOperation, members: int, fixes: CostFixes
) -> None:
    if name == "halvingDoubling" and operation is PhaseOperation.ALL_TO_ALL:
        return
    assert_order_of_rounds(schedule_of(name, operation, members, 1000, fixes))


@given(operation=st.sampled_from(OVER_A_TREE), members=MEMBERS)
def test_over_a_tree_messages_that_another_waits_for_arrived_in_earlier_rounds(
    operation: PhaseOperation, members: int
) -> None:
    assert_order_of_rounds(expand(lower(TREE, operation, members, 1000)))


def assert_order_of_rounds(schedule: Schedule) -> None:
    for position in range(schedule.members):
        arrivals = np.sort(schedule.round[schedule.target == position])
        mine = schedule.source == position
        before = np.searchsorted(arrivals, schedule.round[mine], side="left")
        assert (schedule.after_received[mine] <= before).all()


@given(window=st.integers(1, 40), operation=OPERATIONS, members=MEMBERS)
def test_no_member_has_more_than_a_window_of_messages_in_a_round(
    window: int, operation: PhaseOperation, members: int
) -> None:
    schedule = schedule_of(f"direct{window}", operation, members, 1000)
    assert np.bincount(schedule.round[schedule.source == 0]).max() <= min(window, members - 1)


# ---- messages charged as reductions


@given(name=st.sampled_from(["ring", "direct"]), operation=OPERATIONS, members=MEMBERS)
def test_ring_and_direct_are_charged_for_exactly_their_reductions(
    name: str, operation: PhaseOperation, members: int
) -> None:
    schedule = schedule_of(name, operation, members, 1000)
    moved = moved_by(name, operation, members)
    assert (schedule.charged == (schedule.step < moved.reducing_steps)).all()
    assert moved.reducing_steps == (members - 1 if operation in REDUCING else 0)


@given(members=POWERS, operation=st.sampled_from(REDUCING))
def test_reference_accounting_halving_doubling_is_charged_one_reduction_too_few(
    members: int, operation: PhaseOperation
) -> None:
    levels = members.bit_length() - 1
    charged = schedule_of("halvingDoubling", operation, members, 1000).charged
    assert int(charged.sum()) == (levels - 1) * members
    corrected = schedule_of("halvingDoubling", operation, members, 1000, CORRECTED).charged
    assert int(corrected.sum()) == levels * members


@given(members=MEMBERS)
def test_reference_accounting_a_tree_is_charged_for_copying_the_result_to_ranks_with_children(
    members: int,
) -> None:
    schedule = schedule_of("doubleBinaryTree", PhaseOperation.ALL_REDUCE, members, 1000)
    parents = np.isin(np.arange(members), schedule.target[schedule.step == UP])
    down = schedule.step == DOWN
    assert schedule.charged[~down].all()
    assert (schedule.charged[down] == parents[schedule.target[down]]).all()


# ---- the engine sends the same messages


def delivered(name: str, operation: PhaseOperation, members: int, size: int, **keys: Any) -> int:
    builder = TraceBuilder()
    builder.collective(operation.name, size)
    result = run(
        Workload.of([builder.build()] * members),
        system={
            "scheduling-policy": "FIFO",
            "collective-optimization": "baseline",
            "preferred-dataset-splits": 1,
            "local-mem-bw": 50,
            **algorithms(name),
            **keys,
        },
        network=network(["FullyConnected"], [members]),
    )
    assert result.is_complete
    return result.outcome.messages


@given(name=FAMILIES, operation=OPERATIONS, members=MEMBERS, size=SIZES, corrected=st.booleans())
def test_the_engine_delivers_as_many_messages_as_the_schedule_has(
    name: str, operation: PhaseOperation, members: int, size: int, corrected: bool
) -> None:
    if name == "halvingDoubling" and operation is PhaseOperation.ALL_TO_ALL:
        return
    names = ["exact-halving-doubling", "tree-operations", "direct-reductions"]
    sent = delivered(name, operation, members, size, corrections=dict.fromkeys(names, corrected))
    fixes = CORRECTED if corrected else AS_REFERENCE
    assert sent == len(schedule_of(name, operation, members, size, fixes))


@pytest.mark.deep
@given(operation=st.sampled_from(OVER_A_TREE), members=MEMBERS, size=ANY_SIZES)
def test_the_engine_delivers_the_messages_of_a_rooted_tree(
    operation: PhaseOperation, members: int, size: int
) -> None:
    sent = delivered("ring", operation, members, size, corrections={"simulated-broadcast": True})
    assert sent == len(expand(lower(TREE, operation, members, size)))


# ---- refused operations


def test_halving_doubling_refuses_an_all_to_all() -> None:
    with pytest.raises(MachineError, match="all-to-all"):
        schedule_of("halvingDoubling", PhaseOperation.ALL_TO_ALL, 8, 1000)
