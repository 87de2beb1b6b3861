"""Units of a piece of the model: the embedding, each layer and the head, with their activations.

A unit's weights are gathered and reduced together. The activations that its forward pass keeps for the
backward pass are one tensor; recomputed activations are another one.

Activations are counted as in Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
Models" (2022), section 4, for layers of any form. Inputs of products alone are kept as they were cast.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from et_sim.workloads.kernels import MASK_BYTES, stored_bytes
from et_sim.workloads.models.model import RECURRENCE, Experts, FeedForward, Model
from et_sim.workloads.training.again import outputs, parts_again
from et_sim.workloads.training.attention import Core
from et_sim.workloads.training.layers import LOGIT_BYTES, ModelLayers
from et_sim.workloads.training.parts import ModelPart
from et_sim.workloads.training.plan import Piece, Plan
from et_sim.workloads.training.recomputation import (
    ACTIVATION,
    CORE,
    FULL,
    MLA_UP,
    MLP,
    MOE,
    NORMS,
    NOTHING,
    OPERATORS,
    SHARED,
    is_chosen,
    modules_of,
    run_length,
)
from et_sim.workloads.training.states import Tensors, Weights


class Kept(Struct, frozen=True):
    """Values that a layer keeps, and the modules whose recomputation computes them again."""

    values: int
    modules: frozenset[str] = frozenset()
    is_input: bool = False  # only products read it
    is_cast: bool = False  # kept also in the datatype of products


def activation_bytes(layers: ModelLayers, layer: int, recompute: str | None = None) -> int:
    """Return the bytes that a micro-batch keeps in a layer until its backward pass.

    `recompute` replaces the plan's mode.
    """
    plan, model = layers.plan, layers.model
    kept, recompute = layers.kept_tokens * model.hidden, recompute or plan.computed_again
    if recompute == FULL:
        return kept * plan.value_bytes
    if recompute == OPERATORS:
        return (kept + _operator_values(layers)) * plan.value_bytes
    modules = modules_of(recompute)
    size = model.kind(layer).halves * kept * MASK_BYTES if layers.has_dropout else 0
    if CORE not in modules and model.has_attention(layer):
        size += _scores(Core.of(model, plan, model.window(layer)), plan.value_bytes, layers)
    left = [item for item in _kept(layers, layer) if not item.modules & modules]
    values, inputs = (
        sum(item.values for item in left if item.is_input is is_input) for is_input in (False, True)
    )
    if plan.lora_rank:  # values between the two products of an adapter, which are not cast
        adapters = sum(1 for _ in layers.adapters(layer))
        values += layers.tokens * plan.lora_rank * adapters
    if plan.lora_rank or not plan.cast_to or not plan.by.casts.kept:
        return size + (values + inputs) * plan.value_bytes
    cast = inputs + sum(item.values for item in left if item.is_cast)
    return size + values * plan.value_bytes + stored_bytes(cast, plan.cast_to)


def _kept(layers: ModelLayers, layer: int) -> Iterator[Kept]:
    """Yield all values that a layer keeps, without scores and masks of dropout."""
    plan, model = layers.plan, layers.model
    kind, kept = model.kind(layer), layers.kept_tokens * model.hidden
    yield Kept(kind.halves * model.half_norms * kept)  # inputs of the norms
    yield Kept(kind.halves * kept, frozenset({NORMS}), is_input=True)  # gathered again if they are spread
    spread, out = _of_mixer(model, layer)
    outputs = -(-layers.tokens * out // plan.tensor)
    yield Kept(-(-layers.tokens * spread // plan.tensor) - outputs, frozenset({MLA_UP}))
    yield Kept(outputs, is_cast=True)
    if model.experts is not None and model.has_experts(layer):
        yield from _of_experts(layers, model.experts)
    elif kind.part:
        yield from _feed_forward(layers, model.feed_forward, frozenset({MLP}))


def _of_mixer(model: Model, layer: int) -> tuple[int, int]:
    """Return the values that attention or a recurrence keeps for a token, and the number of its outputs."""
    attention, recurrence, mixer = model.attention, model.recurrence, model.kind(layer).mixer
    if mixer == RECURRENCE and recurrence is not None:  # before and after the convolution, and normalised
        return recurrence.inner + recurrence.channels + recurrence.values, recurrence.values
    if not mixer:
        return 0, 0
    outputs = attention.heads * attention.value_size
    each = attention.query_size + attention.value_size  # queries, outputs; keys, values
    kept = (attention.heads + attention.key_heads) * each
    return kept + attention.normed_size + 2 * outputs * attention.has_gate, outputs


def _operator_values(layers: ModelLayers) -> int:
    """Return the kept outputs of products and of attention."""
    attention, tokens = layers.model.attention, layers.tokens
    columns = sum(output.columns for output in outputs(layers) if output.is_kept)
    return tokens * columns + -(-tokens * attention.heads * attention.value_size // layers.plan.tensor)


def _feed_forward(
    layers: ModelLayers, part: FeedForward, modules: frozenset[str], copies: int = 1
) -> Iterator[Kept]:
    """Yield the inputs of the activation function, and its outputs, which only a product reads."""
    each = layers.tokens * copies
    whole, out = (each * size // layers.plan.tensor for size in (part.inner + part.width, part.width))
    yield Kept(whole - out, modules)
    yield Kept(out, modules | {ACTIVATION}, is_input=True)


def _of_experts(layers: ModelLayers, experts: Experts) -> Iterator[Kept]:
    """Yield the inputs, the intermediate values and the outputs that experts keep."""
    hidden, expert, sharers = layers.model.hidden, experts.expert, layers.plan.expert_tensor
    rows = sum(layers.rows_here(experts))
    outputs = 0 if layers.plan.fused_routing else hidden  # unfused, routing weights multiply them later
    yield from _feed_forward(layers, expert, frozenset({MOE, SHARED}), experts.shared)
    yield Kept(rows * (outputs + expert.inner // sharers), frozenset({MOE}))
    if expert.is_clipped and layers.by.experts.limits:
        yield Kept(rows * (expert.inner // sharers), frozenset({MOE, ACTIVATION}))
    yield Kept(rows * hidden, frozenset({MOE}), is_input=True)
    yield Kept(rows * (expert.width // sharers), frozenset({MOE, ACTIVATION}), is_input=True)


def _scores(core: Core, value_bytes: int, layers: ModelLayers) -> int:
    """Return the bytes of scores before and after softmax and dropout; 0 for fused attention."""
    plan, model = layers.plan, layers.model
    every = plan.batch * model.sequence**2 // plan.context * (model.attention.heads // plan.tensor)
    return every * (2 * value_bytes + (MASK_BYTES if layers.has_dropout else 0)) if not core.is_fused else 0


def head_bytes(layers: ModelLayers) -> int:
    """Return the bytes of the head in a micro-batch: scores of all words, and their inputs."""
    kept = layers.kept_tokens * layers.model.hidden * layers.plan.value_bytes
    return 2 * kept + layers.tokens * layers.vocabulary * LOGIT_BYTES


class Unit(Struct, frozen=True):
    """Parts of a model that run one after the other."""

    label: str  # in names of nodes
    weights: Weights
    parts: tuple[ModelPart, ...]
    tensor_class: str = ""
    left_bytes: int = 0  # kept by the forward pass of a micro-batch
    again_bytes: int = 0  # recomputed for the backward pass
    parts_again: tuple[ModelPart, ...] = ()  # parts that run again before the backward pass
    is_repeated: bool = False  # gradients of weights need recomputed values
    is_offloaded: bool = False  # kept activations wait in remote memory
    before: tuple[Unit, ...] = ()  # units that run again with it, ahead of it
    is_again_earlier: bool = False  # it ran again with a later unit

    def left(self, micro_batch: int) -> Tensors:
        """Return the tensor that the forward pass keeps."""
        name = f"{self.tensor_class}:{self.weights.name}, micro-batch {micro_batch}"
        return {name: self.left_bytes} if self.left_bytes else {}

    def needed(self, micro_batch: int) -> Tensors:
        """Return the same tensor in the backward pass, loaded if it waited in remote memory."""
        left = self.left(micro_batch)
        return {f"{name}, loaded": size for name, size in left.items()} if self.is_offloaded else left

    def again(self, micro_batch: int) -> Tensors:
        """Return the tensor of recomputed activations."""
        name = f"temporary:{self.weights.name} again, micro-batch {micro_batch}"
        return {name: self.again_bytes} if self.again_bytes else {}

    def worked_out(self, micro_batch: int) -> Tensors:
        """Return all tensors that are recomputed before the unit's backward pass."""
        units = () if self.is_again_earlier else (*self.before, self)
        return {name: size for unit in units for name, size in unit.again(micro_batch).items()}


