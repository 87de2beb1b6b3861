"""Parts of a layer: their kernels and exchanges, forward and backward.

A part has a forward pass, gradients of its inputs, and gradients of its weights. The last ones are postponed
(`RankWork.later`) until the step runs them, so that they can hide exchanges.

Products may overlap with their own exchange, both in equal chunks of the tokens. While a rank computes one
chunk, the inputs of the next one are gathered, or the outputs of the previous one are reduced. Each chunk
reads all weights, and is cast by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.kernel_names import FULL_SUMS
from et_sim.workloads.kernels import (
    Kernel,
    cast,
    grouped_product,
    passing,
    product,
    quantised,
    stored_bytes,
    transposed,
)
from et_sim.workloads.rank import MAIN
from et_sim.workloads.recording import Nodes
from et_sim.workloads.software.description import Casts, is_named
from et_sim.workloads.training.plan import TENSOR, Plan
from et_sim.workloads.training.work import RankWork

TENSOR_STREAM = "tensor"


class ModelPart(Protocol):
    """An operation of a layer on the activations of a micro-batch."""

    def forward(self, work: RankWork) -> None:
        """Compute outputs from inputs."""

    def backward(self, work: RankWork) -> None:
        """Compute gradients of inputs from gradients of outputs, and postpone those of weights."""


class Passing(Struct, frozen=True):
    """Kernels that are limited by memory: norms, activation functions, sums."""

    there: tuple[Kernel, ...]
    back: tuple[Kernel, ...]

    def forward(self, work: RankWork) -> None:
        for kernel in self.there:
            work.then(kernel)

    def backward(self, work: RankWork) -> None:
        for kernel in self.back:
            work.then(kernel)


class WeightProduct(Struct, frozen=True):
    """The product of activations and weights; `copies`: the number of experts of equal size.

    With a datatype of its own, operands are cast before: inputs and gradients of outputs in each micro-batch,
    along rows and along columns; weights once in a step, or in every pass if they are gathered for each.
    """

    name: str
    rows: int
    columns: int
    inner: int
    value_bytes: int
    copies: int = 1
    gathers: int = 0  # bytes of inputs on each tensor-parallel rank that are gathered again
    groups: tuple[int, ...] = ()  # rows of each of several experts, if they differ
    datatype: str = ""  # of operands, if they are cast
    arrives: str = ""  # "inputs" or "gradients" if these arrive cast along rows
    is_frozen: bool = False  # weights get no gradients

    def _product(
        self, name: str, rows: int, columns: int, inner: int, *, is_of_gradients: bool = False
    ) -> Kernel:
        """Return the kernel of a product; in fp8, sums of gradients are kept in fp32 throughout."""
        sums = FULL_SUMS if is_of_gradients and self.datatype == "fp8" else ""
        if self.groups:
            kernel = grouped_product(name, self.groups, columns, inner, self.value_bytes, sums)
            outputs = sum(self.groups) * columns
        else:
            kernel = product(name, rows, columns, inner, self.value_bytes, self.copies, sums)
            outputs = rows * columns * self.copies
        return quantised(kernel, outputs, self.value_bytes, self.datatype) if self.datatype else kernel

    @property
    def _rows(self) -> int:
        """Return the rows of all experts."""
        return sum(self.groups) if self.groups else self.rows * self.copies

    def _casts(self, by: Casts, tensor: str, values: int, copies: int = 2) -> tuple[Kernel, ...]:
        if not self.datatype:
            return ()
        copies = 1 if self.is_frozen else copies  # the other one is for gradients of weights
        copies -= tensor == self.arrives
        if not copies:
            return ()
        name = f"{self.name} {tensor} cast"
        return (cast(name, values, self.value_bytes, self.datatype, copies, by.reads, by.launches),)

    def _inputs_casts(self, by: Casts, values: int) -> tuple[Kernel, ...]:
        """Return the casts of inputs for this product, and for gradients of weights if casts are kept."""
        if not is_named(self.name, by.fused):
            return self._casts(by, "inputs", values, 2 if by.kept else 1)
        if self.datatype and by.kept and not self.is_frozen:
            return (transposed(f"{self.name} inputs transposed", values, self.datatype),)
        return ()

    def cast_weights(self, work: RankWork) -> None:
        """Cast the weights if they have not been cast before."""
        is_gathered = work.plan.zero == 3
        if self.is_frozen and not is_gathered:
            return  # once and for all, before the step
        place = (work.where, self.name, work.during if is_gathered else "")
        if place not in work.cast:
            work.cast.add(place)
            values = self.inner * self.columns * (len(self.groups) or self.copies)
            for kernel in self._weights_cast(work, values, is_gathered=is_gathered):
                work.then(kernel)

    def _weights_cast(self, work: RankWork, values: int, *, is_gathered: bool) -> tuple[Kernel, ...]:
        """Return the casts of weights; if they are gathered cast along rows, only backward ones remain."""
        if not work.plan.gathers_cast or not self.datatype:
            return self._casts(work.plan.by.casts, "weights", values, 1 if is_gathered else 2)
        if not work.during.startswith("backward"):
            return ()
        moved = 2 * stored_bytes(values, self.datatype)
        return (replace(passing(f"{self.name} weights cast", values, 0), bytes=moved),)

    def forward_kernels(self, work: RankWork, chunks: int = 1) -> tuple[Kernel, ...]:
        """Return the kernels of one of several equal chunks of the tokens, the product last."""
        casts = self._inputs_casts(work.plan.by.casts, self._rows // chunks * self.inner)
        return (*casts, self._product(self.name, self.rows // chunks, self.columns, self.inner))

    def inputs_kernels(self, work: RankWork, chunks: int = 1) -> tuple[Kernel, ...]:
        """Return the kernels of gradients of inputs; inputs whose casts were not kept are cast again."""
        by, rows = work.plan.by.casts, self._rows // chunks
        casts = self._casts(by, "gradients", rows * self.columns)
        if not by.kept:
            casts += self._casts(by, "inputs", rows * self.inner, 1 + (self.arrives == "inputs"))
        sizes = (self.rows // chunks, self.inner, self.columns)
        return (*casts, self._product(f"{self.name} inputs", *sizes, is_of_gradients=True))

    def forward(self, work: RankWork) -> None:
        self.cast_weights(work)
        for kernel in self.forward_kernels(work):
            work.then(kernel)

    def backward(self, work: RankWork) -> None:
        self.cast_weights(work)
        *casts, product = self.inputs_kernels(work)
        for kernel in casts:
            work.then(kernel)
        self.put_off_weights(work)
        work.then(product)

    def put_off_weights(self, work: RankWork, gradients: Nodes | None = None) -> None:
        """Postpone gradients of weights, which need the gradients of outputs.

        Inputs that ranks keep a share of are gathered beside gradients of inputs, before these are reduced;
        if gradients of weights have a pass of their own, they are gathered in that pass.
        """
        if self.is_frozen:
            return
        needed, is_apart = work.at if gradients is None else gradients, work.has_weights_pass
        if not is_apart:
            needed = self._gathered_again(work, needed)
        work.later(partial(self._weights, work, work.where, needed, gathers=is_apart))

    def _gathered_again(self, work: RankWork, gradients: Nodes) -> Nodes:
        if not self.gathers:
            return gradients
        return gradients + work.rank.collective(
            "all_gather",
            self.gathers,
            TENSOR,
            name=work.name(f"{self.name} weights all-gather"),
            after=gradients,
            stream=TENSOR_STREAM if work.plan.overlap_tensor else MAIN,
        )

    def _weights(self, work: RankWork, where: str, needed: Nodes, *, gathers: bool) -> None:
        name, now = f"{self.name} weights", work.where
        work.where = where
        if gathers:
            needed = self._gathered_again(work, needed)
        sizes = (self.inner, self.columns, self.rows)
        if self.groups:  # as much as forward: rows are summed over
            sizes = (self.rows, self.columns, self.inner)
        work.compute(self._product(name, *sizes, is_of_gradients=True), needed)
        work.where = now


class Products(Struct, frozen=True):
    """Several products of the same inputs, and the sum of their gradients."""

    products: tuple[WeightProduct | LowRank, ...]
    sums: Kernel

    def forward(self, work: RankWork) -> None:
        for part in self.products:
            part.forward(work)

    def backward(self, work: RankWork) -> None:
        for part in reversed(self.products):
            part.backward(work)
        work.then(self.sums)


class LowRank(Struct, frozen=True):
    """A product with frozen weights, and an adapter of two products of low rank beside it (LoRA)."""

    frozen: WeightProduct
    into: WeightProduct
    out: WeightProduct

    @staticmethod
    def of(product: WeightProduct, rank: int) -> LowRank:
        """Return a product with its adapter, which is not cast."""
        name, rows, size = product.name, product.rows, product.value_bytes
        into = WeightProduct(f"{name} adapter in", rows, rank, product.inner, size, gathers=product.gathers)
        return LowRank(product, into, WeightProduct(f"{name} adapter out", rows, product.columns, rank, size))

    @property
    def name(self) -> str:
        """Return the name of the frozen product."""
        return self.frozen.name

    @property
    def weights(self) -> int:
        """Return the weights of the adapter."""
        return sum(product.inner * product.columns for product in (self.into, self.out))

    def _sum(self, columns: int) -> Kernel:
        size = self.frozen.value_bytes
        return passing(f"{self.name} adapter sum", self.frozen.rows * columns, 3 * size, 2)

    def forward(self, work: RankWork) -> None:
        given = work.at
        self.into.forward(work)
        self.out.forward(work)
        work.at, adapted = given, work.at
        self.frozen.forward(work)
        work.at += adapted
        work.then(self._sum(self.frozen.columns))

    def backward(self, work: RankWork) -> None:
        given = work.at
        self.out.backward(work)
        self.into.backward(work)
        work.at, adapted = given, work.at
        self.frozen.backward(work)
        work.at += adapted
        work.then(self._sum(self.frozen.inner))


class Enter(Struct, frozen=True):
    """The begin of tensor-parallel products: each rank needs all inputs, and has partial gradients."""

    name: str
    bytes: int  # of all inputs
    is_scattered: bool  # each rank has a share of the tokens
    datatype: str = ""  # datatype of shares when they are gathered, if they are cast
    is_cast_before: bool = False  # the previous kernel, such as a norm, casts them

    def forward(self, work: RankWork) -> None:
        if self.is_scattered:
            if not self.is_cast_before:
                cast_share(work, self, "inputs")
            size = gathered_bytes(work.plan, self)
            work.exchange("all_gather", size, TENSOR, f"{self.name} all-gather")

    def backward(self, work: RankWork) -> None:
        kind = "reduce_scatter" if self.is_scattered else "all_reduce"
        stream = TENSOR_STREAM if work.plan.overlap_tensor else MAIN
        name = f"{self.name} {kind.replace('_', '-')}"
        work.exchange(kind, self.bytes, TENSOR, name, stream)


class Leave(Struct, frozen=True):
    """The end of tensor-parallel products: each rank has partial sums of all outputs."""

    name: str
    bytes: int  # of all outputs
    is_scattered: bool
    datatype: str = ""  # datatype of shares of gradients when they are gathered, if they are cast

    def forward(self, work: RankWork) -> None:
        kind = "reduce_scatter" if self.is_scattered else "all_reduce"
        work.exchange(kind, self.bytes, TENSOR, f"{self.name} {kind.replace('_', '-')}")

    def backward(self, work: RankWork) -> None:
        if self.is_scattered:
            cast_share(work, self, "gradients")
            size = gathered_bytes(work.plan, self)
            work.exchange("all_gather", size, TENSOR, f"{self.name} all-gather")


def gathered_bytes(plan: Plan, of: Enter | Leave) -> int:
    """Return the bytes of a rank's share when it is gathered."""
    share = of.bytes // plan.tensor
    return stored_bytes(share // plan.value_bytes, of.datatype) if of.datatype else share


def cast_share(work: RankWork, of: Enter | Leave, tensor: str) -> None:
    """Cast the share of the rank before it is gathered, if it has a datatype for that."""
    if of.datatype:
        by, size = work.plan.by.casts, work.plan.value_bytes
        values = of.bytes // size // work.plan.tensor
        work.then(cast(f"{of.name} {tensor} cast", values, size, of.datatype, 1, by.reads, by.launches))


class Transfer(Struct, frozen=True):
    """An all-to-all."""

    over: str | tuple[str, ...]  # axis, or several
    bytes: int  # to all ranks together
    splits: tuple[int, ...] = ()  # to each rank, if they differ


class ToExperts(Struct, frozen=True):
    """The exchange of tokens with the ranks of their experts, there or back; several run at once."""

    name: str
    there: tuple[Transfer, ...]
    back: tuple[Transfer, ...]  # in the backward pass
    stream: str = ""  # of its own; empty: one for each axis, if any runs beside kernels
    kind: str = "all_to_all"  # of collective

    def forward(self, work: RankWork) -> None:
        self._exchange(work, self.there)

    def backward(self, work: RankWork) -> None:
        self._exchange(work, self.back)

    def _exchange(self, work: RankWork, transfers: tuple[Transfer, ...]) -> None:
        """Add the exchanges, beside kernels if passes or several exchanges run side by side."""
        if not transfers:
            return
        given, done = work.at, dict[int, None]()
        for transfer in transfers:
            is_beside = work.plan.overlaps_passes or len(transfers) > 1
            stream = (self.stream or f"{transfer.over} exchange") if is_beside else MAIN
            work.at = given
            work.exchange(
                self.kind,
                transfer.bytes,
                transfer.over,
                self.name,
                stream,
                transfer.splits or None,
            )
            done |= dict.fromkeys(work.at)
        work.at = tuple(done)


class Shared(Struct, frozen=True):
    """The exchange of ranks that share every expert: tokens are gathered, or outputs are summed."""

    name: str
    over: str
    gathered: int  # bytes of each rank's tokens
    reduced: int  # bytes of the sums of all
    gathers: bool
    is_beside: bool = False  # kernels that do not need it may run at the same time

    def forward(self, work: RankWork) -> None:
        self._exchange(work, gathers=self.gathers)

    def backward(self, work: RankWork) -> None:
        self._exchange(work, gathers=not self.gathers)

    def _exchange(self, work: RankWork, *, gathers: bool) -> None:
        kind, size = ("all_gather", self.gathered) if gathers else ("reduce_scatter", self.reduced)
        stream = f"{self.over} exchange" if self.is_beside else MAIN
        work.exchange(kind, size, self.over, f"{self.name} {kind.replace('_', '-')}", stream)


class GatheredProduct(Struct, frozen=True):
    """A product whose inputs are gathered."""

    enter: Enter
    product: WeightProduct
    chunks: int

    def forward(self, work: RankWork) -> None:
        self.product.cast_weights(work)
        if not self.enter.is_cast_before:
            cast_share(work, self.enter, "inputs")
        size, kernels = gathered_bytes(work.plan, self.enter), self.product.forward_kernels(work, self.chunks)
        _gather(work, self.enter.name, size, kernels, self.chunks)

    def backward(self, work: RankWork) -> None:
        """Reduce gradients of inputs in chunks, or as a whole beside the gradients of weights."""
        if work.plan.by.reduces_whole:
            self.product.backward(work)
            self.enter.backward(work)
            return
        self.product.cast_weights(work)
        self.product.put_off_weights(work)
        _reduce(work, self.enter, self.product.inputs_kernels(work, self.chunks), self.chunks)


class ReducedProduct(Struct, frozen=True):
    """A product whose outputs are summed over ranks and scattered."""

    product: WeightProduct
    leave: Leave
    chunks: int

    def forward(self, work: RankWork) -> None:
        self.product.cast_weights(work)
        _reduce(work, self.leave, self.product.forward_kernels(work, self.chunks), self.chunks)

    def backward(self, work: RankWork) -> None:
        self.product.cast_weights(work)
        cast_share(work, self.leave, "gradients")
        size, kernels = gathered_bytes(work.plan, self.leave), self.product.inputs_kernels(work, self.chunks)
        gathered = _gather(work, self.leave.name, size, kernels, self.chunks)
        self.product.put_off_weights(work, gathered)


def overlapped(parts: Sequence[ModelPart], chunks: int) -> tuple[ModelPart, ...]:
    """Return the same parts, with each product and its exchange as one part."""
    overlapped_parts: list[ModelPart] = []
    for part in parts:
        last = overlapped_parts[-1] if overlapped_parts else None
        if isinstance(part, WeightProduct) and isinstance(last, Enter):
            overlapped_parts[-1] = GatheredProduct(last, part, chunks)
        elif isinstance(part, Leave) and part.is_scattered and isinstance(last, WeightProduct):
            overlapped_parts[-1] = ReducedProduct(last, part, chunks)
        else:
            overlapped_parts.append(part)
    return tuple(overlapped_parts)


def _gather(work: RankWork, name: str, size: int, kernels: Sequence[Kernel], chunks: int) -> Nodes:
    """Gather each chunk before the product that needs it, and return the last nodes of these exchanges.

    The first products use the rank's own share, while the others are gathered.
    """
    given, gathered = work.at, work.at
    own = chunks // work.plan.tensor
    for number in range(chunks):
        work.at = given
        if number >= own:
            part = size // (chunks - own)
            gathered = _exchange(work, "all_gather", part, f"{name} all-gather", number, chunks, given)
            work.at = gathered
        for kernel in kernels:
            work.then(_named(kernel, number, chunks))
    return gathered


def _reduce(work: RankWork, of: Enter | Leave, kernels: Sequence[Kernel], chunks: int) -> None:
    """Reduce each chunk after its product."""
    given = work.at
    for number in range(chunks):
        done = given
        for kernel in kernels:
            done = work.compute(_named(kernel, number, chunks), done)
        name = f"{of.name} reduce-scatter"
        work.at = _exchange(work, "reduce_scatter", of.bytes // chunks, name, number, chunks, done)


def _exchange(
    work: RankWork, kind: str, size: int, name: str, number: int, chunks: int, after: Nodes
) -> Nodes:
    text = work.name(f"{name} {number + 1}/{chunks}")
    return work.rank.collective(kind, size, TENSOR, name=text, after=after, stream=TENSOR_STREAM)


def _named(kernel: Kernel, number: int, chunks: int) -> Kernel:
    return replace(kernel, name=f"{kernel.name} {number + 1}/{chunks}")
