"""Values of small tensors on the device that follow from no data: masks, counts, positions, sizes.

Such a tensor carries a real one beside it, on which each operator runs too. So `.item()` and `.tolist()`
answer truly. Not here: what is answered where no value is known (`operators`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

LARGEST = 1 << 16  # elements of a tensor whose values are kept
_SHADOW, _OVERWRITTEN = "_recorder_value", "_recorder_overwritten"


def value_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The real tensor beside one, if its values are known."""
    value, since = getattr(tensor, _SHADOW, (None, 0))
    return value if value is None or since == _overwritten(tensor) else None


def set_value(tensor: torch.Tensor, value: torch.Tensor | None) -> None:
    """Say what the values of a tensor are; None: nobody knows them, nor those of its views, any more."""
    if value is None:
        setattr(tensor.untyped_storage(), _OVERWRITTEN, _overwritten(tensor) + 1)
        vars(tensor).pop(_SHADOW, None)
    elif value.numel() <= LARGEST:
        setattr(tensor, _SHADOW, (value, _overwritten(tensor)))


def _overwritten(tensor: torch.Tensor) -> int:
    """How often something unknown was written into the memory of a tensor."""
    return int(getattr(tensor.untyped_storage(), _OVERWRITTEN, 0))


def is_small(tensor: torch.Tensor) -> bool:
    return tensor.numel() <= LARGEST


def real_call(func: Any, args: Any, kwargs: Any, is_fake: Any) -> Any:
    """The result of an operator on the values of its arguments; None: one of them is not known."""
    flat, spec = tree_flatten((args, kwargs))
    real: list[Any] = []
    for one in flat:
        if isinstance(one, torch.Tensor) and is_fake(one):
            value = value_of(one)
            if value is None:
                return None
            real.append(value)
        elif isinstance(one, torch.device):
            real.append(torch.device("cpu"))
        else:
            real.append(one)
    real_args, real_kwargs = tree_unflatten(real, spec)
    try:
        return func(*real_args, **real_kwargs)
    except (RuntimeError, NotImplementedError, TypeError, IndexError):
        return None
