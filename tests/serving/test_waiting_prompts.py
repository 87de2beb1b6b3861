"""Prompts that wait: for others to fill a pass, for other groups, and for the pass after the next one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from et_sim.serving.batcher import CHUNKED, POLICIES, STATIC, WHOLE_PROMPTS, Policy
from et_sim.serving.cluster import ServingCluster
from et_sim.serving.engines.description import Engine, EngineHost
from et_sim.serving.replicas import BOTH, CachePool
from et_sim.serving.requests import Request
from et_sim.workloads import Plan
from et_sim.workloads.inference.batch import GroupBatches

PASS_NS = 1000
ENGINE = Engine(about="of this test")


class EqualTimes:
    """Passes that take equally long."""

    def pass_ns(self, pool: CachePool, batch: GroupBatches) -> int:  # noqa: ARG002
        return PASS_NS

    def ends_ns(self, caches: Sequence[object]) -> list[int]:
        return [0 for _ in caches]

    def load_ns(self, pool: CachePool, tokens: int) -> int:  # noqa: ARG002
        return tokens


def cluster_of(
    requests: Sequence[tuple[int, int, int]],
    policy: Policy,
    engine: Engine = ENGINE,
    groups: int = 1,
    blocks: int = 1000,
) -> ServingCluster:
    """Return the cluster after it has served (arrival, prompt, output)."""
    pools = (CachePool(BOTH, Plan(data=groups), 1, 0, blocks, 1),)
    cluster = ServingCluster(pools, policy, EqualTimes(), engine=engine)
    cluster.serve([Request(number, *of) for number, of in enumerate(requests)])
    return cluster


def begins(cluster: ServingCluster) -> list[int]:
    """Return the pass in which each sequence begins."""
    return [sequence.scheduled_ns // PASS_NS for sequence in cluster.served]


WAITING = Policy(WHOLE_PROMPTS, 64, 100, wait_passes=5, wait_share=0.9)


def test_a_prompt_beside_single_tokens_waits_for_so_many_passes() -> None:
    assert begins(cluster_of([(0, 10, 30), (1500, 10, 2)], WAITING)) == [0, 2 + 5]
    none = replace(WAITING, wait_passes=0)
    assert begins(cluster_of([(0, 10, 30), (1500, 10, 2)], none)) == [0, 2]


def test_prompts_that_fill_their_share_with_single_tokens_do_not_wait() -> None:
    assert begins(cluster_of([(0, 10, 30), (1500, 89, 2)], WAITING)) == [0, 2]
    assert begins(cluster_of([(0, 10, 30), (1500, 88, 2)], WAITING)) == [0, 7]
    together = cluster_of([(0, 10, 30), (1500, 50, 2), (3500, 40, 2)], WAITING)
    assert begins(together) == [0, 4, 4]


def test_tokens_of_prompts_that_do_not_fit_the_pass_do_not_count() -> None:
    assert begins(cluster_of([(0, 10, 40), (1500, 60, 2), (1500, 60, 2)], WAITING)) == [0, 7, 13]


@pytest.mark.parametrize(("places", "blocks"), [(2, 1000), (64, 6)])
def test_tokens_of_prompts_that_find_no_place_beside_others_do_not_count(places: int, blocks: int) -> None:
    """Check two prompts, either of which could begin, but not both: for want of a place, or of blocks."""
    requests = [(0, 10, 40), (1500, 45, 2), (1500, 45, 2)]
    together = replace(WAITING, max_batch=places)
    assert begins(cluster_of(requests, WAITING)) == [0, 2, 2]
    assert begins(cluster_of(requests, together, blocks=blocks))[1] == 2 + 5


def test_prompts_do_not_wait_where_nothing_runs() -> None:
    assert begins(cluster_of([(0, 10, 1), (5000, 10, 2)], WAITING)) == [0, 5]


@pytest.mark.parametrize("name", sorted({*POLICIES} - {STATIC}))
def test_all_policies_let_prompts_wait(name: str) -> None:
    policy = replace(WAITING, name=name)
    assert begins(cluster_of([(0, 10, 30), (1500, 10, 2)], policy)) == [0, 7]


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_with_prepared_passes_a_request_misses_the_next_one(name: str) -> None:
    requests = [(0, 10, 30), (1500, 10, 2), (100_000, 10, 1)]
    at_once = cluster_of(requests, Policy(name, 64, 100))
    prepared = cluster_of(requests, Policy(name, 64, 100), replace(ENGINE, host=EngineHost(prepares=True)))
    late = 30 if name == STATIC else 2
    assert begins(at_once) == [0, late, 100]
    assert begins(prepared) == [0, late + (name != STATIC), 100]


def test_prompts_of_groups_wait_for_each_other() -> None:
    requests = [(0, 10, 30), (0, 10, 30), (1500, 10, 2), (4500, 10, 2)]
    balanced = Policy(CHUNKED, 64, 100, balance_passes=60)
    assert begins(cluster_of(requests, balanced, groups=2)) == [0, 0, 5, 5]
    assert begins(cluster_of(requests, replace(balanced, balance_passes=0), groups=2)) == [0, 0, 2, 5]
    assert begins(cluster_of(requests, replace(balanced, balance_passes=2), groups=2)) == [0, 0, 4, 5 + 2]


def test_prompts_do_not_wait_for_groups_where_one_has_no_token_to_get() -> None:
    requests = [(0, 10, 30), (1500, 10, 2)]
    assert begins(cluster_of(requests, Policy(CHUNKED, 64, 100, balance_passes=60), groups=2)) == [0, 2]
