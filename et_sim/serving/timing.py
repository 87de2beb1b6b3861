"""How long a forward pass takes, and a cache on its way: simulated on the machine, each distinct one once.

Only sums over a batch matter to the kernels, so batches with equal sums are one simulation. A pass is
simulated alone: what other replicas and transfers do at the same time does not slow it. All replicas of a
pool take as long as its first one.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct, field

from et_sim import api
from et_sim.basics.errors import EtSimError
from et_sim.plan.lowering import Lowering
from et_sim.run.options import RunOptions
from et_sim.run.simulation import Nobody, Recorder, Task, prepare, simulated
from et_sim.serving.pools import CachePool
from et_sim.trace import Workload
from et_sim.workloads.inference.batch import Batch
from et_sim.workloads.inference.forward import make_replica, make_transfer
from et_sim.workloads.models.model import Model


class Times(Protocol):
    """What the loop of serving asks."""

    def pass_ns(self, pool: CachePool, batch: Batch) -> int:
        """How long a replica of a pool works on a batch."""

    def transfer_ns(self, source: CachePool, replica: int, target: CachePool, other: int, tokens: int) -> int:
        """How long the cache of these tokens takes from one replica to another."""


class SimulatedTimes(Struct):
    """By simulation on a machine."""

    model: Model
    options: RunOptions
    npus: int
    manifest: dict[str, Any] = field(default_factory=dict)  # of the first pass
    passes: dict[tuple[int, Batch], int] = field(default_factory=dict)
    transfers: dict[tuple[Any, ...], int] = field(default_factory=dict)
    scope: dict[str, list[str]] = field(default_factory=dict)  # of the first pass
    replayed: int = 0  # kernels of the first pass that the machine does not time
    _task: Task | None = None

    def pass_ns(self, pool: CachePool, batch: Batch) -> int:
        """Simulated when it is asked for the first time."""
        key = (pool.first_rank, batch)
        if key not in self.passes:
            workload = make_replica(self.model, pool.plan, batch, first=pool.first_rank, ranks=self.npus)
            self.passes[key] = self._simulated(workload)
        return self.passes[key]

    def transfer_ns(self, source: CachePool, replica: int, target: CachePool, other: int, tokens: int) -> int:
        """Simulated when it is asked for the first time."""
        key = (replica, other, tokens)
        if key not in self.transfers:
            places = source.place(replica), target.place(other)
            workload = make_transfer(self.model, *places, tokens=tokens, ranks=self.npus)
            self.transfers[key] = self._simulated(workload)
        return self.transfers[key]

    def _simulated(self, workload: Workload) -> int:
        """How long it takes until all ranks are done."""
        if self._task is None:
            return self._first(workload)
        machine, options = self._task.machine, self.options
        network = self._task.network_model()
        outcome = simulated(Lowering(workload, machine), network, options.fold, Nobody(), Recorder())
        if not outcome.is_complete:
            raise EtSimError("a forward pass does not complete", remedy="look at it with et-sim make and run")
        return int(outcome.finish_ns.max(initial=0))

    def _first(self, workload: Workload) -> int:
        """The whole way of a run, which checks the machine and says what it takes for granted."""
        result = api.execute(workload, self.options)
        if stall := result.stall:
            raise stall.as_error()
        self.manifest = result.manifest
        summary = result.summary()
        self.replayed, self.scope = int(summary["coverage"]["replayed"]), summary["scope"]
        self._task = prepare(workload, self.options)
        return int(result.makespan_ns)
