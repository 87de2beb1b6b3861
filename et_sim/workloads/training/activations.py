"""Activations: what the backward pass of a layer needs and the forward pass has.

Counted as in Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022),
section 4, for layers of any form. What goes into products only is kept as it was cast for them, if it was.

Not here: what kernels need while they run, and what an allocator loses.
"""

from __future__ import annotations

from et_sim.workloads.kernels import MASK_BYTES, stored_bytes
from et_sim.workloads.models.model import Experts, FeedForward
from et_sim.workloads.training.attention import Core
from et_sim.workloads.training.layers import LOGIT_BYTES, Layers


def activation_bytes(layers: Layers, layer: int, recompute: str | None = None) -> int:
    """What one micro-batch leaves in a layer until its backward pass; `recompute`: if not the plan's."""
    plan, model = layers.plan, layers.model
    kept, recompute = layers.kept_tokens * model.hidden, recompute or plan.recompute
    if recompute == "full":
        return kept * plan.value_bytes
    attention = model.attention
    values = 2 * kept  # inputs of the two norms
    inputs = 2 * kept  # of what comes after them, to be gathered again if they are spread
    found = 2 * kept * MASK_BYTES if model.has_dropout else 0
    core = Core.of(model, plan, model.window(layer))
    spread = attention.heads * (attention.query_size + attention.value_size)  # queries, outputs
    spread += attention.key_heads * (attention.query_size + attention.value_size)
    values += -(-layers.tokens * spread // plan.tensor)
    if recompute == "none":
        found += _scores(core, plan.value_bytes, layers)
    if model.experts is not None and model.has_experts(layer):
        others, into = _of_experts(layers, model.experts)
    else:
        others, into = _feed_forward(layers, model.feed_forward)
    values, inputs = values + others, inputs + into
    if not plan.cast_to:
        return found + (values + inputs) * plan.value_bytes
    outputs = -(-layers.tokens * attention.heads * attention.value_size // plan.tensor)  # as cast, too
    return found + values * plan.value_bytes + stored_bytes(inputs + outputs, plan.cast_to)


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
