"""The values that a collective gives, if all members put in the same.

Not here: which values are known (`values`), and what a collective is as a node (`collectives`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def outcome(
    kind: str, reduction: str, values: Sequence[Any], outputs: Sequence[torch.Tensor], rank: int, members: int
) -> list[Any] | None:
    """What each output of a member holds; None: not told."""
    if kind in ("all_reduce", "reduce", "reduce_scatter"):
        if reduction not in _REDUCED:
            return None
        whole = [_REDUCED[reduction](one, members) for one in values]
        return whole if kind != "reduce_scatter" else _part(whole, outputs, rank, members)
    if kind == "broadcast":
        return list(values)
    if kind == "scatter":
        return _part(values, outputs, rank, members)
    if kind in ("all_gather", "gather"):
        if len(values) == len(outputs):
            return [
                torch.cat([one.reshape(-1)] * members)[: out.numel()].reshape(out.shape)
                for one, out in zip(values, outputs, strict=True)
            ]
        return [values[at // members] for at in range(len(outputs))]
    if kind == "all_to_all" and len(values) == len(outputs) == 1:
        if values[0].numel() % members or values[0].numel() != outputs[0].numel():
            return None
        return [values[0].reshape(members, -1)[rank].repeat(members).reshape(outputs[0].shape)]
    return None


def _part(
    values: Sequence[Any], outputs: Sequence[torch.Tensor], rank: int, members: int
) -> list[Any] | None:
    """A member's part of a list, or of a tensor, for all."""
    if len(outputs) != 1:
        return None
    if len(values) == members > 1:
        return [values[rank]]
    if len(values) == 1 and values[0].numel() == members * outputs[0].numel():
        return [values[0].reshape(members, -1)[rank].reshape(outputs[0].shape)]
    return None


_REDUCED: dict[str, Callable[[Any, int], Any]] = {
    "sum": lambda one, members: one * members,
    "product": lambda one, members: one**members,
    **dict.fromkeys(("avg", "max", "min", "band", "bor"), lambda one, _: one),
}
