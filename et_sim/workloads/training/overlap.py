"""Products that overlap with their own exchange: both in equal chunks of the tokens, one behind the other.

While a rank works on one chunk, the inputs of the next one are gathered, or the outputs of the one before
reduced. Each chunk reads all weights.

Not here: exchanges of gradients beside those of weights (`parts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from et_sim.workloads.kernels import Kernel
from et_sim.workloads.recording import Nodes
from et_sim.workloads.training.parts import TENSOR_STREAM, Enter, Leave, ModelPart, Product
from et_sim.workloads.training.plan import TENSOR
from et_sim.workloads.training.work import Work


@dataclass(frozen=True, slots=True)
class GatheredProduct:
    """A product whose inputs are gathered."""

    enter: Enter
    product: Product
    chunks: int

    def forward(self, work: Work) -> None:
        _gather(work, self.enter, self.product.forward_kernel(self.chunks), self.chunks)

    def backward(self, work: Work) -> None:
        self.product.put_off_weights(work)
        _reduce(work, self.enter, self.product.inputs_kernel(self.chunks), self.chunks)


@dataclass(frozen=True, slots=True)
class ReducedProduct:
    """A product whose outputs are sums over ranks, of which each keeps some."""

    product: Product
    leave: Leave
    chunks: int

    def forward(self, work: Work) -> None:
        _reduce(work, self.leave, self.product.forward_kernel(self.chunks), self.chunks)

    def backward(self, work: Work) -> None:
        gathered = _gather(work, self.leave, self.product.inputs_kernel(self.chunks), self.chunks)
        self.product.put_off_weights(work, gathered)


def overlapped(parts: Sequence[ModelPart], chunks: int) -> tuple[ModelPart, ...]:
    """The same parts, with products and their exchanges as one."""
    found: list[ModelPart] = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, Product) and isinstance(last, Enter):
            found[-1] = GatheredProduct(last, part, chunks)
        elif isinstance(part, Leave) and part.is_scattered and isinstance(last, Product):
            found[-1] = ReducedProduct(last, part, chunks)
        else:
            found.append(part)
    return tuple(found)


def _gather(work: Work, of: Enter | Leave, kernel: Kernel, chunks: int) -> Nodes:
    """Gather each chunk before the product that needs it; what the last one waited for."""
    given, gathered = work.at, work.at
    for number in range(chunks):
        size = of.bytes // work.plan.tensor // chunks
        gathered = _exchange(work, "all_gather", size, f"{of.name} all-gather", number, chunks, given)
        work.at = work.compute(_named(kernel, number, chunks), gathered)
    return gathered


def _reduce(work: Work, of: Enter | Leave, kernel: Kernel, chunks: int) -> None:
    """Reduce each chunk behind the product that it comes from."""
    given = work.at
    for number in range(chunks):
        done = work.compute(_named(kernel, number, chunks), given)
        name = f"{of.name} reduce-scatter"
        work.at = _exchange(work, "reduce_scatter", of.bytes // chunks, name, number, chunks, done)


def _exchange(work: Work, kind: str, size: int, name: str, number: int, chunks: int, after: Nodes) -> Nodes:
    text = work.name(f"{name} {number + 1}/{chunks}")
    return work.rank.collective(kind, size, TENSOR, name=text, after=after, stream=TENSOR_STREAM)


def _named(kernel: Kernel, number: int, chunks: int) -> Kernel:
    return kernel._replace(name=f"{kernel.name} {number + 1}/{chunks}")
