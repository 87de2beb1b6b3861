"""A chain of layers, each of which needs the previous one: a rank's kernels forward and backward.

The gradients of a layer's weights are ready for the other replicas as soon as they are computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from et_sim.workloads.kernels import Kernel, element_wise, product
from et_sim.workloads.training.plan import Plan
from et_sim.workloads.training.replicas import Replicas
from et_sim.workloads.training.states import Tensors, Weights
from et_sim.workloads.training.work import RankWork


class ChainLayer(Struct, frozen=True):
    """Kernels in the order in which they run."""

    name: str
    weights: int
    forward: tuple[Kernel, ...]
    backward: tuple[Kernel, ...]
    left_bytes: int  # kept by the forward pass for the backward pass


def dense_layer(
    name: str, plan: Plan, inputs: int, outputs: int, *, is_activated: bool, needs_inputs: bool = True
) -> ChainLayer:
    """Return a dense layer with a bias; `needs_inputs`: a layer before it needs gradients."""
    size, rows = plan.value_bytes, plan.batch
    forward = [product("product", rows, outputs, inputs, size)]
    backward = []
    if is_activated:
        forward.append(element_wise("activation", rows * outputs, 1, 2, size))
        backward.append(element_wise("activation", rows * outputs, 1, 3, size))
    if needs_inputs:
        backward.append(product("inputs", rows, inputs, outputs, size))
    backward.append(product("weights", inputs, outputs, rows, size))
    kept = rows * (outputs + (0 if needs_inputs else inputs))  # a layer before keeps the inputs
    return ChainLayer(name, inputs * outputs + outputs, tuple(forward), tuple(backward), kept * size)


def run_forward(work: RankWork, layers: Sequence[ChainLayer], micro_batch: int) -> None:
    """Run the forward pass of all layers."""
    for layer in layers:
        since, work.where = len(work.kernels), layer.name
        for kernel in layer.forward:
            work.then(kernel)
        work.begin(since, writes=_left(layer, micro_batch))
    work.where = ""


def run_backward(
    work: RankWork, replicas: Replicas, layers: Sequence[ChainLayer], micro_batch: int, *, is_last: bool
) -> None:
    """Run the backward pass of all layers; `is_last`: the last micro-batch completes the gradients."""
    for layer in reversed(layers):
        since, work.where = len(work.kernels), layer.name
        for kernel in layer.backward:
            work.then(kernel)
        work.end(_left(layer, micro_batch))
        if layer.weights:
            weights = Weights(layer.name, layer.weights, 0)
            replicas.ready(weights, since, is_first=micro_batch == 0, is_last=is_last)
    work.where = ""


def _left(layer: ChainLayer, micro_batch: int) -> Tensors:
    """Return the tensor that a layer keeps for the backward pass."""
    return {f"activations:{layer.name}, micro-batch {micro_batch}": layer.left_bytes}
