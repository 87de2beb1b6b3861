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
from et_sim.workloads.models.model import RECURRENCE, Experts, FeedForward, Model
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
    kind = model.kind(layer)
    values = kind.halves * model.half_norms * kept  # inputs of the norms
    inputs = kind.halves * kept  # of what comes after them, to be gathered again if they are spread
    size = kind.halves * kept * MASK_BYTES if model.has_dropout else 0
    spread, out = _of_mixer(model, layer)
    values += -(-layers.tokens * spread // plan.tensor)
    if recompute == "none" and model.has_attention(layer):
        size += _scores(Core.of(model, plan, model.window(layer)), plan.value_bytes, layers)
    if model.experts is not None and model.has_experts(layer):
        others, into = _of_experts(layers, model.experts)
    else:
        others, into = _feed_forward(layers, model.feed_forward) if kind.part else (0, 0)
    values, inputs = values + others, inputs + into
    if not plan.cast_to:
        return size + (values + inputs) * plan.value_bytes
    outputs = -(-layers.tokens * out // plan.tensor)  # as cast, too
    return size + values * plan.value_bytes + stored_bytes(inputs + outputs, plan.cast_to)


def _of_mixer(model: Model, layer: int) -> tuple[int, int]:
    """Of a token: values that attention, or a recurrence in its place, keeps; those that it gives."""
    attention, recurrence, mixer = model.attention, model.recurrence, model.kind(layer).mixer
    if mixer == RECURRENCE and recurrence is not None:  # before and after the convolution, and normalised
        return recurrence.inner + recurrence.channels + recurrence.values, recurrence.values
    if not mixer:
        return 0, 0
    outputs = attention.heads * attention.value_size
    each = attention.query_size + attention.value_size  # queries, outputs; keys, values
    kept = (attention.heads + attention.key_heads) * each
    return kept + attention.normed_size + 2 * outputs * attention.has_gate, outputs


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
    )
