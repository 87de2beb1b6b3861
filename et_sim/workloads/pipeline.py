"""Schedules of pipelines: the passes of each stage, in order.

A schedule is a list of passes for each place along the pipeline. A rank holds one or several parts of the
model ("chunks"): chunk c of place p is part c * stages + p. A forward pass may run beside the backward pass
that follows, so that one computes while the other exchanges.

- gpipe: all forward passes, then all backward passes.
- 1f1b: as many forward passes as fill the pipeline, then one backward and one forward pass in turn.
- interleaved: the same with several chunks for each rank, in rounds of as many micro-batches as stages.
- dualpipe: two pipelines in opposite directions through the same ranks (DeepSeek-V3 Technical Report, 2024,
  section 3.2.1): place p holds part p of the one, chunk 0, and part stages - 1 - p of the other one, chunk 1.
- zero-bubble: 1f1b with backward passes in two halves (ZB-H1 of Qi et al., "Zero Bubble Pipeline
  Parallelism", 2023): gradients of inputs first, for the previous stage; those of weights fill the bubble.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import FieldError, did_you_mean

DUAL = "dualpipe"
PAIRED = ("1f1b", "interleaved")  # schedules that may run passes in pairs; dualpipe always does


class Direction(StrEnum):
    """The result of a pass: outputs, or gradients."""

    FORWARD = "forward"
    BACKWARD = "backward"  # gradients of inputs and weights
    INPUTS = "backward-inputs"  # gradients of inputs only
    WEIGHTS = "backward-weights"  # gradients of weights only


class Pass(Struct, frozen=True):
    """A micro-batch through one part of the model."""

    direction: Direction
    micro_batch: int
    chunk: int = 0
    is_paired: bool = False  # runs beside the next one


def pass_label(pass_: Pass, chunks: int) -> str:
    """Return the prefix of the names of a pass's nodes."""
    return f"{pass_.direction} {pass_.micro_batch}" + (f" chunk {pass_.chunk}" if chunks > 1 else "")


class PipelineShape(Struct, frozen=True):
    """The numbers of stages, micro-batches and chunks of a schedule."""

    stages: int
    micro_batches: int
    chunks: int = 1
    pairs: bool = False  # a forward pass runs beside the backward pass that follows


Schedule = Callable[[int, PipelineShape], Iterator[Pass]]


def gpipe(place: int, shape: PipelineShape) -> Iterator[Pass]:  # noqa: ARG001
    """Yield all micro-batches forward, then all of them backward."""
    for direction in (Direction.FORWARD, Direction.BACKWARD):
        for number in range(shape.micro_batches):
            yield Pass(direction, number)


def one_forward_one_backward(place: int, shape: PipelineShape) -> Iterator[Pass]:
    """Return alternating passes, after a forward pass for each later stage."""
    count, warm_up = shape.micro_batches, shape.stages - 1 - place
    forward = [Pass(Direction.FORWARD, number) for number in range(count)]
    backward = [Pass(Direction.BACKWARD, number) for number in range(count)]
    return _in_turn(forward, backward, warm_up, shape)


def interleaved(place: int, shape: PipelineShape) -> Iterator[Pass]:
    """Return alternating passes, in rounds of as many micro-batches as stages, chunk by chunk."""
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
    return _in_turn(forward, backward, warm_up, shape)


def zero_bubble(place: int, shape: PipelineShape) -> Iterator[Pass]:
    """Yield passes with gradients of weights postponed, more in later stages, so that others wait less."""
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


def _in_turn(forward: list[Pass], backward: list[Pass], warm_up: int, shape: PipelineShape) -> Iterator[Pass]:
    """Yield some forward passes, then one forward and one backward pass in turn.

    In pairs, the forward pass is one micro-batch ahead, so that neither pass needs the other one's result.
    """
    warm_up = min(warm_up + shape.pairs, len(forward))
    yield from forward[:warm_up]
    for number, pass_ in enumerate(backward):
        for ahead in forward[warm_up + number : warm_up + number + 1]:
            yield replace(ahead, is_paired=shape.pairs)
        yield pass_


