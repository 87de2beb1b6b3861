"""Schedules of pipelines: which micro-batch a stage works on next, and in which direction.

A schedule is a list of passes for each place along the pipeline. A rank holds one or several parts of the
model ("chunks"): chunk c of place p is part c * stages + p.

- gpipe: all forward passes, then all backward passes.
- 1f1b: as many forward passes as fill the pipeline, then one backward and one forward pass in turn.
- interleaved: the same with several chunks for each rank, in rounds of as many micro-batches as stages.
- zero-bubble: 1f1b with backward passes in two halves (ZB-H1 of Qi et al., "Zero Bubble Pipeline
  Parallelism", 2023): gradients of inputs first, for the stage before; those of weights when there is time.

Not here: what a pass does (`training`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from et_sim.basics.errors import UsageError, did_you_mean


class Direction(StrEnum):
    """What a pass works out."""

    FORWARD = "forward"
    BACKWARD = "backward"  # gradients of inputs and weights
    INPUTS = "backward-inputs"  # those of inputs only
    WEIGHTS = "backward-weights"  # those of weights only


class Pass(NamedTuple):
    """A micro-batch through one part of the model."""

    direction: Direction
    micro_batch: int
    chunk: int = 0


def pass_label(pass_: Pass, chunks: int) -> str:
    """What the names of a pass's nodes begin with."""
    return f"{pass_.direction} {pass_.micro_batch}" + (f" chunk {pass_.chunk}" if chunks > 1 else "")


class Shape(NamedTuple):
    """What a schedule is made for."""

    stages: int
    micro_batches: int
    chunks: int = 1


Schedule = Callable[[int, Shape], Iterator[Pass]]


def gpipe(place: int, shape: Shape) -> Iterator[Pass]:  # noqa: ARG001
    """All micro-batches forward, then all of them backward."""
    for direction in (Direction.FORWARD, Direction.BACKWARD):
        for number in range(shape.micro_batches):
            yield Pass(direction, number)


def one_forward_one_backward(place: int, shape: Shape) -> Iterator[Pass]:
    """A stage begins with a forward pass for each stage after it."""
    count, warm_up = shape.micro_batches, shape.stages - 1 - place
    forward = [Pass(Direction.FORWARD, number) for number in range(count)]
    backward = [Pass(Direction.BACKWARD, number) for number in range(count)]
    return _in_turn(forward, backward, warm_up)


def interleaved(place: int, shape: Shape) -> Iterator[Pass]:
    """Rounds of as many micro-batches as stages go through the first chunk, then the second, and so on."""
    stages, chunks = shape.stages, shape.chunks
    total = shape.micro_batches * chunks
    forward, backward = [], []
    for turn in range(total):
        lap, place_in_lap = divmod(turn, stages * chunks)
        chunk, number = divmod(place_in_lap, stages)
        forward.append(Pass(Direction.FORWARD, lap * stages + number, chunk))
        backward.append(Pass(Direction.BACKWARD, lap * stages + number, chunks - 1 - chunk))
    warm_up = (stages - 1 - place) * 2 + (chunks - 1) * stages
    if shape.micro_batches == stages:
        warm_up = total
    return _in_turn(forward, backward, warm_up)


def zero_bubble(place: int, shape: Shape) -> Iterator[Pass]:
    """Later stages put off more of the gradients of weights, so that the stages before them wait less."""
    waiting: list[int] = []
    for pass_ in one_forward_one_backward(place, shape):
        if pass_.direction is Direction.FORWARD:
            yield pass_
            continue
        yield Pass(Direction.INPUTS, pass_.micro_batch)
        waiting.append(pass_.micro_batch)
        if len(waiting) > place:
            yield Pass(Direction.WEIGHTS, waiting.pop(0))
    for number in waiting:
        yield Pass(Direction.WEIGHTS, number)


def _in_turn(forward: list[Pass], backward: list[Pass], warm_up: int) -> Iterator[Pass]:
    """Some forward passes; then one more and one backward, while there are any."""
    warm_up = min(warm_up, len(forward))
    yield from forward[:warm_up]
    for number, pass_ in enumerate(backward):
        yield from forward[warm_up + number : warm_up + number + 1]
        yield pass_


SCHEDULES: dict[str, Schedule] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved": interleaved,
    "zero-bubble": zero_bubble,
}


def schedule(name: str, shape: Shape) -> Callable[[int], Iterator[Pass]]:
    """The passes of each place, by the name of a schedule."""
    if name not in SCHEDULES:
        remedy = did_you_mean(name, tuple(SCHEDULES)) or f"known: {', '.join(SCHEDULES)}"
        raise UsageError(f"there is no schedule {name!r}", remedy=remedy)
    if shape.chunks > 1 and name != "interleaved":
        raise UsageError(
            f"{name} has one chunk for each rank, and {shape.chunks} are asked for",
            remedy="take the schedule interleaved",
        )
    if name == "interleaved" and shape.chunks < 2:
        raise UsageError(
            "interleaved needs at least 2 chunks for each rank", remedy="ask for 2, or take 1f1b"
        )
    if name == "interleaved" and shape.micro_batches % shape.stages:
        raise UsageError(
            f"{shape.micro_batches} micro-batches are not whole rounds of {shape.stages} stages",
            remedy=f"interleaved needs a multiple of {shape.stages}",
        )
    chosen = SCHEDULES[name]
    return lambda place: chosen(place, shape)
