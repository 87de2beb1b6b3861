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
    if recompute == "none" or not plan.by.repeats("attention"):
        size += _scores(core, plan.value_bytes, layers)
    if model.experts is not None and model.has_experts(layer):
        others, into = _of_experts(layers, model.experts)
    else:
        others, into = _feed_forward(layers, model.feed_forward)
    values, inputs = values + others, inputs + into
    if recompute == "selective":
        values, inputs = values - _keys_again(layers), inputs - _inputs_again(layers, layer)
        values -= _gate_again(layers, layer)
    if not plan.cast_to or not plan.by.casts.kept:
        return size + (values + inputs) * plan.value_bytes
    outputs = -(-layers.tokens * attention.heads * attention.value_size // plan.tensor)  # as cast, too
    return size + values * plan.value_bytes + stored_bytes(inputs + outputs, plan.cast_to)


def _keys_again(layers: Layers) -> int:
    """Return the values of keys, if the product that gives them is run again."""
    attention = layers.model.attention
    count = layers.tokens * attention.key_heads * attention.query_size // layers.plan.tensor
    return count if layers.plan.by.repeats("keys") and layers.are_apart else 0


def _inputs_again(layers: Layers, layer: int) -> int:
    """Return the values that products read and that are worked out again: of norms and activations."""
    by, model = layers.plan.by, layers.model
    norms = 2 * layers.kept_tokens * model.hidden if by.repeats("norm") else 0
    if model.has_experts(layer) or not by.repeats("activation"):
        return norms
    return norms + _feed_forward(layers, model.feed_forward)[1]


def _gate_again(layers: Layers, layer: int) -> int:
    """Return the values of the gate, if the product that gives them is run again."""
    model, by = layers.model, layers.plan.by
    if model.has_experts(layer) or not (layers.are_apart and by.repeats("gate")):
        return 0
    others, into = _feed_forward(layers, model.feed_forward)
    return others - into


def _feed_forward(layers: Layers, part: FeedForward, copies: int = 1) -> tuple[int, int]:
    """What goes into the activation function, and what comes out, which goes into a product."""
    each = layers.tokens * copies
    whole, out = (each * size // layers.plan.tensor for size in (part.inner + part.width, part.width))
    return whole - out, out


def _of_experts(layers: Layers, experts: Experts) -> tuple[int, int]:
    """Tokens as the experts get them, and what the experts make of them; what goes into products."""
    uneven, hidden, expert = layers.tokens_here(experts), layers.model.hidden, experts.expert
    sent = sum(uneven) if uneven else layers.kept_tokens * experts.chosen
    others, into = _feed_forward(layers, expert, experts.shared)
    return others + sent * (hidden + expert.inner), into + sent * (hidden + expert.width)


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
    repeated: tuple[ModelPart, ...] = ()  # parts of it that are

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
        layers.again(layer),
    )
