"""Schedules of pipelines: their order, and the textbook's makespans on a network that costs nothing."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import network, system

from et_sim.api import run
from et_sim.basics.errors import UsageError
from et_sim.workloads import Axes, Rank, make_workload
from et_sim.workloads.pipeline import Direction, Pass, Shape, schedule

FORWARD, BACKWARD, HALF = 100, 200, 100  # microseconds of a rank's whole part


def passes(name: str, place: int, shape: Shape) -> list[Pass]:
    return list(schedule(name, shape)(place))


def makespan_us(name: str, shape: Shape) -> float:
    """Every pass computes for its share; what stages hand on is a byte."""
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
    result = makespan_us(name, Shape(stages, count))
    assert result == pytest.approx((count + stages - 1) * (FORWARD + BACKWARD), abs=1)


@pytest.mark.parametrize(("stages", "count", "chunks"), [(2, 4, 2), (4, 8, 2), (4, 4, 2), (3, 6, 4)])
def test_interleaving_divides_the_bubble_by_the_chunks(stages: int, count: int, chunks: int) -> None:
    result = makespan_us("interleaved", Shape(stages, count, chunks))
    whole = FORWARD + BACKWARD
    assert result == pytest.approx(count * whole + (stages - 1) * whole / chunks, abs=1)


@pytest.mark.parametrize(("stages", "count"), [(2, 4), (4, 8), (4, 4), (6, 12)])
def test_zero_bubble_fills_the_bubble_with_gradients_of_weights(stages: int, count: int) -> None:
    """(stages - 1) * (forward + inputs - weights), as of ZB-H1."""
    result = makespan_us("zero-bubble", Shape(stages, count))
    bubble = (stages - 1) * (FORWARD + HALF - HALF)
    assert result == pytest.approx(count * (FORWARD + 2 * HALF) + bubble, abs=1)


SHAPES = st.integers(1, 6).flatmap(
    lambda stages: st.tuples(st.just(stages), st.integers(1, 12), st.integers(2, 4))
)


@given(SHAPES, st.sampled_from(["gpipe", "1f1b", "interleaved", "zero-bubble"]))
def test_every_micro_batch_goes_once_through_each_chunk_in_each_direction(
    numbers: tuple[int, int, int], name: str
) -> None:
    stages, count, chunks = numbers
    is_interleaved = name == "interleaved"
    shape = Shape(stages, count * stages, chunks) if is_interleaved else Shape(stages, count)
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
            assert order.index(work._replace(direction=before)) < order.index(work)


@given(st.integers(1, 8), st.integers(1, 16))
def test_1f1b_and_zero_bubble_keep_no_more_micro_batches_than_there_are_stages(
    stages: int, count: int
) -> None:
    for name, ends in (("1f1b", Direction.BACKWARD), ("zero-bubble", Direction.WEIGHTS)):
        for place in range(stages):
            kept = most = 0
            for work in passes(name, place, Shape(stages, count)):
                kept += (work.direction is Direction.FORWARD) - (work.direction is ends)
                most = max(most, kept)
            assert most <= (stages - place if name == "1f1b" else stages)


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("1f2b", Shape(2, 2), "there is no schedule '1f2b' (did you mean '1f1b'?)"),
        ("1f1b", Shape(2, 2, 2), "1f1b has one chunk for each rank, and 2 are asked for"),
        ("interleaved", Shape(2, 2), "interleaved needs at least 2 chunks"),
        ("interleaved", Shape(4, 6, 2), "6 micro-batches are not whole rounds of 4 stages"),
    ],
)
def test_schedules_that_make_no_sense_are_refused(name: str, shape: Shape, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        schedule(name, shape)
    assert said in str(caught.value)
