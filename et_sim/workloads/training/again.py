"""The parts of a layer that run again in its backward pass, and the outputs that are kept instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

from et_sim.basics.errors import FieldError
from et_sim.workloads.models.model import Model
from et_sim.workloads.training.attention import Core
from et_sim.workloads.training.layers import QUERIES_KEYS_VALUES, ModelLayers
from et_sim.workloads.training.parts import (
    GatheredProduct,
    Leave,
    ModelPart,
    Passing,
    Products,
    ReducedProduct,
    WeightProduct,
)
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
    modules_of,
)


def check_modules(model: Model, recompute: str) -> None:
    """Refuse modules that the model lacks."""
    experts, modules = model.experts, modules_of(recompute)
    dense = experts is None or experts.dense_layers > 0
    for name, exists in (
        (MLA_UP, model.attention.latent is not None),
        (MLP, dense),
        (MOE, experts is not None),
        (SHARED, experts is not None and experts.shared > 0),
    ):
        if name in modules and not exists:
            raise FieldError(f"`recompute` names {name}, which {model.name} lacks", remedy="leave it out")
    if recompute == OPERATORS and experts is not None:
        raise FieldError(
            f"`recompute` {OPERATORS} does not support experts, whose products are one operator:"
            f" {model.name}",
            remedy=f"give modules, as in {NORMS}+{MOE}, or {FULL}",
        )


def parts_again(layers: ModelLayers, layer: int, recompute: str) -> tuple[ModelPart, ...]:
    """Return the parts of a layer that run again, in the order of the forward pass."""
    parts = layers.layer(layer)
    if recompute in (NOTHING, FULL):
        return parts if recompute == FULL else ()
    if recompute == OPERATORS:
        return tuple(_between_kept(layers, parts))
    modules = modules_of(recompute)
    return tuple(part for part, of in _with_modules(layers, layer, parts) if of & modules)


def _name(part: ModelPart) -> str:
    if isinstance(part, GatheredProduct | ReducedProduct):
        return part.product.name
    if isinstance(part, Passing):
        return next((kernel.name for kernel in (*part.there, *part.back)), "")
    return str(getattr(part, "name", ""))


def _with_modules(
    layers: ModelLayers, layer: int, parts: Sequence[ModelPart]
) -> Iterator[tuple[ModelPart, set[str]]]:
    """Yield each part with the modules that it belongs to."""
    rest = MOE if layers.model.has_experts(layer) else MLP
    is_attention = True
    for part in parts:
        name = _name(part)
        of: set[str] = set()
        if isinstance(part, Core):
            of.add(CORE)
        elif name.endswith(" norm"):
            of.add(NORMS)
        elif is_attention and layers.model.attention.latent and name.endswith((" up", "rotary")):
            of.add(MLA_UP)
        elif not is_attention and not name.endswith(" sum"):
            of.add(rest)
            if name.startswith("shared expert"):
                of.add(SHARED)
            if name.endswith((" activation", " limits")):
                of.add(ACTIVATION)
        is_attention = is_attention and name != "attention sum"
        yield part, of


class Output(Struct, frozen=True):
    """Columns of a product that one operator computes."""

    name: str
    product: str  # name of the product; products of the same inputs may be one
    columns: int
    is_kept: bool


def outputs(layers: ModelLayers) -> list[Output]:
    """Return outputs of a dense layer; queries, keys and values are separate, and inputs of a gate, too.

    Every second one is recomputed. No output of products in fewer bits is kept: they are other operators.
    """
    model, tensor = layers.model, layers.plan.tensor
    attention, part = model.attention, model.feed_forward
    widths = [
        (name, name, columns if name.endswith("down") else columns // tensor)
        for name, _, columns in attention.projections(model.hidden)
    ]
    if attention.latent is None:
        counts = (attention.heads, attention.key_heads, attention.key_heads)
        widths = [
            (name, "qkv", heads * attention.head_size // tensor)
            for name, heads in zip(QUERIES_KEYS_VALUES, counts, strict=True)
        ]
    widths.append(("attention output", "attention output", model.hidden))
    inputs = ("feed-forward up", "feed-forward gate") if part.is_gated else ("feed-forward up",)
    widths += [(name, "feed-forward up", part.width // tensor) for name in inputs]
    widths.append(("feed-forward down", "feed-forward down", model.hidden))
    is_saved = not layers.plan.cast_to
    return [Output(*each, is_saved and not number % 2) for number, each in enumerate(widths)]


def _between_kept(layers: ModelLayers, parts: Sequence[ModelPart]) -> Iterator[ModelPart]:
    """Yield all parts but attention, kept outputs, and the last product and sum, which no gradient needs."""
    again: dict[str, int] = {}
    for output in outputs(layers):
        again[output.product] = again.get(output.product, 0) + (0 if output.is_kept else output.columns)
    kept = {output.name for output in outputs(layers) if output.is_kept}
    is_reduced = layers.plan.sequence_parallel
    for part in parts:
        name = _name(part)
        if name in ("feed-forward down", "feed-forward sum") or isinstance(part, Core | ReducedProduct):
            continue
        if isinstance(part, GatheredProduct):
            yield part.enter
        if isinstance(part, Products):
            yield from (product for product in part.products if product.name not in kept)
            continue
        if isinstance(part, WeightProduct | GatheredProduct):
            product = part.product if isinstance(part, GatheredProduct) else part
            if again.get(name, 0) and not (is_reduced and name == "attention output"):
                yield structs.replace(product, columns=again[name])
        elif not (isinstance(part, Leave) and (part.is_scattered or name != "attention")):
            yield part
