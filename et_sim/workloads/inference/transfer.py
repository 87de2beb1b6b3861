"""The cache of one sequence from the ranks of a replica to those of another one.

Every rank gets the layers and heads that it works on from ranks that have them. What several have comes from
the one whose place follows from its own, so that they take turns.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from et_sim.trace.builder import TraceBuilder
from et_sim.trace.workload import Workload
from et_sim.workloads.inference.batch import cached_values
from et_sim.workloads.models.model import Model
from et_sim.workloads.profile import PROFILE
from et_sim.workloads.training.plan import Plan


class Place(NamedTuple):
    """Where a replica is: its ranks follow each other, tensor-parallel ones first."""

    plan: Plan
    first: int


def messages(model: Model, source: Place, target: Place) -> Counter[tuple[int, int]]:
    """Bytes of a token, by rank that sends and rank that receives."""
    found: Counter[tuple[int, int]] = Counter()
    attention = model.attention
    heads = 1 if attention.latent is not None else attention.key_heads
    size = cached_values(attention) // heads * target.plan.value_bytes
    for stage in range(target.plan.pipeline):
        wanted = target.plan.part(model, stage, 0).all_layers
        for other in range(source.plan.pipeline):
            there = source.plan.part(model, other, 0).all_layers
            layers = len(range(max(wanted.start, there.start), min(wanted.stop, there.stop)))
            if not layers:
                continue
            for tensor in range(target.plan.tensor):
                to = target.first + stage * target.plan.tensor + tensor
                for head in _heads(tensor, target.plan.tensor, heads):
                    holders = [
                        one
                        for one in range(source.plan.tensor)
                        if head in _heads(one, source.plan.tensor, heads)
                    ]
                    holder = holders[tensor % len(holders)]
                    found[source.first + other * source.plan.tensor + holder, to] += layers * size
    return found


def _heads(tensor: int, ranks: int, heads: int) -> range:
    """Those of a tensor-parallel rank."""
    first = tensor * heads // ranks
    return range(first, max((tensor + 1) * heads // ranks, first + 1))


def make_transfer(model: Model, source: Place, target: Place, *, tokens: int, ranks: int) -> Workload:
    """The messages of so many tokens, all at once; the other ones of `ranks` do nothing."""
    builders: dict[int, TraceBuilder] = {}
    for (sender, receiver), size in sorted(messages(model, source, target).items()):
        for rank in (sender, receiver):
            builders.setdefault(rank, TraceBuilder(source="<cache>"))
        builders[sender].send(receiver, size * tokens, name="cache send")
        builders[receiver].receive(sender, size * tokens, name="cache receive")
    of_rank = np.zeros(ranks, np.int32)
    for number, rank in enumerate(builders, 1):
        of_rank[rank] = number
    idle = TraceBuilder(source="<cache>").build()
    templates = (idle, *(build.build() for build in builders.values()))
    return Workload(templates, of_rank, "<cache>", profile=PROFILE)
