"""The data itself, moved along the schedules: every member ends with exactly what the collective promises.

Bytes per member and the engine's messages are compared as well. Where the reference's algorithm accounts for
something else than the data needs, a test says so.
"""

from __future__ import annotations

import numpy as np
import pytest
from data_simulation import assert_promise_kept, move
from hypothesis import given, settings
from hypothesis import strategies as st

from et_sim.api import run
from et_sim.collectives import Operation, lower, parse_algorithm
from et_sim.collectives.movement import Movement, movement
from et_sim.collectives.schedule import DOWN, UP, Schedule, expand
from et_sim.errors import MachineError
from et_sim.trace import TraceBuilder, Workload

SEEDS = st.integers(0, 2**32)
MEMBERS = st.integers(2, 33)
POWERS = st.sampled_from([2, 4, 8, 16, 32])
OPERATIONS = st.sampled_from(list(Operation))
SIZES = st.integers(33, 1 << 20)
DIRECT = st.sampled_from(["direct", *(f"direct{window}" for window in (1, 2, 3, 4, 5, 7, 16, 40))])
NOT_ALL_TO_ALL = st.sampled_from([op for op in Operation if op is not Operation.ALL_TO_ALL])
REDUCING = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER)


def schedule_of(name: str, operation: Operation, members: int, size: int, **more: bool) -> Schedule:
    return expand(lower(parse_algorithm(name), operation, members, size), **more)


def moved_by(name: str, operation: Operation, members: int) -> Movement:
    return movement(parse_algorithm(name), operation, members)


def bytes_sent(schedule: Schedule) -> list[int]:
    sent = np.zeros(schedule.members, np.int64)
    np.add.at(sent, schedule.source, schedule.bytes)
    return [int(size) for size in sent]


def bytes_of_pieces(schedule: Schedule, moved: Movement, piece: int) -> bool:
    """Whether every message has the bytes of the pieces that it carries."""
    columns = (schedule.source, schedule.target, schedule.step, schedule.bytes)
    return all(
        size == piece * len(moved.load(source, target, step).pieces)
        for source, target, step, size in zip(*(column.tolist() for column in columns), strict=True)
    )


# ---- every member ends with what the collective promises


@settings(max_examples=80, deadline=None)
@given(operation=OPERATIONS, members=MEMBERS, seed=SEEDS)
def test_a_ring_gives_every_member_all_it_must_have(operation: Operation, members: int, seed: int) -> None:
    moved = moved_by("ring", operation, members)
    assert_promise_kept(move(schedule_of("ring", operation, members, 1000), moved, seed), moved)


@settings(max_examples=120, deadline=None)
@given(name=DIRECT, operation=OPERATIONS, members=MEMBERS, subgroup=st.booleans(), seed=SEEDS)
def test_direct_with_any_window_gives_every_member_all_it_must_have(
    name: str, operation: Operation, members: int, subgroup: bool, seed: int
) -> None:
    moved = moved_by(name, operation, members)
    program = lower(parse_algorithm(name), operation, members, 1000, subgroup=subgroup)
    assert_promise_kept(move(expand(program), moved, seed), moved)


@settings(max_examples=60, deadline=None)
@given(operation=NOT_ALL_TO_ALL, members=POWERS, seed=SEEDS)
def test_halving_doubling_gives_every_member_all_it_must_have(
    operation: Operation, members: int, seed: int
) -> None:
    moved = moved_by("halvingDoubling", operation, members)
    assert_promise_kept(move(schedule_of("halvingDoubling", operation, members, 1000), moved, seed), moved)


@settings(max_examples=60, deadline=None)
@given(operation=OPERATIONS, members=MEMBERS, second=st.booleans(), seed=SEEDS)
def test_reference_accounting_a_double_binary_tree_does_every_operation_as_an_all_reduce(
    operation: Operation, members: int, second: bool, seed: int
) -> None:
    """Whatever was asked for, everybody ends with the whole vector summed over all, and its size is kept.

    For reduce-scatter that is more than promised; as all-gather and all-to-all, the *amount* is what the
    reference accounts for, and not enough data to do what the name says.
    """
    moved = moved_by("doubleBinaryTree", operation, members)
    assert moved.operation is Operation.ALL_REDUCE
    schedule = schedule_of("doubleBinaryTree", operation, members, 1000, second_tree=second)
    assert_promise_kept(move(schedule, moved, seed, is_tree=True), moved)


