"""Numbers of forward passes: formats of weights by layer and product, and the type of the cache.

A plan's numbers replace those of the model's file: `products` those of all products with weights,
`expert_products` those of routed experts. Routers and the head compute with values.

The kernel before a product casts its inputs as it writes them, so that casts have no kernels of their own.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import FieldError
from et_sim.basics.kernel_names import BLOCK_SCALES, NARROW_WEIGHTS
from et_sim.trace import shapes
from et_sim.workloads.kernels import Kernel, product
from et_sim.workloads.models.formats import EXPERT_PRODUCTS, FORMATS, PRODUCT_NAMES, LayerFormats
from et_sim.workloads.models.model import Model
from et_sim.workloads.training.plan import Plan
from et_sim.workloads.training.plan_options import AS_VALUES
from et_sim.workloads.training.value_types import CACHE_BITS

FEWEST_MULTIPLIED = 8  # bits that all devices with formats of few bits multiply in


class LayerNumbers(Struct, frozen=True):
    """The numbers of one layer's products with weights."""

    formats: LayerFormats
    value_bytes: int
    types: tuple[str, ...] = ()  # that the device multiplies in; (): all

    @staticmethod
    def of(model: Model, plan: Plan, layer: int) -> LayerNumbers:
        """Return the numbers of a layer under a plan."""
        formats = model.formats_of(layer)
        for names, word in (
            (PRODUCT_NAMES, plan.products),
            (EXPERT_PRODUCTS, plan.expert_products),
        ):
            if word:
                formats = formats.changed(names, FORMATS.get(word))
        return LayerNumbers(formats, plan.value_bytes, plan.types)

    def stored_bytes(self, name: str, outputs: int, inputs: int) -> int:
        """Return the bytes of a product's weights."""
        form = self.formats.of(name)
        return outputs * inputs * self.value_bytes if form is None else form.bytes(outputs, inputs)

    def experts_product(
        self, name: str, rows: int, columns: int, inner: int, experts: int, shared_rows: int = 0
    ) -> Kernel:
        """Return the product of several experts, each with as many rows, in one kernel.

        `shared_rows`: those of one more expert, the shared one.
        Where devices lack the numbers of mxfp4, engines run kernels whose weights cost their bytes alone: by
        default, TensorRT-LLM runs Triton's on Hopper (its guide to gpt-oss, moe_config.backend).
        """
        form, word = self.formats.of(name), ""
        if form is not None and not form.computes:
            word = NARROW_WEIGHTS
        elif self.has_block_scales(name):
            word = BLOCK_SCALES
        kernel = self.product(name, rows, columns, inner, experts)
        shape = shapes.grouped_gemm(columns, inner, [rows], count=experts, kernel=word)
        if shared_rows:
            own = self.product(name, shared_rows, columns, inner)
            operations, size = kernel.operations + own.operations, kernel.bytes + own.bytes
            kernel = replace(kernel, operations=operations, bytes=size)
            shape = shapes.grouped_gemm(columns, inner, [*[rows] * experts, shared_rows], kernel=word)
        return replace(kernel, shape=shape)

    def product(
        self, name: str, rows: int, columns: int, inner: int, copies: int = 1, *, like: str = ""
    ) -> Kernel:
        """Return a product with weights in the largest memory; `like` names the product whose they are."""
        form = self.formats.of(like or name)
        word = BLOCK_SCALES if copies == 1 and self.has_block_scales(like or name) else ""
        kernel = product(name, rows, columns, inner, self.value_bytes, copies, word).cold()
        if form is None:
            return kernel
        is_computed = form.is_computed(self.types)
        inputs = form.input_bytes(rows, inner) if is_computed else rows * inner * self.value_bytes
        size = inputs + form.bytes(columns, inner) + rows * columns * self.value_bytes
        return replace(kernel, bytes=copies * size, dtype=form.computes if is_computed else "")

    def has_block_scales(self, name: str) -> bool:
        """Return whether a product multiplies numbers with scales of blocks, in their own datatype."""
        form = self.formats.of(name)
        return form is not None and bool(form.block[1]) and form.is_computed(self.types)


def cache_type(model: Model, plan: Plan) -> str:
    """Return the type of cached keys and values; empty: that of values."""
    word = plan.cache_type or model.cache_type
    return "" if word == AS_VALUES else word


def cache_bits(model: Model, plan: Plan) -> int:
    """Return the bits of a cached value."""
    word = cache_type(model, plan)
    return CACHE_BITS[word] if word else 8 * plan.value_bytes


def check_cache_type(model: Model, plan: Plan, types: Collection[str], device: str) -> None:
    """Refuse a cache in numbers that a device lacks; without types, none is refused."""
    word = cache_type(model, plan)
    if types and word and word not in types:
        source = "`cache_type`" if plan.cache_type else f"the file of {model.name}"
        raise FieldError(
            f"keys and values are cached in {word} by {source}, but {device} computes in {', '.join(types)}",
            remedy="give `cache_type` values, or choose another machine",
        )


def unpacks_weights(model: Model, plan: Plan) -> bool:
    """Return whether products have weights of less than 8 bits that the device does not multiply in."""
    return any(
        form.bits < FEWEST_MULTIPLIED and not form.is_computed(plan.types)
        for layer in range(model.layers)
        for _, form in LayerNumbers.of(model, plan, layer).formats.products
    )
