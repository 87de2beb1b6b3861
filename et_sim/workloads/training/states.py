"""States of weights on a rank: weights, gradients and optimizer states.

Weights that are ready together are a unit, such as a layer. Gradients are in buffers that stay from step to
step. If replicas share them, gathered weights and gradients that are not yet reduced are temporary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec import Struct

from et_sim.workloads.kernels import stored_bytes
from et_sim.workloads.training.plan import CONTEXT, DATA, EXPERT_DATA, REPLICA, SHARD, Plan

Tensors = Mapping[str, int]  # name -> bytes
KINDS = ("", "expert ")


class Weights(NamedTuple):
    """Some weights of a rank that become ready together."""

    name: str
    dense: int  # weights that all replicas have
    expert: int  # weights that only ranks with the same experts have
    are_cast: bool = False  # for products in fewer bits
    adapters: int | None = None  # weights of adapters, if all others are frozen

    @property
    def counts(self) -> tuple[int, int]:
        """Return the numbers of dense and expert weights of the rank."""
        return self.dense + (self.adapters or 0), self.expert

    @property
    def trained(self) -> tuple[int, int]:
        """Return the numbers of dense and expert weights that get gradients."""
        return (self.dense, self.expert) if self.adapters is None else (self.adapters, 0)


class Sharing(NamedTuple):
    """The axes over which weights are sharded, and the axes over which the shards are equal."""

    shares: tuple[str, ...]
    equal: tuple[str, ...]


def sharing(plan: Plan) -> tuple[Sharing, Sharing]:
    """Return the sharing of dense weights, and of experts."""
    axes = plan.axes
    dense = axes.sorted(name for name in (CONTEXT, DATA) if axes.size(name) > 1)
    expert = (EXPERT_DATA,) if plan.spreads_experts else dense
    if not plan.zero:
        return Sharing((), dense), Sharing((), expert)
    if not plan.shard:
        return Sharing(dense, ()), Sharing(expert, ())
    equal = axes.sorted(name for name in (CONTEXT, REPLICA) if axes.size(name) > 1)
    of_dense = Sharing((SHARD,), equal)
    return of_dense, Sharing(expert, ()) if plan.spreads_experts else of_dense


class States(Struct, frozen=True):
    """Tensors of a rank, by units of weights."""

    plan: Plan
    shared: tuple[Sharing, Sharing]
    shares: tuple[int, int]  # numbers of shards of dense weights and of experts

    @staticmethod
    def of(plan: Plan) -> States:
        """Return the states of a plan."""
        shared, axes = sharing(plan), plan.axes
        dense, expert = (axes.size(*weights.shares) if weights.shares else 1 for weights in shared)
        return States(plan, shared, (dense, expert))

    def _values(self, counts: tuple[int, int], first: int) -> int:
        """Return the values of a rank if sharding begins at a level of `zero`."""
        shares = self.shares if self.plan.zero >= first else (1, 1)
        return -(-counts[0] // shares[0]) + -(-counts[1] // shares[1])

    def weights(self, unit: Weights) -> Tensors:
        """Return the weights that the rank always has, with casts along rows and along columns."""
        sizes = {f"weights:{unit.name}": self._values(unit.counts, 3) * self.plan.value_bytes}
        if unit.are_cast and self.plan.zero < 3:
            sizes[f"weights:{unit.name} cast"] = 2 * self._cast_bytes(unit, unit.dense + unit.expert)
        return sizes

    def _cast_bytes(self, unit: Weights, values: int) -> int:
        return stored_bytes(values, self.plan.cast_to) if unit.are_cast else 0

    def gradients(self, unit: Weights) -> Tensors:
        """Return the buffers of gradients, summed over micro-batches."""
        return {f"gradients:{unit.name}": self._values(unit.trained, 2) * self.plan.sum_bytes}

    def optimizer(self, values: int) -> Tensors:
        """Return the optimizer states of all weights that the rank updates."""
        return {"optimizer:states": values * self.plan.master_bytes}

    def gathered(self, unit: Weights) -> tuple[Tensors, Tensors]:
        """Return the gathered dense and expert weights of a unit, with casts, if the rank has shards only."""
        copies, size = (2, 0) if self.are_gathered_cast(unit) else (1, self.plan.value_bytes)
        return self._whole(
            unit.name,
            unit.counts,
            3,
            "weights",
            lambda count: count * size + copies * self._cast_bytes(unit, count),
        )

    def are_gathered_cast(self, unit: Weights) -> bool:
        """Return whether replicas cast their shards of a unit's weights before they gather them."""
        return unit.are_cast and self.plan.gathers_cast

    def gathered_bytes(self, unit: Weights, count: int) -> int:
        """Return the bytes that replicas gather for a number of a unit's weights, cast or not."""
        if self.are_gathered_cast(unit):
            return stored_bytes(count, self.plan.cast_to)
        return count * self.plan.value_bytes

    def unreduced(self, unit: Weights) -> tuple[Tensors, Tensors]:
        """Return the gradients of a unit in one micro-batch, if the rank keeps a shard only."""
        each = self.plan.gradient_bytes
        return self._whole(unit.name, unit.trained, 2, "gradients", lambda count: count * each)

    def _whole(
        self, name: str, counts: tuple[int, int], first: int, role: str, size: Callable[[int], int]
    ) -> tuple[Tensors, Tensors]:
        dense, expert = (
            {f"temporary:{name} {kind}{role}": size(count)} if self._is_cut(count, share, first) else {}
            for kind, count, share in zip(KINDS, counts, self.shares, strict=True)
        )
        return dense, expert

    def _is_cut(self, count: int, share: int, first: int) -> bool:
        return count > 0 and share > 1 and self.plan.zero >= first
