"""Units of a piece of the model: the embedding, each layer, the head, with what a micro-batch leaves in them.

A unit's weights are gathered and reduced together. What its forward pass leaves for the way back is one
tensor; so is what is worked out again there.

Activations: what the backward pass of a layer needs and the forward pass has. Counted as in Korthikanti et
al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4, for layers of any
form. What goes into products only is kept as it was cast for them, if it was.
"""

from __future__ import annotations

from typing import NamedTuple

from et_sim.workloads.kernels import MASK_BYTES, stored_bytes
from et_sim.workloads.models.model import Experts, FeedForward
from et_sim.workloads.training.attention import Core
from et_sim.workloads.training.layers import LOGIT_BYTES, Layers
from et_sim.workloads.training.parts import ModelPart
from et_sim.workloads.training.plan import Piece
from et_sim.workloads.training.states import Tensors, Weights


def activation_bytes(layers: Layers, layer: int, recompute: str | None = None) -> int:
    """What one micro-batch leaves in a layer until its backward pass; `recompute`: if not the plan's."""
    plan, model = layers.plan, layers.model
    kept, recompute = layers.kept_tokens * model.hidden, recompute or plan.recompute
    if recompute == "full":
        return kept * plan.value_bytes
    attention = model.attention
    values = 2 * kept  # inputs of the two norms
    inputs = 2 * kept  # of what comes after them, to be gathered again if they are spread
    size = 2 * kept * MASK_BYTES if model.has_dropout else 0
    core = Core.of(model, plan, model.window(layer))
    spread = attention.heads * (attention.query_size + attention.value_size)  # queries, outputs
    spread += attention.key_heads * (attention.query_size + attention.value_size)
    values += -(-layers.tokens * spread // plan.tensor)
    if recompute == "none":
        size += _scores(core, plan.value_bytes, layers)
    if model.experts is not None and model.has_experts(layer):
        others, into = _of_experts(layers, model.experts)
    else:
        others, into = _feed_forward(layers, model.feed_forward)
    values, inputs = values + others, inputs + into
    if not plan.cast_to:
        return size + (values + inputs) * plan.value_bytes
    outputs = -(-layers.tokens * attention.heads * attention.value_size // plan.tensor)  # as cast, too
    return size + values * plan.value_bytes + stored_bytes(inputs + outputs, plan.cast_to)


def _feed_forward(layers: Layers, part: FeedForward, copies: int = 1) -> tuple[int, int]:
    """What goes into the activation function, and what comes out, which goes into a product."""
    each = layers.tokens * copies
    whole, out = (each * size // layers.plan.tensor for size in (part.inner + part.width, part.width))
    return whole - out, out


def _of_experts(layers: Layers, experts: Experts) -> tuple[int, int]:
    """Tokens as the experts get them, and what the experts make of them; what goes into products."""
    hidden, expert, sharers = layers.model.hidden, experts.expert, layers.plan.expert_tensor
    rows = sum(layers.rows_here(experts))
    others, into = _feed_forward(layers, expert, experts.shared)
    outputs = 0 if layers.plan.fused_routing else hidden  # which weights are multiplied with
    return (
        others + rows * (outputs + expert.inner // sharers),
        into + rows * (hidden + expert.width // sharers),
    )


def _scores(core: Core, value_bytes: int, layers: Layers) -> int:
    """Scores before and after softmax and dropout, where they are written and kept."""
    plan, model = layers.plan, layers.model
    every = plan.batch * model.sequence**2 // plan.context * (model.attention.heads // plan.tensor)
    return every * (2 * value_bytes + (MASK_BYTES if model.has_dropout else 0)) if not core.is_fused else 0


def head_bytes(layers: Layers) -> int:
    """Scores of all words, and what they are made from, of one micro-batch."""
    kept = layers.kept_tokens * layers.model.hidden * layers.plan.value_bytes
    return 2 * kept + layers.tokens * layers.vocabulary * LOGIT_BYTES


class Unit(NamedTuple):
    """Parts of a model that run one after the other."""

    label: str  # in names of nodes
    weights: Weights
    parts: tuple[ModelPart, ...]
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
    units = [_layer(layers, layer) for layer in piece.all_layers]
    if piece.has_embedding:
        weights = Weights("embedding", layers.embedding_weights, 0)
        units.insert(0, Unit("embedding", weights, layers.embedding()))
    if piece.has_head:
        units += [_further_tokens(layers, number) for number in range(layers.plan.mtp_layers)]
        weights = Weights("head", layers.head_weights, 0)
        units.append(Unit("", weights, layers.head(), "temporary", head_bytes(layers)))
    return tuple(units)


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


def _further_tokens(layers: Layers, number: int) -> Unit:
    """A layer that predicts one more token, with the embedding and the head of the model.

    What the layer before gives and the embedding of the next token, both normed, are projected together. The
    first one has a copy of the embedding, unless the rank has the embedding itself.
    """
    model, plan = layers.model, layers.plan
    name, layer = f"further token {number}", model.layers - 1
    dense = layers.dense_weights(layer) + layers.joining_weights
    is_far = number == 0 and plan.parts > 1 and not plan.is_dual
    weights = Weights(
        name,
        dense + is_far * layers.embedding_weights,
        layers.expert_weights(layer),
        are_cast=bool(plan.cast_to),
    )
    joined = 3 * layers.kept_tokens * model.hidden * plan.value_bytes  # both, and what their norms give
    left = activation_bytes(layers, layer) + joined + head_bytes(layers)
    again = activation_bytes(layers, layer, "none") - activation_bytes(layers, layer)
    parts = (*layers.joining(), *layers.layer(layer), *layers.head())
    return Unit(name, weights, parts, "activations", left, again, plan.recompute == "full")
