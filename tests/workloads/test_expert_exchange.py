"""Experts between nodes: the tokens that cross to each, and the bytes of every exchange."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import comb, prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import algorithms, network
from msgspec.structs import replace
from training_jobs import moved, rows_named, with_experts

from et_sim.api import run
from et_sim.basics.errors import UsageError
from et_sim.trace import NodeKind
from et_sim.workloads import Model, Plan, make_training, read_model
from et_sim.workloads.models.model import Experts, FeedForward
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.routing import odds_of, shares_met

PART = FeedForward(128, is_gated=True)


def model(groups: int = 1, chosen_groups: int = 1) -> Model:
    experts = Experts(16, 4, PART, groups=groups, chosen_groups=chosen_groups)
    return replace(with_experts(layers=1), experts=experts)


def layout(**given: Any) -> Plan:
    """Return a plan of sixteen experts on eight ranks of four nodes."""
    usual = {"data": 8, "expert": 8, "node_ranks": 2, "micro_batches": 1, "expert_exchange": "hierarchical"}
    return Plan(**{**usual, **given})


def enumerated(odds: list[int], parts: int, groups: int, limit: int, chosen: int) -> list[float]:
    """Count all sets of groups, and all sets of experts within them, that meet a part."""
    each, of_part = len(odds) // groups, len(odds) // parts
    met, whole = [0] * parts, 0
    for of_groups in combinations(range(groups), limit):
        experts = [group * each + at for group in of_groups for at in range(each)]
        for taken in combinations(experts, chosen):
            weight = prod(odds[expert] for expert in taken)
            whole += weight
            for part in {expert // of_part for expert in taken}:
                met[part] += weight
    return [count / whole for count in met]


@st.composite
def routers(draw: st.DrawFn) -> tuple[list[int], int, int, int, int]:
    groups, each = draw(st.sampled_from([(1, 8), (2, 4), (4, 2), (3, 3), (4, 3)]))
    count = groups * each
    limit = draw(st.integers(1, groups))
    chosen = draw(st.integers(1, min(limit * each, 4)))
    parts = draw(st.sampled_from([part for part in range(1, count + 1) if count % part == 0]))
    odds = draw(st.one_of(st.just([1] * count), st.lists(st.integers(1, 9), min_size=count, max_size=count)))
    return odds, parts, groups, limit, chosen


@given(routers())
@settings(max_examples=60)
def test_shares_of_tokens_are_those_of_all_sets_of_experts_counted_one_by_one(
    router: tuple[list[int], int, int, int, int],
) -> None:
    odds, *numbers = router
    result = shares_met(tuple(map(float, odds)), *numbers)
    assert result == pytest.approx(enumerated(odds, *numbers), rel=1e-12)


def test_deepseek_v3_meets_3_6_of_4_nodes_and_7_4_of_64_ranks() -> None:
    even = odds_of((), 256, 4096)
    nodes, ranks = (sum(shares_met(even, parts, 8, 4, 8)) for parts in (8, 64))
    assert nodes == pytest.approx(4 * (1 - comb(96, 8) / comb(128, 8)))
    assert ranks == pytest.approx(32 * (1 - comb(124, 8) / comb(128, 8)))
    unlimited = sum(shares_met(even, 8, 1, 1, 8))
    assert unlimited == pytest.approx(8 * (1 - comb(224, 8) / comb(256, 8)))


def test_loads_that_leave_too_few_experts_within_the_limit_are_refused() -> None:
    with pytest.raises(UsageError, match="no 1 of 4 groups have 2 experts with a load"):
        shares_met((1.0, 0.0) * 4, 4, 4, 1, 2)


def test_a_token_crosses_to_a_node_once_and_is_copied_there() -> None:
    plan, of = layout(), model()
    result = moved(make_training(of, plan).templates[0])
    tokens, row = of.sequence, of.hidden * 2
    nodes = round(tokens * 4 * (1 - comb(12, 4) / comb(16, 4)))
    ranks = round(tokens * 8 * (1 - comb(14, 4) / comb(16, 4)))
    assert result["expert-rail", "all_to_all"] == 4 * nodes * row  # to experts and back, both ways
    assert result["expert-node", "all_to_all"] == 4 * ranks * row
    assert ("expert", "all_to_all") not in result


def test_a_limit_of_nodes_is_the_models_or_the_plans() -> None:
    limited = ModelLayers(model(groups=4, chosen_groups=2), layout())
    assert limited.model.experts is not None
    by_model = limited.tokens_met(limited.model.experts, 4).total
    other = ModelLayers(model(), layout(expert_nodes=2))
    assert other.model.experts is not None
    assert by_model == other.tokens_met(other.model.experts, 4).total
    assert by_model == round(32 * 2 * (1 - comb(4, 4) / comb(8, 4)))


def test_an_expert_on_each_rank_of_one_node_gets_each_token_once() -> None:
    result = moved(make_training(model(), layout(node_ranks=8)).templates[0])
    ranks = round(32 * 8 * (1 - comb(14, 4) / comb(16, 4)))
    assert result["expert-node", "all_to_all"] == 4 * ranks * 64 * 2
    assert ("expert-rail", "all_to_all") not in result


def test_tokens_are_dispatched_in_fewer_bits_and_combined_in_values() -> None:
    given = {"products": "fp8", "expert_exchange": "deepep"}
    values, fewer = (
        moved(make_training(model(), layout(**given, **more)).templates[0])
        for more in ({}, {"dispatch": "fp8"})
    )
    row, sent = 64 * 2, 64 + 2  # with a scale for 32 values
    for over in ("expert-rail", "expert-node"):
        assert fewer[over, "all_to_all"] * 2 * row == values[over, "all_to_all"] * (row + sent)


@pytest.mark.parametrize("products", ["", "fp8", "fp4"])
def test_tokens_in_fewer_bits_are_cast_back_where_products_have_other_numbers(products: str) -> None:
    plan = layout(products=products, dispatch="fp8", expert_exchange="deepep")
    trace = make_training(model(), plan).templates[0]
    of_experts = model().experts
    assert of_experts is not None
    experts = ModelLayers(model(), plan).routed(of_experts)
    moved_bytes = {
        tensor: set(trace.tensor_bytes[rows_named(trace, f" sent {tensor} widened")].tolist())
        for tensor in ("tokens", "gradients")
    }
    each = {experts.here * (64 + 2 + 2 * 64)} if products != "fp8" else set()
    assert moved_bytes == {"tokens": each, "gradients": each}
    assert rows_named(trace, " experts up inputs cast").any() == bool(products)


def sent_and_got(plan: Plan, of: Model) -> tuple[Counter[tuple[int, int]], int]:
    """Return the bytes between pairs of ranks, and the bytes in all."""
    workload, pairs = make_training(of, plan), Counter[tuple[int, int]]()
    total = 0
    for rank in range(workload.ranks):
        trace = workload.trace(rank)
        for row in np.flatnonzero(trace.kind == NodeKind.COLL).tolist():
            name = trace.group_names[int(trace.group[row])]
            if trace.splits[row] < 0 or not name.startswith("expert"):
                continue
            members = workload.group_rules[name].members(rank)
            sizes = [int(word) for word in trace.split_texts[int(trace.splits[row])].split()]
            if not sizes:  # the numbers of tokens, which all ranks gather
                continue
            assert sum(sizes) == trace.comm_bytes[row]
            total += sum(sizes)
            pairs.update({(rank, to): size for to, size in zip(members, sizes, strict=True)})
    return pairs, total


@pytest.mark.parametrize("exchange", ["all-to-all", "hierarchical", "deepep"])
def test_uneven_tokens_return_to_their_ranks(exchange: str) -> None:
    plan = layout(expert_exchange=exchange, expert_skew="zipf:1")
    pairs, total = sent_and_got(plan, model())
    assert total > 0
    assert sum(pairs.values()) == total
    for (source, target), size in pairs.items():  # forward and backward both ways
        assert pairs[target, source] == size


@pytest.mark.parametrize(
    "given",
    [
        {"expert_exchange": "hierarchical"},
        {"expert_exchange": "deepep"},
        {"expert_exchange": "deepep", "overlap_experts": True, "micro_batches": 3},
        {"expert_exchange": "hierarchical", "expert_skew": "zipf:1"},
        {"expert_exchange": "hierarchical", "data": 16, "pipeline": 2, "expert": 4, "micro_batches": 2},
    ],
)
def test_folded_and_unfolded_runs_of_exchanges_are_equal(given: dict[str, Any]) -> None:
    plan = layout(**given)
    workload = make_training(replace(model(), layers=2), plan)
    machine: dict[str, Any] = {
        "system": algorithms("direct", 2) | {"preferred-dataset-splits": 1},
        "network": network(["Switch", "Switch"], [2, plan.ranks // 2], 100.0),
    }
    folded, whole = run(workload, **machine), run(workload, fold=False, **machine)
    assert folded.finish_ns.tolist() == whole.finish_ns.tolist()


def test_ranks_that_share_every_expert_have_a_share_of_its_weights_and_gather_its_tokens() -> None:
    of = with_experts(layers=2, sequence=64)
    plans = [
        Plan(tensor=2, sequence_parallel=True, data=4, expert=4, expert_tensor=sharers, micro_batches=1)
        for sharers in (1, 2)
    ]
    weights = [ModelLayers(of, plan).expert_weights(1) for plan in plans]
    assert weights[0] == 2 * weights[1]
    result = moved(make_training(of, plans[1]).templates[0])
    here = 32 * 2 * of.hidden * 2  # copies of a rank's tokens
    assert result["expert-tensor", "all_gather"] == 2 * here
    assert result["expert-tensor", "reduce_scatter"] == 2 * 2 * here


def test_tokens_above_the_capacity_of_an_expert_are_dropped() -> None:
    of, given = model(), {"expert_exchange": "all-to-all", "expert_skew": "zipf:2"}
    layers = ModelLayers(of, layout(**given, capacity_factor=1.5))
    assert layers.model.experts is not None
    loads = layers.tokens_of_experts(layers.model.experts)
    assert max(loads) == 12  # of 8 in the mean
    everything = ModelLayers(of, layout(**given)).tokens_of_experts(layers.model.experts)
    assert loads == tuple(min(load, 12) for load in everything)


def test_a_layer_that_predicts_a_further_token_costs_a_layer_a_head_and_their_joining() -> None:
    of = replace(with_experts(), layers=2)
    plain, more = (make_training(of, Plan(micro_batches=1, mtp_layers=count)) for count in (0, 1))
    names = {more.templates[0].names[name] for name in more.templates[0].name.tolist()}
    added = {name for name in names if "further token 0" in name}
    assert {f"forward 0 further token 0 {part}" for part in ("joining", "attention output", "loss")} <= added
    layers = ModelLayers(of, Plan())
    assert layers.joining_weights == 2 * of.hidden**2 + 3 * of.hidden
    assert len(more.templates[0]) > len(plain.templates[0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"expert_exchange": "deep"}, "expert_exchange is \"deep\" (did you mean 'deepep'?"),
        ({"expert": 1}, "expert_exchange hierarchical requires expert, 2 or more (give expert, 2 or more)"),
        ({"node_ranks": 3}, "nodes of 3 ranks cut the 8 expert-parallel ranks, 1 apart, into unequal parts"),
        ({"expert_nodes": 5}, "expert_nodes is 5, but experts are on 4 nodes (give a number from 1 to 4"),
        (
            {"expert_exchange": "all-to-all", "expert_nodes": 2},
            "(give expert_exchange, hierarchical or deepep",
        ),
        ({"expert_exchange": "all-to-all", "expert": 1, "dispatch": "fp8"}, "dispatch requires expert"),
        ({"capacity_factor": 1.0}, "(leave it out, or take expert_exchange all-to-all)"),
        ({"overlap_experts": True, "zero": 3}, "zero is 3, but two passes at the same time"),
        ({"overlap_experts": True, "schedule": "gpipe"}, "(leave overlap_experts out, or take the schedule"),
        ({"expert_tensor": 3}, "24 expert-parallel ranks do not divide tensor x context x data, which is 8"),
    ],
)
def test_invalid_exchanges_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_training(model(), layout(**given))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"capacity_factor": 1.0}, "small has no experts (leave capacity_factor out)"),
        ({"overlap_experts": True}, "small has no experts (leave overlap_experts out)"),
    ],
)
def test_options_of_experts_need_a_model_with_experts(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_training(replace(with_experts(), experts=None), Plan(**given))
    assert message in str(caught.value)


def test_places_of_dualpipe_that_have_the_same_parts_are_alike_and_end_folded_as_unfolded() -> None:
    of = replace(model(), layers=4)
    plan = layout(schedule="dualpipe", pipeline=4, micro_batches=8, expert_exchange="deepep")
    workload = make_training(of, plan)
    machine: dict[str, Any] = {
        "system": algorithms("direct", 2) | {"preferred-dataset-splits": 1},
        "network": network(["Switch", "Switch"], [2, plan.ranks // 2], 100.0),
    }
    folded, whole = run(workload, **machine), run(workload, fold=False, **machine)
    assert folded.finish_ns.tolist() == whole.finish_ns.tolist()
    sent = [moved(workload.trace(rank))["", "send"] for rank in range(plan.ranks)]
    assert min(sent) > 0
    assert sent[:8] == sent[24:]  # mirrored places have the same parts


def test_dualpipe_on_a_known_machine_has_an_actor_for_each_place_at_most() -> None:
    """Let messages from both sides arrive in one nanosecond at places in the middle."""
    of = replace(read_model("deepseek-v3"), layers=4, vocabulary=1024)
    plan = Plan(data=8, expert=8, pipeline=4, schedule="dualpipe", micro_batches=8, products="fp8", zero=1)
    folded = run(make_training(of, plan), machine="h100-dgx:32", model="flow")
    assert len(folded.outcome.plan.actors) <= 4
