"""Replicas of a model over time: requests arrive, passes end, caches arrive, and idle replicas begin their
next pass.

With data-parallel attention, a replica has several groups of ranks with sequences of their own. Each counts
as a replica for requests, but all groups of a replica begin and end their passes together.

A request goes to the replica with the fewest tokens still to be processed, the first one of several. With
separate pools, that is a replica for prompts; the request's cache then goes to the replica for further tokens
with the fewest left to do, which must have blocks for it. Passes go on while caches are sent (`transfers`).

With autoscaling, only replicas that serve get requests (`scaling`).

Events of the same time have this order: arrivals, ends of passes, ends of transfers, ends of loads, replicas
that have started, measurements of the load; then all idle replicas begin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct, field

from et_sim.basics.errors import UsageError
from et_sim.serving.batcher import Batcher, Policy, Share
from et_sim.serving.caching import BY_PREFIX, Caching
from et_sim.serving.course import (
    ARRIVES,
    CACHE_ARRIVES,
    CACHE_IS_LOADED,
    HAS_STARTED,
    IS_MEASURED,
    PASS_ENDS,
    Begun,
    Course,
)
from et_sim.serving.drafting import Drafting, by_work
from et_sim.serving.engines.description import FREE_OF_COST, Engine
from et_sim.serving.images import Encoding
from et_sim.serving.prefixes import HeldBlocks
from et_sim.serving.replicas import BOTH, DECODE, PREFILL, CachePool, Times
from et_sim.serving.requests import Request
from et_sim.serving.scaling import BUSY, ReplicaOfPass, Scaler
from et_sim.serving.sequences import ServedSequence as Served
from et_sim.serving.speculation import Speculation
from et_sim.serving.steady import SteadyPasses, is_steady
from et_sim.serving.transfers import Transfer, WeightTransfer, Window
from et_sim.workloads.inference.batch import AttentionSight, Batch, Segment
from et_sim.workloads.inference.transfers import ReplicaPlace, Sent, SentCache


class ReplicaPass(NamedTuple):
    """One pass of a replica."""

    replica: int
    start_ns: int
    end_ns: int
    sequences: int
    prefill_tokens: int
    decode_tokens: int
    context_tokens: int  # cached before the pass
    used_blocks: int  # during the pass
    waiting: int  # requests that wait for the replica


class Replica(Struct):
    """One replica and its state."""

    number: int
    pool: CachePool
    place: int  # in the pool, counted by groups of ranks with sequences of their own
    batcher: Batcher
    is_busy: bool = False
    begun_ns: int = 0  # its last pass
    sent_ns: int = 0  # the end of its last transfer
    loads_until_ns: int = 0  # from remote memory
    held_passes: int = 0  # since prompts of some of its groups wait for those of others


class HeldCache(NamedTuple):
    """A cache that is to be sent, and the pass that ended with it."""

    source: Replica
    blocks: HeldBlocks
    pass_end_ns: int
    layers: int  # those left at the end of the pass, if its blocks are there then; 0: all
    tokens: int  # of these layers


class ServingCluster(Struct):
    """All replicas, and the served requests."""

    pools: tuple[CachePool, ...]
    policy: Policy
    times: Times
    context_step: int = 1
    sights: tuple[AttentionSight, ...] = ()  # of layers with a limited sight
    engine: Engine = FREE_OF_COST
    caching: Caching = field(default_factory=Caching)
    has_common_memory: bool = False  # remote memory is one for all replicas
    layers: int = 1  # of the model, whose kernels the host launches
    expert_layers: int = 0  # of these, those with experts
    drafting: Drafting | None = None
    encoding: Encoding | None = None
    by_layers: bool = False  # caches are sent while their prompts are computed
    scaler: Scaler | None = None
    replicas: list[Replica] = field(default_factory=list)
    iterations: list[ReplicaPass] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)  # in the order of the requests' numbers
    _held: dict[int, HeldCache] = field(default_factory=dict)  # caches to be sent, by request
    course: Course = field(default_factory=Course)
    first_replica: int = 0  # its number
    _place: int = 0  # of this model in the course
    _measured: int = 0  # passes at the last measurement of the load

    def __post_init__(self) -> None:
        self._place = self.course.add(self)
        block, choice = self.policy.block, self.caching
        common = choice.new_remote(block) if self.has_common_memory else None
        for pool in self.pools:
            for place in range(pool.groups):
                speculation = self.drafting.speculation if self.drafting and pool.work != PREFILL else None
                caches = choice.new(block), common or choice.new_remote(block)
                batcher = Batcher(self.policy, pool.blocks, pool.units, *caches, speculation)
                number = self.first_replica + len(self.replicas)
                self.replicas.append(Replica(number, pool, place, batcher))
        if self.scaler is not None:
            self.scaler.use([replica.batcher for replica in self.replicas], self._forget)
            self._push(self.scaler.next_ns(0), IS_MEASURED)

    def serve(
        self,
        requests: Sequence[Request],
        concurrency: int = 0,
        ends_first: int = 0,
        batch: int = 0,
        weights_ns: Callable[[], int] = lambda: 0,
        report: Callable[[int, int, int], None] = lambda *_: None,
    ) -> None:
        """Serve all requests, in the order of arrival, until each has its tokens.

        In a closed loop, so many are under way at a time: the next one arrives when another one has ended.
        So many of the first ones end before the others are sent. Batches of a rollout are sent when the one
        before has ended, and replicas have new weights after `weights_ns`. `report` gets the time, and the
        finished requests and tokens.
        """
        after_ns = round(self.engine.host.after_ns)
        self.course.serve(requests, after_ns, concurrency, ends_first, batch, weights_ns, report)
        self.sort()

    def check_requests(self, requests: Sequence[Request]) -> None:
        """Refuse a request that would never fit the cache of a replica."""
        speculation = None if self.drafting is None else self.drafting.speculation
        check_requests(requests, self.pools, self.policy, speculation)

    def sort(self) -> None:
        """Bring the served requests into the order of their numbers."""
        self.served.sort(key=lambda sequence: sequence.request.number)

    @property
    def is_scaled(self) -> bool:
        """Return whether a rule changes the number of replicas."""
        return self.scaler is not None

    @property
    def produced(self) -> int:
        """Return the tokens of all sequences so far."""
        return sum(replica.batcher.produced for replica in self.replicas)

    def ends_ns(self, sent: Sequence[Sent]) -> Sequence[int]:
        """Return when each of what is sent has arrived."""
        return self.times.ends_ns(sent)

    def happen(self, now: int, kind: int, *arguments: Any) -> None:
        """Let an event happen."""
        if kind == ARRIVES:
            self._arrive(*arguments)
        elif kind == PASS_ENDS:
            self._end_pass(now, *arguments)
        elif kind == CACHE_ARRIVES:
            self._end_transfer(now, *arguments)
        elif kind == CACHE_IS_LOADED:
            replica, sequence, tokens = arguments
            replica.batcher.cache_loaded(sequence, tokens)
        elif self.scaler is not None:
            if kind == HAS_STARTED:
                self.scaler.serve(now, *arguments)
            else:
                self._measure(now, self.scaler)

    def _measure(self, now: int, scaler: Scaler) -> None:
        """Let the load start or stop replicas."""
        passes = list[ReplicaOfPass]()
        if scaler.rule.measure == BUSY:
            data, new = scaler.pool.plan.data, self.iterations[self._measured :]
            self._measured = len(self.iterations)
            passes = [ReplicaOfPass(each.replica // data, each.start_ns, each.end_ns) for each in new]
        for transfer in scaler.measure(now, passes):
            self.course.transfers.add_weights(transfer)
        self._push(scaler.next_ns(now), IS_MEASURED)

    def _forget(self, batcher: Batcher) -> None:
        """Empty the cache of a replica that starts."""
        batcher.prefixes = self.caching.new(self.policy.block)
        if not self.has_common_memory:
            batcher.remote = self.caching.new_remote(self.policy.block)

    def _least(self, sequence: Served, *works: str) -> Replica:
        """Return the replica with the least left to do of pools for these works.

        With the router by prefix, tokens of the sequence that are cached there count as done.
        """

        def left(replica: Replica) -> tuple[int, int]:
            batcher, done = replica.batcher, 0
            if self.caching.router == BY_PREFIX:
                done = batcher.found(sequence).blocks * self.policy.block
            return batcher.left - done, replica.number

        able = (replica for replica in self.replicas if replica.pool.work in works)
        if self.scaler is not None:
            able = (replica for replica in able if self.scaler.serves(replica.place))
        return min(able, key=left)

    def send_request(self, request: Request) -> None:
        """Let a request arrive."""
        before = self.engine.before_ns(self.layers, self.expert_layers)
        self._push(request.arrival_ns + before, ARRIVES, Served(request))

    def _arrive(self, sequence: Served) -> None:
        self.served.append(sequence)
        replica = self._least(sequence, BOTH, PREFILL)
        sequence.replica = replica.number
        replica.batcher.enqueue(sequence, is_late=replica.is_busy and self.engine.host.prepares)

    def _end_pass(self, now: int, groups: Sequence[Replica], batches: Sequence[list[Share]]) -> None:
        for replica, batch in zip(groups, batches, strict=True):
            self._end_of_group(now, replica, batch)

    def _end_of_group(self, now: int, replica: Replica, batch: list[Share]) -> None:
        replica.is_busy = False
        moved: list[Share] = []
        received = now + round(self.engine.host.after_ns)
        tokens = {sequence.request.number: count for sequence, count in batch}
        for sequence in replica.batcher.complete(batch):
            if sequence.first_token_ns < 0:
                sequence.first_token_ns = received
            if sequence.is_done:
                sequence.finish_ns = received
                replica.batcher.finish(sequence)
                self.course.answered(sequence.request, received)
            elif replica.pool.work == PREFILL:
                moved.append(Share(sequence, tokens[sequence.request.number]))
        self._move_to_decode(now, replica, moved)

    def _move_to_decode(self, now: int, replica: Replica, moved: Sequence[Share]) -> None:
        """Choose the replicas for further tokens of sequences whose prompts have ended together."""
        for sequence, _ in moved:
            other = self._least(sequence, DECODE)
            sequence.decode_replica, sequence.is_elsewhere = other.number, True
            other.batcher.enqueue(sequence)
        left = self._layers_left(now, replica, moved) if self.by_layers and moved else 0
        for sequence, tokens in moved:
            new = tokens if left == 1 and sequence.scheduled_ns < replica.begun_ns else sequence.cached
            blocks = replica.batcher.drain(sequence)
            self._held[sequence.request.number] = HeldCache(replica, blocks, now, left, new)

    def _layers_left(self, now: int, replica: Replica, moved: Sequence[Share]) -> int:
        """Return the layers that are still to be sent at the end of a pass."""
        layer_ns = 0
        for sequence, tokens in moved:
            new = tokens if sequence.scheduled_ns < replica.begun_ns else sequence.cached
            places = self._place_of(replica), self._place_of(self._replica(sequence.decode_replica))
            layer_ns += self.times.ends_ns([SentCache(*places, new, 1)])[0]
        free = now if self.course.transfers.is_sending(replica.number) else replica.sent_ns
        return Window(replica.begun_ns, now, free, self.layers).left(layer_ns)

    def _replica(self, number: int) -> Replica:
        return self.replicas[number - self.first_replica]

    @staticmethod
    def _place_of(replica: Replica) -> ReplicaPlace:
        return replica.pool.place(replica.place)

    def _end_transfer(self, now: int, transfer: Transfer | WeightTransfer) -> None:
        if not self.course.transfers.end(transfer, now):
            return
        if isinstance(transfer, WeightTransfer):
            assert self.scaler is not None
            self.scaler.has_weights(now, transfer.place)
            self._push(now + self.scaler.rule.start_ns, HAS_STARTED, transfer.place)
            return
        sequence, held = transfer.sequence, self._held.pop(transfer.sequence.request.number)
        sequence.transfer_ns, held.source.sent_ns = now - transfer.begin_ns, now
        held.source.batcher.release(held.blocks)
        self._replica(transfer.target).batcher.cache_arrived(sequence)
        self.course.begin_transfers(now)

    def begin(self, now: int) -> list[Begun]:
        """Begin passes on idle replicas; return them."""
        if self.scaler is not None:
            self.scaler.stop_drained(now)
        for replica in self.replicas:
            replica.batcher.admit_caches(partial(self._send, now, replica))
        self.course.begin_transfers(now)
        begun = []
        for at, replica in enumerate(self.replicas):
            if replica.is_busy or replica.place % replica.pool.plan.data:
                continue
            groups = self.replicas[at : at + replica.pool.plan.data]
            holds = self._holds_prompts(replica, groups)
            batches = [group.batcher.next_batch(holds_prompts=holds) for group in groups]
            for group in groups:
                self._load(now, group)
            if any(batches):
                begun.append(Begun(self._run(now, groups, batches), groups, batches))
        return begun

    def _holds_prompts(self, replica: Replica, groups: Sequence[Replica]) -> bool:
        """Return whether prompts wait until each group has one; count the passes."""
        if len(groups) == 1 or not self.policy.balance_passes:
            return False
        ready = [group.batcher.ready_tokens > 0 for group in groups]
        is_due = all(ready) or not all(group.batcher.singles for group in groups)
        holds = any(ready) and not is_due and replica.held_passes < self.policy.balance_passes
        replica.held_passes = replica.held_passes + 1 if holds else 0
        return holds

    def _load(self, now: int, replica: Replica) -> None:
        """Begin to load the caches of sequences from remote memory, one after the other."""
        for sequence, tokens in replica.batcher.begun_loads():
            begin = max(now, replica.loads_until_ns)
            replica.loads_until_ns = begin + self.times.load_ns(replica.pool, tokens)
            self._push(replica.loads_until_ns, CACHE_IS_LOADED, replica, sequence, tokens)

    def _send(self, now: int, target: Replica, sequence: Served) -> None:
        """Let a cache be sent, as far as it is not there; its blocks are allocated."""
        held = self._held[sequence.request.number]
        there = sequence.held.blocks * self.policy.block if sequence.held is not None else 0
        tokens, layers = sequence.cached - there, 0
        if held.pass_end_ns == now and held.layers < self.layers:
            tokens, layers = min(tokens, held.tokens), held.layers
        sent = SentCache(self._place_of(held.source), self._place_of(target), tokens, layers)
        transfer = Transfer(sequence, held.source.number, target.number, sent, self._place)
        self.course.transfers.add(transfer)

    def _run(self, now: int, groups: Sequence[Replica], batches: Sequence[list[Share]]) -> int:
        """Begin a pass of all groups of a replica; return its end, which is the same for all of them."""
        segments = [_segments(shares) for shares in batches]
        loads = [Batch.of(self.engine.padded(each), self.context_step, self.sights) for each in segments]
        took = self.times.pass_ns(groups[0].pool, loads[0] if len(loads) == 1 else by_work(loads))
        end = now + max(self._pass_ns(took, batch) for batch in loads)
        if self.drafting is not None:
            end += self.drafting.ns(groups[0].pool, segments, self.engine, self.context_step)
        if self.encoding is not None:
            new = [sum(sequence.scheduled_ns < 0 for sequence, _ in shares) for shares in batches]
            end += self.encoding.ns(groups[0].pool, new, self.engine)
        for replica, shares, batch, of_batch in zip(groups, batches, loads, segments, strict=True):
            replica.is_busy, replica.begun_ns = True, now
            for sequence, _ in shares:
                if sequence.scheduled_ns < 0:
                    sequence.scheduled_ns = now
            if shares:
                self.course.passes += 1
                self.iterations.append(
                    ReplicaPass(
                        replica.number,
                        now,
                        end,
                        len(shares),
                        batch.prefill.tokens,
                        sum(not segment.is_prompt for segment in of_batch),
                        sum(segment.context for segment in of_batch),
                        replica.batcher.used,
                        len(replica.batcher.waiting),
                    )
                )
        return end

    def _pass_ns(self, device_ns: int, batch: Batch) -> int:
        return self.engine.pass_ns(device_ns, batch, self.layers, self.expert_layers)

    def repeated(self, begun: Begun) -> int:
        """Run further passes of the same sequences before the next event; return the end of the last one."""
        end, groups, batches = begun
        (replica, *others), (shares, *_) = groups, batches
        pool, batcher, count = replica.pool, replica.batcher, len(shares)
        if others or pool.work == PREFILL or not batcher.repeats:
            return end
        if self.drafting is not None or batcher.may_differ or any(sight.in_chunks for sight in self.sights):
            return end
        windows = [sight.window for sight in self.sights]
        if not is_steady(shares, max([*windows, pool.units.longest_window if pool.units else 0])):
            return end
        passes, own = SteadyPasses(batcher, shares), sum(sequence.cached for sequence, _ in shares)
        padded = self.engine.padded(_segments(shares))
        within = Batch.of(padded, self.context_step, self.sights).within if self.sights else ()
        contexts, sampled = (
            sum(segment.context for segment in padded),
            sum(each.is_sampled for each in padded),
        )
        while (not self.course.events or end < self.course.events[0][0]) and passes.begin():
            now, more = end, passes.passes * count
            batch = Batch.of_singles(len(padded), contexts + more, sampled, self.context_step, within)
            end = now + self._pass_ns(self.times.pass_ns(pool, batch), batch)
            state = batcher.used, len(batcher.waiting)
            self.iterations.append(ReplicaPass(replica.number, now, end, count, 0, count, own + more, *state))
            self.course.passes += 1
            self.course.report(now, more)
        passes.end()
        return end

    def _push(self, time_ns: int, kind: int, *arguments: Any) -> None:
        self.course.push(time_ns, kind, self._place, *arguments)


def check_requests(
    requests: Sequence[Request],
    pools: Sequence[CachePool],
    policy: Policy,
    speculation: Speculation | None = None,
) -> None:
    """Refuse a request that would never fit the cache of a replica."""
    for pool in pools:
        drafts = None if pool.work == PREFILL else speculation
        batcher = Batcher(policy, pool.blocks, pool.units, speculation=drafts)
        for request in requests:
            further = 0 if pool.work == PREFILL else request.output - 1
            if not batcher.fits(request.prompt + further):
                raise UsageError(
                    f"request {request.number} needs a cache of {request.prompt + further:,} tokens, but"
                    f" a replica has {pool.tokens(policy.block):,}",
                    remedy="give more ranks to a replica, or more memory, or shorten the request",
                )


def _segments(shares: Sequence[Share]) -> list[Segment]:
    """Return the segments of a batch; tokens that are more than the pending ones are drafts."""
    segments = []
    for sequence, tokens in shares:
        over = tokens - sequence.pending
        segments.append(Segment(tokens, sequence.cached, over >= 0, max(over, 0)))
    return segments
