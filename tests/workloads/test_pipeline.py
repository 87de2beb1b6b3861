"""Schedules of pipelines: their order, and the textbook's makespans on a network that costs nothing."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import network, system
from msgspec.structs import replace

from et_sim.api import run
from et_sim.basics.errors import UsageError
from et_sim.workloads import Axes, Rank, make_workload
from et_sim.workloads.pipeline import Direction, Pass, PipelineShape, schedule

FORWARD, BACKWARD, HALF = 100, 200, 100  # microseconds of a rank's whole part


def passes(name: str, place: int, shape: PipelineShape) -> list[Pass]:
    return list(schedule(name, shape)(place))


def makespan_us(name: str, shape: PipelineShape) -> float:
    """Return a step in which every pass computes for its share; messages between stages have a byte."""
    of_place = schedule(name, shape)
    length = {Direction.FORWARD: FORWARD, Direction.BACKWARD: BACKWARD}
    parts = shape.stages * shape.chunks

    def program(rank: Rank) -> None:
        place = rank.place("stage")
        for work in of_place(place):
            piece = work.chunk * shape.stages + place
            way = 1 if work.direction is Direction.FORWARD else -1
            has_source = piece > 0 if way == 1 else piece < parts - 1
            has_target = piece < parts - 1 if way == 1 else piece > 0
            if work.direction is Direction.WEIGHTS:
                has_source = has_target = False
            after: tuple[int, ...] = ()
            tag = work.micro_batch * parts * 2 + (way < 0)
            if has_source:
                after = rank.receive(rank.next("stage", -way, wraps=True), 1, tag + 2 * piece)
            micros = length.get(work.direction, HALF) // shape.chunks
            done = rank.compute(f"{work}", micros=micros, after=after)
            if has_target:
                rank.send(rank.next("stage", way, wraps=True), 1, tag + 2 * (piece + way), after=done)

    workload = make_workload(Axes(stage=shape.stages), program)
    machine = network(["FullyConnected"], [shape.stages], bandwidth=1e6, latency=0.0)
    return (
        run(
            workload, system=system(profile="corrected", **{"endpoint-delay": 0}), network=machine
        ).makespan_ns
        / 1000
    )


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "count"), [(1, 3), (2, 2), (4, 8), (4, 3)])
def test_gpipe_and_1f1b_take_the_work_and_a_bubble_for_each_further_stage(
    name: str, stages: int, count: int
) -> None:
    result = makespan_us(name, PipelineShape(stages, count))
    assert result == pytest.approx((count + stages - 1) * (FORWARD + BACKWARD), abs=1)


@pytest.mark.parametrize(("stages", "count", "chunks"), [(2, 4, 2), (4, 8, 2), (4, 4, 2), (3, 6, 4)])
def test_interleaving_divides_the_bubble_by_the_chunks(stages: int, count: int, chunks: int) -> None:
    result = makespan_us("interleaved", PipelineShape(stages, count, chunks))
    whole = FORWARD + BACKWARD
    assert result == pytest.approx(count * whole + (stages - 1) * whole / chunks, abs=1)


@pytest.mark.parametrize(("stages", "count"), [(2, 4), (4, 8), (4, 4), (6, 12)])
def test_zero_bubble_fills_the_bubble_with_gradients_of_weights(stages: int, count: int) -> None:
    """Compare with (stages - 1) * (forward + inputs - weights), the bubble of ZB-H1."""
    result = makespan_us("zero-bubble", PipelineShape(stages, count))
    bubble = (stages - 1) * (FORWARD + HALF - HALF)
    assert result == pytest.approx(count * (FORWARD + 2 * HALF) + bubble, abs=1)


SHAPES_OF_PAIRS = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(2, 4))


def neighbour(work: Pass, stages: int, place: int, way: int) -> int | None:
    """Return the place with the part ahead (1) or behind (-1), in the direction of a pipeline of dualpipe."""
    part = (stages - 1 - place if work.chunk else place) + way
    if not 0 <= part < stages:
        return None
    return stages - 1 - part if work.chunk else part


def dual_makespan(stages: int, count: int, forward: int, backward: int, weights: int, pair: int) -> int:
    """Return the end of all places; two passes side by side take as long as `pair` and end together."""
    orders = [passes("dualpipe", place, PipelineShape(stages, count)) for place in range(stages)]
    length = {
        Direction.FORWARD: forward,
        Direction.BACKWARD: backward,
        Direction.INPUTS: backward - weights,
        Direction.WEIGHTS: weights,
    }
    done: dict[tuple[bool, int, int], int] = {}  # forward, micro-batch, place
    clock, at = [0] * stages, [0] * stages
    while any(at[place] < len(orders[place]) for place in range(stages)):
        before = sum(at)
        for place, order in enumerate(orders):
            while at[place] < len(order):
                group = order[at[place] : at[place] + 1 + order[at[place]].is_paired]
                ready = [
                    0
                    if work.direction is Direction.WEIGHTS
                    or (source := neighbour(work, stages, place, -1 if _is_forward(work) else 1)) is None
                    else done.get((_is_forward(work), work.micro_batch, source))
                    for work in group
                ]
                if None in ready:
                    break
                begin = max(clock[place], *(time for time in ready if time is not None))
                clock[place] = begin + (pair if len(group) == 2 else length[group[0].direction])
                for work in group:
                    if work.direction is not Direction.WEIGHTS:
                        done[_is_forward(work), work.micro_batch, place] = clock[place]
                at[place] += len(group)
        assert sum(at) > before, "no place can go on"
    return max(clock)


def _is_forward(work: Pass) -> bool:
    return work.direction is Direction.FORWARD


@pytest.mark.parametrize(("stages", "more"), [(2, 0), (4, 0), (4, 6), (8, 0), (8, 2), (16, 88)])
@pytest.mark.parametrize(
    ("forward", "backward", "weights", "pair"),
    [(10, 20, 10, 30), (10, 20, 10, 24), (10, 20, 10, 20), (12, 20, 8, 30)],
)
def test_the_bubble_of_dualpipe_is_the_published_one(
    stages: int, more: int, forward: int, backward: int, weights: int, pair: int
) -> None:
    """Expect (PP / 2 - 1) (F&B + B - 3 W), of table 2 of the DeepSeek-V3 Technical Report.

    That holds for the places in the middle, where gradients of inputs take as long as a forward pass; others
    wait less, as more of their passes run alone.
    """
    count = 2 * stages + more
    whole = dual_makespan(stages, count, forward, backward, weights, pair)
    bubbles = []
    for place in range(stages):
        order = passes("dualpipe", place, PipelineShape(stages, count))
        kinds = Counter(work.direction for work in order)
        pairs = sum(work.is_paired for work in order)
        busy = pairs * pair + (kinds[Direction.FORWARD] - pairs) * forward
        busy += (kinds[Direction.BACKWARD] - pairs) * backward
        busy += kinds[Direction.INPUTS] * (backward - weights) + kinds[Direction.WEIGHTS] * weights
        bubbles.append(whole - busy)
    published = (stages // 2 - 1) * (pair + backward - 3 * weights)
    assert max(bubbles) == bubbles[stages // 2] == published


@given(st.integers(1, 8), st.integers(0, 12))
def test_dualpipe_has_each_pass_once_in_order_and_never_waits_for_good(half: int, more: int) -> None:
    stages = 2 * half
    shape = PipelineShape(stages, 2 * stages + 2 * more)
    dual_makespan(stages, shape.micro_batches, 1, 2, 1, 3)
    for place in range(stages):
        order = passes("dualpipe", place, shape)
        kept = most = 0
        for chunk, numbers in enumerate((range(stages + more), range(stages + more, 2 * (stages + more)))):
            for directions in (
                {Direction.FORWARD},
                {Direction.BACKWARD, Direction.INPUTS},
                {Direction.BACKWARD, Direction.WEIGHTS},
            ):
                of_chunk = [
                    work.micro_batch for work in order if work.chunk == chunk and work.direction in directions
                ]
                assert of_chunk == list(numbers)
        for work, after in zip(order, [*order[1:], order[0]], strict=True):
            kept += (work.direction is Direction.FORWARD) - (
                work.direction in (Direction.BACKWARD, Direction.WEIGHTS)
            )
            most = max(most, kept)
            if work.is_paired:
                assert (work.direction, after.direction) == (Direction.FORWARD, Direction.BACKWARD)
                assert work.micro_batch != after.micro_batch
        assert most <= stages + 1  # as published: one more than pipelines of one direction keep


@given(SHAPES_OF_PAIRS, st.sampled_from(["1f1b", "interleaved"]))
def test_passes_in_pairs_are_of_different_micro_batches_or_parts(
    numbers: tuple[int, int, int], name: str
) -> None:
    stages, count, chunks = numbers
    shape = PipelineShape(stages, count * stages, chunks if name == "interleaved" else 1, pairs=True)
    for place in range(stages):
        order = passes(name, place, shape)
        seen: set[tuple[int, int]] = set()
        for work, after in zip(order, [*order[1:], order[0]], strict=True):
            if work.is_paired:
                assert (work.direction, after.direction) == (Direction.FORWARD, Direction.BACKWARD)
                assert (after.micro_batch, after.chunk) in seen  # its forward pass came before the pair
            if work.direction is Direction.FORWARD:
                seen.add((work.micro_batch, work.chunk))


SHAPES = st.integers(1, 6).flatmap(
    lambda stages: st.tuples(st.just(stages), st.integers(1, 12), st.integers(2, 4))
)


@given(SHAPES, st.sampled_from(["gpipe", "1f1b", "interleaved", "zero-bubble"]))
def test_every_micro_batch_goes_once_through_each_chunk_in_each_direction(
    numbers: tuple[int, int, int], name: str
) -> None:
    stages, count, chunks = numbers
    is_interleaved = name == "interleaved"
    shape = PipelineShape(stages, count * stages, chunks) if is_interleaved else PipelineShape(stages, count)
    kinds = {Direction.FORWARD, Direction.BACKWARD}
    if name == "zero-bubble":
        kinds = {Direction.FORWARD, Direction.INPUTS, Direction.WEIGHTS}
    for place in range(stages):
        counts = Counter(passes(name, place, shape))
        assert set(counts.values()) == {1}
        assert {work.direction for work in counts} == kinds
        assert len(counts) == len(kinds) * shape.micro_batches * shape.chunks
        order = passes(name, place, shape)
        for work in order:
            if work.direction is Direction.FORWARD:
                continue
            before = Direction.INPUTS if work.direction is Direction.WEIGHTS else Direction.FORWARD
            assert order.index(replace(work, direction=before)) < order.index(work)


@given(st.integers(1, 8), st.integers(1, 16))
def test_1f1b_and_zero_bubble_keep_no_more_micro_batches_than_there_are_stages(
    stages: int, count: int
) -> None:
    for name, ends in (("1f1b", Direction.BACKWARD), ("zero-bubble", Direction.WEIGHTS)):
        for place in range(stages):
            kept = most = 0
            for work in passes(name, place, PipelineShape(stages, count)):
                kept += (work.direction is Direction.FORWARD) - (work.direction is ends)
                most = max(most, kept)
            assert most <= (stages - place if name == "1f1b" else stages)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("1f2b", PipelineShape(2, 2), "there is no schedule '1f2b' (did you mean '1f1b'?)"),
        ("1f1b", PipelineShape(2, 2, 2), "chunks is 2, but the schedule 1f1b has 1 chunk on each rank"),
        ("interleaved", PipelineShape(2, 2), "chunks is 1, but the schedule interleaved needs at least 2"),
        ("interleaved", PipelineShape(4, 6, 2), "6 micro-batches are not whole rounds of 4 stages"),
        ("dualpipe", PipelineShape(3, 8), "they are 3 and 8 (give even numbers of both)"),
        ("dualpipe", PipelineShape(4, 9), "they are 4 and 9 (give even numbers of both)"),
        (
            "dualpipe",
            PipelineShape(4, 6),
            "6 micro-batches are too few for dualpipe, which fills two pipelines of 4",
        ),
        ("dualpipe", PipelineShape(4, 8, pairs=True), "dualpipe runs passes in pairs anyway"),
        (
            "zero-bubble",
            PipelineShape(2, 4, pairs=True),
            "zero-bubble has no forward pass that may run beside",
        ),
    ],
)
def test_schedules_that_make_no_sense_are_refused(name: str, shape: PipelineShape, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        schedule(name, shape)
    assert message in str(caught.value)
