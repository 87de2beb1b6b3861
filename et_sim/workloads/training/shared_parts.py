"""Parts that several layers of a model share: products, norms, sums, and exchanges of tensor-parallel ranks.

Each has the kernels of the plan's software.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from et_sim.workloads.kernels import MASK_BYTES, RMS_NORM, Kernel, norm, passing, stored_bytes, strided
from et_sim.workloads.models.model import FeedForward
from et_sim.workloads.software.description import BothWays, KernelPass, Software, is_named
from et_sim.workloads.training.parts import (
    Enter,
    Leave,
    LowRank,
    ModelPart,
    Passing,
    Products,
    WeightProduct,
    overlapped,
)
from et_sim.workloads.training.rank_tokens import RankTokens

ROUTER, HEAD = "router", "head"


class SharedParts(RankTokens, frozen=True):
    """Parts of layers on a rank, by the plan and its software."""

    @property
    def activation_bytes(self) -> int:
        """Return the bytes that a layer passes to the next one, on all its tensor-parallel ranks together."""
        return self.tokens * self.model.hidden * self.plan.value_bytes

    @property
    def has_dropout(self) -> bool:
        """Return whether the model has dropout and the plan keeps it."""
        return self.model.has_dropout and self.plan.dropout

    @property
    def vocabulary(self) -> int:
        """Return the rows of the embedding on a rank."""
        return -(-self.model.vocabulary // self.plan.tensor)

    @property
    def by(self) -> Software:
        """Return the software that runs the layers."""
        return self.plan.by

    def _unfused(self, name: str, values: int, operations: int, ways: BothWays) -> Passing:
        """Return the kernels of a part that the software does not fuse."""
        size = self.plan.value_bytes

        def kernels(way: KernelPass) -> Iterator[Kernel]:
            for part in way.parts():
                if part.strided:
                    yield strided(f"{name} strided", values, part.strided, size, part.launches)
                else:
                    yield passing(name, values, part.bytes(size), operations, part.launches)

        return Passing(tuple(kernels(ways.forward)), tuple(kernels(ways.backward)))

    def _norm(self, name: str) -> Passing:
        model, size = self.model, self.plan.value_bytes
        has_shift = model.norm_vectors > 1
        if self.by.element_wise.rms_norm and not has_shift:
            values = self.kept_tokens * model.hidden
            return self._unfused(name, values, RMS_NORM, self.by.element_wise.rms_norm)
        forward, backward = norm(name, self.kept_tokens, model.hidden, size, has_shift=has_shift)
        if self.plan.lora_rank:  # without the kernel of scale and shift, which reads inputs and gradients
            operations, moved = backward.operations // 2, backward.bytes - forward.bytes
            backward = replace(backward, operations=operations, bytes=moved, launches=1)
        return Passing((forward,), (backward,))

    def _sum(self, name: str, *, has_bias: bool) -> Passing:
        """Return the kernel that adds the outputs of a part, with bias and dropout, to its inputs.

        Backward, the gradients of the sum, of dropout and of the bias are separate kernels.
        """
        size, drops = self.plan.value_bytes, self.has_dropout
        values = self.kept_tokens * self.model.hidden
        dropout = self.by.element_wise.dropout if drops else None
        apart, more = (dropout.bytes(size), dropout.launches) if dropout else (0, 0)
        each = 3 * size + drops * MASK_BYTES + apart
        forward = passing(name, values, each, 1 + has_bias + 2 * drops, 1 + more)
        has_bias = has_bias and not self.plan.lora_rank
        moved = 3 * size + drops * (2 * size + MASK_BYTES) + has_bias * size
        backward = passing(name, values, moved, 1 + has_bias + drops, 1 + drops + has_bias)
        return Passing((forward,), (backward,))

    def _product(
        self,
        name: str,
        columns: int,
        inner: int,
        *,
        rows: int | None = None,
        copies: int = 1,
        gathers: int = 0,
        groups: tuple[int, ...] = (),
    ) -> WeightProduct | LowRank:
        """Return a product, cast unless the software excludes it, and with adapters where LoRA has them."""
        plan = self.plan
        product = WeightProduct(
            name,
            self.tokens if rows is None else rows,
            columns,
            inner,
            plan.value_bytes,
            copies,
            gathers,
            groups,
            "" if is_named(name, self.by.casts.wide_products) else plan.cast_to,
            arrives=self._arrives(name, inner),
            is_frozen=plan.lora_rank > 0,
        )
        if not plan.lora_rank or name in (ROUTER, HEAD) or name.startswith("experts "):
            return product
        return LowRank.of(product, plan.lora_rank)

    def _enters(self, name: str, inner: int) -> bool:
        """Return whether tensor-parallel ranks gather the inputs of a product."""
        return inner == self.model.hidden and name not in (ROUTER, HEAD) and not name.startswith("experts ")

    def _arrives(self, name: str, inner: int) -> str:
        """Return the tensor of a product that is gathered after a cast along rows; empty if there is none."""
        if not self._gathers_cast:
            return ""
        if self._enters(name, inner):
            return "inputs"
        leaves = name in ("attention output", "recurrence out") or name.endswith(" down")
        return "gradients" if leaves and not name.startswith("experts ") else ""

    def _products(self, names: tuple[str, ...], columns: tuple[int, ...], gathers: int) -> Products:
        """Return products of the same inputs; the first one gathers the inputs again for its gradients."""
        hidden, size = self.model.hidden, self.plan.value_bytes
        products = tuple(
            self._product(name, width, hidden, gathers=0 if at else gathers)
            for at, (name, width) in enumerate(zip(names, columns, strict=True))
        )
        count = len(names)
        passes, launches = (count + 1, 1) if self.by.sums_fused else (3 * (count - 1), count - 1)
        values = self.tokens * hidden
        return Products(products, passing(f"{names[0]} sums", values, passes * size, count - 1, launches))

    @property
    def are_apart(self) -> bool:
        """Return whether products of the same inputs are separate; in overlapped chunks they are not."""
        return self.by.splits_products and self.plan.tensor_overlap == 1

    def _enter(self, name: str, into: str = "") -> Enter:
        """Return the entry into tensor-parallel products; `into` names the first of them."""
        datatype = self.plan.cast_to if self._gathers_cast and name != HEAD else ""
        is_cast_before = bool(datatype) and is_named(into or name, self.by.casts.fused)
        is_spread = self.plan.sequence_parallel
        return Enter(name, self.activation_bytes, is_spread, datatype, is_cast_before)

    @property
    def _gathers_cast(self) -> bool:
        """Return whether tensor-parallel ranks cast their shares of inputs before they gather them."""
        plan = self.plan
        return plan.sequence_parallel and bool(plan.cast_to) and self.by.casts.exchanged

    def _leave(self, name: str) -> Leave:
        datatype = self.plan.cast_to if self._gathers_cast and name != "embedding" else ""
        return Leave(name, self.activation_bytes, self.plan.sequence_parallel, datatype)

    @property
    def _again(self) -> int:
        """Return the bytes of a rank's kept share of the inputs, gathered again for gradients of weights."""
        share = self.activation_bytes // self.plan.tensor if self.plan.sequence_parallel else 0
        if not share or not self._gathers_cast or not self.by.casts.kept:
            return share
        return stored_bytes(share // self.plan.value_bytes, self.plan.cast_to)

    def _output_norm(self, name: str) -> tuple[ModelPart, ...]:
        """Return the norm of the outputs of a half of a layer, if there is one."""
        return (self._norm(f"{name} output norm"),) if self.model.half_norms > 1 else ()

    def _activation(self, name: str, part: FeedForward, values: int) -> Passing:
        """Return the activation function with its bias; backward reads its inputs and output gradients."""
        name, size, gates = f"{name} activation", self.plan.value_bytes, part.is_gated
        if gates and self.by.element_wise.gate and not part.has_bias:
            return self._unfused(name, values, 8, self.by.element_wise.gate)
        has_bias = part.has_bias and not self.plan.lora_rank
        bias = (1 + gates) * has_bias
        moved, each = (3 + 2 * gates + bias) * size, part.operations
        backward = passing(name, values, moved, 2 * each, 1 + has_bias)
        return Passing((passing(name, values, (2 + gates) * size, each),), (backward,))

    def _overlapped(self, parts: tuple[ModelPart, ...]) -> tuple[ModelPart, ...]:
        return overlapped(parts, self.plan.tensor_overlap) if self.plan.tensor_overlap > 1 else parts