def units_of(layers: ModelLayers, piece: Piece) -> tuple[Unit, ...]:
    """Return the units of a piece, in the order of the forward pass."""
    plan = layers.plan
    units = [
        _layer(layers, layer, plan.computed_again if is_chosen(plan.recompute_layers, number) else NOTHING)
        for number, layer in enumerate(piece.all_layers)
    ]
    length = run_length(plan.recompute_layers)
    units = [unit for at in range(0, len(units), length) for unit in _run(units[at : at + length])]
    if plan.offload_activations:  # the backward pass begins with the last one
        units[:-1] = [replace(unit, is_offloaded=True) for unit in units[:-1]]
    if piece.has_embedding:
        weights = Weights("embedding", layers.embedding_weights, 0, adapters=_none_trained(plan))
        units.insert(0, Unit("embedding", weights, layers.embedding()))
    if piece.has_head:
        units += [_further_tokens(layers, number) for number in range(layers.plan.mtp_layers)]
        weights = Weights("head", layers.head_weights, 0, adapters=_none_trained(plan))
        units.append(Unit("", weights, layers.head(), "temporary", head_bytes(layers)))
    return tuple(units)


def _run(units: list[Unit]) -> list[Unit]:
    """Return units that are recomputed together: the first keeps its input, the last recomputes all."""
    from_first = [
        replace(unit, left_bytes=0, again_bytes=unit.again_bytes + unit.left_bytes) for unit in units[1:]
    ]
    *earlier, last = (units[0], *from_first)
    gone = [replace(unit, parts_again=(), is_again_earlier=True) for unit in earlier]
    return [*gone, replace(last, before=tuple(earlier))]