def dual_pipe(place: int, shape: PipelineShape) -> Iterator[Pass]:
    """Yield passes of two opposite pipelines; forward passes of one run beside backward ones of the other.

    Chunk 0 is the pipeline from place 0 on, chunk 1 the one from the last place on. Phase 0 is the pipeline
    whose beginning is nearer to a place, phase 1 the other one.
    """
    half, each = shape.stages // 2, shape.micro_batches // 2
    is_far = place >= half
    depth = min(place, shape.stages - 1 - place)
    ahead = half - depth - 1
    lane = _Lane(each, is_far)
    for _ in range(2 * ahead):
        yield lane.forward(0)
    for _ in range(depth + 1):
        yield lane.forward(0)
        yield lane.forward(1)
    for _ in range(ahead):
        yield lane.inputs(1)
        yield lane.weights()
        yield lane.forward(1)
    for turn in range(each - shape.stages + depth + 1):
        is_middle = turn == 0 and ahead == 0  # both ends of the middle would wait for each other
        yield lane.forward(0, is_paired=not is_middle)
        yield lane.backward(1)
        yield lane.forward(1, is_paired=True)
        yield lane.backward(0)
    for _ in range(ahead):
        yield lane.backward(1)
        yield lane.forward(1, is_paired=True)
        yield lane.backward(0)
    for turn in range(2 * (depth + 1)):
        yield (lane.backward if turn < depth + 1 else lane.inputs)((turn + 1) % 2)
    for _ in range(ahead):
        yield lane.weights()
        yield lane.inputs(0)
    yield from lane.rest()


class _Lane:
    """The next passes of a place in both pipelines."""

    def __init__(self, each: int, is_far: bool) -> None:
        self._is_far = is_far
        self._next = {
            (direction, chunk): chunk * each
            for direction in (Direction.FORWARD, Direction.BACKWARD)
            for chunk in (0, 1)
        }
        self._put_off: list[Pass] = []

    def _take(self, direction: Direction, phase: int) -> tuple[int, int]:
        chunk = phase ^ self._is_far
        number = self._next[direction, chunk]
        self._next[direction, chunk] += 1
        return number, chunk

    def forward(self, phase: int, *, is_paired: bool = False) -> Pass:
        """Return the next forward pass of a phase."""
        return Pass(Direction.FORWARD, *self._take(Direction.FORWARD, phase), is_paired)

    def backward(self, phase: int) -> Pass:
        """Return the next backward pass."""
        return Pass(Direction.BACKWARD, *self._take(Direction.BACKWARD, phase))

    def inputs(self, phase: int) -> Pass:
        """Return the next backward pass without gradients of weights, which are postponed."""
        number, chunk = self._take(Direction.BACKWARD, phase)
        self._put_off.append(Pass(Direction.WEIGHTS, number, chunk))
        return Pass(Direction.INPUTS, number, chunk)

    def weights(self) -> Pass:
        """Return the first postponed gradients of weights."""
        return self._put_off.pop(0)

    def rest(self) -> list[Pass]:
        """Return all postponed gradients of weights."""
        return self._put_off


SCHEDULES: dict[str, Schedule] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved": interleaved,
    "zero-bubble": zero_bubble,
    DUAL: dual_pipe,
}


def schedule(name: str, shape: PipelineShape) -> Callable[[int], Iterator[Pass]]:
    """Return a function from a place to its passes, by the name of a schedule."""
    if name not in SCHEDULES:
        remedy = did_you_mean(name, tuple(SCHEDULES)) or f"known: {', '.join(SCHEDULES)}"
        raise FieldError(f"there is no schedule {name!r}", remedy=remedy)
    if shape.chunks > 1 and name != "interleaved":
        raise FieldError(
            f"`chunks` is {shape.chunks}, but the `schedule` {name} has 1 chunk on each rank",
            remedy="leave `chunks` out, or choose the `schedule` interleaved",
        )
    if name == "interleaved" and shape.chunks < 2:
        raise FieldError(
            f"`chunks` is {shape.chunks}, but the `schedule` interleaved needs at least 2 on each rank",
            remedy="set `chunks` to 2, or choose the `schedule` 1f1b",
        )
    if shape.pairs and name not in PAIRED:
        raise FieldError(
            f"{name} has no forward pass that may run beside a backward pass"
            if name != DUAL
            else "dualpipe runs passes in pairs anyway",
            remedy=f"leave `overlap_experts` out, or take the `schedule` {' or '.join(PAIRED)}",
        )
    if name == DUAL and (shape.stages % 2 or shape.micro_batches % 2):
        raise FieldError(
            f"dualpipe needs even numbers of stages and micro-batches, and they are {shape.stages} and"
            f" {shape.micro_batches}",
            remedy="give even numbers of both",
        )
    if name == DUAL and shape.micro_batches < 2 * shape.stages:
        raise FieldError(
            f"{shape.micro_batches} micro-batches are too few for dualpipe, which fills two pipelines of"
            f" {shape.stages} stages",
            remedy=f"give {2 * shape.stages} or more",
        )
    if name == "interleaved" and shape.micro_batches % shape.stages:
        raise FieldError(
            f"{shape.micro_batches} micro-batches are not whole rounds of {shape.stages} stages",
            remedy=f"interleaved needs a multiple of {shape.stages}",
        )
    chosen = SCHEDULES[name]
    return lambda place: chosen(place, shape)
