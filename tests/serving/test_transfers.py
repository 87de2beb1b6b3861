"""Caches on their way: beside each other on links, and by layers during the pass of their prompt."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_batching import PASS_NS, TOKEN_NS, TRANSFER_NS, KnownTimes, pool
from training_jobs import decoder

from et_sim.basics.errors import UsageError
from et_sim.machine.presets import preset
from et_sim.run.options import RunOptions
from et_sim.serving.batcher import PREFILL_FIRST, Policy
from et_sim.serving.cluster import ServingCluster
from et_sim.serving.replicas import DECODE, PREFILL, SimulatedTimes
from et_sim.serving.requests import Request
from et_sim.serving.serve import serve
from et_sim.serving.setups import Setup
from et_sim.serving.transfers import LAYERS, Window
from et_sim.workloads import Batch, Plan, Segment
from et_sim.workloads.inference.transfers import ReplicaPlace, SentCache, messages

MODEL = decoder(sequence=4096)
GB = (1 << 30) / 10**9  # bytes per ns of a GB/s in a network file
OPTIONS = RunOptions(
    system=preset("h100-dgx:4").system,
    network={
        "topology": ["Switch"],
        "npus_count": [4],
        "bandwidth": [50.0],
        "latency": [500.0],
    },
    model="flow",
)


def place(rank: int) -> ReplicaPlace:
    return ReplicaPlace(Plan(), rank)


def times() -> SimulatedTimes:
    """Return the times of a machine whose first pass has been simulated."""
    made = SimulatedTimes(MODEL, OPTIONS, 4)
    made.pass_ns(pool(), Batch.of([Segment(8)]))
    return made


def test_caches_that_share_a_link_take_turns_and_those_that_do_not_are_alone() -> None:
    """Check two caches from one rank, which halve its link, and two between pairs of their own."""
    made, tokens = times(), 4000
    alone = made.ends_ns([SentCache(place(0), place(1), tokens)])[0]
    apart = made.ends_ns([SentCache(place(0), place(1), tokens), SentCache(place(2), place(3), tokens)])
    assert apart == (alone, alone)
    moved = sum(messages(MODEL, place(0), place(1), tokens).values()) / 8 / (50 * GB)
    both = made.ends_ns([SentCache(place(0), place(1), tokens), SentCache(place(0), place(2), tokens)])
    assert abs(both[0] - alone - moved) <= 2
    assert both[0] == both[1]


def test_a_cache_that_begins_later_shares_the_link_from_then_on() -> None:
    """Check that the first one loses as long as both are under way, and the second one likewise."""
    made, tokens = times(), 4000
    alone = made.ends_ns([SentCache(place(0), place(1), tokens)])[0]
    begin = alone // 4
    late = SentCache(place(0), place(2), tokens, begin_ns=begin)
    first, second = made.ends_ns([SentCache(place(0), place(1), tokens), late])
    moved = sum(messages(MODEL, place(0), place(1), tokens).values()) / 8 / (50 * GB)
    rest = moved - begin
    assert abs(first - (alone + rest)) <= 2
    assert abs(second - (alone + moved)) <= 2
    assert made.ends_ns([late._replace(source=place(3))]) == (begin + alone,)


def test_the_last_layers_are_a_part_of_the_bytes() -> None:
    whole = messages(MODEL, place(0), place(1), 100)
    each = messages(MODEL, place(0), place(1), 100, 1)
    assert sum(whole.values()) == MODEL.layers * sum(each.values())
    assert messages(MODEL, place(0), place(1), 100, MODEL.layers) == whole
    stages = ReplicaPlace(Plan(pipeline=2), 0)
    last = messages(MODEL, stages, ReplicaPlace(Plan(pipeline=2), 2), 100, 1)
    assert set(last) == {(1, 3)}  # the stage that has it


@given(
    st.integers(1, 40), st.integers(1, 2000), st.integers(0, 3000), st.integers(1, 300), st.integers(0, 5000)
)
def test_layers_left_are_those_that_one_after_the_other_has_not_sent(
    layers: int, each: int, begin: int, layer_ns: int, free: int
) -> None:
    """Send layer after layer: each when it is computed, and the one before is sent."""
    end, sent = begin + layers * each, []
    before = free
    for layer in range(1, layers + 1):
        before = max(before, begin + layer * each) + layer_ns
        sent.append(before)
    left = max(sum(at > end for at in sent), 1)
    found = Window(begin, end, free, layers).left(layer_ns)
    if free <= begin + each:
        assert found == left if layer_ns >= each else found == -(-layer_ns // each)
    assert found >= left or layer_ns < each
    assert Window(begin, end, free, layers).left(0) == 1


class LayeredTimes(KnownTimes):
    """Times of caches by their layers, of which there are ten."""

    def ends_ns(self, caches: Sequence[SentCache]) -> list[int]:
        return [of.begin_ns + TRANSFER_NS * of.tokens * (of.layers or 10) // 10 for of in caches]


def served(by_layers: bool, token_ns: int, *requests: tuple[int, int, int]) -> ServingCluster:
    cluster = ServingCluster(
        (pool(PREFILL), pool(DECODE, first=1)),
        Policy(PREFILL_FIRST),
        LayeredTimes(token_ns),
        layers=10,
        by_layers=by_layers,
    )
    cluster.serve([Request(number, *fields) for number, fields in enumerate(requests)])
    return cluster


def test_by_layers_one_layer_is_left_if_links_keep_up() -> None:
    slow = 10 * TRANSFER_NS
    whole, layered = (served(by_layers, slow, (0, 100, 3)).served[0] for by_layers in (False, True))
    assert (whole.transfer_ns, layered.transfer_ns) == (100 * TRANSFER_NS, 10 * TRANSFER_NS)
    assert whole.finish_ns - layered.finish_ns == 90 * TRANSFER_NS
    assert whole.first_token_ns == layered.first_token_ns


def test_by_layers_what_links_do_not_keep_up_with_is_left() -> None:
    """Check a pass of 2,000 ns, in which none of ten layers of 3,000 ns is sent."""
    assert served(True, TOKEN_NS, (0, 100, 3)).served[0].transfer_ns == 100 * TRANSFER_NS
    token_ns = 100  # a pass of 11,000 ns, of which 9,900 follow the first layer: three layers
    assert served(True, token_ns, (0, 100, 3)).served[0].transfer_ns == 70 * TRANSFER_NS


def test_layers_of_prompts_of_one_pass_share_it() -> None:
    first, second = served(True, 200, (0, 100, 3), (0, 100, 3)).served
    layer_ns = 2 * 10 * TRANSFER_NS
    took = PASS_NS + 200 * 200
    left = 10 - (took - took // 10) // layer_ns
    assert left == 4
    assert first.transfer_ns == second.transfer_ns == left * 10 * TRANSFER_NS
    assert second.finish_ns > first.finish_ns


def test_by_layers_and_whole_are_alike_without_time_on_links() -> None:
    class Instant(KnownTimes):
        def ends_ns(self, caches: Sequence[SentCache]) -> list[int]:
            return [of.begin_ns for of in caches]

    results = []
    for pools, by_layers in (
        ((pool(),), False),
        ((pool(PREFILL), pool(DECODE, first=1)), False),
        ((pool(PREFILL), pool(DECODE, first=1)), True),
    ):
        cluster = ServingCluster(pools, Policy(PREFILL_FIRST), Instant(), layers=10, by_layers=by_layers)
        cluster.serve([Request(number, number * 10**7, 100, 5) for number in range(4)])
        results.append([(of.first_token_ns, of.finish_ns) for of in cluster.served])
    assert results[0] == results[1] == results[2]


def test_caches_of_two_replicas_slow_each_other_on_a_common_link() -> None:
    """Check two prompts that end together, whose caches go from 0 and 1 of a ring by 1 and 2 to 2 and 3."""
    network = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [10.0], "latency": [500.0]}
    options = RunOptions(system=preset("h100-dgx:4").system, network=network, model="flow")
    setup = Setup(plan=Plan(), replicas=2, prefill_replicas=2, context_step=1)
    load = [Request(number, 0, 3000, 2) for number in range(2)]
    (alone,) = serve(load[:1], MODEL, setup, options).requests()["transfer_ns"].tolist()
    first, second = serve(load, MODEL, setup, options).requests()["transfer_ns"].tolist()
    moved = sum(messages(MODEL, place(0), place(1), 3000).values()) / 8 / (10 * GB)
    assert max(first, second) == pytest.approx(alone + moved, rel=0.01)
    assert alone == pytest.approx(moved, rel=0.05)


def test_by_layers_requires_separate_replicas() -> None:
    with pytest.raises(UsageError, match=r"--transfer layers requires separate"):
        Setup(plan=Plan(), transfer=LAYERS)
    with pytest.raises(UsageError, match=r"there is no transfer 'layer' \(did you mean 'layers'\?\)"):
        Setup(plan=Plan(), transfer="layer")


def test_by_layers_nothing_is_sent_while_an_earlier_cache_is_on_its_way() -> None:
    """Check a second prompt whose pass begins and ends while the first cache is sent."""
    first, second = served(True, TOKEN_NS, (0, 100, 3), (1, 100, 3)).served
    assert first.transfer_ns == second.transfer_ns == 100 * TRANSFER_NS
    assert second.first_token_ns < first.first_token_ns + first.transfer_ns


def test_a_cache_that_is_slowed_ends_later_than_was_said_at_its_begin() -> None:
    """Check caches from two replicas that share a link: each takes its time alone and that of the other."""

    class Common(KnownTimes):
        def ends_ns(self, caches: Sequence[SentCache]) -> list[int]:
            begins = [of.begin_ns for of in caches]
            lasts = TRANSFER_NS * caches[0].tokens
            if len(caches) == 1:
                return [begins[0] + lasts]
            assert len(caches) == 2
            late = begins[1]
            return [2 * lasts - late, 2 * lasts]  # half the link each, from the second begin on

    pools = (pool(PREFILL, replicas=2), pool(DECODE, replicas=2, first=2))
    cluster = ServingCluster(pools, Policy(PREFILL_FIRST), Common())
    cluster.serve([Request(0, 0, 100, 2), Request(1, 500, 100, 2)])
    lasts = 100 * TRANSFER_NS
    assert [of.transfer_ns for of in cluster.served] == [2 * lasts - 500, 2 * lasts - 500]
    assert all(replica.batcher.used == 0 for replica in cluster.replicas)
