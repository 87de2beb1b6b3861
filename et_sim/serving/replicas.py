"""Replicas in pools: their place on the machine, their blocks of cache, and the times of their passes.

Only sums over a batch matter to the kernels, so batches with equal sums are one simulation. A pass is
simulated alone: other replicas and transfers at the same time do not slow it. All replicas of a pool take as
long as its first one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from et_sim.basics.errors import EtSimError, UsageError
from et_sim.basics.units import format_bytes, plural
from et_sim.execution import execute
from et_sim.plan.kernel_times import times_of_kernels
from et_sim.run.options import RunOptions
from et_sim.run.planning import Plan as RunPlan
from et_sim.run.planning import plan_of
from et_sim.run.simulation import NoWatcher, Recorder, Task, prepare, simulated
from et_sim.serving.alike import are_alike
from et_sim.serving.batcher import Policy
from et_sim.serving.chains import Chains, KernelTimes, has_chains, trials
from et_sim.serving.engines.description import EngineMemory
from et_sim.serving.exchanges import ExchangeTimes, KnownExchanges
from et_sim.serving.layouts import Cuts, PassLayout
from et_sim.serving.shortened import ShortenedPasses
from et_sim.serving.speculation import Speculation
from et_sim.tables.summary import Scope
from et_sim.trace import Workload
from et_sim.trace.workload import MadeFor
from et_sim.workloads.axes import Axes
from et_sim.workloads.counting import NoChainError, labels_of_parts
from et_sim.workloads.inference.batch import Batch, GroupBatches, check, have_prompts, sights
from et_sim.workloads.inference.forward import make_replica, replica_program, run_by
from et_sim.workloads.inference.halves import reserving
from et_sim.workloads.inference.memory import (
    CacheUnits,
    SequenceCache,
    weight_bytes_of_experts,
    weight_bytes_of_stage,
)
from et_sim.workloads.inference.separate import words_for
from et_sim.workloads.inference.transfers import (
    ReplicaPlace,
    Sent,
    SentCache,
    make_load,
    make_transfers,
    make_weights,
)
from et_sim.workloads.models.model import Model
from et_sim.workloads.rank import Program
from et_sim.workloads.training.plan import Plan

BOTH, PREFILL, DECODE = "both", "prefill", "decode"
MOST_UNALIKE = 128  # ranks; a search for the few that are alike takes longer than a few layers of all
MOST_EQUAL = 32  # passes of equal groups by few layers; exchanges by themselves take longer to simulate
USUAL_LENGTH = 8192  # tokens of sequences for which the stage with the least room is found


class CachePool(Struct, frozen=True):
    """Equal replicas, one after the other."""

    work: str  # BOTH, PREFILL or DECODE
    plan: Plan
    replicas: int
    first_rank: int
    blocks: int  # of cache, of each replica
    token_bytes: int  # of cache, of the rank that holds most, while no window is full
    units: CacheUnits | None = None  # of memory, if layers keep different numbers of tokens

    @property
    def ranks(self) -> int:
        """Return the number of ranks of a replica."""
        return self.plan.ranks

    def tokens(self, block: int) -> int:
        """Return the tokens of the cache of a group, in all layers."""
        return self.blocks * block if self.units is None else self.units.tokens(self.blocks)

    def block_bytes(self, block: int) -> int:
        """Return the bytes of one of `blocks`."""
        return self.token_bytes * block if self.units is None else self.units.unit_bytes

    @property
    def groups(self) -> int:
        """Return the groups of ranks with sequences of their own, in all replicas."""
        return self.replicas * self.plan.data

    @property
    def end(self) -> int:
        """Return the first rank after the pool."""
        return self.first_rank + self.replicas * self.ranks

    def place(self, group: int) -> ReplicaPlace:
        """Return the place of a group of the pool."""
        replica, within = divmod(group, self.plan.data)
        return ReplicaPlace(self.plan, self.first_rank + replica * self.ranks, within)


class CacheRoom(Struct, frozen=True):
    """The memory of an NPU, and the rule by which an engine gives a part of it to the cache."""

    rule: EngineMemory
    whole_bytes: int
    reserved_bytes: int = 0  # of the whole, which no engine can use
    tokens: int = 0  # of a replica's cache, if they are given in place of the rule

    def of(self, weights: int, activations: int) -> int:
        """Return the bytes for the cache beside these weights and activations."""
        return self.rule.cache_bytes(self.whole_bytes, weights, activations + self.reserved_bytes)

    def beside(self, weights: int) -> int:
        """Return the bytes that weights leave, whatever the rule of the engine is."""
        return self.whole_bytes - self.reserved_bytes - weights


def make_pool(
    model: Model,
    plan: Plan,
    work: str,
    replicas: int,
    after: int,
    room: CacheRoom,
    policy: Policy,
    speculation: Speculation | None = None,
    tower_bytes: int = 0,
) -> CachePool:
    """Return a pool behind the ranks before `after`; `room`: for weights and cache, on an NPU.

    The model that makes drafts has weights and a cache beside those of the other one; a vision tower has
    weights.
    """
    check(model, plan)
    if speculation is not None:
        speculation.check(plan)
    if not 1 <= replicas <= 10**6:
        raise UsageError(f"the number of replicas is {replicas}", remedy="give a number from 1 to 1,000,000")
    stages = range(plan.pipeline)
    more = tower_bytes + (0 if speculation is None else speculation.weight_bytes(plan))
    weights = [weight_bytes_of_stage(model, plan, place) + more for place in stages]
    caches = [SequenceCache.of(model, plan, place) for place in stages]
    activations = room.rule.activation_bytes(model, plan, policy.token_budget)
    lengths = min(model.sequence, USUAL_LENGTH)
    weight, cache = min(
        (stage for stage in zip(weights, caches, strict=True) if stage[1].bytes(1)),
        key=lambda stage: Fraction(room.of(stage[0], activations), stage[1].bytes(lengths)),
    )
    share, units = Fraction(1), cache.in_units(policy.block)
    if speculation is not None:
        own = cache.bytes(lengths)
        share = Fraction(own, own + speculation.cache_bytes(plan, lengths))
    if room.tokens:
        blocks = _given_blocks(room, policy.block, units, int(room.beside(weight) * share))
    else:
        free = int(room.of(weight, activations) * share)
        blocks = free // units.unit_bytes
        if blocks < 1:
            of_weights = _in_words(model, plan, max(weights))
            raise _lack_of_room(model, room, policy.block, units, free, of_weights, activations)
    of_experts = weight_bytes_of_experts(model, plan) if plan.experts_apart else 0
    if of_experts > room.beside(0) > 0:
        raise UsageError(
            f"the experts of {model.name} take {format_bytes(of_experts)} of each NPU that has experts alone,"
            f" but {format_bytes(room.beside(0))} are available",
            remedy="give more such NPUs with --ep, or more memory with --capacity",
        )
    each, most = plan.ranks, max(cache.token_bytes for cache in caches)
    first = -(-after // each) * each
    kept = None if all(cache.is_plain for cache in caches) else units
    return CachePool(work, plan, replicas, first, blocks, most, kept)


def _given_blocks(room: CacheRoom, block: int, units: CacheUnits, left: int) -> int:
    """Return the blocks of the tokens that are given, for which `left` bytes must suffice."""
    if room.tokens < block:
        raise UsageError(
            f"--cache-tokens is {room.tokens}, less than a block of {block} tokens",
            remedy=f"give {block} or more, or a smaller --block",
        )
    blocks = units.all_of(room.tokens)
    if room.whole_bytes and blocks * units.unit_bytes > left:
        most = units.tokens(max(left, 0) // units.unit_bytes)
        raise UsageError(
            f"--cache-tokens is {room.tokens:,}, but each NPU has room for {most:,} beside the weights",
            remedy=f"give at most {most:,}, or more ranks to a replica with --tp or --pp"
            if most
            else "give more ranks to a replica with --tp or --pp",
        )
    return blocks


def _lack_of_room(
    model: Model,
    room: CacheRoom,
    block: int,
    units: CacheUnits,
    free: int,
    weights: str,
    activations: int,
) -> UsageError:
    """Return the refusal of a replica whose memory does not hold its weights and a block of the cache."""
    if free > 0:
        return UsageError(
            f"a block of {block:,} tokens takes {format_bytes(units.unit_bytes)} of each NPU, but"
            f" {format_bytes(free)} are left for the cache beside the weights of {model.name}",
            remedy="give a smaller --block, more ranks to a replica, or more memory with --capacity",
        )
    available = max(room.of(0, activations), 0)
    return UsageError(
        f"{weights} of each NPU, but {format_bytes(available)} are available for weights and cache",
        remedy="give more ranks to a replica with --tp or --pp, or more memory with --capacity",
    )


def _in_words(model: Model, plan: Plan, weights: int) -> str:
    """Return what the weights on a rank are, and their bytes."""
    text = f"the weights of {model.name} take {format_bytes(weights)}"
    if not plan.lora_rank:
        return text
    without = replace(plan, lora_rank=0, adapters=0)
    own = max(weight_bytes_of_stage(model, without, stage) for stage in range(plan.pipeline))
    adapters = plural(max(plan.adapters, 1), "adapter")
    return f"{text}, {format_bytes(weights - own)} of them for {adapters} of rank {plan.lora_rank},"


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
            choice = "--tp, --dp and --pp whose product divides"
            if pool.plan.experts_apart:
                choice = "--tp, --dp and --ep so that --tp times --dp, plus --ep, divides"
            raise UsageError(
                f"{plural(pool.ranks, 'rank')} of a replica do not divide the {npus} NPUs of the machine",
                remedy=f"choose {choice} {npus}, or another number of NPUs",
            )


class Times(Protocol):
    """The times that serving needs."""

    def pass_ns(self, pool: CachePool, batch: GroupBatches) -> int:
        """Return the time of a replica of a pool for a batch, or for one of each of its groups."""

    def ends_ns(self, caches: Sequence[Sent]) -> Sequence[int]:
        """Return when each of some caches or weights that are sent together has arrived."""

    def load_ns(self, pool: CachePool, tokens: int) -> int:
        """Return the time in which a group of a pool loads the cache of these tokens from remote memory."""


def _runs_in_turn(pool: CachePool) -> bool:
    """Return whether each operation of a rank waits for the last one.

    Halves of a batch do not, and neither do ranks with experts alone.
    """
    return not (pool.plan.overlap_experts or pool.plan.experts_apart)


def _of_groups(pool: CachePool, batch: GroupBatches) -> tuple[Batch, ...]:
    """Return a batch for each group of a replica."""
    return (batch,) * pool.plan.data if isinstance(batch, Batch) else tuple(batch)


def _has_content(sent: Sent) -> bool:
    return not isinstance(sent, SentCache) or sent.tokens > 0


class FirstPass(Struct, frozen=True):
    """The first pass of a run: its time, and the machine's notices."""

    task: Task
    manifest: Mapping[str, Any]
    scope: Scope
    replayed: int
    ns: int