# ---- bytes


@settings(max_examples=100, deadline=None)
@given(name=st.one_of(st.just("ring"), DIRECT), operation=OPERATIONS, members=MEMBERS, size=SIZES)
def test_bytes_per_member_of_ring_and_direct_are_the_closed_form(
    name: str, operation: Operation, members: int, size: int
) -> None:
    """A ring relays what goes to all in an all-to-all: n(n-1)/2 blocks, where direct sends n-1."""
    piece = size if operation is Operation.ALL_GATHER else size // members
    times = 2 if operation is Operation.ALL_REDUCE else 1
    messages = times * (members - 1)
    if name == "ring" and operation is Operation.ALL_TO_ALL:
        messages = members * (members - 1) // 2
    schedule = schedule_of(name, operation, members, size)
    assert bytes_sent(schedule) == [messages * piece] * members
    assert bytes_of_pieces(schedule, moved_by(name, operation, members), piece)


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(["ring", "direct", "direct3"]), members=MEMBERS, size=SIZES)
def test_reference_accounting_bytes_that_do_not_divide_among_the_members_are_not_sent(
    name: str, members: int, size: int
) -> None:
    """Messages have C // n bytes, so that C mod n bytes of every vector stay where they are."""
    schedule = schedule_of(name, Operation.REDUCE_SCATTER, members, size)
    whole = schedule_of(name, Operation.REDUCE_SCATTER, members, size - size % members)
    assert bytes_sent(schedule) == bytes_sent(whole)


@settings(max_examples=60, deadline=None)
@given(operation=NOT_ALL_TO_ALL, members=POWERS, units=st.integers(1, 5000))
def test_bytes_of_halving_doubling_are_the_closed_form_for_sizes_that_halve_evenly(
    operation: Operation, members: int, units: int
) -> None:
    size = units if operation is Operation.ALL_GATHER else 2 * units * members
    schedule = schedule_of("halvingDoubling", operation, members, size)
    piece = size if operation is Operation.ALL_GATHER else size // members
    times = 2 if operation is Operation.ALL_REDUCE else 1
    assert bytes_sent(schedule) == [times * (members - 1) * piece] * members
    assert bytes_of_pieces(schedule, moved_by("halvingDoubling", operation, members), piece)


@settings(max_examples=60, deadline=None)
@given(members=POWERS, size=SIZES)
def test_reference_accounting_halving_doubling_truncates_sizes_and_loses_bytes_on_the_way_back(
    members: int, size: int
) -> None:
    """Sizes are halved with truncation, once more than they are used, and doubled again from there."""
    levels = members.bit_length() - 1
    halves = [size >> level for level in range(1, levels + 1)]
    smallest = size >> (levels + 1)
    doubles = [smallest << level for level in range(1, levels + 1)]
    schedule = schedule_of("halvingDoubling", Operation.ALL_REDUCE, members, size)
    assert bytes_sent(schedule) == [sum(halves) + sum(doubles)] * members
    assert sum(doubles) <= sum(halves)


@settings(max_examples=40, deadline=None)
@given(members=MEMBERS, size=SIZES, second=st.booleans())
def test_a_tree_sends_the_whole_chunk_once_up_and_once_down_every_edge(
    members: int, size: int, second: bool
) -> None:
    schedule = schedule_of("doubleBinaryTree", Operation.ALL_REDUCE, members, size, second_tree=second)
    up, down = schedule.step == UP, schedule.step == DOWN
    edges = {*zip(schedule.source[up].tolist(), schedule.target[up].tolist(), strict=True)}
    assert edges == {*zip(schedule.target[down].tolist(), schedule.source[down].tolist(), strict=True)}
    assert len(edges) == members - 1
    assert sum(bytes_sent(schedule)) == 2 * (members - 1) * size


# ---- the order of the rounds


@settings(max_examples=100, deadline=None)
@given(
    name=st.one_of(st.sampled_from(["ring", "doubleBinaryTree"]), DIRECT),
    operation=OPERATIONS,
    members=MEMBERS,
)
def test_what_a_message_waits_for_arrived_in_earlier_rounds(
    name: str, operation: Operation, members: int
) -> None:
    schedule = schedule_of(name, operation, members, 1000)
    for position in range(members):
        arrivals = np.sort(schedule.round[schedule.target == position])
        mine = schedule.source == position
        before = np.searchsorted(arrivals, schedule.round[mine], side="left")
        assert (schedule.after_received[mine] <= before).all()


