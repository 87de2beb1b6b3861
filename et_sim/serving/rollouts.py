"""Rollouts: batches of requests, each of which is sent when the last answer of the one before is there.

Before a further batch, new weights may be sent to all replicas. They come from ranks behind the replicas that
hold them as a replica does: each sends its own to its like in every replica, all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import ceil
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import UsageError
from et_sim.basics.units import plural
from et_sim.serving.clients import Traffic
from et_sim.serving.replicas import CachePool, SimulatedTimes
from et_sim.workloads.inference.transfers import ReplicaPlace

MOST = 0.9  # of the requests of a batch, after which its tail begins


class Rollout(Struct, frozen=True):
    """The requests of a batch, and the time in which replicas receive new weights before a further one."""

    batch: int
    weights_ns: int = 0

    def summary(self, of: dict[str, Any], passes: dict[str, Any], groups: int) -> dict[str, Any]:
        """Return the time of a batch, and shares of it: of the tail, of idle replicas, and of weights."""
        finish = np.sort(
            of["finish_ns"].reshape(-1, self.batch), axis=1
        )  # rows: batches, one after the other
        ends, most = finish[:, -1], finish[:, ceil(MOST * self.batch) - 1]
        times, tails = ends - of["arrival_ns"].reshape(-1, self.batch).min(axis=1), ends - most
        busy = int((passes["end_ns"] - passes["start_ns"]).sum())
        sent = self.weights_ns * (len(times) - 1)
        return {
            "batches": len(times),
            "batch_requests": self.batch,
            "batch_ns": int(times.mean()),
            "tail_share": round(float(tails.sum() / times.sum()), 4),
            "idle_share": round(max(1 - busy / groups / float(times.sum()), 0.0), 4),
            "weights_ns": self.weights_ns,
            "weights_share": round(sent / (sent + float(times.sum())), 4),
        }


def rollout_of(traffic: Traffic, weights_ns: Callable[[], int]) -> Rollout | None:
    """Return the rollout that requests are; None if they are none."""
    if not traffic.batch:
        return None
    return Rollout(traffic.batch, weights_ns() if traffic.batch < len(traffic.requests) else 0)


def place_behind(pools: Sequence[CachePool], npus: int, option: str) -> ReplicaPlace:
    """Return the place behind the replicas, for ranks that hold the weights as a replica does."""
    plan = pools[0].plan
    source = ReplicaPlace(plan, -(-pools[-1].end // plan.ranks) * plan.ranks)
    if source.first + plan.ranks > npus:
        raise UsageError(
            f"{option} requires {plural(plan.ranks, 'rank')} behind the replicas, which end at rank"
            f" {pools[-1].end - 1} of {npus}, to send weights",
            remedy="give fewer replicas, or a machine with more NPUs",
        )
    return source


def sending_weights(times: SimulatedTimes, pools: Sequence[CachePool], npus: int) -> Callable[[], int]:
    """Return a function to the time in which all replicas receive new weights."""
    plan = pools[0].plan
    if any(pool.plan != plan for pool in pools):
        raise UsageError(
            "--send-weights requires replicas of one plan, whose ranks have equal shares of the weights",
            remedy="leave out --decode-tp, --decode-dp, --decode-ep and --decode-pp, or --send-weights",
        )
    source = place_behind(pools, npus, "--send-weights")
    targets = [
        ReplicaPlace(plan, pool.first_rank + number * plan.ranks)
        for pool in pools
        for number in range(pool.replicas)
    ]
    return cache(partial(times.weights_ns, source, targets))