def _none_trained(plan: Plan) -> int | None:
    return 0 if plan.lora_rank else None


def _layer(layers: ModelLayers, layer: int, recompute: str) -> Unit:
    name, left = f"layer {layer}", activation_bytes(layers, layer, recompute)
    return Unit(
        name,
        Weights(
            name,
            layers.dense_weights(layer),
            layers.expert_weights(layer),
            are_cast=bool(layers.plan.cast_to),
            adapters=layers.adapter_weights(layer) if layers.plan.lora_rank else None,
        ),
        layers.layer(layer),
        "activations",
        left,
        activation_bytes(layers, layer, NOTHING) - left,
        parts_again(layers, layer, recompute),
        _repeats_inputs(recompute),
    )


def _further_tokens(layers: ModelLayers, number: int) -> Unit:
    """Return a layer that predicts one more token, with the embedding and the head of the model.

    The outputs of the previous layer and the embedding of the next token, both normed, are projected
    together. The first such layer has a copy of the embedding, unless the rank has the embedding itself.
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
    joined = 3 * layers.kept_tokens * model.hidden * plan.value_bytes  # both, and outputs of their norms
    left, recompute = activation_bytes(layers, layer), plan.computed_again
    parts = (*layers.joining(), *layers.layer(layer), *layers.head())
    return Unit(
        name,
        weights,
        parts,
        "activations",
        left + joined + head_bytes(layers),
        activation_bytes(layers, layer, NOTHING) - left,
        parts if recompute == FULL else parts_again(layers, layer, recompute),
        _repeats_inputs(recompute),
    )


def _repeats_inputs(recompute: str) -> bool:
    """Return whether gradients of weights need recomputed values."""
    return recompute != NOTHING and modules_of(recompute) != {CORE}
