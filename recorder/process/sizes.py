"""Results of operators whose sizes PyTorch does not infer without their device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor, unset_fake_temporarily

from recorder.process.values import value_of

_SINGLE = torch.float32  # type of the statistics of a batch


def _statistics(like: torch.Tensor, channels: int) -> torch.Tensor:
    kind = _SINGLE if like.dtype in (torch.float16, torch.bfloat16) else like.dtype
    return like.new_empty((channels,), dtype=kind)


def _two_statistics(tensor: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    channels = tensor.shape[1]
    return _statistics(tensor, channels), _statistics(tensor, channels)


def _sums_of_gradients(
    gradient: torch.Tensor, tensor: torch.Tensor, *_: Any
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    channels = tensor.shape[1]
    wants_input, wants_weight, wants_bias = _[-3:]
    sums = [_statistics(gradient, channels) if wants_input else None for _ in range(2)]
    weight = _statistics(gradient, channels) if wants_weight else None
    return sums[0], sums[1], weight, _statistics(gradient, channels) if wants_bias else None


def _like_first(tensor: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(tensor)


def _gru_cell(
    gates: torch.Tensor, hidden_gates: torch.Tensor, state: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(state), hidden_gates.new_empty((gates.shape[0], state.shape[1] * 5))


def _gru_gradients(
    gradient: torch.Tensor, _: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor | None, ...]:
    rows, width = gradient.shape
    gates = [gradient.new_empty((rows, width * 3)) for _ in range(2)]
    biases = [gradient.new_empty((width * 3,)) if has_bias else None for _ in range(2)]
    return (*gates, torch.empty_like(gradient), *biases)


def _ctc_loss(
    scores: torch.Tensor, _: torch.Tensor, __: Any, target_lengths: Any, *___: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    steps, sequences = scores.shape[0], scores.shape[1]
    longest = max(_numbers(target_lengths), default=0)
    return scores.new_empty((sequences,)), scores.new_empty((sequences, steps, 2 * longest + 1))


def _numbers(lengths: Any) -> list[int]:
    """Return lengths from a list or a tensor; unknown ones count as 0."""
    if not isinstance(lengths, torch.Tensor):
        return [int(length) for length in lengths]
    known = value_of(lengths) if isinstance(lengths, FakeTensor) else lengths
    with unset_fake_temporarily():
        return [] if known is None else [int(length) for length in known.tolist()]


def _pack(
    padded: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the packed rows of sequences, and how many of them each step has, which the host reads."""
    numbers = _numbers(lengths)
    if not numbers:
        raise DynamicOutputShapeException(torch.ops.aten._pack_padded_sequence.default)
    steps = min(max(numbers), padded.shape[1 if batch_first else 0])
    rows = [sum(number > step for number in numbers) for step in range(steps)]
    with unset_fake_temporarily():
        counts = torch.tensor(rows, dtype=torch.int64, device="cpu")
    return padded.new_empty((sum(rows), *padded.shape[2:])), counts


def _ctc_gradient(_: torch.Tensor, scores: torch.Tensor, *__: Any) -> torch.Tensor:
    return torch.empty_like(scores)


SIZES: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "batch_norm_stats": _two_statistics,
        "batch_norm_gather_stats_with_counts": _two_statistics,
        "batch_norm_elemt": _like_first,
        "batch_norm_backward_reduce": _sums_of_gradients,
        "batch_norm_backward_elemt": _like_first,
        "_thnn_fused_gru_cell": _gru_cell,
        "_thnn_fused_gru_cell_backward": _gru_gradients,
        "_pack_padded_sequence": _pack,
        "_ctc_loss": _ctc_loss,
        "_ctc_loss_backward": _ctc_gradient,
    }
)
