"""How many tokens each expert gets, where a program counts what a router chose and nobody knows it.

A count of values over bins (`bincount`, `histc`) is taken for one of tokens over experts: as many for each,
or uneven as `--expert-skew` says. What `topk` chooses tells how many experts a token takes, which are
different ones. Every rank's tokens are shared out alike.
"""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from et_sim.workloads.training.plan import tokens_of_experts
from recorder.process.storages import Storages
from recorder.process.tape import Tape, user_place
from recorder.recorded import SPREAD, Routing

_COPIES = ("_to_copy", "clone")


class Experts:
    """Answers for counts that nobody knows."""

    def __init__(self, routing: Routing, tape: Tape, storages: Storages) -> None:
        self._routing, self._tape, self._storages = routing, tape, storages
        self._chosen: dict[int, int] = {}  # experts of a token, by the number of the tensor that names them

    def notice(self, operator: str, first: object, result: object) -> None:
        """Remember what a router chose, and copies of it."""
        if operator == "topk" and isinstance(result, tuple):
            self._chosen[self._storages.of(result[1]).number] = result[1].shape[-1]
        elif operator in _COPIES and isinstance(first, torch.Tensor) and isinstance(result, torch.Tensor):
            chosen = self._chosen.get(self._storages.of(first).number)
            if chosen is not None:
                self._chosen[self._storages.of(result).number] = chosen

    def counts(self, values: torch.Tensor, bins: int, dtype: torch.dtype) -> torch.Tensor:
        """What a count of these values over so many bins gives."""
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
