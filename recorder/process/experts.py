"""Tokens per expert, for programs that count the choices of a router, whose values are unknown.

A count of values over bins (`bincount`, `histc`) is taken as a count of tokens over experts: even, or
distributed as `--expert-skew` states. The result of `topk` gives the number of different experts per token.
All ranks use the same distribution.
"""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from et_sim.workloads.training.expert_loads import tokens_of_experts
from recorder.process.storages import Storages
from recorder.process.tape import Tape, user_place
from recorder.recorded import SPREAD, ExpertRouting

_COPIES = ("_to_copy", "clone")


class ExpertCounts:
    """Substitutes for unknown counts."""

    def __init__(self, routing: ExpertRouting, tape: Tape, storages: Storages) -> None:
        self._routing, self._tape, self._storages = routing, tape, storages
        self._chosen: dict[int, int] = {}  # experts of a token, by the number of the tensor that names them

    def notice(self, operator: str, first: object, result: object) -> None:
        """Record the choices of a router, and copies of them."""
        if operator == "topk" and isinstance(result, tuple):
            self._chosen[self._storages.of(result[1]).number] = result[1].shape[-1]
        elif operator in _COPIES and isinstance(first, torch.Tensor) and isinstance(result, torch.Tensor):
            chosen = self._chosen.get(self._storages.of(first).number)
            if chosen is not None:
                self._chosen[self._storages.of(result).number] = chosen

    def counts(self, values: torch.Tensor, bins: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the assumed count of these values over a number of bins."""
        total, (skew, seed) = values.numel(), self._routing
        chosen = min(self._chosen.get(self._storages.of(values).number, 1), bins)
        if skew:
            counts = tokens_of_experts(skew, seed, bins, chosen, total // chosen)
            text = f"{SPREAD} over the bins by {skew}"
        else:
            counts = tuple(total // bins + (at < total % bins) for at in range(bins))
            text = f"{SPREAD} evenly over the bins"
        self._tape.remark("assumed", text, user_place())
        with unset_fake_temporarily():
            return torch.tensor(counts, dtype=dtype)
