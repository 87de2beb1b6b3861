"""The course of serving: events in the order of time, and the requests that a client sends.

Clusters of several models have one course. The client waits for answers of any of them, and what their
replicas send shares the links. Events of the same time are in the order of their kinds, whichever model they
belong to; then idle replicas of all models begin.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from et_sim.serving.requests import NONE, Request
from et_sim.serving.transfers import Transfers
from et_sim.workloads.inference.transfers import Sent

ARRIVES, PASS_ENDS, CACHE_ARRIVES, CACHE_IS_LOADED, HAS_STARTED, IS_MEASURED = range(6)
REPORTED = 64  # passes from one report to the next


class Begun(NamedTuple):
    """A pass of a replica that has begun, with its groups and their batches."""

    end_ns: int
    groups: Any
    batches: Any


class OfModel(Protocol):
    """The replicas of one model."""

    @property
    def is_scaled(self) -> bool:
        """Return whether a rule changes the number of replicas."""

    @property
    def produced(self) -> int:
        """Return the tokens of all sequences so far."""

    def check_requests(self, requests: Sequence[Request]) -> None:
        """Refuse a request that would never fit the cache of a replica."""

    def send_request(self, request: Request) -> None:
        """Let a request arrive."""

    def happen(self, now: int, kind: int, *arguments: Any) -> None:
        """Let an event happen."""

    def begin(self, now: int) -> list[Begun]:
        """Begin passes on idle replicas; return them."""

    def repeated(self, begun: Begun) -> int:
        """Run further passes of the same sequences before the next event; return the end of the last one."""

    def ends_ns(self, sent: Sequence[Sent]) -> Sequence[int]:
        """Return when each of what is sent has arrived."""


class Course:
    """The events of clusters, each of one model; `ends_of_all`: of transfers of several models, by place."""

    def __init__(
        self, ends_of_all: Callable[[Sequence[tuple[int, Sent]]], Sequence[int]] | None = None
    ) -> None:
        self.transfers = Transfers(self._ends_ns)
        self.events: list[tuple[Any, ...]] = []
        self.passes = 0  # of all clusters
        self._clusters: list[OfModel] = []
        self._ends_of_all = ends_of_all
        self._coming: Iterator[Request] = iter(())  # of a closed loop
        self._turns: dict[int, Request] = {}  # that follow an answer, by its request
        self._count = self._done = self._sent = 0
        self._reported = 0  # passes at the last report
        self._report: Callable[[int, int, int], None] = lambda *_: None

    def add(self, cluster: OfModel) -> int:
        """Add the replicas of a model; return their place."""
        self._clusters.append(cluster)
        return len(self._clusters) - 1

    def push(self, time_ns: int, kind: int, place: int, *arguments: Any) -> None:
        """Add an event of the cluster at a place."""
        self._count += 1
        heapq.heappush(self.events, (time_ns, kind, self._count, place, *arguments))

    def serve(
        self,
        requests: Sequence[Request],
        after_ns: int,
        concurrency: int,
        ends_first: int,
        batch: int,
        weights_ns: Callable[[], int],
        report: Callable[[int, int, int], None],
    ) -> None:
        """Send all requests, in the order of arrival, until each has its tokens (`ServingCluster.serve`)."""
        for place, cluster in enumerate(self._clusters):
            cluster.check_requests([request for request in requests if max(request.model, 0) == place])
        self._report = report
        self._turns = {request.after: request for request in requests if request.after != NONE}
        now = 0
        parts = [requests[:ends_first], requests[ends_first:]] if concurrency else [requests]
        if batch:
            parts = [requests[at : at + batch] for at in range(0, len(requests), batch)]
        for number, part in enumerate(filter(None, parts)):
            if batch and number:
                now += weights_ns()
            self._sent += len(part)
            self._coming = (request for request in part if request.after == NONE)
            for request in islice(self._coming, concurrency or None):
                self._send(replace(request, arrival_ns=now) if concurrency or now else request)
            now = self._go_on(now) + after_ns

    def answered(self, request: Request, now: int) -> None:
        """Let the client have the last token of a request: it may send another one."""
        self._done += 1
        for following in islice(self._coming, 1):
            self._send(replace(following, arrival_ns=now))
        if turn := self._turns.get(request.number):
            self._send(replace(turn, arrival_ns=now + turn.think_ns))

    def begin_transfers(self, now: int) -> None:
        """Begin all transfers that may."""
        for transfer in self.transfers.begin(now):
            self.push(transfer.end_ns, CACHE_ARRIVES, transfer.owner, transfer)

    def report(self, now: int, more: int = 0) -> None:
        """Report the time, and the tokens of all sequences; `more` are those that are not added yet."""
        if self._reported + REPORTED <= self.passes:
            self._reported = self.passes
            produced = sum(cluster.produced for cluster in self._clusters)
            self._report(now, self._done, more + produced)

    def _send(self, request: Request) -> None:
        self._clusters[max(request.model, 0)].send_request(request)

    def _go_on(self, now: int) -> int:
        """Let events happen until each request has its tokens; return the time of the last one."""
        is_scaled = any(cluster.is_scaled for cluster in self._clusters)
        while self.events and not (is_scaled and self._done == self._sent):
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                _, kind, _, place, *arguments = heapq.heappop(self.events)
                self._clusters[place].happen(now, kind, *arguments)
            self._begin(now)
            self.report(now)
        return now

    def _begin(self, now: int) -> None:
        begun = [(place, each) for place, cluster in enumerate(self._clusters) for each in cluster.begin(now)]
        if len(begun) == 1:
            ((place, each),) = begun
            begun = [(place, each._replace(end_ns=self._clusters[place].repeated(each)))]
        for place, each in begun:
            self.push(each.end_ns, PASS_ENDS, place, each.groups, each.batches)

    def _ends_ns(self, sent: Sequence[Sent], owners: Sequence[int]) -> Sequence[int]:
        """Return when each of what is sent has arrived, by the places of the clusters that send it."""
        first = owners[0]
        if self._ends_of_all is None or set(owners) == {first}:
            return self._clusters[first].ends_ns(sent)
        return self._ends_of_all(list(zip(owners, sent, strict=True)))
