"""How much memory a stage of a plan needs: weights, gradients, states of the optimizer, and activations.

Activations are what the backward pass of a layer needs and the forward pass has: counted as in Korthikanti et
al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4, for layers of any
form. How many micro-batches a stage keeps follows from the order of its passes.

Not here: what kernels need while they run, and what an allocator loses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from et_sim.workloads.models.model import Experts, FeedForward
from et_sim.workloads.pipeline import Direction, Shape, schedule
from et_sim.workloads.training.attention import Core
from et_sim.workloads.training.layers import Layers
from et_sim.workloads.training.plan import Plan
from et_sim.workloads.training.replicas import sharing

MASK_BYTES = 1
LOGIT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one rank of a stage, at most at a time."""

    weights: int
    gradients: int
    optimizer: int
    activations: int  # of layers, until their backward pass
    temporary: int  # scores of all words, or of one layer what is worked out again, whichever is more

    @property
    def total(self) -> int:
        """All of them at once."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.temporary


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
    core = Core.of(model, plan)
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
    sent = layers.kept_tokens * experts.chosen
    found = sent * (2 * layers.model.hidden + _feed_forward(experts.expert))
    shared = experts.shared * _feed_forward(experts.expert)
    return found + layers.tokens * shared // layers.plan.tensor


def _scores(core: Core, value_bytes: int, layers: Layers) -> int:
    """Scores before and after softmax and dropout, where they are written and kept."""
    plan, model = layers.plan, layers.model
    every = plan.batch * model.sequence**2 // plan.context * (model.attention.heads // plan.tensor)
    return every * (2 * value_bytes + (MASK_BYTES if model.has_dropout else 0)) if core.score_passes else 0


def memory(layers: Layers, place: int) -> Memory:
    """Of a rank at a place along the pipeline."""
    plan = layers.plan
    dense = expert = 0
    for chunk in range(plan.chunks):
        piece = plan.part(layers.model, place, chunk)
        dense += sum(layers.dense_weights(layer) for layer in piece.all_layers)
        expert += sum(layers.expert_weights(layer) for layer in piece.all_layers)
        dense += layers.embedding_weights * piece.has_embedding + layers.head_weights * piece.has_head
    shares = [plan.axes.size(*one.shares) if one.shares else 1 for one in sharing(plan)]

    def bytes_of(each: int, shared_from: int) -> int:
        is_shared = plan.zero >= shared_from
        return sum(
            -(-count // (share if is_shared else 1)) * each
            for count, share in zip((dense, expert), shares, strict=True)
        )

    return Memory(
        weights=bytes_of(plan.value_bytes, 3),
        gradients=bytes_of(plan.gradient_bytes, 2),
        optimizer=bytes_of(plan.master_bytes, 1),
        activations=_most_activations(layers, place),
        temporary=max(_logits(layers, place), _worked_out_again(layers, place)),
    )


def _logits(layers: Layers, place: int) -> int:
    """Scores of all words, and what they are made from, of all micro-batches that wait for their way back."""
    plan = layers.plan
    kept = layers.kept_tokens * layers.model.hidden * plan.value_bytes
    each = 2 * kept + layers.tokens * layers.vocabulary * LOGIT_BYTES
    has_head = [plan.part(layers.model, place, chunk).has_head for chunk in range(plan.chunks)]
    return _most_kept(plan, place, [each * has for has in has_head])


def _worked_out_again(layers: Layers, place: int) -> int:
    """The most that one layer lacks of what its backward pass needs."""
    plan = layers.plan
    of_place = [plan.part(layers.model, place, chunk).all_layers for chunk in range(plan.chunks)]
    lacking = (
        activation_bytes(layers, layer, "none") - activation_bytes(layers, layer)
        for numbers in of_place
        for layer in numbers
    )
    return max(lacking, default=0)


def _most_activations(layers: Layers, place: int) -> int:
    """The most that micro-batches leave behind in layers at a time."""
    of_chunk = [_of_chunk(layers, place, chunk) for chunk in range(layers.plan.chunks)]
    return _most_kept(layers.plan, place, of_chunk)


def _most_kept(plan: Plan, place: int, of_chunk: Sequence[int]) -> int:
    """The most that is kept at a time if each forward pass leaves so much, by the order of the passes."""
    passes = schedule(plan.schedule, Shape(plan.pipeline, plan.micro_batches, plan.chunks))
    kept = most = 0
    for one in passes(place):
        if one.direction is Direction.FORWARD:
            kept += of_chunk[one.chunk]
            most = max(most, kept)
        elif one.direction is not Direction.INPUTS:
            kept -= of_chunk[one.chunk]
    return most


def _of_chunk(layers: Layers, place: int, chunk: int) -> int:
    """One micro-batch in one piece of the model."""
    piece = layers.plan.part(layers.model, place, chunk)
    return sum(activation_bytes(layers, layer) for layer in piece.all_layers)


def stages(layers: Layers) -> Sequence[Memory]:
    """Of every place along the pipeline."""
    return [memory(layers, place) for place in range(layers.plan.pipeline)]
