"""Activations: what the backward pass of a layer needs and the forward pass has.

Counted as in Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022),
section 4, for layers of any form.

Not here: what kernels need while they run, and what an allocator loses.
"""

from __future__ import annotations

from et_sim.workloads.kernels import MASK_BYTES
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
    values += 2 * kept  # and of what comes after them, to be gathered again if they are spread
    found = 2 * kept * MASK_BYTES if model.has_dropout else 0
    core = Core.of(model, plan, model.window(layer))
    spread = attention.heads * (attention.query_size + attention.value_size)  # queries, outputs
    spread += attention.key_heads * (attention.query_size + attention.value_size)
    values += -(-layers.tokens * spread // plan.tensor)
    if recompute == "none":
        found += _scores(core, plan.value_bytes, layers)
    if model.experts is not None and model.has_experts(layer):
        values += _of_experts(layers, model.experts)
    else:
        values += layers.tokens * _feed_forward(model.feed_forward) // plan.tensor
    return found + values * plan.value_bytes


def _feed_forward(part: FeedForward) -> int:
    """Values for each token: what goes into the activation function, and what comes out."""
    return part.inner + part.width


def _of_experts(layers: Layers, experts: Experts) -> int:
    """Tokens as the experts get them, and what the experts make of them."""
    uneven = layers.tokens_here(experts)
    sent = sum(uneven) if uneven else layers.kept_tokens * experts.chosen
    found = sent * (2 * layers.model.hidden + _feed_forward(experts.expert))
    shared = experts.shared * _feed_forward(experts.expert)
    return found + layers.tokens * shared // layers.plan.tensor


def _scores(core: Core, value_bytes: int, layers: Layers) -> int:
    """Scores before and after softmax and dropout, where they are written and kept."""
    plan, model = layers.plan, layers.model
    every = plan.batch * model.sequence**2 // plan.context * (model.attention.heads // plan.tensor)
    return every * (2 * value_bytes + (MASK_BYTES if model.has_dropout else 0)) if not core.is_fused else 0


def head_bytes(layers: Layers) -> int:
    """Scores of all words, and what they are made from, of one micro-batch."""
    kept = layers.kept_tokens * layers.model.hidden * layers.plan.value_bytes
    return 2 * kept + layers.tokens * layers.vocabulary * LOGIT_BYTES
