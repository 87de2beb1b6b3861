"""Replicas over time: requests arrive, passes end, caches arrive, and idle replicas begin their next pass.

With data-parallel attention, a replica has several groups of ranks with sequences of their own. Each counts
as a replica for requests, but all groups of a replica begin and end their passes together.

A request goes to the replica with the fewest tokens still to be processed, the first one of several. With
separate pools, that is a replica for prompts; the request's cache then goes to the replica for further tokens
with the fewest left to do, which must have blocks for it. A replica sends one cache at a time, and receives
one at a time, in the order in which blocks were allocated; its passes go on meanwhile.

Events of the same time have this order: arrivals, ends of passes, ends of transfers; then all idle replicas
begin.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.serving.batcher import Batcher, Policy, Share
from et_sim.serving.batcher import ServedSequence as Served
from et_sim.serving.drafting import Drafting, by_work
from et_sim.serving.engines.description import FREE_OF_COST, Engine
from et_sim.serving.replicas import BOTH, DECODE, PREFILL, CachePool, Times
from et_sim.serving.requests import Request
from et_sim.serving.steady import SteadyPasses, is_steady
from et_sim.workloads.inference.batch import AttentionSight, Batch, Segment

ARRIVES, PASS_ENDS, CACHE_ARRIVES = range(3)


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
    sends_until_ns: int = 0
    gets_until_ns: int = 0


class ServingCluster(Struct):
    """All replicas, and the served requests."""

    pools: tuple[CachePool, ...]
    policy: Policy
    times: Times
    context_step: int = 1
    report: Callable[[int, int], None] = lambda *_: None  # time, and finished requests
    sights: tuple[AttentionSight, ...] = ()  # of layers with a limited sight
    engine: Engine = FREE_OF_COST
    layers: int = 1  # of the model, whose kernels the host launches
    expert_layers: int = 0  # of these, those with experts
    drafting: Drafting | None = None
    replicas: list[Replica] = field(default_factory=list)
    iterations: list[ReplicaPass] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)  # in the order of the requests' numbers
    _events: list[tuple[Any, ...]] = field(default_factory=list)
    _held: dict[int, tuple[Replica, int]] = field(
        default_factory=dict
    )  # blocks of caches to be sent, by request
    _coming: Iterator[Request] = field(default_factory=lambda: iter(()))  # of a closed loop
    _count: int = 0
    _done: int = 0

    def __post_init__(self) -> None:
        for pool in self.pools:
            for place in range(pool.groups):
                speculation = self.drafting.speculation if self.drafting else None
                batcher = Batcher(
                    self.policy, pool.blocks, pool.units, None if pool.work == PREFILL else speculation
                )
                self.replicas.append(Replica(len(self.replicas), pool, place, batcher))

    def serve(self, requests: Sequence[Request], concurrency: int = 0, warm_up: int = 0) -> None:
        """Serve all requests, in the order of arrival, until each has its tokens.

        In a closed loop, so many are under way at a time: the next one arrives when another one has ended.
        Those that warm up end before the others begin.
        """
        self._check(requests)
        now = 0
        parts = (requests[:warm_up], requests[warm_up:]) if concurrency else (requests,)
        for part in filter(None, parts):
            self._coming = iter(part)
            for request in islice(self._coming, concurrency or None):
                self._send_request(replace(request, arrival_ns=now) if concurrency else request)
            now = self._go_on(now)
        self.served.sort(key=lambda sequence: sequence.request.number)

    def _go_on(self, now: int) -> int:
        """Serve the requests that are sent until each has its tokens; return when the client has the last."""
        while self._events:
            now = self._events[0][0]
            while self._events and self._events[0][0] == now:
                _, kind, _, *arguments = heapq.heappop(self._events)
                if kind == ARRIVES:
                    self._arrive(*arguments)
                elif kind == PASS_ENDS:
                    self._end_pass(now, *arguments)
                else:
                    self._end_transfer(*arguments)
            self._begin(now)
            self.report(now, self._done)
        return now + round(self.engine.host.after_ns)

    def _check(self, requests: Sequence[Request]) -> None:
        for request in requests:
            for replica in self.replicas:
                further = 0 if replica.pool.work == PREFILL else request.output - 1
                if not replica.batcher.fits(request.prompt + further):
                    raise UsageError(
                        f"request {request.number} needs a cache of {request.prompt + further:,} tokens, but"
                        f" a replica has {replica.pool.tokens(self.policy.block):,}",
                        remedy="give more ranks to a replica, or more memory, or shorten the request",
                    )

    def _least(self, *works: str) -> Replica:
        """Return the replica with the least left to do of pools for these works."""
        able = (replica for replica in self.replicas if replica.pool.work in works)
        return min(able, key=lambda replica: (replica.batcher.left, replica.number))

    def _send_request(self, request: Request) -> None:
        self._push(request.arrival_ns + round(self.engine.host.before_ns), ARRIVES, Served(request))

    def _arrive(self, sequence: Served) -> None:
        self.served.append(sequence)
        replica = self._least(BOTH, PREFILL)
        sequence.replica = replica.number
        replica.batcher.enqueue(sequence)

    def _end_pass(self, now: int, groups: Sequence[Replica], batches: Sequence[list[Share]]) -> None:
        for replica, batch in zip(groups, batches, strict=True):
            self._end_of_group(now, replica, batch)

    def _end_of_group(self, now: int, replica: Replica, batch: list[Share]) -> None:
        replica.is_busy = False
        received = now + round(self.engine.host.after_ns)
        for sequence in replica.batcher.complete(batch):
            if sequence.first_token_ns < 0:
                sequence.first_token_ns = received
            if sequence.is_done:
                sequence.finish_ns = received
                replica.batcher.finish(sequence)
                self._done += 1
                for request in islice(self._coming, 1):
                    self._send_request(replace(request, arrival_ns=received))
            elif replica.pool.work == PREFILL:
                self._move_to_decode(sequence, replica)

    def _move_to_decode(self, sequence: Served, replica: Replica) -> None:
        self._held[sequence.request.number] = replica, replica.batcher.drain(sequence)
        other = self._least(DECODE)
        sequence.decode_replica, sequence.is_elsewhere = other.number, True
        other.batcher.enqueue(sequence)

    def _end_transfer(self, sequence: Served, other: Replica) -> None:
        source, blocks = self._held.pop(sequence.request.number)
        source.batcher.release(blocks)
        other.batcher.cache_arrived(sequence)

    def _begin(self, now: int) -> None:
        for replica in self.replicas:
            replica.batcher.admit_caches(partial(self._send, now, replica))
        begun = []
        for replica in self.replicas:
            if replica.is_busy or replica.place % replica.pool.plan.data:
                continue
            groups = self.replicas[replica.number : replica.number + replica.pool.plan.data]
            batches = [group.batcher.next_batch() for group in groups]
            if any(batches):
                begun.append((self._run(now, groups, batches), groups, batches))
        if len(begun) == 1:
            ((end, groups, batches),) = begun
            begun = [(self._repeated(end, groups, batches), groups, batches)]
        for end, groups, batches in begun:
            self._push(end, PASS_ENDS, groups, batches)

    def _send(self, now: int, target: Replica, sequence: Served) -> None:
        source, _ = self._held[sequence.request.number]
        begin = max(now, source.sends_until_ns, target.gets_until_ns)
        took = self.times.transfer_ns(source.pool, source.place, target.pool, target.place, sequence.cached)
        source.sends_until_ns = target.gets_until_ns = begin + took
        sequence.transfer_ns = took
        self._push(begin + took, CACHE_ARRIVES, sequence, target)

    def _run(self, now: int, groups: Sequence[Replica], batches: Sequence[list[Share]]) -> int:
        """Begin a pass of all groups of a replica; return its end, which is the same for all of them."""
        segments = [_segments(shares) for shares in batches]
        loads = [Batch.of(self.engine.padded(each), self.context_step, self.sights) for each in segments]
        took = self.times.pass_ns(groups[0].pool, loads[0] if len(loads) == 1 else by_work(loads))
        end = now + max(self._pass_ns(took, batch) for batch in loads)
        if self.drafting is not None:
            end += self.drafting.ns(groups[0].pool, segments, self.engine, self.context_step)
        for replica, shares, batch, of_batch in zip(groups, batches, loads, segments, strict=True):
            replica.is_busy = True
            for sequence, _ in shares:
                if sequence.scheduled_ns < 0:
                    sequence.scheduled_ns = now
            if shares:
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

    def _repeated(self, end: int, groups: Sequence[Replica], batches: Sequence[list[Share]]) -> int:
        """Run further passes of the same sequences before the next event; return the end of the last one."""
        (replica, *others), (shares, *_) = groups, batches
        pool, batcher, count = replica.pool, replica.batcher, len(shares)
        if others or pool.work == PREFILL or pool.units or self.sights or not batcher.repeats:
            return end
        if self.drafting is not None:
            return end
        if not is_steady(shares):
            return end
        passes, own = SteadyPasses(batcher, shares), sum(sequence.cached for sequence, _ in shares)
        padded = self.engine.padded(_segments(shares))
        contexts, sampled = (
            sum(segment.context for segment in padded),
            sum(each.is_sampled for each in padded),
        )
        while (not self._events or end < self._events[0][0]) and passes.begin():
            now, more = end, passes.passes * count
            batch = Batch.of_singles(len(padded), contexts + more, sampled, self.context_step)
            end = now + self._pass_ns(self.times.pass_ns(pool, batch), batch)
            state = batcher.used, len(batcher.waiting)
            self.iterations.append(ReplicaPass(replica.number, now, end, count, 0, count, own + more, *state))
        passes.end()
        return end

    def _push(self, time_ns: int, kind: int, *arguments: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (time_ns, kind, self._count, *arguments))


def _segments(shares: Sequence[Share]) -> list[Segment]:
    """Return the segments of a batch; tokens that are more than the pending ones are drafts."""
    return [
        Segment(tokens, sequence.cached, tokens >= sequence.pending, max(tokens - sequence.pending, 0))
        for sequence, tokens in shares
    ]