class PlanTimes(Struct):
    """Times of passes of one plan, and its chains by the engine that runs them."""

    first: dict[GroupBatches, FirstPass] = field(default_factory=dict)
    passes: dict[GroupBatches, int] = field(default_factory=dict)
    chains: dict[MadeFor | None, Chains | None] = field(default_factory=dict)
    shortened: dict[MadeFor | None, ShortenedPasses | None] = field(default_factory=dict)
    equal: int = 0  # shortened passes whose groups are equal


class MachineTimes(Struct):
    """Times on one machine, which all plans, models and loads on it share."""

    kernels: dict[MadeFor | None, KernelTimes] = field(default_factory=dict)
    exchanges: dict[MadeFor | None, KnownExchanges] = field(default_factory=dict)
    plans: dict[tuple[Any, ...], PlanTimes] = field(default_factory=dict)
    transfers: dict[tuple[Any, ...], tuple[int, ...]] = field(default_factory=dict)
    loads: dict[tuple[Model, ReplicaPlace, int], int] = field(default_factory=dict)

    def of_kernels(self, task: Task, software: MadeFor | None) -> KernelTimes:
        """Return the times of kernels of an engine."""
        if software not in self.kernels:
            self.kernels[software] = KernelTimes(times_of_kernels(task.machine))
        return self.kernels[software]

    def of_exchanges(self, software: MadeFor | None) -> KnownExchanges:
        """Return the times of exchanges of an engine."""
        return self.exchanges.setdefault(software, KnownExchanges())


