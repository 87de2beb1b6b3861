"""Choices of a router, whose values are unknown, and numbers of tokens of its experts.

The places of the largest values of a row (`topk`, `argmax`, `max`, `multinomial`) are taken as the experts of
a token: all get the same number of tokens, or the numbers of `--expert-skew`, and all counts of them follow.
A count of other values over bins (`bincount`, `histc`) is distributed in the same way. All ranks use the same
distribution.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_iter

from et_sim.workloads.training.expert_loads import tokens_of_experts
from recorder.process.tape import Tape, user_place
from recorder.process.values import is_small, set_value
from recorder.recorded import SPREAD, ExpertRouting

CHOICES = {"topk": 2, "argmax": 1, "max": 1, "multinomial": 4}  # operators, and the place of their dimension
MOST_EXPERTS = 4096  # more values in a row are words of a vocabulary


class ExpertCounts:
    """Substitutes for unknown choices and counts."""

    def __init__(self, routing: ExpertRouting, tape: Tape) -> None:
        self._routing, self._tape = routing, tape

    def choose(self, scores: torch.Tensor, result: Any, dimension: int | None) -> None:
        """Give values to the chosen places of every row of scores."""
        chosen = [part for part in tree_iter(result) if part.dtype is torch.int64]
        if not chosen or scores.dim() == 0 or dimension not in (-1, scores.dim() - 1):
            return
        places, experts = chosen[0], scores.shape[-1]
        tokens = scores.numel() // max(experts, 1)
        if not 1 < experts <= MOST_EXPERTS or not is_small(places) or tokens < 2 or places.numel() % tokens:
            return
        counts = self._counts(experts, places.numel() // tokens, places.numel())
        # The tokens of an expert are one after another, so no token takes it twice.
        spread = np.repeat(np.arange(experts), counts).reshape(-1, tokens).T
        with unset_fake_temporarily():
            set_value(places, torch.from_numpy(np.ascontiguousarray(spread)).reshape(places.shape))

    def counts(self, values: torch.Tensor, bins: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the assumed count of values over a number of bins."""
        counts = self._counts(bins, 1, values.numel())
        with unset_fake_temporarily():
            return torch.tensor(counts, dtype=dtype)

    def _counts(self, experts: int, chosen: int, total: int) -> tuple[int, ...]:
        skew, seed = self._routing
        if skew:
            counts = tokens_of_experts(skew, seed, experts, chosen, total // chosen)
            text = f"{SPREAD} over the bins by {skew}"
        else:
            counts = tuple(total // experts + (at < total % experts) for at in range(experts))
            text = f"{SPREAD} evenly over the bins"
        self._tape.remark("assumed", text, user_place())
        return counts
