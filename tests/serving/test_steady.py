"""Passes that repeat are as if each were chosen by itself."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from et_sim.serving import course
from et_sim.serving.batcher import POLICIES, Batching, Policy
from et_sim.serving.caching import BY_PREFIX, Caching
from et_sim.serving.cluster import ServingCluster
from et_sim.serving.engines.description import Engine, EngineHost
from et_sim.serving.replicas import BOTH, DECODE, PREFILL, CachePool
from et_sim.serving.requests import Request
from et_sim.workloads import Batch, Plan
from et_sim.workloads.inference.batch import AttentionSight
from et_sim.workloads.inference.memory import CacheUnits
from et_sim.workloads.inference.transfers import SentCache


class TimesOfSums:
    """Times that depend on all sums of a batch, with a count of passes."""

    def __init__(self) -> None:
        self.passes = 0

    def pass_ns(self, pool: CachePool, batch: Batch) -> int:  # noqa: ARG002
        self.passes += 1
        prefill, decode = batch.prefill, batch.decode
        seen = sum(13 * prompts.pairs + 17 * singles.keys for _, prompts, singles in batch.within)
        return 1000 + 7 * prefill.pairs + 11 * decode.segments + 3 * decode.keys + 5 * batch.sampled + seen

    def ends_ns(self, caches: Sequence[SentCache]) -> list[int]:
        return [of.begin_ns + 300 * of.tokens for of in caches]

    def load_ns(self, pool: CachePool, tokens: int) -> int:  # noqa: ARG002
        return 7 * tokens


def served(seed: int) -> tuple[list[dict[str, Any]], list[Any], list[tuple[int, ...]]]:
    """Serve random requests; return the served ones, all passes, and what batchers have left."""
    chance = random.Random(seed)
    policy = Policy(
        chance.choice([*POLICIES]),
        max_batch=chance.choice([2, 5, 64]),
        token_budget=64,
        block=chance.choice([1, 4, 16]),
        wait_passes=chance.choice([0, 0, 3, 20]),
        wait_share=chance.choice([0.5, 1.0]),
    )
    blocks = -(-chance.choice([90, 200, 10**6]) // policy.block)
    pools = (CachePool(BOTH, Plan(), chance.choice([1, 1, 3]), 0, blocks, 1),)
    if chance.random() < 0.3:
        pools = (CachePool(PREFILL, Plan(), 1, 0, blocks, 1), CachePool(DECODE, Plan(), 2, 1, blocks, 1))
    host = EngineHost(prepares=chance.choice([False, True]))
    engine = Engine(about="of this test", graphs=chance.choice([(), (1, 4, 16)]), host=host)
    arrivals = sorted(chance.randint(0, chance.choice([10, 10**5, 10**6])) for _ in range(25))
    given = [
        Request(number, arrival, chance.randint(1, 40), chance.choice([1, 2, 30, 50]))
        for number, arrival in enumerate(arrivals)
    ]
    step, concurrency = chance.choice([1, 8]), chance.choice([0, 0, 4])
    caching = chance.choice([Caching(), Caching(100), Caching(10**9), Caching(10**9, BY_PREFIX)])
    caching = replace(caching, remote_tokens=chance.choice([0, 0, 100, 10**9]))
    if caching.shares_blocks:
        prompts = [chance.choice([16, 33, 40]) for _ in given]  # equal ones have equal tokens
        given = [
            replace(of, prompt=prompt, hashes=(prompt,)) for of, prompt in zip(given, prompts, strict=True)
        ]
    sights: tuple[AttentionSight, ...] = ()
    if not caching.shares_blocks and chance.random() < 0.5:
        window = chance.choice([5, 20])
        sights = (AttentionSight(window, in_chunks=chance.random() < 0.2),)
        units = CacheUnits(policy.block, 1, ((0, 3), (window, 2)), state=1)
        pools = tuple(replace(pool, blocks=pool.blocks * 6, units=units) for pool in pools)
    cluster = ServingCluster(
        pools, policy, TimesOfSums(), step, sights=sights, engine=engine, caching=caching
    )
    cluster.serve(given, concurrency)
    assert all(sequence.is_done for sequence in cluster.served)
    return (
        [asdict(sequence) for sequence in cluster.served],
        cluster.iterations,
        [
            (of.batcher.free, of.batcher.left, of.batcher.prefixes.idle if of.batcher.prefixes else 0)
            for of in cluster.replicas
        ],
    )


def compare(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in seeds:
        with monkeypatch.context() as alone:
            alone.setattr(Batching, "repeats", False)
            expected = served(seed)
        assert served(seed) == expected


def test_repeated_passes_are_as_if_chosen_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    compare(range(12), monkeypatch)


@pytest.mark.deep
def test_many_repeated_passes_are_as_if_chosen_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    compare(range(12, 55), monkeypatch)


def test_sequences_are_completed_once_for_all_passes_that_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    completed = []
    complete = ServingCluster._end_pass
    monkeypatch.setattr(
        ServingCluster, "_end_pass", lambda *given: (completed.append(given[1]), complete(*given))
    )
    times = TimesOfSums()
    cluster = ServingCluster((CachePool(BOTH, Plan(), 1, 0, 10**6, 1),), Policy(), times)
    cluster.serve([Request(0, 0, 10, 100), Request(1, 0, 10, 60)])
    assert (times.passes, len(cluster.iterations), len(completed)) == (100, 100, 3)


def test_passes_repeat_once_all_windows_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    completed = []
    complete = ServingCluster._end_pass
    monkeypatch.setattr(
        ServingCluster, "_end_pass", lambda *given: (completed.append(given[1]), complete(*given))
    )
    pools = (CachePool(BOTH, Plan(), 1, 0, 10**6, 1, CacheUnits(16, 1, ((0, 1), (40, 1)))),)
    cluster = ServingCluster(pools, Policy(), TimesOfSums(), sights=(AttentionSight(40),))
    cluster.serve([Request(0, 0, 10, 100)])
    assert (len(cluster.iterations), len(completed)) == (100, 31)  # 39 are cached before pass 31, with prompt


def test_progress_moves_before_the_first_request_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "REPORTED", 8)
    seen: list[tuple[int, int, int]] = []
    pools = (CachePool(BOTH, Plan(), 1, 0, 1000, 1),)
    serving = ServingCluster(pools, Policy(), TimesOfSums())
    serving.serve(
        [Request(number, 0, 20, 100) for number in range(4)], report=lambda *reached: seen.append(reached)
    )
    tokens = [produced for _, done, produced in seen if not done]
    assert len(tokens) > 8
    assert tokens == sorted(tokens)
    assert tokens[0] < 100 < 300 < tokens[-1] < 400
