"""Replicas in pools: their place on the machine, their blocks of cache, and the times of their passes.

Only sums over a batch matter to the kernels, so batches with equal sums are one simulation. A pass is
simulated alone: other replicas and transfers at the same time do not slow it. All replicas of a pool take as
long as its first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct, field

from et_sim import api
from et_sim.basics.errors import EtSimError, UsageError
from et_sim.basics.units import format_bytes, plural
from et_sim.run.options import RunOptions
from et_sim.run.planning import plan_of
from et_sim.run.simulation import NoWatcher, Recorder, Task, prepare, simulated
from et_sim.serving.batcher import Policy
from et_sim.tables.summary import Scope
from et_sim.trace import Workload
from et_sim.workloads.inference.batch import Batch, cache_bytes_of_stage, check, weight_bytes_of_stage
from et_sim.workloads.inference.forward import ReplicaPlace, make_replica, make_transfer
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
        """Return the number of ranks of a replica."""
        return self.plan.ranks

    @property
    def end(self) -> int:
        """Return the first rank after the pool."""
        return self.first_rank + self.replicas * self.ranks

    def place(self, replica: int) -> ReplicaPlace:
        """Return the place of a replica of the pool."""
        return ReplicaPlace(self.plan, self.first_rank + replica * self.ranks)


def make_pool(
    model: Model, plan: Plan, work: str, replicas: int, after: int, capacity_bytes: int, policy: Policy
) -> CachePool:
    """Return a pool behind the ranks before `after`; `capacity_bytes`: of weights and cache, on an NPU."""
    check(model, plan)
    if not 1 <= replicas <= 10**6:
        raise UsageError(f"the number of replicas is {replicas}", remedy="give a number from 1 to 1,000,000")
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
            f"the weights of {model.name} take {format_bytes(max(weights))} of each NPU, but"
            f" {format_bytes(capacity_bytes)} are available for weights and cache",
            remedy="give more ranks to a replica with --tp or --pp, or more memory with --capacity",
        )
    each = plan.ranks
    return CachePool(work, plan, replicas, -(-after // each) * each, int(blocks), max(tokens))


def check_pools(pools: tuple[CachePool, ...], npus: int) -> None:
    """Refuse replicas for which the machine has too few NPUs."""
    end = pools[-1].end
    if end > npus:
        raise UsageError(
            f"the replicas need {plural(end, 'NPU')}, but the machine has {npus}",
            remedy=f"give fewer replicas or ranks, or a machine of at least {end} NPUs",
        )
    for pool in pools:
        if npus % pool.ranks:
            raise UsageError(
                f"{plural(pool.ranks, 'rank')} of a replica do not divide the {npus} NPUs of the machine",
                remedy=f"choose --tp and --pp whose product divides {npus}, or another number of NPUs",
            )


class Times(Protocol):
    """The times that serving needs."""

    def pass_ns(self, pool: CachePool, batch: Batch) -> int:
        """Return the time of a replica of a pool for a batch."""

    def transfer_ns(self, source: CachePool, replica: int, target: CachePool, other: int, tokens: int) -> int:
        """Return the time of sending the cache of these tokens from one replica to another."""


class SimulatedTimes(Struct):
    """Times by simulation on a machine."""

    model: Model
    options: RunOptions
    npus: int
    manifest: Mapping[str, Any] = field(default_factory=dict)  # of the first pass
    passes: dict[tuple[int, Batch], int] = field(default_factory=dict)
    transfers: dict[tuple[Any, ...], int] = field(default_factory=dict)
    scope: Scope = field(default_factory=lambda: Scope(includes=[], leaves_out=[]))  # of the first pass
    replayed: int = 0  # kernels of the first pass with recorded times
    _task: Task | None = None

    def pass_ns(self, pool: CachePool, batch: Batch) -> int:
        """Return the time of a pass, simulated the first time."""
        key = (pool.first_rank, batch)
        if key not in self.passes:
            workload = make_replica(self.model, pool.plan, batch, first=pool.first_rank, ranks=self.npus)
            self.passes[key] = self._simulated(workload)
        return self.passes[key]

    def transfer_ns(self, source: CachePool, replica: int, target: CachePool, other: int, tokens: int) -> int:
        """Return the time of a transfer, simulated the first time."""
        key = (replica, other, tokens)
        if key not in self.transfers:
            places = source.place(replica), target.place(other)
            workload = make_transfer(self.model, *places, tokens=tokens, ranks=self.npus)
            self.transfers[key] = self._simulated(workload)
        return self.transfers[key]

    def _simulated(self, workload: Workload) -> int:
        """Return the time until all ranks are done."""
        if self._task is None:
            return self._first(workload)
        machine, options = self._task.machine, self.options
        model = self._task.network_model()
        plan = plan_of(workload, machine, model, may_fold=options.fold)
        outcome = simulated(plan, model, NoWatcher(), Recorder())
        if not outcome.is_complete:
            raise EtSimError("a forward pass does not complete", remedy="look at it with et-sim make and run")
        return int(outcome.finish_ns.max(initial=0))

    def _first(self, workload: Workload) -> int:
        """Run the first pass as a whole run, which checks the machine and collects notices."""
        result = api.execute(workload, self.options)
        if stall := result.stall:
            raise stall.as_error()
        self.manifest = result.manifest
        summary = result.summary()
        self.replayed, self.scope = int(summary["coverage"]["replayed"]), summary["scope"]
        self._task = prepare(workload, self.options)
        return int(result.makespan_ns)
