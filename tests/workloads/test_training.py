"""Training jobs: totals equal closed forms, ideal networks give the textbook's times, and nothing hangs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from expanded_workloads import expanded
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from machines import network, system
from msgspec.structs import replace
from training_jobs import decoder, moved, rows_named, transformer, with_experts, with_latent_attention

from et_sim.api import run
from et_sim.basics.errors import UsageError
from et_sim.cli import main
from et_sim.recipes.recipe import model_and_plan
from et_sim.trace import CollectiveKind, GroupRule, NodeKind, Trace, Workload
from et_sim.trace.preflight import find_problems
from et_sim.workloads import Model, Plan, make_training, read_model
from et_sim.workloads.training.blocks import QuerySight
from et_sim.workloads.training.figures import figures
from et_sim.workloads.training.layers import ModelLayers

IDEAL = {"topology": ["FullyConnected"], "bandwidth": [1e6], "latency": [0]}


def sums(workload: Workload, *, over: Any) -> Any:
    """Return the sum of a figure over all ranks."""
    each = [over(trace) for trace in workload.templates]
    return sum(count * cost for count, cost in zip(workload.ranks_per_template.tolist(), each, strict=True))


def products(trace: Trace) -> int:
    """Return the operations of products of activations and weights."""
    is_product = np.array([shape.startswith("gemm") for shape in trace.layer_shapes], np.bool_)
    return int(trace.num_ops[is_product[trace.layer_shape]].sum())


def of_attention(trace: Trace) -> int:
    """Return the operations of scores, and of sums by them."""
    return int(trace.num_ops[rows_named(trace, " attention")].sum())


def matrix_weights(model: Model) -> int:
    """Return the weights that activations are multiplied with, for each token."""
    hidden = model.hidden
    attention = sum(inputs * outputs for _, inputs, outputs in model.attention.projections(hidden))
    attention += model.attention.heads * model.attention.value_size * hidden
    total = model.vocabulary * hidden
    for layer in range(model.layers):
        total += attention
        if model.experts is not None and model.has_experts(layer):
            total += model.experts.active_weights(hidden)
        else:
            total += model.feed_forward.weights(hidden)
    return total


PLANS = st.sampled_from(
    [
        {},
        {"tensor": 2, "data": 2, "pipeline": 2},
        {"tensor": 4, "sequence_parallel": True, "data": 3},
        {
            "tensor": 2,
            "sequence_parallel": True,
            "tensor_overlap": 4,
            "pipeline": 2,
            "schedule": "zero-bubble",
        },
        {"pipeline": 4, "schedule": "gpipe"},
        {"pipeline": 2, "schedule": "zero-bubble", "tensor": 2},
        {"pipeline": 2, "schedule": "interleaved", "chunks": 2, "data": 2},
        {"data": 4, "zero": 1},
        {"data": 4, "zero": 2, "bucket": 10_000},
        {"data": 4, "zero": 3},
        {"data": 4, "zero": 3, "shard": 2, "prefetch": 0},
        {"context": 4, "data": 2},
        {"context": 2, "context_attention": "all-to-all", "tensor": 2},
        {"context": 2, "context_balance": "none", "pipeline": 2, "tflops": 1e-3},
        {"tensor": 2, "context": 2, "data": 2, "pipeline": 2, "order": "data-tensor-pipeline-context"},
        {"data": 2, "stage_layers": (1, 3), "pipeline": 2},
        {"tensor": 2, "sequence_parallel": True, "overlap_tensor": False, "zero": 1, "data": 2},
    ]
)
EXPERT_PLANS = st.sampled_from(
    [
        {},
        {"data": 4, "expert": 4},
        {"data": 4, "expert": 2, "zero": 1},
        {"tensor": 2, "data": 4, "expert": 8, "sequence_parallel": True},
        {"data": 2, "expert": 2, "zero": 3},
        {"pipeline": 2, "data": 2, "expert": 2},
    ]
)


@given(PLANS, st.integers(1, 5), st.sampled_from([1, 2, 4]), st.booleans(), st.booleans())
def test_operations_are_six_for_each_weight_and_token_and_attention_exactly(
    how: dict[str, Any], count: int, batch: int, causal: bool, is_fused: bool
) -> None:
    """Count two products forward, and backward four, or five if fused attention recomputes scores."""
    assume(is_fused or not causal or "context" not in how)  # blocks without a visible pair are left out
    if how.get("schedule") == "interleaved":
        count *= how["pipeline"]
    model, plan = (
        decoder(),
        Plan(**how, micro_batches=count, batch=batch, causal=causal, fused_attention=is_fused),
    )
    workload = make_training(model, plan)
    tokens = plan.data * count * batch * model.sequence
    seen = plan.data * count * batch * QuerySight(model.sequence, causal and is_fused).pairs(model.sequence)
    attention = model.attention
    sizes = (4 if is_fused else 3) * attention.query_size + 3 * attention.value_size
    of_core = 2 * seen * attention.heads * sizes * model.layers
    of_weights = sums(workload, over=products) - (0 if is_fused else of_core)
    assert of_weights == 6 * matrix_weights(model) * tokens
    assert sums(workload, over=of_attention) == (of_core if is_fused else 0)


@given(EXPERT_PLANS, st.sampled_from([with_experts, with_latent_attention]))
def test_experts_cost_the_work_of_their_tokens(how: dict[str, Any], kind: Any) -> None:
    model = with_experts() if how.get("expert", 1) > 1 else kind()
    plan = Plan(**how, micro_batches=2)
    workload = make_training(model, plan)
    tokens = plan.data * 2 * model.sequence
    assert sums(workload, over=products) == 6 * matrix_weights(model) * tokens


def test_operations_of_a_large_model_are_within_a_percent_of_six_for_each_weight_and_token() -> None:
    result, workload = figures(read_model("gpt3-175b"), Plan(tensor=8, pipeline=8, micro_batches=1))
    assert sums(workload, over=products) == pytest.approx(result.products_of_weights, rel=0.01)


@given(
    tensor=st.sampled_from([2, 4]),
    data=st.sampled_from([1, 2, 4]),
    count=st.integers(1, 4),
    is_spread=st.booleans(),
    zero=st.integers(0, 1),
)
def test_bytes_of_every_collective_follow_from_the_plan(
    tensor: int, data: int, count: int, is_spread: bool, zero: int
) -> None:
    model = decoder()
    plan = Plan(tensor=tensor, data=data, micro_batches=count, sequence_parallel=is_spread, zero=zero)
    layers, workload = ModelLayers(model, plan), make_training(model, plan)
    result = moved(workload.templates[0])
    size, passes = layers.activation_bytes, count * model.layers
    loss = count * layers.tokens * 4
    expected: Counter[tuple[str, str]] = Counter()
    if is_spread:
        # Each layer has four exchanges, the embedding and the head have one, and gradients have the same.
        expected["tensor", "reduce_scatter"] = (4 * passes + 2 * count) * size
        expected["tensor", "all_gather"] = (6 * passes + 3 * count) * size // tensor
        expected["tensor", "all_reduce"] = loss
    else:
        expected["tensor", "all_reduce"] = (4 * passes + 2 * count) * size + loss
    weights = model.layers * layers.dense_weights(0) + layers.embedding_weights + layers.head_weights
    if data > 1:
        expected["data", "all_reduce"] = 4 + (0 if zero else weights * plan.gradient_bytes)
        if zero:
            expected["data", "reduce_scatter"] = weights * plan.gradient_bytes
            expected["data", "all_gather"] = weights * plan.value_bytes // data
    assert result == expected


@pytest.mark.parametrize("prefetch", [0, 1, 9])
def test_shared_weights_are_gathered_twice_for_each_micro_batch_and_reduced_once(prefetch: int) -> None:
    plan = Plan(data=4, zero=3, micro_batches=3, prefetch=prefetch)
    layers = ModelLayers(decoder(), plan)
    result = moved(make_training(decoder(), plan).templates[0])
    weights = 4 * layers.dense_weights(0) + layers.embedding_weights + layers.head_weights
    assert result["data", "all_gather"] == 3 * 2 * weights * plan.value_bytes // 4
    assert result["data", "reduce_scatter"] == 3 * weights * plan.gradient_bytes


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_the_loss_is_summed_after_the_gradients_of_the_same_ranks(zero: int) -> None:
    for trace in transformer(data=4, pipeline=2, zero=zero, micro_batches=2).templates:
        losses = np.flatnonzero(rows_named(trace, "loss all-reduce"))
        if not len(losses):  # of the first stage
            continue
        before, left = set[int](), losses.tolist()
        while left:
            found = set(trace.parents(left.pop()).tolist()) - before
            before |= found
            left += found
        of_data = (trace.kind == NodeKind.COLL) & (trace.group == trace.group[losses[0]])
        reduced = of_data & rows_named(trace, "reduce-scatter" if zero else "gradients all-reduce")
        assert reduced.any()
        assert set(np.flatnonzero(reduced).tolist()) <= before


def test_a_bucket_holds_gradients_of_one_micro_batch() -> None:
    trace = transformer(data=4, zero=2, micro_batches=3).templates[0]
    reduced = np.flatnonzero(trace.comm_type == CollectiveKind.REDUCE_SCATTER)
    reduced = reduced[trace.kind[reduced] == NodeKind.COLL]
    assert len(reduced) == 3  # each far below the size of a bucket


def test_gradients_of_weights_that_come_later_are_reduced_right_after_them() -> None:
    trace = transformer(data=4, zero=2, pipeline=2, micro_batches=3, schedule="zero-bubble").templates[0]
    is_reduced = (trace.comm_type == CollectiveKind.REDUCE_SCATTER) & (trace.kind == NodeKind.COLL)
    before = [trace.names[trace.name[row - 1]] for row in np.flatnonzero(is_reduced).tolist()]
    assert [name.split()[:2] for name in before] == [["backward-weights", f"{micro}"] for micro in range(3)]


def test_groups_of_sharing_replicas_reduce_their_shares() -> None:
    plan = Plan(data=8, shard=2, zero=3, micro_batches=1)
    layers, workload = ModelLayers(decoder(), plan), make_training(decoder(), plan)
    result = moved(workload.templates[0])
    weights = 4 * layers.dense_weights(0) + layers.embedding_weights + layers.head_weights
    assert result["shard", "reduce_scatter"] == weights * 2
    assert result["replica", "all_reduce"] == weights
    assert workload.group_rules["shard"] == GroupRule(2, 1)
    assert workload.group_rules["replica"] == GroupRule(4, 2)


@pytest.mark.deep
@given(st.sampled_from([2, 4, 8]), st.integers(1, 3))
def test_a_ring_passes_keys_on_and_their_gradients_all_the_way_round(context: int, count: int) -> None:
    plan = Plan(context=context, micro_batches=count)
    model = decoder()
    result = moved(make_training(model, plan).templates[0])
    tokens = model.sequence // context
    keys = tokens * 2 * model.hidden * plan.value_bytes
    hops = (context - 1) + (context - 1) + context
    assert result["", "send"] == count * model.layers * hops * keys


def test_tokens_cross_to_their_experts_and_back_in_both_directions() -> None:
    model, plan = with_experts(), Plan(data=4, expert=4, micro_batches=3)
    result = moved(make_training(model, plan).templates[0])
    copies, weight = model.sequence * 2, 4
    each = (
        4 * copies * model.hidden * 2 + 2 * copies * weight
    )  # weights go to the experts, and gradients back
    assert result["expert", "all_to_all"] == 3 * 3 * each


def test_tied_weights_are_reduced_between_the_first_and_the_last_stage() -> None:
    model = replace(decoder(), is_tied=True)
    workload = make_training(model, Plan(pipeline=4, data=2))
    rule = workload.group_rules["pipeline-ends"]
    assert [tuple(rule.members(rank)) for rank in (0, 1)] == [(0, 6), (1, 7)]
    with_them = [moved(workload.trace(rank))["pipeline-ends", "all_reduce"] for rank in range(8)]
    size = model.vocabulary * model.hidden * 2
    assert with_them == [size, size, 0, 0, 0, 0, size, size]


def test_ranks_are_counted_in_the_given_order() -> None:
    workload = transformer(tensor=2, data=3, pipeline=4)
    assert workload.template_of_rank.tolist() == [0] * 6 + [1] * 6 + [2] * 6 + [3] * 6
    assert workload.group_rules == {"tensor": GroupRule(2, 1), "data": GroupRule(3, 2)}
    other = transformer(tensor=2, data=3, pipeline=4, order="pipeline-data-tensor-context")
    assert other.template_of_rank.tolist() == [0, 1, 2, 3] * 6
    assert other.group_rules == {"tensor": GroupRule(2, 12), "data": GroupRule(3, 4)}


def ideal_ns(workload: Workload) -> int:
    machine = IDEAL | {"npus_count": [workload.ranks]}
    return run(
        workload,
        system=system(profile="corrected", **{"endpoint-delay": 0, "local-mem-bw": 0}),
        network=machine,
    ).makespan_ns


def busy_ns(trace: Trace) -> int:
    return int(trace.duration_us[trace.kind == NodeKind.COMP].sum()) * 1000


@pytest.mark.parametrize(
    "how", [{"zero": 3, "data": 4}, {"zero": 1, "data": 4}, {"data": 4}, {"tensor": 4}, {"context": 4}]
)
def test_on_an_ideal_network_a_step_without_a_pipeline_takes_its_computation(how: dict[str, Any]) -> None:
    workload = transformer(**how, hidden=256, tflops=1.0)
    busy = max(busy_ns(trace) for trace in workload.templates)
    assert busy <= ideal_ns(workload) <= busy * 1.001


@pytest.mark.parametrize(
    "how",
    [
        {"pipeline": 4, "schedule": "gpipe"},
        {"pipeline": 4},
        {"pipeline": 2, "schedule": "interleaved", "chunks": 2},
        {"pipeline": 4, "schedule": "zero-bubble", "micro_batches": 8},
        {"pipeline": 2, "tensor": 2, "data": 2},
    ],
)
def test_on_an_ideal_network_a_pipeline_takes_the_predicted_time(how: dict[str, Any]) -> None:
    model = decoder(hidden=256)
    result, workload = figures(model, Plan(**{"micro_batches": 4, "tflops": 1.0, **how}))
    assert result.ideal_ns <= ideal_ns(workload) <= result.ideal_ns * 1.001


@pytest.mark.deep
@given(PLANS)
def test_every_job_is_sound_and_folds_exactly_into_the_predicted_actors(how: dict[str, Any]) -> None:
    count = 2 * how["pipeline"] if how.get("schedule") == "interleaved" else 3
    plan = Plan(**how, micro_batches=count)
    result, workload = figures(decoder(), plan)
    assert find_problems(workload) == []
    machine = network(["Switch"], [workload.ranks])
    folded, unfolded = (
        run(workload, system=system(profile="corrected"), network=machine, fold=fold)
        for fold in (True, False)
    )
    assert folded.is_complete
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()
    assert len(folded.outcome.plan.actors) == result.actors


@st.composite
def random_plans(draw: st.DrawFn) -> Plan:
    """Draw a plan that fits the small decoder."""
    pipeline = draw(st.sampled_from([1, 2, 4]))
    schedules = ["gpipe", "1f1b", "zero-bubble"] + ["interleaved"] * (pipeline == 2)
    name, tensor, data = (
        draw(st.sampled_from(schedules)),
        draw(st.sampled_from([1, 2, 4])),
        draw(st.integers(1, 4)),
    )
    return Plan(
        tensor=tensor,
        context=draw(st.sampled_from([1, 2, 4])),
        data=data,
        pipeline=pipeline,
        schedule=name,
        chunks=2 if name == "interleaved" else 1,
        micro_batches=pipeline * draw(st.integers(1, 2)),
        order="-".join(draw(st.permutations(["tensor", "context", "data", "pipeline"]))),
        sequence_parallel=tensor > 1 and draw(st.booleans()),
        context_attention=draw(st.sampled_from(["ring", "all-to-all"])) if tensor < 4 else "ring",
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        zero=draw(st.integers(0, 3)),
    )


@pytest.mark.deep
@settings(max_examples=30)
@given(random_plans())
def test_every_run_has_the_planned_actors_unless_ties_unfold_it(plan: Plan) -> None:
    check_actors(plan, may_unfold=True)


@pytest.mark.parametrize(
    "how",
    [
        {"pipeline": 4, "data": 2},
        {"context": 4, "tensor": 2, "zero": 3},
        {"context": 4, "pipeline": 2, "context_balance": "none", "tflops": 1e-3},
    ],
)
def test_a_run_has_the_planned_actors(how: dict[str, Any]) -> None:
    check_actors(Plan(**how, micro_batches=2))


def check_actors(plan: Plan, *, may_unfold: bool = False) -> None:
    result, workload = figures(decoder(), plan)
    done = run(workload, system=system(profile="corrected"), network=network(["Switch"], [workload.ranks]))
    assert len(done.outcome.plan.actors) == result.actors or (may_unfold and not done.outcome.plan.is_folded)


SHAPES = st.sampled_from([(1, 1, 1), (2, 1, 1), (1, 1, 3), (1, 4, 1), (2, 2, 2), (2, 4, 2), (1, 2, 3)])


@pytest.mark.deep
@given(
    shape=SHAPES,
    micro_batches=st.integers(1, 5),
    seed=st.integers(0, 1000),
    extra=st.sampled_from(
        [
            {"profile": "corrected"},
            {"profile": "corrected", "rendezvous-protocol": 1},
            {"profile": "corrected", "scheduling-policy": "FIFO"},
        ]
    ),
)
def test_no_timing_makes_a_job_hang(
    shape: tuple[int, int, int], micro_batches: int, seed: int, extra: dict[str, Any]
) -> None:
    tensor, pipeline, data = shape
    workload = transformer(tensor=tensor, pipeline=pipeline, data=data, micro_batches=micro_batches)
    whole, groups = expanded(workload)
    random = np.random.default_rng(seed)
    traces = [
        replace(trace, duration_us=random.integers(1, 200, len(trace)))
        for trace in map(whole.trace, range(whole.ranks))
    ]
    listed = {str(number): list(members) for number, members in groups.items()}
    shaken = Workload.of(traces)
    assert find_problems(shaken, groups=groups) == []
    outcome = run(shaken, system=system(**extra), network=network(["Ring"], [whole.ranks]), groups=listed)
    assert outcome.is_complete


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"tensor": 0}, "tensor is 0 (allowed: an integer >= 1"),
        ({"tflops": -1.0}, "tflops is -1.0 (allowed: a number > 0"),
        ({"micro_batches": -1}, "micro_batches is -1"),
        ({"pipeline": 3}, "small has 4 layers, no multiple of the 3 parts of the pipeline"),
        (
            {"pipeline": 2, "stage_layers": (1, 2)},
            "stage_layers is a list of 2 numbers with the sum 3 (give 2 numbers whose",
        ),
        ({"micro_batches": 10**9}, "1,000,000,000 micro-batches of 4 layers are more than 20,000,000 nodes"),
        ({"tensor": 3}, "heads: 8 is not a multiple of 3, the number of tensor-parallel ranks"),
        (
            {"context": 3},
            "tokens of a sequence: 32 is not a multiple of 3, the number of context-parallel ranks",
        ),
        ({"data": 2, "expert": 2}, "small has no experts (leave expert and expert_tensor out)"),
        ({"expert": 3}, "3 expert-parallel ranks do not divide tensor x context x data, which is 1"),
        (
            {"tensor": 2, "data": 2, "pipeline": 2, "expert": 2, "order": "tp-pp-ep-dp"},
            "order tp-pp-ep-dp puts the pipeline between the axes that experts are spread over",
        ),
        ({"recompute": "ful"}, "recompute is 'ful' (did you mean 'full'?)"),
        ({"order": "tp-data-x"}, "order is 'tp-data-x' (name each of tp, cp, ep, dp, pp at most once"),
        ({"order": "tp-dp", "pipeline": 2}, "order is 'tp-dp', but lacks context, pipeline"),
        (
            {"global_batch": 10, "data": 2, "batch": 2},
            "global_batch is 10, which is not a multiple of 4: 2 replicas times 2 sequences of a micro-batch"
            " (give a"
            " multiple of 4, such as 8)",
        ),
        ({"zero": 4}, "zero is 4: more than 3 (allowed: 0, 1, 2 or 3)"),
        ({"shard": 2}, "shard is 2, which does not divide 1 replicas"),
        ({"data": 2, "shard": 2}, "shard requires zero"),
        ({"sequence_parallel": True}, "sequence_parallel requires tensor, 2 or more"),
        ({"scatter_gather": True}, "scatter_gather requires tensor-parallel ranks that all have"),
        (
            {"tensor": 2, "tensor_overlap": 2},
            "tensor_overlap is 2, but tokens are not exchanged beside products",
        ),
        (
            {"tensor": 2, "sequence_parallel": True, "tensor_overlap": 3},
            "tokens of a rank: 16 is not a multiple of 3, the number of chunks",
        ),
    ],
)
def test_plans_that_cannot_be_are_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_training(decoder(), Plan(**how))
    assert message in str(caught.value)


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 9))
def test_a_global_batch_sets_the_number_of_micro_batches(data: int, batch: int, count: int) -> None:
    plan = Plan(data=data, batch=batch, global_batch=data * batch * count)
    assert plan == Plan(data=data, batch=batch, micro_batches=count)
    assert replace(plan, data=2 * data).micro_batches == count


def test_a_global_batch_beside_micro_batches_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    made = ["plan", "--model", "gpt2", "--dp", "2", "--global-batch", "32"]
    assert main([*made, "--micro-batches", "8"]) == 2
    assert "--micro-batches is 8, and --global-batch 32 (give one of them" in capsys.readouterr().err
    assert main([*made, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["micro_batches"] == 16
    recipe = {"make": "llm", "model": "gpt2", "plan": {"micro-batches": 8, "global-batch": 32}}
    with pytest.raises(UsageError, match="micro-batches is 8, and global-batch 32"):
        model_and_plan(recipe, Path())


def test_recipes_of_sweeps_have_all_options_of_a_plan() -> None:
    options = {
        "cp": 2,
        "context-balance": "none",
        "context-attention": "all-gather",
        "document-tokens": 512,
        "recompute": "norms+activation",
        "recompute-layers": "every:2",
        "offload-activations": True,
        "no-dropout": True,
        "lora-rank": 8,
        "global-batch": 16,
    }
    _, plan = model_and_plan({"make": "llm", "model": "gpt2", "plan": options}, Path())
    assert plan == Plan(
        overlap_tensor=False,  # by the software
        context=2,
        context_balance="none",
        context_attention="all-gather",
        document_tokens=512,
        recompute="norms+activation",
        recompute_layers="every:2",
        offload_activations=True,
        dropout=False,
        lora_rank=8,
        micro_batches=16,
    )


@pytest.mark.parametrize("name", ["1f1b", "zero-bubble"])
def test_stages_may_be_without_layers(name: str) -> None:
    plan = Plan(pipeline=4, stage_layers=(0, 1, 0, 3), micro_batches=3, schedule=name)
    assert find_problems(make_training(decoder(), plan)) == []


def test_more_ranks_than_experts_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        make_training(with_experts(), Plan(data=16, expert=16))
    assert "experts: 8 is not a multiple of 16, the number of expert-parallel ranks" in str(caught.value)
