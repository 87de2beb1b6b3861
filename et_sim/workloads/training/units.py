"""Units of a piece of the model: the embedding, each layer, the head, with what a micro-batch leaves in them.

A unit's weights are gathered and reduced together. What its forward pass leaves for the way back is one
tensor; so is what is worked out again there.
"""

from __future__ import annotations

from typing import NamedTuple

from et_sim.workloads.training.activations import activation_bytes, head_bytes
from et_sim.workloads.training.layers import Layers
from et_sim.workloads.training.parts import Part
from et_sim.workloads.training.plan import Part as Piece
from et_sim.workloads.training.states import Tensors, Weights


class Unit(NamedTuple):
    """Parts of a model that run one after the other."""

    label: str  # in names of nodes
    weights: Weights
    parts: tuple[Part, ...]
    tensor_class: str = ""
    left_bytes: int = 0  # by the forward pass of a micro-batch
    again_bytes: int = 0  # that it does not leave, and the backward pass needs
    is_repeated: bool = False  # the whole forward pass is, before the backward pass

    def left(self, micro_batch: int) -> Tensors:
        """What the way back needs of the forward pass."""
        name = f"{self.tensor_class}:{self.weights.name}, micro-batch {micro_batch}"
        return {name: self.left_bytes} if self.left_bytes else {}

    def again(self, micro_batch: int) -> Tensors:
        """What is worked out again."""
        name = f"temporary:{self.weights.name} again, micro-batch {micro_batch}"
        return {name: self.again_bytes} if self.again_bytes else {}


def units_of(layers: Layers, piece: Piece) -> tuple[Unit, ...]:
    """Those of a piece, in the order of the forward pass."""
    found = [_layer(layers, layer) for layer in piece.all_layers]
    if piece.has_embedding:
        weights = Weights("embedding", layers.embedding_weights, 0)
        found.insert(0, Unit("embedding", weights, layers.embedding()))
    if piece.has_head:
        weights = Weights("head", layers.head_weights, 0)
        found.append(Unit("", weights, layers.head(), "temporary", head_bytes(layers)))
    return tuple(found)


def _layer(layers: Layers, layer: int) -> Unit:
    name, left = f"layer {layer}", activation_bytes(layers, layer)
    return Unit(
        name,
        Weights(
            name,
            layers.dense_weights(layer),
            layers.expert_weights(layer),
            are_cast=bool(layers.plan.cast_to),
        ),
        layers.layer(layer),
        "activations",
        left,
        activation_bytes(layers, layer, "none") - left,
        layers.plan.recompute == "full",
    )
