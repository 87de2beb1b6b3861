"""Replicas in pools: where they are on the machine, and how many blocks of cache each has.

Not here: what they do (`cluster`).
"""

from __future__ import annotations

from msgspec import Struct

from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_bytes, plural
from et_sim.serving.policy import Policy
from et_sim.workloads.inference.batch import cache_bytes_of_stage, check, weight_bytes_of_stage
from et_sim.workloads.inference.forward import Place
from et_sim.workloads.models.model import Model
from et_sim.workloads.training.plan import Plan

BOTH, PREFILL, DECODE = "both", "prefill", "decode"


class CachePool(Struct, frozen=True):
    """Equal replicas, one after the other."""

    work: str  # BOTH, PREFILL or DECODE
    plan: Plan
    replicas: int
    first_rank: int
    blocks: int  # of cache, of each replica
    token_bytes: int  # of cache, of the rank that holds most

    @property
    def ranks(self) -> int:
        """Of a replica."""
        return self.plan.ranks

    @property
    def end(self) -> int:
        """The first rank after it."""
        return self.first_rank + self.replicas * self.ranks

    def place(self, replica: int) -> Place:
        """Where a replica of the pool is."""
        return Place(self.plan, self.first_rank + replica * self.ranks)


def make_pool(
    model: Model, plan: Plan, work: str, replicas: int, after: int, capacity_bytes: int, policy: Policy
) -> CachePool:
    """A pool behind the ranks before `after`; `capacity_bytes`: of weights and cache, on an NPU."""
    check(model, plan)
    if not 1 <= replicas <= 10**6:
        raise UsageError(f"{replicas} replicas", remedy="give a number from 1 up")
    stages = range(plan.pipeline)
    weights = [weight_bytes_of_stage(model, plan, place) for place in stages]
    tokens = [cache_bytes_of_stage(model, plan, place) for place in stages]
    blocks = min(
        (capacity_bytes - weight) // (policy.block * token)
        for weight, token in zip(weights, tokens, strict=True)
        if token
    )
    if blocks < 1:
        raise UsageError(
            f"the weights of {model.name} take {format_bytes(max(weights))} of each NPU, and"
            f" {format_bytes(capacity_bytes)} are for them and the cache",
            remedy="give more ranks to a replica with --tp or --pp, or more memory with --capacity",
        )
    each = plan.ranks
    return CachePool(work, plan, replicas, -(-after // each) * each, int(blocks), max(tokens))


def check_pools(pools: tuple[CachePool, ...], npus: int) -> None:
    """Refuse replicas that the machine has no place for."""
    end = pools[-1].end
    if end > npus:
        raise UsageError(
            f"the replicas need {plural(end, 'NPU')}, and the machine has {npus}",
            remedy="give fewer replicas or ranks, or a larger machine, as in --machine h100-dgx:16",
        )
    for pool in pools:
        if npus % pool.ranks:
            raise UsageError(
                f"a replica has {plural(pool.ranks, 'rank')}, which do not divide the machine's {npus} NPUs",
                remedy="choose --tp and --pp so that they do, or another number of NPUs",
            )