class SimulatedTimes(Struct):
    """Times by simulation on a machine; `shared` has those of other plans on it."""

    model: Model
    options: RunOptions
    npus: int
    manifest: Mapping[str, Any] = field(default_factory=dict)  # of the first pass
    passes: dict[tuple[int, GroupBatches], int] = field(default_factory=dict)
    transfers: dict[tuple[Sent, ...], tuple[int, ...]] = field(default_factory=dict)
    scope: Scope = field(default_factory=lambda: Scope(includes=[], leaves_out=[]))  # of the first pass
    replayed: int = 0  # kernels of the first pass with recorded times
    exchanges: str = ""  # the engine whose own all-reduces run; empty: those of the machine's library
    separate: tuple[str, ...] = ()  # work that the engine does in kernels of its own
    shared: MachineTimes = field(default_factory=MachineTimes)
    _tasks: dict[MadeFor | None, Task] = field(default_factory=dict)
    _plans: dict[int, PlanTimes] = field(default_factory=dict)  # by the first rank of a pool

    def pass_ns(self, pool: CachePool, batch: GroupBatches) -> int:
        """Return the time of a pass, simulated the first time."""
        if not isinstance(batch, Batch) and len(set(batch)) == 1:
            batch = batch[0]
        key = (pool.first_rank, batch)
        if key not in self.passes:
            known = self._plan_times(pool)
            if not self.manifest:
                known.passes[batch] = self._first_pass(known, pool, batch)
            elif batch not in known.passes:
                known.passes[batch] = self._new_pass(pool, batch)
            self.passes[key] = known.passes[batch]
        return self.passes[key]

    def _plan_times(self, pool: CachePool) -> PlanTimes:
        if pool.first_rank not in self._plans:
            first = 0 if self._is_like_the_first(pool) else pool.first_rank
            key = self.model, pool.plan, first, self.exchanges, self.separate
            self._plans[pool.first_rank] = self.shared.plans.setdefault(key, PlanTimes())
        return self._plans[pool.first_rank]

    def _is_like_the_first(self, pool: CachePool) -> bool:
        """Return whether a replica takes as long as one that begins at rank 0."""
        task = next(iter(self._tasks.values()), None)  # None before the first pass or transfer
        return task is not None and has_chains(task) and are_alike(task.machine, pool.ranks)

    def _new_pass(self, pool: CachePool, batch: GroupBatches) -> int:
        software, made = self._software(pool, batch), None
        if software not in self._tasks:
            made = self._workload(pool, batch)
            self._tasks[software] = prepare(made, self.options)
        simulate = partial(self._simulated_pass, pool, batch, made)
        if isinstance(batch, Batch):
            return self._equal_pass(pool, software, batch, simulate)
        shortened = self._shortened_of(pool, software)
        return simulate() if shortened is None else shortened.pass_ns(batch, simulate)

    def _equal_pass(
        self, pool: CachePool, software: MadeFor | None, batch: Batch, simulate: Callable[[], int]
    ) -> int:
        """Return the time of a pass of equal groups: few by few layers, and further ones by operations."""
        known = self._plan_times(pool)
        if pool.plan.data > 1 and known.equal < MOST_EQUAL:
            known.equal += 1
            shortened = self._shortened_of(pool, software)
            time = None if shortened is None else shortened.checked_ns(_of_groups(pool, batch))
            if time is not None:
                return time
        chains = self._chains_of(pool, software)
        return simulate() if chains is None else chains.pass_ns(batch, simulate)

    def _software(self, pool: CachePool, batch: GroupBatches) -> MadeFor | None:
        """Return the engine of a pass, which runs from a graph unless it has prompts."""
        groups = (batch,) if isinstance(batch, Batch) else batch
        engine = None
        if self.exchanges:
            words = words_for(self.separate, self.model, pool.plan)
            engine = run_by(self.exchanges, eager=have_prompts(groups), separate=words)
        return reserving(pool.plan, (batch,), engine)

    def _simulated_pass(self, pool: CachePool, batch: GroupBatches, made: Workload | None) -> int:
        return self._simulated(made or self._workload(pool, batch))

    def _workload(self, pool: CachePool, batch: GroupBatches) -> Workload:
        place = {"first": pool.first_rank, "ranks": self.npus}
        software = self._software(pool, batch)
        return make_replica(self.model, pool.plan, batch, **place, software=software)

    def _chains_of(self, pool: CachePool, software: MadeFor | None) -> Chains | None:
        """Return the chains of a pool; None on machines without chains."""
        chains = self._plan_times(pool).chains
        if software not in chains:
            chains[software] = self._new_chains(self._tasks[software], pool, software)
        return chains[software]

    def _new_chains(self, task: Task, pool: CachePool, software: MadeFor | None) -> Chains | None:
        if not _runs_in_turn(pool) or not has_chains(task):
            return None

        def program(batch: Batch) -> tuple[Axes, Program]:
            return replica_program(self.model, pool.plan, batch, pool.first_rank, self.npus, software)

        known = sights(self.model)
        axes, _ = program(trials(known)[0])
        exchanges = ExchangeTimes(axes, partial(self._outcome, task), self.shared.of_exchanges(software))
        try:
            return Chains(program, trials(known), self.shared.of_kernels(task, software), exchanges)
        except NoChainError:  # parts of an exchange run side by side
            return None

    def _shortened_of(self, pool: CachePool, software: MadeFor | None) -> ShortenedPasses | None:
        """Return the shortened passes of a pool's groups; None as for chains, and with several stages."""
        plan = self._plan_times(pool)
        known = plan.shortened
        if software not in known:
            made = known[software] = self._new_shortened(self._tasks[software], pool, software)
            for batch, first in plan.first.items():
                if made is not None and self._software(pool, batch) == software:
                    made.check(_of_groups(pool, batch), first.ns)
        return known[software]

    def _new_shortened(self, task: Task, pool: CachePool, software: MadeFor | None) -> ShortenedPasses | None:
        if pool.plan.pipeline > 1 or not _runs_in_turn(pool) or not has_chains(task):
            return None

        def program(batch: GroupBatches) -> tuple[Axes, Program]:
            return replica_program(self.model, pool.plan, batch, pool.first_rank, self.npus, software)

        made = [program(batch) for batch in trials(sights(self.model))]
        try:
            labels = labels_of_parts(made[0][0], [trial for _, trial in made])
        except NoChainError:
            return None
        if [*labels] != [pool.first_rank]:  # not all ranks run the same program
            return None
        model, ranks = task.network_model(), range(pool.first_rank, pool.first_rank + pool.ranks)

        def layout(cuts: Cuts) -> PassLayout:
            may_fold = self.npus > MOST_UNALIKE and self.options.fold
            plan = partial(plan_of, machine=task.machine, model=model, may_fold=may_fold)
            return PassLayout(made[0][0], ranks, cuts, plan, partial(self._run, model=model))

        kernels = self.shared.of_kernels(task, software)
        return ShortenedPasses(program, labels[pool.first_rank], ranks, kernels, layout)

    def ends_ns(self, caches: Sequence[Sent]) -> Sequence[int]:
        """Return when each of some caches or weights has arrived, simulated the first time."""
        key = tuple(caches)
        if key not in self.transfers:
            self.transfers[key] = self.ends_of_models([(self.model, each) for each in caches])
        return self.transfers[key]

    def ends_of_models(self, sent: Sequence[tuple[Model, Sent]]) -> tuple[int, ...]:
        """Return when each of some caches or weights of models has arrived, simulated the first time."""
        key, known = tuple(sent), self.shared.transfers
        if key not in known:
            moved = [each for each in sent if _has_content(each[1])]
            ends = iter(self._arrivals(moved) if moved else ())
            known[key] = tuple(next(ends) if _has_content(each) else each.begin_ns for _, each in sent)
        return known[key]

    def _arrivals(self, sent: Sequence[tuple[Model, Sent]]) -> list[int]:
        """Return when each of some caches or weights has arrived, whose messages are simulated together."""
        workload, received = make_transfers(sent, self.npus)
        if len(sent) == 1 and not sent[0][1].begin_ns:
            return [self._simulated(workload)]
        outcome = self._outcome(self._task(workload), workload, may_fold=False)
        actors = outcome.plan.actor_of_rank
        first, ends = outcome.plan.actors["node_first"], outcome.nodes["end_ns"]
        return [max(int(ends[first[actors[rank]] + node]) for rank, node in nodes) for nodes in received]

    def load_ns(self, pool: CachePool, tokens: int) -> int:
        """Return the time of a load by the first group of a pool, simulated the first time."""
        place = pool.place(0)
        key, known = (self.model, place, tokens), self.shared.loads
        if key not in known:
            known[key] = self._simulated(make_load(self.model, place, tokens=tokens, ranks=self.npus))
        return known[key]

    def weights_ns(self, source: ReplicaPlace, targets: Sequence[ReplicaPlace]) -> int:
        """Return the time in which replicas receive new weights, simulated."""
        return self._simulated(make_weights(self.model, source, targets, self.npus))

    def _simulated(self, workload: Workload) -> int:
        """Return the time until all ranks are done."""
        return int(self._outcome(self._task(workload), workload).finish_ns.max(initial=0))

    def _task(self, workload: Workload) -> Task:
        if workload.software not in self._tasks:
            self._tasks[workload.software] = prepare(workload, self.options)
        return self._tasks[workload.software]

    def _outcome(self, task: Task, workload: Workload, may_fold: bool = True) -> Any:
        """Simulate a workload on the machine of a task."""
        model = task.network_model()
        plan = plan_of(workload, task.machine, model, may_fold=may_fold and self.options.fold)
        return self._run(plan, model)

    def _run(self, plan: RunPlan, model: Any) -> Any:
        """Simulate a plan."""
        outcome = simulated(plan, model, NoWatcher(), Recorder())
        if not outcome.is_complete:
            raise EtSimError("a forward pass does not complete", remedy="look at it with et-sim make and run")
        return outcome

    def _first_pass(self, known: PlanTimes, pool: CachePool, batch: GroupBatches) -> int:
        """Run the first pass as a whole run, which checks the machine and collects notices."""
        if batch not in known.first:
            workload = self._workload(pool, batch)
            result = execute(workload, self.options)
            if stall := result.stall:
                raise stall.as_error()
            summary, task = result.summary(), prepare(workload, self.options)
            replayed = int(summary["coverage"]["replayed"])
            known.first[batch] = FirstPass(
                task, result.manifest, summary["scope"], replayed, int(result.makespan_ns)
            )
        first = known.first[batch]
        self.manifest, self.scope, self.replayed = first.manifest, first.scope, first.replayed
        self._tasks[self._software(pool, batch)] = first.task
        return first.ns
