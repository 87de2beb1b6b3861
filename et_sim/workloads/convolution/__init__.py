"""A convolutional network: its layers in a JSON file, their kernels, and a step of training it.

Images and windows are squares. A convolution may have a bias, followed by a normalisation over the batch and
an activation; "add" is the sum of two branches. Replicas train on images of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.trace import shapes
from et_sim.trace.workload import Workload
from et_sim.workloads.kernels import Kernel, element_wise, product
from et_sim.workloads.models import preset_names, read_preset
from et_sim.workloads.pipeline import Direction, Pass, pass_label
from et_sim.workloads.rank import Rank, make_workload
from et_sim.workloads.training.chain import ChainLayer, dense_layer, run_backward, run_forward
from et_sim.workloads.training.plan import Plan
from et_sim.workloads.training.replicas import Replicas
from et_sim.workloads.training.work import RankWork

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
    """A dense layer with a bias."""

    inputs: Size
    outputs: Size
    activation: bool = True


class ConvolutionNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Layers in the order in which they run."""

    source: str
    layers: tuple[Convolution | Pool | Add | Dense, ...]


def network_names() -> tuple[str, ...]:
    """Return the names of the networks that come with et-sim."""
    return preset_names(PRESETS)


def read_network(name: str) -> tuple[str, ConvolutionNetwork]:
    """Return a preset by its name, or the network that a file describes."""
    short, network = read_preset(PRESETS, name, ConvolutionNetwork)
    if not network.layers:
        raise UsageError("has no layers", place=name, remedy="give one at least")
    seen: set[str] = set()
    for layer in network.layers:
        if layer.name in seen:
            raise UsageError(f"has two layers {layer.name!r}", place=name, remedy="give each its own name")
        seen.add(layer.name)
        if isinstance(layer, Convolution | Pool) and layer.window > layer.image + 2 * layer.padding:
            raise UsageError(
                f"layer {layer.name!r} has a window of {layer.window} on an image of {layer.image}",
                place=name,
                remedy="correct window, image or padding",
            )
    return short, network


def layers_of(network: ConvolutionNetwork, plan: Plan) -> list[ChainLayer]:
    """Return the layers with their kernels for a micro-batch; the first one computes no input gradients."""
    return [_layer(layer, plan, is_first=number == 0) for number, layer in enumerate(network.layers)]


def _layer(layer: Convolution | Pool | Add | Dense, plan: Plan, *, is_first: bool) -> ChainLayer:
    size, batch = plan.value_bytes, plan.batch
    if isinstance(layer, Dense):
        return dense_layer(
            layer.name,
            plan,
            layer.inputs,
            layer.outputs,
            is_activated=layer.activation,
            needs_inputs=not is_first,
        )
    if isinstance(layer, Convolution):
        return _convolution(layer, plan, is_first=is_first)
    values = batch * layer.image**2 * layer.channels
    if isinstance(layer, Add):
        forward = element_wise("sum", values, 2, 3, size)
        return ChainLayer(
            layer.name, 0, (forward,), (element_wise("sum", values, 2, 3, size),), values * size
        )
    outputs = batch * _side(layer) ** 2 * layer.channels
    moved = (values + outputs) * size
    shape = shapes.elementwise(outputs, max(values // outputs, 1), layer.window**2)
    pooled = Kernel("window", outputs * layer.window**2, moved, shape)
    return ChainLayer(layer.name, 0, (pooled,), (pooled,), outputs * size)


def _side(layer: Convolution | Pool) -> int:
    """Return the side of the output image."""
    return (layer.image + 2 * layer.padding - layer.window) // layer.stride + 1


def _convolution(convolution: Convolution, plan: Plan, *, is_first: bool) -> ChainLayer:
    """Return a convolution; gradients are products: pixels by filters, and filters by values of a window."""
    size, batch, side = plan.value_bytes, plan.batch, _side(convolution)
    pixels, inner = batch * side**2, convolution.window**2 * convolution.channels
    padded, window = convolution.image + 2 * convolution.padding, convolution.window
    values = pixels * convolution.filters
    weights = (
        inner * convolution.filters
        + (convolution.filters if convolution.bias else 0)
        + (2 * convolution.filters if convolution.norm else 0)
    )
    moved = (
        batch * convolution.image**2 * convolution.channels + inner * convolution.filters + values
    ) * size
    shape = shapes.convolution(
        (padded, padded),
        (window, window),
        convolution.channels,
        convolution.filters,
        (convolution.stride, convolution.stride),
        count=batch,
    )
    forward = [Kernel("convolution", 2 * values * inner, moved, shape)]
    backward = []
    if convolution.norm:
        forward.append(element_wise("norm", values, 7, 3, size))
        backward.append(element_wise("norm", values, 11, 5, size))
    if convolution.activation:
        forward.append(element_wise("activation", values, 1, 2, size))
        backward.insert(0, element_wise("activation", values, 1, 3, size))
    if not is_first:
        backward.append(_moving(product("inputs", pixels, inner, convolution.filters, size), moved))
    backward.append(_moving(product("weights", convolution.filters, inner, pixels, size), moved))
    kept = values * (2 if convolution.norm else 1)  # outputs, and inputs of the norm
    kept += batch * convolution.image**2 * convolution.channels if is_first else 0
    return ChainLayer(convolution.name, weights, tuple(forward), tuple(backward), kept * size)


def _moving(kernel: Kernel, moved: int) -> Kernel:
    """Return a kernel that reads values of overlapping windows once, not once for each window."""
    return replace(kernel, bytes=moved)


def make_convolution_training(network: ConvolutionNetwork, plan: Plan, name: str = "cnn") -> Workload:
    """Return the workload of one step."""
    layers = layers_of(network, plan)

    def step(rank: Rank) -> None:
        work = RankWork(rank, plan)
        replicas = Replicas(work)
        for number in range(plan.micro_batches):
            work.during = pass_label(Pass(Direction.FORWARD, number), 1)
            run_forward(work, layers, number)
            work.during = pass_label(Pass(Direction.BACKWARD, number), 1)
            run_backward(work, replicas, layers, number, is_last=number == plan.micro_batches - 1)
            replicas.flush()
        replicas.update()

    return make_workload(plan.axes, step, source=f"<{name}>")