@settings(max_examples=60, deadline=None)
@given(window=st.integers(1, 40), operation=OPERATIONS, members=MEMBERS)
def test_no_member_has_more_than_a_window_of_messages_in_a_round(
    window: int, operation: Operation, members: int
) -> None:
    schedule = schedule_of(f"direct{window}", operation, members, 1000)
    assert np.bincount(schedule.round[schedule.source == 0]).max() <= min(window, members - 1)


# ---- what is charged as a reduction


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(["ring", "direct"]), operation=OPERATIONS, members=MEMBERS)
def test_ring_and_direct_are_charged_for_exactly_what_they_reduce(
    name: str, operation: Operation, members: int
) -> None:
    schedule = schedule_of(name, operation, members, 1000)
    moved = moved_by(name, operation, members)
    assert (schedule.charged == (schedule.step < moved.reducing_steps)).all()
    assert moved.reducing_steps == (members - 1 if operation in REDUCING else 0)


@settings(max_examples=30, deadline=None)
@given(members=POWERS, operation=st.sampled_from(REDUCING))
def test_reference_accounting_halving_doubling_is_charged_one_reduction_too_few(
    members: int, operation: Operation
) -> None:
    schedule = schedule_of("halvingDoubling", operation, members, 1000)
    levels = members.bit_length() - 1
    assert int(schedule.charged.sum()) == (levels - 1) * members


@settings(max_examples=30, deadline=None)
@given(members=MEMBERS)
def test_reference_accounting_a_tree_is_charged_for_copying_the_result_to_ranks_with_children(
    members: int,
) -> None:
    schedule = schedule_of("doubleBinaryTree", Operation.ALL_REDUCE, members, 1000)
    parents = np.isin(np.arange(members), schedule.target[schedule.step == UP])
    down = schedule.step == DOWN
    assert schedule.charged[~down].all()
    assert (schedule.charged[down] == parents[schedule.target[down]]).all()


# ---- the engine sends the same messages


def delivered(name: str, operation: Operation, members: int, size: int) -> int:
    builder = TraceBuilder()
    builder.collective(operation.name, size)
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    result = run(
        Workload.of([builder.build()] * members),
        system={
            "scheduling-policy": "FIFO",
            "collective-optimization": "baseline",
            "preferred-dataset-splits": 1,
            "local-mem-bw": 50,
            **{f"{kind}-implementation": [name] for kind in kinds},
        },
        network={
            "topology": ["FullyConnected"],
            "npus_count": [members],
            "bandwidth": [50.0],
            "latency": [500.0],
        },
    )
    assert result.is_complete
    return result.outcome.messages


@settings(max_examples=25, deadline=None)
@given(
    name=st.one_of(st.sampled_from(["ring", "doubleBinaryTree"]), DIRECT),
    operation=OPERATIONS,
    members=MEMBERS,
    size=SIZES,
)
def test_the_engine_delivers_as_many_messages_as_the_schedule_has(
    name: str, operation: Operation, members: int, size: int
) -> None:
    assert delivered(name, operation, members, size) == len(schedule_of(name, operation, members, size))


@pytest.mark.parametrize("operation", [op for op in Operation if op is not Operation.ALL_TO_ALL])
@pytest.mark.parametrize("members", [2, 8, 32])
def test_the_engine_delivers_the_messages_of_halving_doubling(operation: Operation, members: int) -> None:
    schedule = schedule_of("halvingDoubling", operation, members, 1000)
    assert delivered("halvingDoubling", operation, members, 1000) == len(schedule)


# ---- what cannot be done


def test_halving_doubling_refuses_an_all_to_all_and_other_sizes_than_powers_of_two() -> None:
    with pytest.raises(MachineError, match="all-to-all"):
        schedule_of("halvingDoubling", Operation.ALL_TO_ALL, 8, 1000)
    with pytest.raises(MachineError, match="power of two"):
        schedule_of("halvingDoubling", Operation.ALL_REDUCE, 6, 1000)
