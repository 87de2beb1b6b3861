"""Values of small tensors on the device that do not depend on data: masks, counts, positions, sizes.

Such a tensor has a real one beside it, on which each operator runs too. So `.item()` and `.tolist()` return
true values. For a collective, all members are assumed to have equal inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

# Largest tensors with values, in elements: masks of tokens and experts are large.
LARGEST, LARGEST_INTEGERS = 1 << 20, 1 << 22
_SHADOW, _OVERWRITTEN = "_recorder_value", "_recorder_overwritten"


def value_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the real tensor beside one, if its values are known."""
    value, since = getattr(tensor, _SHADOW, (None, 0))
    return value if value is None or since == _overwritten(tensor) else None


def set_value(tensor: torch.Tensor, value: torch.Tensor | None) -> None:
    """Set the values of a tensor; None makes them and those of its views unknown."""
    if value is None:
        setattr(tensor.untyped_storage(), _OVERWRITTEN, _overwritten(tensor) + 1)
        vars(tensor).pop(_SHADOW, None)
    elif is_small(value):
        setattr(tensor, _SHADOW, (value, _overwritten(tensor)))


def _overwritten(tensor: torch.Tensor) -> int:
    """Return how often unknown values were written to the memory of a tensor."""
    return int(getattr(tensor.untyped_storage(), _OVERWRITTEN, 0))


def is_small(tensor: torch.Tensor) -> bool:
    """Return whether the values of a tensor are kept."""
    return tensor.numel() <= largest(tensor.dtype)


def largest(dtype: torch.dtype | None) -> int:
    """Return the most elements of a tensor with values."""
    return LARGEST if dtype is None or dtype.is_floating_point or dtype.is_complex else LARGEST_INTEGERS


def real_call(func: Any, args: Any, kwargs: Any, is_fake: Any) -> Any:
    """Return the result of an operator on the values of its arguments, or None if one is unknown."""
    flat, spec = tree_flatten((args, kwargs))
    real: list[Any] = []
    for arg in flat:
        if isinstance(arg, torch.Tensor) and is_fake(arg):
            value = value_of(arg)
            if value is None:
                return None
            real.append(value)
        elif isinstance(arg, torch.device):
            real.append(torch.device("cpu"))
        else:
            real.append(arg)
    real_args, real_kwargs = tree_unflatten(real, spec)
    try:
        return func(*real_args, **real_kwargs)
    except (RuntimeError, NotImplementedError, TypeError, IndexError):
        return None


def outcome(
    kind: str, reduction: str, values: Sequence[Any], outputs: Sequence[torch.Tensor], rank: int, members: int
) -> list[Any] | None:
    """Return the values of each output of a member, or None if unknown."""
    if kind in ("all_reduce", "reduce", "reduce_scatter"):
        if reduction not in _REDUCED:
            return None
        whole = [_REDUCED[reduction](value, members) for value in values]
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
    """Return a member's part of a list, or of a tensor, for all."""
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
