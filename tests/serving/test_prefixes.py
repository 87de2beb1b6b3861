"""Blocks by content: as if each block were kept by itself; degenerate cases of a cache of prefixes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from test_batching import LOAD_NS, PASS_NS, TOKEN_NS, KnownTimes, pool

from et_sim.basics.errors import EtSimError
from et_sim.serving.batcher import POLICIES, Policy
from et_sim.serving.caching import ALL, BY_PREFIX, Caching
from et_sim.serving.cluster import ServingCluster
from et_sim.serving.drafting import Drafting
from et_sim.serving.prefixes import ENDLESS, Found, Holding, Piece, PrefixCache, path_of
from et_sim.serving.reading import read_requests
from et_sim.serving.replicas import BOTH, DECODE, PREFILL, CachePool
from et_sim.serving.requests import Request
from et_sim.serving.speculation import Speculation
from et_sim.workloads import Batch, Plan
from et_sim.workloads.inference.batch import GroupBatches

EVERY = Caching(ENDLESS)


class SingleBlocks:
    """The cache with each block by itself: its number of holders, and idle ones by time of release."""

    def __init__(self, most_idle: int) -> None:
        self.most_idle = most_idle
        self.holders: dict[Any, int] = {}
        self.lru: list[Any] = []

    def ids(self, path: Sequence[Piece], blocks: int) -> list[Any]:
        found, first = [], 0
        for number, (_, end) in enumerate(path):
            keys = tuple(piece.key for piece in path[: number + 1])
            found += [(keys, block) for block in range(first, min(end, blocks))]
            first = min(end, blocks)
        return found

    def find(self, path: Sequence[Piece], most: int) -> Found:
        blocks = held = 0
        for each in self.ids(path, most):
            if each not in self.holders:
                break
            blocks += 1
            held += self.holders[each] > 0
        return Found(blocks, held)

    def advance(self, path: Sequence[Piece], before: int, blocks: int) -> int:
        shared = 0
        for each in self.ids(path, blocks)[before:]:
            shared += self.holders.get(each, 0) > 0
            if each in self.lru:
                self.lru.remove(each)
            self.holders[each] = self.holders.get(each, 0) + 1
        return shared

    def release(self, path: Sequence[Piece], blocks: int) -> int:
        shared = 0
        for each in reversed(self.ids(path, blocks)):
            self.holders[each] -= 1
            shared += self.holders[each] > 0
            if not self.holders[each]:
                self.lru.append(each)
        return shared

    def trim(self, room: int) -> None:
        while len(self.lru) > max(min(room, self.most_idle), 0):
            del self.holders[self.lru.pop(0)]


def random_path(chance: random.Random, number: int) -> tuple[Piece, ...]:
    """Return a path of a few hashes, a session, or a request's own tokens."""
    if chance.random() < 0.3:
        return (Piece(~chance.randint(0, 3), ENDLESS),)
    path, end = [], 0
    for depth in range(chance.randint(0, 3)):
        end += chance.randint(1, 4) if chance.random() < 0.2 else 4
        path.append(Piece((chance.randint(0, 1 + depth), end), end))
    return (*path, Piece(~(100 + number), ENDLESS))


def compare(seed: int) -> None:
    chance = random.Random(seed)
    most = chance.choice([0, 5, 20, ENDLESS])
    cache, single = PrefixCache(most), SingleBlocks(most)
    under_way: list[Holding] = []
    for number in range(60):
        if under_way and chance.random() < 0.4:
            holding = under_way.pop(chance.randrange(len(under_way)))
            expected = single.release(holding.path, holding.blocks)
            assert cache.release(holding) == expected
        elif under_way and chance.random() < 0.4:
            holding = chance.choice(under_way)
            blocks = holding.blocks + chance.randint(0, 6)
            expected = single.advance(holding.path, holding.blocks, blocks)
            assert cache.advance(holding, blocks) == expected
        else:
            path, longest = random_path(chance, number), chance.randint(0, 14)
            found = cache.find(path, longest)
            assert found == single.find(path, longest)
            under_way.append(Holding(path))
            expected = single.advance(path, 0, found.blocks)
            assert cache.advance(under_way[-1], found.blocks) == expected == found.held
        room = chance.choice([2, 10, 30, 10**6])
        cache.trim(room)
        single.trim(room)
        assert cache.idle == len(single.lru)


def test_pieces_are_as_if_each_block_were_kept_by_itself() -> None:
    for seed in range(60):
        compare(seed)


@pytest.mark.deep
def test_pieces_are_as_if_each_of_many_blocks_were_kept_by_itself() -> None:
    for seed in range(60, 1000):
        compare(seed)


