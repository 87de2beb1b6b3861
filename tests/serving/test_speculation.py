"""Drafts of further tokens: what a pass computes, what a sequence keeps, and what drafts cost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from test_batching import PASS_NS, TOKEN_NS, KnownTimes, pool
from training_jobs import decoder, with_experts

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.run.options import RunOptions
from et_sim.serving.batcher import CHUNKED, POLICIES, Policy
from et_sim.serving.caching import Caching
from et_sim.serving.cluster import ServingCluster
from et_sim.serving.described import ServingChoices, setup_of
from et_sim.serving.drafting import Drafting
from et_sim.serving.prefixes import ENDLESS
from et_sim.serving.requests import Request
from et_sim.serving.serve import serve
from et_sim.serving.setups import Setup
from et_sim.serving.speculation import Speculation, read_speculation
from et_sim.workloads import Batch, Model, Plan, Segment, make_inference, read_model
from et_sim.workloads.inference.batch import AttentionSight, BatchLoad
from et_sim.workloads.inference.memory import layer_bytes, weight_bytes_of_stage

MACHINE, PLAN = RunOptions(machine="h100-dgx:2"), Plan(tensor=2)
MODEL = with_experts(sequence=4096, next_tokens=1)


def pass_ns(model: Model, *segments: Segment) -> int:
    workload = make_inference(model, PLAN, [Batch.of(segments)])
    return int(et_sim.simulate(workload, machine="h100-dgx:2").makespan_ns)


def served(model: Model, speculation: Speculation | None, output: int) -> Any:
    setup = Setup(PLAN, context_step=1, speculation=speculation)
    return serve([Request(0, 0, 100, output)], model, setup, MACHINE)


@given(st.integers(1, 8), st.floats(0, 1), st.integers(1, 300))
def test_the_kept_tokens_add_up_to_the_acceptance(drafts: int, part: float, passes: int) -> None:
    acceptance = round(1 + drafts * part, 6)
    kept = [Speculation("ngram", drafts, acceptance).kept(number) for number in range(passes)]
    assert sum(kept) == passes * round(acceptance * 10**6) // 10**6
    assert min(kept) >= 1
    assert max(kept) <= drafts + 1


def test_a_pass_verifies_all_drafts_of_a_sequence() -> None:
    """Keep 1.5 tokens of a pass with two drafts: one, then two, then one, then the last one."""
    found = served(MODEL, Speculation("ngram", 2, 1.5), 6)
    passes = [pass_ns(MODEL, Segment(100))]
    passes += [pass_ns(MODEL, Segment(3, context, drafts=2)) for context in (100, 101, 103, 104)]
    assert [one.end_ns - one.start_ns for one in found.iterations] == passes


def test_drafts_take_the_passes_of_their_model() -> None:
    speculation = read_speculation("mtp:2", 3.0, MODEL)
    assert speculation is not None
    assert speculation.model is not None
    module = speculation.model
    prompt = pass_ns(MODEL, Segment(100)) + pass_ns(module, Segment(100)) + pass_ns(module, Segment(1, 100))
    verified = pass_ns(MODEL, Segment(3, 100, drafts=2)) + pass_ns(module, Segment(3, 100, drafts=2))
    found = served(MODEL, speculation, 4)
    took = [one.end_ns - one.start_ns for one in found.iterations]
    assert took == [prompt, verified + pass_ns(module, Segment(1, 103))]


def test_no_kept_draft_is_no_speculation() -> None:
    plain, none = (
        setup_of(ServingChoices(**given), PLAN, MODEL)
        for given in ({}, {"speculate": "mtp:3", "acceptance": 1.0})
    )
    assert plain == none


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_kept_drafts_need_fewer_passes(policy: str) -> None:
    speculation = Speculation("ngram", 3, 4.0)
    cluster = cluster_of(speculation, Policy(policy, 8, 64))
    cluster.serve([Request(0, 0, 10, 1 + 4 * 25)])
    assert len(cluster.iterations) == 1 + 25
    assert cluster.served[0].finish_ns == PASS_NS + 10 * TOKEN_NS + 25 * (PASS_NS + 4 * TOKEN_NS)


def cluster_of(speculation: Speculation, policy: Policy, blocks: int = 1000) -> ServingCluster:
    times = KnownTimes()
    return ServingCluster((pool(blocks=blocks),), policy, times, drafting=Drafting(speculation, times))


@given(
    st.lists(
        st.tuples(st.integers(0, 20_000), st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=12
    ),
    st.integers(1, 5),
    st.floats(0.01, 1),
    st.sampled_from(sorted(POLICIES)),
    st.integers(7, 30),
)
def test_all_requests_end_and_all_blocks_return(
    requests: list[tuple[int, int, int]], drafts: int, part: float, policy: str, blocks: int
) -> None:
    cluster = cluster_of(Speculation("ngram", drafts, 1 + drafts * part), Policy(policy, 8, 64), blocks)
    given = [Request(number, *fields) for number, fields in enumerate(sorted(requests))]
    cluster.serve(given)
    assert [one.produced for one in cluster.served] == [request.output for request in given]
    (replica,) = cluster.replicas
    assert (replica.batcher.free, replica.batcher.left) == (blocks, 0)
    if policy == CHUNKED:
        assert isinstance(cluster.times, KnownTimes)
        assert max(batch.tokens for batch in cluster.times.batches) <= 64


def test_a_verified_token_sees_those_before_it() -> None:
    batch = Batch.of([Segment(3, 100, drafts=2), Segment(3, 7, drafts=2)])
    pairs = sum(context + token for context in (100, 7) for token in (1, 2, 3))
    assert batch.decode == BatchLoad(2, 6, 107 + 6, pairs)
    assert (batch.prefill.segments, batch.sampled) == (0, 6)


def test_a_verified_token_sees_no_more_than_its_window() -> None:
    sight = AttentionSight(16)
    batch = Batch.of([Segment(3, 100, drafts=2)], sights=[sight])
    assert batch.seen(sight)[1].pairs == 3 * 16


@given(st.integers(1, 50), st.integers(1, 5000), st.sampled_from([1, 64]))
def test_without_drafts_a_token_is_a_single_one(count: int, context: int, step: int) -> None:
    segments = [Segment(1, context)] * count
    assert Batch.of(segments, step) == Batch.of([each._replace(drafts=0) for each in segments], step)
    assert Batch.of(segments, step).decode.tokens == count


def test_the_module_of_deepseek_v3_has_its_published_size() -> None:
    """Compare with 11.5 billion parameters, as published, without the embedding and the head."""
    module = read_speculation("mtp:1", 1.5, read_model("deepseek-v3"))
    assert module is not None
    assert module.model is not None
    weights = module.model.layer_weights(0) + module.model.joining_weights  # type: ignore[attr-defined]
    assert weights == pytest.approx(11.5e9, rel=0.01)


def test_weights_and_cache_of_drafts_take_memory() -> None:
    small = decoder(sequence=4096)
    for source in ("mtp:1", "ngram:1"):
        speculation = read_speculation(source, 1.5, MODEL)
        assert speculation is not None
        has_model = source == "mtp:1"
        more = speculation.weight_bytes(PLAN)
        assert (more > 0) == has_model == (speculation.cache_bytes(PLAN, 100) > 0)
        if has_model:
            assert speculation.model is not None
            joining = 2 * MODEL.norm_weights + 2 * MODEL.hidden**2
            assert more == layer_bytes(speculation.model, PLAN, 0) + 2 * joining
    other = Speculation("small", 1, 1.5, small)
    assert other.weight_bytes(PLAN) == weight_bytes_of_stage(small, PLAN, 0)
    tokens = [
        served(MODEL, one, 2).summary()["pools"][0]["cache_tokens"]
        for one in (None, Speculation("ngram", 1, 1.5), other)
    ]
    assert tokens[0] == tokens[1] > tokens[2]


@pytest.mark.parametrize(
    ("given", "acceptance", "refused"),
    [
        ("mtp:1", 2.1, "from 1 to 2"),
        ("mtp:1", 0.9, "from 1 to 2"),
        ("mtp", 1.5, "mtp:1"),
        ("mtp:0", 1.5, "mtp:1"),
        ("mtp:65", 1.5, "64"),
        ("no-such-model:2", 1.5, "no-such-model"),
    ],
)
def test_drafts_that_cannot_be_are_refused(given: str, acceptance: float, refused: str) -> None:
    with pytest.raises(Exception, match=refused):
        read_speculation(given, acceptance, MODEL)


def test_plans_without_room_for_drafts_are_refused() -> None:
    with pytest.raises(UsageError, match="no modules"):
        read_speculation("mtp:1", 1.5, replace(MODEL, next_tokens=0))
    speculation = read_speculation("mtp:1", 1.5, MODEL)
    assert speculation is not None
    with pytest.raises(UsageError, match="--pp"):
        speculation.check(Plan(pipeline=2))
    with pytest.raises(UsageError, match="--dp"):
        Speculation("small", 1, 1.5, decoder()).check(Plan(data=2))
    with pytest.raises(UsageError, match="--max-batch 32"):
        Setup(PLAN, policy=Policy(CHUNKED, 64, 64), speculation=speculation)
    with pytest.raises(UsageError, match="require each other"):
        setup_of(ServingChoices(speculate="mtp:1"), PLAN, MODEL)
    with pytest.raises(UsageError, match="different numbers of drafts"):
        Batch.of([Segment(3, 9, drafts=2), Segment(1, 9)])


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ({"caching": Caching(remote_tokens=ENDLESS)}, r"--offload moves only .*ngram"),
        ({"transfer": "layers", "prefill_replicas": 1}, r"--transfer layers moves only .*ngram"),
    ],
)
def test_moves_that_leave_out_the_cache_of_drafts_are_refused(more: dict[str, Any], refused: str) -> None:
    policy = Policy(max_batch=64)
    with pytest.raises(UsageError, match=refused):
        Setup(PLAN, policy=policy, speculation=read_speculation("mtp:1", 1.5, MODEL), **more)
    Setup(PLAN, policy=policy, speculation=Speculation("ngram", 1, 1.5), **more)


def test_neither_model_computes_tokens_that_are_found() -> None:
    speculation = read_speculation("mtp:1", 2.0, MODEL)
    assert speculation is not None
    assert speculation.model is not None
    setup = Setup(PLAN, context_step=1, speculation=speculation, caching=Caching(ENDLESS))
    equal = [Request(number, number * 10**10, 100, 1, hashes=(1,)) for number in range(2)]
    of = serve(equal, MODEL, setup, MACHINE)
    expected = [
        pass_ns(MODEL, segment) + pass_ns(speculation.model, segment)
        for segment in (Segment(100), Segment(4, 96))
    ]
    assert [one.end_ns - one.start_ns for one in of.iterations] == expected


def test_a_drafting_model_with_windows_shares_no_blocks() -> None:
    windows = replace(decoder(sequence=4096), windows=(16,) * decoder().layers)
    setup = Setup(PLAN, speculation=Speculation("small", 1, 1.5, windows), caching=Caching(ENDLESS))
    with pytest.raises(UsageError, match=r"keep different numbers of tokens.*--prefix-cache"):
        serve([Request(0, 0, 100, 2)], MODEL, setup, MACHINE)


def test_transfers_state_that_they_leave_out_the_cache_of_drafts() -> None:
    for source, leaves_out in (("mtp:1", True), ("ngram:1", False)):
        speculation = read_speculation(source, 1.5, MODEL)
        setup = Setup(Plan(), prefill_replicas=1, speculation=speculation)
        scope = serve([Request(0, 0, 100, 2)], MODEL, setup, MACHINE).summary()["scope"]
        assert ("the drafting model's cache in transfers" in scope["leaves_out"]) == leaves_out
