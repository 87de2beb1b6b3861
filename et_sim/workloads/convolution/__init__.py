"""A convolutional network: its layers as a JSON file has them, what each computes, and a step of training it.

Images and windows are squares. A convolution may have a bias, a normalisation over the batch, and an
activation behind it; "add" is the sum of two branches. Replicas train on images of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from et_sim.basics.errors import UsageError
from et_sim.trace import shapes
from et_sim.trace.workload import Workload
from et_sim.workloads.job import make_workload
from et_sim.workloads.kernels import Kernel, element_wise, product
from et_sim.workloads.pipeline import Direction, Pass, pass_label
from et_sim.workloads.presets import preset_names, read_preset
from et_sim.workloads.rank import Rank
from et_sim.workloads.training.chain import ChainLayer, dense_layer, run_backward, run_forward
from et_sim.workloads.training.plan import Plan
from et_sim.workloads.training.replicas import Replicas
from et_sim.workloads.training.work import Work

PRESETS = Path(__file__).parent / "presets"
Size = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Padding = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class _Layer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    name: str


class Convolution(_Layer, frozen=True, tag="conv"):
    """Filters over an image."""

    image: Size
    channels: Size
    filters: Size
    window: Size
    stride: Size = 1
    padding: Padding = 0
    bias: bool = False
    norm: bool = False
    activation: bool = True


class Pool(_Layer, frozen=True, tag="pool"):
    """The largest or mean value of each window."""

    image: Size
    channels: Size
    window: Size
    stride: Size = 1
    padding: Padding = 0


class Add(_Layer, frozen=True, tag="add"):
    """The sum of two branches, with an activation."""

    image: Size
    channels: Size


class Dense(_Layer, frozen=True, tag="dense"):
    """Every output from all inputs, with a bias."""

    inputs: Size
    outputs: Size
    activation: bool = True


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Layers in the order in which they run."""

    source: str
    layers: tuple[Convolution | Pool | Add | Dense, ...]


def network_names() -> tuple[str, ...]:
    """The networks that come with et-sim."""
    return preset_names(PRESETS)


def read_network(name: str) -> tuple[str, Network]:
    """A preset by its name, or what a file describes."""
    short, found = read_preset(PRESETS, name, Network)
    if not found.layers:
        raise UsageError("has no layers", place=name, remedy="give one at least")
    seen: set[str] = set()
    for one in found.layers:
        if one.name in seen:
            raise UsageError(f"has two layers {one.name!r}", place=name, remedy="give each its own name")
        seen.add(one.name)
        if isinstance(one, Convolution | Pool) and one.window > one.image + 2 * one.padding:
            raise UsageError(
                f"layer {one.name!r} has a window of {one.window} on an image of {one.image}",
                place=name,
                remedy="correct window, image or padding",
            )
    return short, found


def layers_of(network: Network, plan: Plan) -> list[ChainLayer]:
    """What each layer computes for a micro-batch; the first one needs no gradients of its inputs."""
    return [_layer(one, plan, is_first=number == 0) for number, one in enumerate(network.layers)]


def _layer(one: Convolution | Pool | Add | Dense, plan: Plan, *, is_first: bool) -> ChainLayer:
    size, batch = plan.value_bytes, plan.batch
    if isinstance(one, Dense):
        return dense_layer(
            one.name, plan, one.inputs, one.outputs, is_activated=one.activation, needs_inputs=not is_first
        )
    if isinstance(one, Convolution):
        return _convolution(one, plan, is_first=is_first)
    values = batch * one.image**2 * one.channels
    if isinstance(one, Add):
        forward = element_wise("sum", values, 2, 3, size)
        return ChainLayer(one.name, 0, (forward,), (element_wise("sum", values, 2, 3, size),), values * size)
    outputs = batch * _side(one) ** 2 * one.channels
    moved = (values + outputs) * size
    shape = shapes.elementwise(outputs, max(values // outputs, 1), one.window**2)
    pooled = Kernel("window", outputs * one.window**2, moved, shape)
    return ChainLayer(one.name, 0, (pooled,), (pooled,), outputs * size)


def _side(one: Convolution | Pool) -> int:
    """Of the image that comes out."""
    return (one.image + 2 * one.padding - one.window) // one.stride + 1


def _convolution(one: Convolution, plan: Plan, *, is_first: bool) -> ChainLayer:
    """Gradients are products of matrices: pixels by filters, and filters by values of a window."""
    size, batch, side = plan.value_bytes, plan.batch, _side(one)
    pixels, inner = batch * side**2, one.window**2 * one.channels
    padded, window = one.image + 2 * one.padding, one.window
    values = pixels * one.filters
    weights = inner * one.filters + (one.filters if one.bias else 0) + (2 * one.filters if one.norm else 0)
    moved = (batch * one.image**2 * one.channels + inner * one.filters + values) * size
    shape = shapes.convolution(
        (padded, padded), (window, window), one.channels, one.filters, (one.stride, one.stride), count=batch
    )
    forward = [Kernel("convolution", 2 * values * inner, moved, shape)]
    backward = []
    if one.norm:
        forward.append(element_wise("norm", values, 7, 3, size))
        backward.append(element_wise("norm", values, 11, 5, size))
    if one.activation:
        forward.append(element_wise("activation", values, 1, 2, size))
        backward.insert(0, element_wise("activation", values, 1, 3, size))
    if not is_first:
        backward.append(_moving(product("inputs", pixels, inner, one.filters, size), moved))
    backward.append(_moving(product("weights", one.filters, inner, pixels, size), moved))
    kept = values * (2 if one.norm else 1)  # outputs, and what was normalised
    kept += batch * one.image**2 * one.channels if is_first else 0
    return ChainLayer(one.name, weights, tuple(forward), tuple(backward), kept * size)


def _moving(kernel: Kernel, moved: int) -> Kernel:
    """Windows overlap: their values are read once, not once for each window."""
    return kernel._replace(bytes=moved)


def make_convolution_training(network: Network, plan: Plan, name: str = "cnn") -> Workload:
    """The workload of one step."""
    layers = layers_of(network, plan)

    def step(rank: Rank) -> None:
        work = Work(rank, plan)
        replicas = Replicas(work)
        for number in range(plan.micro_batches):
            work.during = pass_label(Pass(Direction.FORWARD, number), 1)
            run_forward(work, layers, number)
            work.during = pass_label(Pass(Direction.BACKWARD, number), 1)
            run_backward(work, replicas, layers, number, is_last=number == plan.micro_batches - 1)
            replicas.flush()
        replicas.update()

    return make_workload(plan.axes, step, source=f"<{name}>")