def test_a_block_belongs_to_the_hash_of_its_end() -> None:
    request = Request(7, 0, 1300, 5, hashes=(1, 2, 3))
    own = Piece(~7, ENDLESS)
    assert path_of(request, 16) == (Piece((1, 32), 32), Piece((2, 64), 64), Piece((3, 81), 81), own)
    assert path_of(request, 300) == (Piece((1, 1), 1), Piece((2, 3), 3), Piece((3, 4), 4), own)
    assert path_of(request, 1000) == (Piece((2, 1), 1), own) or path_of(request, 1000)[-1] == own
    assert path_of(Request(9, 0, 50, 5, session=4), 16) == (Piece(~4, ENDLESS),)


def served(
    requests: Sequence[Request],
    caching: Caching,
    policy: Policy = Policy(),  # noqa: B008
    *pools: CachePool,
    speculation: Speculation | None = None,
) -> ServingCluster:
    times = KnownTimes()
    drafting = None if speculation is None else Drafting(speculation, times)
    cluster = ServingCluster(pools or (pool(),), policy, times, caching=caching, drafting=drafting)
    cluster.serve(requests)
    assert all(0 < each.used_blocks <= cluster.replicas[0].pool.blocks for each in cluster.iterations)
    for replica in cluster.replicas:
        assert replica.batcher.used == 0
        assert replica.batcher.left == 0
        if replica.batcher.prefixes is not None:
            assert replica.batcher.prefixes.idle <= min(replica.batcher.free, caching.tokens)
    return cluster


