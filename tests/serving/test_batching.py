"""Continuous batching with passes of known times: order, fairness and limits of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.errors import UsageError
from et_sim.serving import batcher
from et_sim.serving.batcher import CHUNKED, POLICIES, PREFILL_FIRST, STATIC, Batcher, Batching, Policy, Share
from et_sim.serving.cluster import ServingCluster
from et_sim.serving.replicas import BOTH, DECODE, PREFILL, CachePool
from et_sim.serving.requests import Request
from et_sim.serving.sequences import ServedSequence as Served
from et_sim.workloads import Batch, Plan
from et_sim.workloads.inference.batch import GroupBatches
from et_sim.workloads.inference.transfers import SentCache

PASS_NS, TOKEN_NS, TRANSFER_NS, LOAD_NS = 1000, 10, 300, 2


@dataclass
class KnownTimes:
    """Times of passes and caches: a constant for a pass, and a time for every token."""

    token_ns: int = TOKEN_NS
    batches: list[Batch] = field(default_factory=list)

    def pass_ns(self, pool: CachePool, batch: GroupBatches) -> int:  # noqa: ARG002
        assert isinstance(batch, Batch)
        self.batches.append(batch)
        return PASS_NS + self.token_ns * batch.tokens

    def ends_ns(self, caches: Sequence[SentCache]) -> list[int]:
        return [of.begin_ns + TRANSFER_NS * of.tokens for of in caches]

    def load_ns(self, pool: CachePool, tokens: int) -> int:  # noqa: ARG002
        return LOAD_NS * tokens


def pool(work: str = BOTH, replicas: int = 1, blocks: int = 1000, first: int = 0) -> CachePool:
    return CachePool(work, Plan(), replicas, first, blocks, 1)


def served(
    requests: Sequence[tuple[int, int, int]],
    policy: Policy = Policy(PREFILL_FIRST),  # noqa: B008
    *pools: CachePool,
    token_ns: int = TOKEN_NS,
) -> ServingCluster:
    """Return the cluster after it has served (arrival, prompt, output)."""
    cluster = ServingCluster(pools or (pool(),), policy, KnownTimes(token_ns))
    given = [Request(number, *fields) for number, fields in enumerate(requests)]
    cluster.serve(sorted(given, key=lambda request: (request.arrival_ns, request.number)))
    return cluster


def test_a_request_alone_has_its_prompt_and_then_its_tokens() -> None:
    for name in POLICIES:
        (answer,) = served([(50, 100, 5)], Policy(name)).served
        assert answer.scheduled_ns == 50
        assert answer.first_token_ns == 50 + PASS_NS + 100 * TOKEN_NS
        assert answer.finish_ns == answer.first_token_ns + 4 * (PASS_NS + TOKEN_NS)


def test_requests_far_apart_do_not_affect_each_other() -> None:
    far = 10**9
    outcome = served([(0, 100, 5), (far, 100, 5), (2 * far, 100, 5)]).served
    assert {
        (of.first_token_ns - of.request.arrival_ns, of.finish_ns - of.first_token_ns) for of in outcome
    } == {(PASS_NS + 100 * TOKEN_NS, 4 * (PASS_NS + TOKEN_NS))}


def test_a_full_batch_gives_a_token_of_each_in_every_pass() -> None:
    cluster = served([(0, 1, 1001)] * 8, Policy(PREFILL_FIRST, max_batch=8), token_ns=0)
    assert [iteration.sequences for iteration in cluster.iterations] == [8] * 1001
    assert cluster.served[0].finish_ns == 1001 * PASS_NS


def test_prompts_come_before_further_tokens_of_others_or_beside_them() -> None:
    requests = [(0, 10, 50), (1500, 100, 2)]
    first = served(requests, Policy(PREFILL_FIRST)).iterations
    assert [(iteration.prefill_tokens, iteration.decode_tokens) for iteration in first[:4]] == [
        (10, 0),
        (0, 1),
        (100, 0),
        (0, 2),
    ]
    beside = served(requests, Policy(CHUNKED, max_batch=4, token_budget=64)).iterations
    assert [(iteration.prefill_tokens, iteration.decode_tokens) for iteration in beside[:5]] == [
        (10, 0),
        (0, 1),
        (63, 1),
        (37, 1),
        (0, 2),
    ]


def test_two_last_tokens_of_a_prompt_are_a_part() -> None:
    cluster = served([(0, 66, 2)], Policy(CHUNKED, max_batch=4, token_budget=64))
    tokens = [(iteration.prefill_tokens, iteration.decode_tokens) for iteration in cluster.iterations]
    assert tokens == [(64, 0), (2, 0), (0, 1)]


def test_no_more_sequences_run_than_a_batch_may_have() -> None:
    for name in POLICIES:
        cluster = served([(0, 10, 20)] * 3, Policy(name, max_batch=2))
        assert max(iteration.sequences for iteration in cluster.iterations) == 2


def test_a_static_batch_ends_before_the_next_one_begins() -> None:
    """Check that the shorter request leaves its place empty, and the later one waits for the longer one."""
    requests = [(0, 10, 3), (0, 10, 6), (1, 20, 2)]
    cluster = served(requests, Policy(STATIC))
    tokens = [(iteration.prefill_tokens, iteration.decode_tokens) for iteration in cluster.iterations]
    assert tokens == [(20, 0), (0, 2), (0, 2), (0, 1), (0, 1), (0, 1), (20, 0), (0, 1)]
    first, second, third = cluster.served
    batch = PASS_NS + 20 * TOKEN_NS
    assert first.finish_ns == batch + 2 * (PASS_NS + 2 * TOKEN_NS)
    assert second.finish_ns == first.finish_ns + 3 * (PASS_NS + TOKEN_NS)
    assert third.scheduled_ns == second.finish_ns
    beside = served(requests, Policy(PREFILL_FIRST)).served[2]
    assert beside.scheduled_ns == batch


def test_a_static_replica_takes_no_caches_while_it_works() -> None:
    pools = (pool(PREFILL), pool(DECODE, first=1))
    requests = [(0, 10, 5), (4500, 10, 2)]
    first, second = served(requests, Policy(STATIC), *pools).served
    assert second.first_token_ns < first.finish_ns
    assert second.finish_ns == first.finish_ns + second.transfer_ns + PASS_NS + TOKEN_NS


class OneByOne(Batching):
    """A policy of a user: a batch is one sequence."""

    def next_batch(self, batcher: Batcher) -> list[Share]:
        return batcher.single_tokens() if batcher.running else batcher.prompts(1)


def test_a_policy_is_a_class_and_an_entry_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher, "POLICIES", {**POLICIES, "one-by-one": f"{__name__}:OneByOne"})
    outcome = served([(0, 10, 2), (0, 10, 2)], Policy("one-by-one"))
    assert [iteration.sequences for iteration in outcome.iterations] == [1] * 4
    assert outcome.served[1].scheduled_ns == outcome.served[0].finish_ns


def test_a_sequence_that_loses_its_cache_is_computed_again_and_finishes() -> None:
    """Serve two sequences of 8 + 8 tokens, which need 4 blocks of 4 each; there are 6."""
    cluster = served([(0, 8, 9), (0, 8, 9)], Policy(PREFILL_FIRST, block=4), pool(blocks=6))
    first, second = cluster.served
    assert (first.preemptions, second.preemptions) == (0, 1)
    again = [iteration for iteration in cluster.iterations if iteration.prefill_tokens][1]
    assert again.start_ns == first.finish_ns
    assert again.prefill_tokens == 8 + 5  # it had 5 tokens when 3 blocks no longer sufficed
    assert second.produced == 9


def test_requests_go_to_the_replica_with_the_least_to_do_and_the_first_of_several() -> None:
    requests = [(0, 100, 10), (0, 10, 10), (0, 10, 10), (0, 10, 10), (0, 200, 10)]
    outcome = served(requests, Policy(), pool(replicas=2)).served
    assert [answer.replica for answer in outcome] == [0, 1, 1, 1, 1]


def test_a_cache_goes_from_its_prompt_to_further_tokens() -> None:
    pools = (pool(PREFILL), pool(DECODE, first=1))
    cluster = served([(0, 100, 3)], Policy(PREFILL_FIRST), *pools)
    (answer,) = cluster.served
    assert (answer.replica, answer.decode_replica, answer.transfer_ns) == (0, 1, 100 * TRANSFER_NS)
    assert answer.first_token_ns == PASS_NS + 100 * TOKEN_NS
    assert answer.finish_ns == answer.first_token_ns + answer.transfer_ns + 2 * (PASS_NS + TOKEN_NS)
    assert [replica.batcher.used for replica in cluster.replicas] == [0, 0]


def test_caches_leave_a_replica_one_after_the_other() -> None:
    pools = (pool(PREFILL), pool(DECODE, replicas=2, first=1))
    outcome = served([(0, 10, 2), (0, 10, 2)], Policy(PREFILL_FIRST), *pools).served
    assert [answer.decode_replica for answer in outcome] == [1, 2]
    first, second = (answer.finish_ns - answer.first_token_ns for answer in outcome)
    assert second == first + 10 * TRANSFER_NS


def test_caches_reach_a_replica_one_after_the_other() -> None:
    """Check caches that leave different replicas."""
    pools = (pool(PREFILL, replicas=2), pool(DECODE, first=2))
    outcome = served([(0, 10, 2), (0, 10, 2)], Policy(PREFILL_FIRST), *pools).served
    assert [answer.replica for answer in outcome] == [0, 1]
    first, second = (answer.finish_ns - answer.first_token_ns for answer in outcome)
    assert second == first + 10 * TRANSFER_NS


def test_a_cache_that_comes_when_a_pass_ends_is_in_the_next_one() -> None:
    """Check that all events of a time come before a pass that begins then."""
    first_comes = PASS_NS + 10 * TOKEN_NS + 10 * TRANSFER_NS
    pass_ends = first_comes + PASS_NS + TOKEN_NS
    arrival = pass_ends - (PASS_NS + TOKEN_NS + TRANSFER_NS)
    pools = (pool(PREFILL, replicas=2), pool(DECODE, first=2))
    cluster = served([(0, 10, 4), (arrival, 1, 4)], Policy(PREFILL_FIRST), *pools)
    passes = {each.start_ns: each.sequences for each in cluster.iterations if each.replica == 2}
    assert (passes[first_comes], passes[pass_ends]) == (1, 2)


def test_a_replica_for_prompts_needs_room_for_them_alone() -> None:
    pools = (pool(PREFILL, blocks=1), pool(DECODE, first=1))
    (answer,) = served([(0, 16, 100)], Policy(PREFILL_FIRST, block=16), *pools).served
    assert answer.is_done


def test_a_sequence_that_needs_all_blocks_begins() -> None:
    (answer,) = served([(0, 32, 1)], Policy(PREFILL_FIRST, block=16), pool(blocks=2)).served
    assert answer.finish_ns == PASS_NS + 32 * TOKEN_NS


def test_prompts_fill_the_budget_of_a_batch() -> None:
    cluster = served([(0, 10, 1), (0, 10, 1), (0, 10, 1)], Policy(PREFILL_FIRST, token_budget=20))
    assert [each.sequences for each in cluster.iterations] == [2, 1]


def test_only_the_last_part_of_a_prompt_gives_a_token() -> None:
    times = KnownTimes()
    cluster = ServingCluster((pool(),), Policy(CHUNKED, max_batch=64, token_budget=64), times)
    cluster.serve([Request(0, 0, 100, 1)])
    assert [batch.sampled for batch in times.batches] == [0, 1]


def test_a_sequence_that_loses_its_cache_is_the_next_to_begin() -> None:
    batcher = Batcher(Policy(PREFILL_FIRST, block=1), 4)
    first, second, third = (Served(Request(number, 0, 2, 4)) for number in range(3))
    for sequence in (first, second, third):
        batcher.enqueue(sequence)
    batcher.complete(batcher.next_batch())
    assert [share.sequence for share in batcher.next_batch()] == [first]
    assert list(batcher.waiting) == [second, third]


def test_left_to_do_are_the_prompt_and_all_tokens_but_the_last() -> None:
    batcher = Batcher(Policy(PREFILL_FIRST), 100)
    batcher.enqueue(Served(Request(0, 0, 10, 5)))
    left = [batcher.left]
    while batch := batcher.next_batch():
        for sequence in batcher.complete(batch):
            left.append(batcher.left)
            if sequence.is_done:
                batcher.finish(sequence)
    assert left == [14, 4, 3, 2, 1, 0]


def test_a_request_for_one_token_stays() -> None:
    (answer,) = served([(0, 10, 1)], Policy(), pool(PREFILL), pool(DECODE, first=1)).served
    assert answer.decode_replica < 0
    assert answer.finish_ns == answer.first_token_ns


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[tuple[int, int, int]], Policy, tuple[CachePool, ...]]:
    """Draw cases with few blocks, so that caches are lost."""
    block = draw(st.integers(1, 5))
    size = st.integers(1, 20)
    requests = draw(st.lists(st.tuples(st.integers(0, 30_000), size, size), min_size=1, max_size=12))
    blocks = -(-40 // block) + draw(st.integers(0, 10))
    most = draw(st.integers(1, 6))
    policy = Policy(draw(st.sampled_from([*POLICIES])), most, most + draw(st.integers(0, 30)), block)
    count = draw(st.integers(1, 3))
    if draw(st.booleans()):
        return requests, policy, (pool(replicas=count, blocks=blocks),)
    second = pool(DECODE, draw(st.integers(1, 2)), blocks, first=count)
    return requests, policy, (pool(PREFILL, count, blocks), second)


@given(cases())
def test_every_request_is_served_once_and_no_sooner_than_possible(
    case: tuple[list[tuple[int, int, int]], Policy, tuple[CachePool, ...]],
) -> None:
    requests, policy, pools = case
    cluster = served(requests, policy, *pools)
    assert [answer.request.number for answer in cluster.served] == list(range(len(requests)))
    for answer in cluster.served:
        arrival, prompt, output = requests[answer.request.number]
        assert answer.produced == output
        assert answer.request.arrival_ns == arrival <= answer.scheduled_ns
        assert answer.first_token_ns - answer.scheduled_ns >= PASS_NS + prompt * TOKEN_NS
        assert answer.finish_ns - answer.first_token_ns >= (output - 1) * (PASS_NS + TOKEN_NS)


@given(cases())
def test_blocks_are_never_more_than_there_are_and_all_come_back(
    case: tuple[list[tuple[int, int, int]], Policy, tuple[CachePool, ...]],
) -> None:
    requests, policy, pools = case
    cluster = served(requests, policy, *pools)
    limits = [replica.pool.blocks for replica in cluster.replicas]
    for iteration in cluster.iterations:
        assert 0 < iteration.used_blocks <= limits[iteration.replica]
        assert iteration.sequences <= policy.max_batch
        if policy.name == CHUNKED:
            assert iteration.prefill_tokens + iteration.decode_tokens <= policy.token_budget
    for replica in cluster.replicas:
        batcher = replica.batcher
        assert (batcher.used, batcher.left, len(batcher.running), len(batcher.waiting)) == (0, 0, 0, 0)


@given(cases())
def test_no_replica_is_idle_while_work_waits_and_passes_do_not_overlap(
    case: tuple[list[tuple[int, int, int]], Policy, tuple[CachePool, ...]],
) -> None:
    requests, policy, pools = case
    cluster = served(requests, policy, *pools)
    for replica in cluster.replicas:
        of_replica = [iteration for iteration in cluster.iterations if iteration.replica == replica.number]
        for before, after in pairwise(of_replica):
            assert before.end_ns <= after.start_ns
            if replica.pool.work == BOTH and after.start_ns > before.end_ns:
                began = [of.request.arrival_ns for of in cluster.served if of.replica == replica.number]
                assert after.start_ns in began  # only because the replica was idle
                assert before.waiting == 0


@given(cases())
def test_requests_begin_in_the_order_in_which_they_arrive(
    case: tuple[list[tuple[int, int, int]], Policy, tuple[CachePool, ...]],
) -> None:
    requests, policy, pools = case
    cluster = served(requests, policy, *pools)
    for replica in cluster.replicas:
        of_replica = [answer for answer in cluster.served if answer.replica == replica.number]
        of_replica.sort(key=lambda answer: (answer.request.arrival_ns, answer.request.number))
        begun = [answer.scheduled_ns for answer in of_replica]
        assert begun == sorted(begun)


@given(cases())
def test_the_same_requests_are_served_in_the_same_way(
    case: tuple[list[tuple[int, int, int]], Policy, tuple[CachePool, ...]],
) -> None:
    requests, policy, pools = case
    assert served(requests, policy, *pools).iterations == served(requests, policy, *pools).iterations


def test_a_request_that_never_fits_is_refused() -> None:
    with pytest.raises(UsageError, match="request 1 needs a cache of 19 tokens, but a replica has 16"):
        served([(0, 4, 4), (0, 10, 10)], Policy(block=4), pool(blocks=4))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "prefil-first"}, "did you mean 'prefill-first'"),
        ({"max_batch": 0}, "--max-batch is 0"),
        ({"block": 0}, "--block is 0"),
        ({"max_batch": 10, "token_budget": 9}, "below --max-batch 10"),
    ],
)
def test_an_unknown_policy_or_limit_is_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Policy(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_prompts_are_in_every_third_pass_while_tokens_are_due(name: str) -> None:
    requests = [(0, 10, 30), (1500, 10, 30), (9000, 10, 30)]
    passes = served(requests, Policy(name, 8, 64, prompt_every=3)).iterations
    with_prompts = [number for number, one in enumerate(passes) if one.prefill_tokens]
    assert all(number % 3 == 0 for number in with_prompts)
    every = [served(requests, Policy(name, 8, 64, **more)).iterations for more in ({"prompt_every": 1}, {})]
    assert every[0] == every[1]


def test_a_prompt_does_not_wait_for_its_pass_if_nothing_runs() -> None:
    (first, second) = served([(0, 10, 1), (10**6, 10, 1)], Policy(CHUNKED, 8, 64, prompt_every=7)).served
    assert second.first_token_ns - 10**6 == first.first_token_ns
