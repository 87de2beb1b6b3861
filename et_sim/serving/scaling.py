"""Autoscaling: replicas that start when the load exceeds a target of each, and stop when it is lower.

At intervals, a measure of all replicas that serve is divided by the target of one: that many replicas are
wanted, as Kubernetes' Horizontal Pod Autoscaler computes it, which changes nothing while the measure is
within 10 % of the target of those there are, and removes replicas only if all counts within a time wanted
fewer. A replica starts by receiving its weights over the network, and serves when its engine has started.
One that is removed gets no further requests, and stops when it has ended those it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

from msgspec import Struct

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.serving.batcher import Batcher
from et_sim.serving.replicas import CachePool
from et_sim.serving.transfers import WeightTransfer
from et_sim.workloads.inference.transfers import ReplicaPlace, SentWeights

REQUESTS, QUEUE, BUSY = "requests", "queue", "busy"
MEASURES = (REQUESTS, QUEUE, BUSY)
PEER, STORE = "peer", "store"
SOURCES = (PEER, STORE)
# Options beside that of the rule, by their names in Python.
MOST, START, EVERY = "most_replicas", "start_time", "scale_every"
DOWN_AFTER, WEIGHTS_FROM = "scale_down_after", "weights_from"
COMPANIONS = (MOST, START, EVERY, DOWN_AFTER, WEIGHTS_FROM)
# Defaults of the Horizontal Pod Autoscaler (kubernetes.io, "Horizontal Pod Autoscaling"): --horizontal-pod-
# autoscaler-sync-period, -tolerance and -downscale-stabilization.
EVERY_NS, TOLERANCE, DOWN_AFTER_NS = 15 * 10**9, 0.1, 300 * 10**9
OFF, STARTING, SERVING, DRAINING = range(4)
FORM = f"a measure and its target for a replica, as in {REQUESTS}:16, {QUEUE}:4 or {BUSY}:0.8"


class Autoscaling(Struct, frozen=True):
    """The rule by which replicas start and stop."""

    measure: str  # of all replicas that serve: requests that they have, those that wait, or busy ones
    target: float  # of one replica
    least: int
    most: int
    start_ns: int  # of the engine, after its weights are there
    every_ns: int = EVERY_NS
    down_after_ns: int = DOWN_AFTER_NS
    source: str = PEER  # of weights

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            remedy = did_you_mean(self.measure, MEASURES) or f"known: {', '.join(MEASURES)}"
            raise UsageError(f"--autoscale has no measure {self.measure!r}", remedy=remedy)
        most = 1.0 if self.measure == BUSY else 10**9
        if not 0 < self.target <= most:
            raise UsageError(
                f"the target of --autoscale is {self.target:g} for a replica",
                remedy=f"give more than 0, and at most {most:,.0f}",
            )
        if not self.least <= self.most:
            raise UsageError(
                f"--most-replicas is {self.most}, less than the {self.least} of --replicas",
                remedy=f"give {self.least} or more",
            )
        if self.every_ns < 1:
            raise UsageError(
                "--scale-every is less than 1 ns", remedy=f"give a time such as {EVERY_NS // 10**9}s"
            )
        if self.source not in SOURCES:
            remedy = did_you_mean(self.source, SOURCES) or f"known: {', '.join(SOURCES)}"
            raise UsageError(f"--weights-from is {self.source!r}", remedy=remedy)

    @property
    def rule(self) -> str:
        """Return the measure and its target, as they are given."""
        return f"{self.measure}:{self.target:g}"

    def wanted(self, measured: float, current: int) -> int:
        """Return the number of replicas for a measure of all of the current ones."""
        if round(abs(measured / (self.target * current) - 1), 9) <= TOLERANCE:
            return current
        return max(ceil(min(round(measured / self.target, 9), self.most)), self.least)


def read_autoscaling(given: str, least: int, others: Mapping[str, Any]) -> Autoscaling:
    """Return the rule of options, with the values of its companions, by name; times are in ns."""
    measure, _, word = given.partition(":")
    try:
        target = float(word)
    except ValueError:
        raise UsageError(f"--autoscale is {given!r}", remedy=f"give {FORM}") from None
    for option, name, remedy in (
        ("--most-replicas", MOST, "give the most replicas that may run at a time"),
        ("--start-time", START, "give the time in which the engine starts after loading, such as 60s"),
    ):
        if others[name] is None:
            raise UsageError(f"--autoscale requires {option}", remedy=remedy)
    times = {"every_ns": others[EVERY], "down_after_ns": others[DOWN_AFTER]}
    known = {name: int(value) for name, value in times.items() if value is not None}
    source = others[WEIGHTS_FROM] or PEER
    return Autoscaling(measure, target, least, others[MOST], int(others[START]), source=source, **known)


class FleetState(NamedTuple):
    """The replicas from a time on, until the next one."""

    time_ns: int
    serving: int
    starting: int
    draining: int


class OnTime(NamedTuple):
    """A time in which a replica has its NPUs."""

    replica: int
    begin_ns: int
    end_ns: int


class ReplicaOfPass(NamedTuple):
    """The replica of a pass, by its place, and the time of the pass."""

    place: int
    start_ns: int
    end_ns: int


class Scaler:
    """The replicas of a pool over time, by a rule; `behind`: the place of a store of weights."""

    def __init__(
        self,
        rule: Autoscaling,
        pool: CachePool,
        behind: ReplicaPlace | None = None,
        more_bytes: int = 0,
    ) -> None:
        self.rule, self.pool = rule, pool
        self._behind, self._more_bytes = behind, more_bytes
        self._states = [SERVING] * rule.least + [OFF] * (rule.most - rule.least)
        self._since = dict.fromkeys(range(rule.least), 0)  # the begin of those that are on
        self._sending: dict[int, int] = {}  # the source of weights, by the replica that gets them
        self._counts: deque[tuple[int, int]] = deque()  # wanted replicas, by time
        self._passes: list[ReplicaOfPass] = []  # that may reach into the next interval
        self.course = [FleetState(0, rule.least, 0, 0)]
        self.ended: list[OnTime] = []
        self.weights_ns: list[int] = []  # of each replica that has started
        self._batchers: list[list[Batcher]] = []
        self._forget: Callable[[Batcher], None] = lambda _: None

    def use(self, batchers: Sequence[Batcher], forget: Callable[[Batcher], None]) -> None:
        """Take the batchers of all groups; `forget` empties the cache of one that starts."""
        data = self.pool.plan.data
        self._batchers = [list(batchers[at : at + data]) for at in range(0, len(batchers), data)]
        self._forget = forget

    def serves(self, group: int) -> bool:
        """Return whether a group gets requests."""
        return self._states[group // self.pool.plan.data] == SERVING

    def next_ns(self, now: int) -> int:
        """Return the next time at which the load is measured."""
        return (now // self.rule.every_ns + 1) * self.rule.every_ns

    def measure(self, now: int, passes: Sequence[ReplicaOfPass]) -> list[WeightTransfer]:
        """Start or drain replicas by the load and the passes since the last time; return what is sent."""
        current = self._states.count(SERVING) + self._states.count(STARTING)
        wanted = self._wanted(now, self.rule.wanted(self._measured(now, passes), current), current)
        for _ in range(current - wanted):
            self._drain(now)
        started = [self._start(now) for _ in range(min(wanted - current, self._states.count(OFF)))]
        if started or wanted < current:
            self._note(now)
        return started

    def serve(self, now: int, place: int) -> None:
        """Let a replica serve, whose engine has started."""
        self._states[place] = SERVING
        self._note(now)

    def has_weights(self, now: int, place: int) -> None:
        """End the transfer of weights to a replica."""
        del self._sending[place]
        self.weights_ns.append(now - self._since[place])

    def stop_drained(self, now: int) -> None:
        """Stop replicas that have ended their requests, and that send no weights."""
        for place in self._of(DRAINING):
            sends = place in self._sending.values()
            if not sends and all(batcher.is_empty for batcher in self._batchers[place]):
                self._states[place] = OFF
                self.ended.append(OnTime(place, self._since.pop(place), now))
                self._note(now)

    def on_times(self, until_ns: int) -> list[OnTime]:
        """Return the times in which replicas have had their NPUs."""
        still = (OnTime(place, begin, until_ns) for place, begin in self._since.items())
        return [*self.ended, *still]

    def _of(self, state: int) -> list[int]:
        return [place for place, each in enumerate(self._states) if each == state]

    def _note(self, now: int) -> None:
        counts = (self._states.count(state) for state in (SERVING, STARTING, DRAINING))
        if self.course[-1].time_ns == now:
            self.course.pop()
        self.course.append(FleetState(now, *counts))

    def _wanted(self, now: int, count: int, current: int) -> int:
        """Return the wanted replicas, fewer than there are only if no count of a time wanted more."""
        self._counts.append((now, count))
        while self._counts[0][0] < now - self.rule.down_after_ns:
            self._counts.popleft()
        return count if count > current else min(current, max(each for _, each in self._counts))

    def _measured(self, now: int, passes: Sequence[ReplicaOfPass]) -> float:
        """Return the measure of all replicas that serve."""
        serving = set(self._of(SERVING))
        if self.rule.measure == BUSY:
            begin = now - self.rule.every_ns
            self._passes = [each for each in (*self._passes, *passes) if each.end_ns > begin]
            own = {
                each for each in self._passes if each.place in serving
            }  # groups of a replica have equal ones
            busy = sum(min(each.end_ns, now) - max(each.start_ns, begin) for each in own)
            return busy / self.rule.every_ns
        batchers = [batcher for place in serving for batcher in self._batchers[place]]
        if self.rule.measure == QUEUE:
            return sum(batcher.queued for batcher in batchers)
        return sum(batcher.requests for batcher in batchers)

    def _drain(self, now: int) -> None:
        """Let the replica with the least left to do get no further requests, the last one of several."""
        serving = self._of(SERVING)
        if len(serving) > self.rule.least:
            left = {place: sum(batcher.left for batcher in self._batchers[place]) for place in serving}
            self._states[min(serving, key=lambda place: (left[place], -place))] = DRAINING
            self.stop_drained(now)

    def _start(self, now: int) -> WeightTransfer:
        """Start the first replica that is off; return the transfer of its weights."""
        place = self._of(OFF)[0]
        for batcher in self._batchers[place]:
            self._forget(batcher)
        self._states[place], self._since[place] = STARTING, now
        sending = list(self._sending.values())
        peer = min(self._of(SERVING), key=lambda each: (sending.count(each), each))
        self._sending[place] = peer if self._behind is None else -1
        source = self._behind or self._place(peer)
        return WeightTransfer(place, SentWeights(source, self._place(place), self._more_bytes))

    def _place(self, place: int) -> ReplicaPlace:
        return self.pool.place(place * self.pool.plan.data)