def equal_prompts(count: int, prompt: int = 1000, output: int = 4, apart_ns: int = 10**6) -> list[Request]:
    hashes = tuple(range(-(-prompt // 512)))
    return [Request(number, number * apart_ns, prompt, output, hashes=hashes) for number in range(count)]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("block", [1, 8, 16, 125])
def test_of_equal_prompts_only_the_last_block_or_token_is_computed(policy: str, block: int) -> None:
    cluster = served(equal_prompts(4), EVERY, Policy(policy, block=block), pool(blocks=10_000))
    hits = 999 // block * block
    assert [of.hit_tokens for of in cluster.served] == [0, hits, hits, hits]
    computed = sum(each.prefill_tokens for each in cluster.iterations)
    singles = sum(each.decode_tokens for each in cluster.iterations)
    assert computed + singles == 1000 + 3 * (1000 - hits) + 4 * 3


def test_turns_compute_what_no_earlier_turn_has_cached() -> None:
    turns = list(read_requests("sessions:1,3,4,100,20,0.001"))
    cluster = served(turns, EVERY)
    for of in cluster.served:
        turn = of.request.number - of.request.session
        cached = turn * 120 - 1  # the last token of an answer is in no cache
        assert of.hit_tokens == (cached // 16 * 16 if turn else 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_tokens_that_drafts_gave_are_found_by_the_next_turn(policy: str) -> None:
    turns = list(read_requests("sessions:1,3,4,100,20,0.001"))
    usual, drafted = (
        served(turns, EVERY, Policy(policy, 8, 256, 8), pool(blocks=10_000), speculation=speculation)
        for speculation in (None, Speculation("ngram", 3, 2.5))
    )
    hits = [of.hit_tokens for of in drafted.served]
    assert hits == [of.hit_tokens for of in usual.served]
    assert any(hits)
    assert len(drafted.iterations) < len(usual.iterations)


def test_a_cache_without_equal_tokens_changes_no_drafts() -> None:
    for seed in range(8):
        chance = random.Random(seed)
        policy = Policy(chance.choice([*POLICIES]), max_batch=8, token_budget=256, block=16)
        load = [Request(number, number * 1000, chance.randint(1, 900), 30) for number in range(12)]
        speculation = Speculation("ngram", chance.randint(1, 4), 1.7)
        alone, cached = (
            outcome(served(load, caching, policy, pool(), speculation=speculation))
            for caching in (Caching(), EVERY)
        )
        assert cached == alone


def random_load(chance: random.Random) -> list[Request]:
    """Return requests with hashes, sessions, and others, in the order of arrival."""
    load: list[Request] = []
    arrivals = sorted(chance.randint(0, chance.choice([10, 10**5, 10**6])) for _ in range(12))
    for arrival in arrivals:
        prompt, output = chance.randint(1, 1500), chance.choice([1, 2, 30])
        kind, number = chance.random(), len(load)
        if kind < 0.5:
            hashes = tuple(chance.randint(0, 1 + depth) for depth in range(-(-prompt // 512)))
            load.append(Request(number, arrival, prompt, output, hashes=hashes))
        elif kind < 0.8:
            load.append(Request(number, arrival, prompt, output, session=number))
            more = prompt + output + chance.randint(1, 100)
            load.append(Request(number + 1, 0, more, 5, number, chance.choice([0, 10**5]), number))
        else:
            load.append(Request(number, arrival, prompt, output))
    return load


def outcome(cluster: ServingCluster) -> Any:
    return cluster.iterations, [
        (of.first_token_ns, of.finish_ns, of.replica, of.preemptions) for of in cluster.served
    ]


def test_a_cache_of_nothing_and_one_without_equal_tokens_change_nothing() -> None:
    for seed in range(8):
        chance = random.Random(seed)
        policy = Policy(chance.choice([*POLICIES]), max_batch=8, token_budget=256, block=16)
        load = random_load(chance)
        usual = outcome(served(load, Caching(), policy, pool(replicas=2)))
        assert outcome(served(load, Caching(0), policy, pool(replicas=2))) == usual
        others = [Request(of.number, of.number * 1000, of.prompt, of.output) for of in load]
        alone = outcome(served(others, Caching(), policy, pool(replicas=2)))
        assert outcome(served(others, EVERY, policy, pool(replicas=2))) == alone
        routed = Caching(ENDLESS, BY_PREFIX)
        assert outcome(served(others, routed, policy, pool(replicas=2))) == alone


@pytest.mark.parametrize("blocks", [210, 400, 10**5])
def test_all_blocks_come_back_whatever_is_shared_and_lost(blocks: int) -> None:
    hits = 0
    for seed in range(25):
        chance = random.Random(seed)
        policy = Policy(chance.choice([*POLICIES]), chance.choice([3, 16]), 256, chance.choice([8, 16]))
        size = blocks * 16 // policy.block
        remote = chance.choice([0, 1000, ENDLESS])
        caching = Caching(chance.choice([64, 2000, ENDLESS]), chance.choice(["load", BY_PREFIX]), remote)
        pools = (pool(replicas=2, blocks=size),)
        if chance.random() < 0.4:
            pools = (pool(PREFILL, blocks=size), pool(DECODE, 2, size, first=1))
        load, speculation = random_load(chance), None
        if chance.random() < 0.4:
            speculation = Speculation("ngram", chance.randint(1, 4), chance.choice([1.2, 1.5, 2.0]))
        cluster = served(load, caching, policy, *pools, speculation=speculation)
        hits += sum(of.hit_tokens for of in cluster.served)
        assert remote or not any(of.loaded_tokens for of in cluster.served)
        assert all(of.produced == of.request.output for of in cluster.served)
    assert hits


def test_idle_blocks_go_for_want_of_room_the_oldest_first() -> None:
    first, second, third = (
        [Request(number, number * 10**7, 160, 1, hashes=(number % 3,)) for number in numbers]
        for numbers in ([0, 1, 2, 3], [0, 1, 2, 5], [0, 1, 2, 4])
    )
    policy = Policy(block=16)
    roomy = served(first, EVERY, policy, pool(blocks=100))
    assert [of.hit_tokens for of in roomy.served] == [0, 0, 0, 144]
    for load, hit in ((first, 0), (third, 144), (second, 144)):
        tight = served(load, EVERY, policy, pool(blocks=20))
        assert [of.hit_tokens for of in tight.served] == [0, 0, 0, hit]
    assert served(second, Caching(160), policy, pool()).served[3].hit_tokens == 144
    assert served(third, Caching(160), policy, pool()).served[3].hit_tokens == 0


def test_a_router_by_prefix_weighs_what_is_cached_against_what_is_left() -> None:
    load = [
        *equal_prompts(1, output=1),
        Request(1, 10**6, 300, 1, hashes=(9,)),
        Request(2, 10**6, 1000, 1, hashes=(0, 1)),
    ]
    pools = (pool(replicas=2),)
    by_load = served(load, EVERY, Policy(), *pools)
    assert [(of.replica, of.hit_tokens) for of in by_load.served] == [(0, 0), (0, 0), (1, 0)]
    routed = served(load, Caching(ENDLESS, BY_PREFIX), Policy(), *pools)
    assert [(of.replica, of.hit_tokens) for of in routed.served] == [(0, 0), (0, 0), (0, 992)]
    load[1] = Request(1, 10**6, 1200, 1, hashes=(9, 9, 9))
    busy = served(load, Caching(ENDLESS, BY_PREFIX), Policy(), *pools)
    assert [of.replica for of in busy.served] == [0, 0, 1]  # 1,200 are left there, and 992 cached


def test_a_cache_that_is_there_is_not_sent_again() -> None:
    pools = (pool(PREFILL), pool(DECODE, first=1))
    turns = list(read_requests("sessions:1,1,2,100,20,0.001"))
    first, second = served(turns, EVERY, Policy(), *pools).served
    assert second.hit_tokens == 96  # of the prompt; the answer was made elsewhere
    assert (first.transfer_ns, second.transfer_ns) == (300 * 100, 300 * (220 - 112))


@pytest.mark.parametrize(
    ("given", "router", "sentence"),
    [
        ("-5", None, "--prefix-cache is '-5' (give a number of tokens, such as 100000, or all)"),
        ("much", None, "--prefix-cache is 'much'"),
        (None, "prefix", "--router prefix requires a cache of prefixes (give --prefix-cache all, too)"),
        ("all", "prefixes", "there is no router 'prefixes' (did you mean 'prefix'?)"),
    ],
)
def test_a_faulty_choice_is_refused(given: str | None, router: str | None, sentence: str) -> None:
    with pytest.raises(EtSimError) as refusal:
        Caching.of(given, router)
    assert sentence in str(refusal.value)
    assert Caching.of(ALL, None) == EVERY
    assert Caching.of(None, None) == Caching.of("0", "load") == Caching()


class TimesOfGroups(KnownTimes):
    """Times of passes by the group with most tokens."""

    def pass_ns(self, pool: CachePool, batch: GroupBatches) -> int:  # noqa: ARG002
        loads = (batch,) if isinstance(batch, Batch) else batch
        return PASS_NS + TOKEN_NS * max(load.tokens for load in loads)


@pytest.mark.parametrize("groups", [pool(BOTH, 2), CachePool(BOTH, Plan(data=2), 1, 0, 1000, 1)])
def test_replicas_and_groups_have_caches_of_their_own(groups: CachePool) -> None:
    """Check two prompts that come together, and two that come later, one of which finds both groups idle."""
    load = [*equal_prompts(2, apart_ns=0), *equal_prompts(4, apart_ns=10**6)[2:]]
    cluster = ServingCluster((groups,), Policy(), TimesOfGroups(), caching=EVERY)
    cluster.serve(load)
    assert [(of.replica, of.hit_tokens) for of in cluster.served] == [(0, 0), (1, 0), (0, 992), (0, 992)]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_has_gone_is_loaded_in_place_of_being_computed(policy: str) -> None:
    first, second = served(equal_prompts(2), Caching(0, remote_tokens=ENDLESS), Policy(policy)).served
    assert (first.loaded_tokens, second.loaded_tokens, second.hit_tokens) == (0, 992, 0)
    single = PASS_NS + TOKEN_NS * 8
    assert second.first_token_ns - second.request.arrival_ns == 992 * LOAD_NS + single
    computed = served(equal_prompts(2), Caching(0, remote_tokens=15), Policy(policy)).served[1]
    assert (computed.loaded_tokens, computed.finish_ns) == (
        0,
        computed.request.arrival_ns + first.finish_ns,
    )


def test_only_what_is_not_cached_is_loaded() -> None:
    load = [*equal_prompts(1), Request(1, 10**6, 500, 2, hashes=(9,)), *equal_prompts(3)[2:]]
    of = served(load, Caching(ENDLESS, remote_tokens=ENDLESS), Policy(), pool(blocks=70)).served[2]
    assert (of.hit_tokens, of.loaded_tokens) == (608, 384)  # 70 blocks, of which the second had 32


def test_loads_of_a_replica_follow_each_other_and_others_run_meanwhile() -> None:
    again = [Request(number, 10**7, 1000, 2, hashes=(0, 1)) for number in (1, 2)]
    load = [*equal_prompts(1), *again, Request(3, 10**7, 40, 2)]
    found = served(load, Caching(0, remote_tokens=ENDLESS), Policy()).served
    waits = [of.scheduled_ns - 10**7 for of in found[1:]]
    assert waits[2] == 0  # behind two that load
    assert waits[0] < waits[1]
    assert found[2].scheduled_ns >= 10**7 + 2 * 992 * LOAD_NS
    assert found[2].loaded_tokens == 992


def test_a_common_memory_has_what_any_replica_has_computed() -> None:
    load = [*equal_prompts(1, apart_ns=0), *equal_prompts(3, apart_ns=0)[1:]]
    load = [load[0], *(Request(of.number, 10**6, 1000, 4, hashes=of.hashes) for of in load[1:])]
    for is_common, loaded in ((True, [0, 992, 992]), (False, [0, 992, 0])):
        cluster = ServingCluster(
            (pool(replicas=2),),
            Policy(),
            KnownTimes(),
            caching=Caching(0, remote_tokens=ENDLESS),
            has_common_memory=is_common,
        )
        cluster.serve(load)
        assert [of.loaded_tokens for of in cluster.served] == loaded
