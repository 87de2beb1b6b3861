"""Adapters of low rank beside products with weights (LoRA), of which each sequence uses one.

A product of a layer has an adapter for each matrix that it has in the model's file: queries, keys and values
have one each, and so have the two parts of a gated product. An adapter is a product into its rank, and one
out of it, which adds to the outputs. The sequences of a batch use different adapters in the same kernels;
weights of an adapter are read if a sequence uses it.

Routers and routed experts have none, nor have indexes, nor the expansion of compressed keys and values, whose
weights single tokens use in another order. A tensor-parallel rank has its share of a product's inputs or
outputs, and the whole rank of the adapter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from et_sim.trace import shapes
from et_sim.workloads.inference.batch import Batch
from et_sim.workloads.inference.memory import Matrix, adapted_matrices, parts_of
from et_sim.workloads.inference.mixers import BOTH_DOWN, KEY_VALUE_DOWN, QUERY_DOWN
from et_sim.workloads.kernels import Kernel
from et_sim.workloads.models.model import Model
from et_sim.workloads.training.plan import Plan

JOINED = {BOTH_DOWN: (QUERY_DOWN, KEY_VALUE_DOWN)}  # matrices of one product, each with its adapter


def adapters_in_use(plan: Plan, sequences: int) -> int:
    """Return the mean number of adapters that sequences use, each of which has one of all by chance."""
    count = max(plan.adapters, 1)
    return max(round(count * (1 - (1 - 1 / count) ** sequences)), 1)


def with_adapters(
    kernels: Iterable[Kernel], model: Model, plan: Plan, batch: Batch, layer: int
) -> Iterator[Kernel]:
    """Yield kernels of a layer, each followed by those of its adapters."""
    known = {matrix.name: matrix for matrix in adapted_matrices(model, plan, layer)}
    used = adapters_in_use(plan, batch.prefill.segments + batch.decode.segments)
    for kernel in kernels:
        yield kernel
        for name in JOINED.get(kernel.name, (kernel.name,)):
            if name in known:
                yield from _kernels(known[name], plan, batch.tokens, used, parts_of(known[name], model))


def _kernels(matrix: Matrix, plan: Plan, tokens: int, used: int, parts: int) -> Iterator[Kernel]:
    """Yield the products into the rank, and out of it; operations and bytes are exact."""
    rank, size = plan.lora_rank, plan.value_bytes
    inner, middle, outer = matrix.inputs, parts * rank, matrix.outputs
    rows = -(-tokens // used)
    moved = tokens * (inner + middle) + used * inner * middle
    shape = shapes.gemm(rows, middle, inner, count=used)
    operations = 2 * tokens * inner * middle
    yield Kernel(f"{matrix.name} adapter in", operations, moved * size, shape).cold()
    moved = tokens * (middle + 2 * outer) + used * rank * outer
    shape = shapes.gemm(rows, outer, rank, count=used)
    operations = 2 * tokens * rank * outer + tokens * outer
    yield Kernel(f"{matrix.name} adapter out", operations, moved * size, shape).cold()
