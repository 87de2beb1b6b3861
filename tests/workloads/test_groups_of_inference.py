"""Data-parallel groups of inference: batches of their own, shared experts, and passes of the slowest."""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np
import pytest
from caches import cache_bytes
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import network, system
from msgspec.structs import replace
from training_jobs import decoder, moved, rows_named, with_experts

from et_sim.api import run
from et_sim.basics.errors import UsageError
from et_sim.trace import Trace, Workload
from et_sim.trace.preflight import find_problems
from et_sim.workloads import Batch, Model, Plan, Segment, make_inference
from et_sim.workloads.exchange_names import EXCHANGES
from et_sim.workloads.inference.batch import GroupBatches
from et_sim.workloads.inference.forward import make_replica
from et_sim.workloads.inference.memory import weight_bytes_of_stage
from et_sim.workloads.inference.ranks import experts_on_rank
from et_sim.workloads.inference.transfers import ReplicaPlace, messages

EMPTY = Batch.of([])


def made(plan: Plan, *groups: Batch, model: Model | None = None) -> Workload:
    batches: GroupBatches = groups[0] if len(groups) == 1 else groups
    return make_inference(model or with_experts(), plan, [batches])


def times(workload: Workload, ranks: int) -> Any:
    machine = {"system": system(), "network": network(["FullyConnected"], [ranks])}
    return run(workload, **machine).finish_ns


def of_experts(trace: Trace) -> tuple[int, int]:
    """Return operations and bytes of the products of routed experts."""
    rows = rows_named(trace, " experts up") | rows_named(trace, " experts down")
    return int(trace.num_ops[rows].sum()), int(trace.tensor_bytes[rows].sum())


def test_one_group_is_none() -> None:
    batch = Batch.of([Segment(7), Segment(1, 9)])
    for plan in (Plan(tensor=2), Plan(tensor=4, expert=2), Plan(tensor=2, pipeline=2)):
        alone, group = made(plan, batch), make_inference(with_experts(), plan, [(batch,)])
        assert times(alone, plan.ranks).tolist() == times(group, plan.ranks).tolist()
        assert [len(one) for one in alone.templates] == [len(one) for one in group.templates]


@pytest.mark.parametrize(
    ("tensor", "data", "expert"), [(4, 1, 1), (4, 1, 2), (4, 1, 4), (1, 4, 2), (2, 2, 4)]
)
def test_ranks_share_all_experts_once(tensor: int, data: int, expert: int) -> None:
    model, plan = with_experts(), Plan(tensor=tensor, data=data, expert=expert)
    assert model.experts is not None
    count, sharers = experts_on_rank(model.experts, plan)
    assert count * expert == 8
    assert sharers * expert == tensor * data
    tokens = 64  # of all groups; every expert gets as many
    trace = made(plan, Batch.of([Segment(1, 5)] * (tokens // data))).trace(0)
    whole = made(Plan(), Batch.of([Segment(1, 5)] * tokens)).trace(0)
    assert of_experts(trace)[0] * plan.ranks == of_experts(whole)[0]
    routed = 3 * 8 * model.experts.expert.weights(64) * 2
    dense = [weight_bytes_of_stage(replace(model, experts=None), one, 0) for one in (plan, Plan())]
    assert dense[1] > 0
    mine = 3 * count * model.experts.expert.weights(64) * 2 // sharers
    assert mine * plan.ranks == routed


@pytest.mark.parametrize(("expert", "count", "width"), [(1, 8, 32), (2, 4, 64), (4, 2, 128)])
def test_each_rank_has_a_share_of_some_experts(expert: int, count: int, width: int) -> None:
    """Show that without an expert axis, this is tensor parallelism: a share of all experts."""
    trace = made(Plan(tensor=4, expert=expert), Batch.of([Segment(1, 5)] * 64)).trace(0)
    shapes = {trace.layer_shapes[shape] for shape in trace.layer_shape[rows_named(trace, "experts down")]}
    assert shapes == {f"grouped_gemm 64 {width} 16 x {count}"}


def test_ranks_of_a_group_add_the_outputs_of_their_experts() -> None:
    batch = Batch.of([Segment(1, 5)] * 8)
    by_tensor, by_both = (made(Plan(tensor=4, expert=expert), batch).trace(0) for expert in (1, 2))
    assert moved(by_tensor) == moved(by_both)
    assert "all_to_all" not in {kind for _, kind in moved(by_both)}


def test_groups_send_tokens_to_experts_and_sharers_gather_them() -> None:
    batch, size = Batch.of([Segment(1, 5)] * 8), 64 * 2
    apart = moved(made(Plan(data=4, expert=4), batch).trace(0))
    assert apart["expert", "all_to_all"] == 3 * 2 * 8 * 2 * size
    both = moved(made(Plan(data=4, expert=2), batch).trace(0))
    assert both["expert", "all_to_all"] == 3 * 2 * 8 * 2 * size
    assert both["expert-tensor", "all_gather"] == 3 * 8 * 2 * size
    assert both["expert-tensor", "reduce_scatter"] == 2 * both["expert-tensor", "all_gather"]
    together = moved(made(Plan(data=4), batch).trace(0))
    assert together["expert-tensor", "all_gather"] == 3 * 8 * size


@pytest.mark.parametrize(
    "plan", [Plan(data=4, expert=4), Plan(tensor=2, data=2, expert=2), Plan(data=2, pipeline=2)]
)
def test_groups_have_their_own_batches_and_meet_at_the_experts(plan: Plan) -> None:
    loads = [[Segment(1, 9)] * 4, [Segment(1, 30)] * 64, [], [Segment(1, 2)]][: plan.data]
    workload = made(plan, *(Batch.of(segments) for segments in loads))
    assert find_problems(workload) == []
    finish = times(workload, plan.ranks)
    slowest = times(made(plan, Batch.of(loads[1])), plan.ranks).max()
    fastest = times(made(plan, Batch.of(loads[0])), plan.ranks).max()
    assert fastest < finish.max() <= slowest
    trace = workload.trace(0)
    assert trace.num_ops[rows_named(trace, "decode attention")].sum() > 0


def test_a_group_without_tokens_computes_for_the_experts_only() -> None:
    plan = Plan(data=2, expert=2)
    workload = made(plan, Batch.of([Segment(1, 9)] * 4), EMPTY)
    idle = workload.trace(1)
    names = {idle.names[name].partition(" layer 3 ")[2] for name in idle.name}
    assert names - {""} == {"to experts", "experts up", "experts activation", "experts down", "from experts"}
    assert of_experts(idle) == of_experts(workload.trace(0))
    assert times(workload, 2).min() > 0


def test_groups_of_equal_batches_are_one_template() -> None:
    batch = Batch.of([Segment(1, 9)] * 4)
    plan = Plan(data=4, expert=4)
    assert len(made(plan, batch, batch, batch, batch).templates) == 1
    assert len(made(plan, batch, batch, batch, EMPTY).templates) == 2


def test_experts_spread_over_more_ranks_than_share_attention() -> None:
    model = replace(
        with_experts(), attention=replace(decoder().attention, heads=2, key_heads=2, head_size=32)
    )
    trace = make_inference(model, Plan(tensor=2, data=4, expert=8), [Batch.of([Segment(1, 5)] * 2)]).trace(0)
    assert (trace.num_ops[rows_named(trace, " experts up")] > 0).all()


def test_a_replica_of_groups_begins_at_its_first_rank() -> None:
    plan, batch = Plan(tensor=2, data=2, expert=4), Batch.of([Segment(5)])
    finish = times(make_replica(with_experts(), plan, (batch, EMPTY), first=4, ranks=8), 8)
    assert (finish[:4] == 0).all()
    alone = times(made(plan, batch, EMPTY), 4)
    assert finish[4:].tolist() == alone.tolist()


def test_a_cache_moves_to_the_ranks_of_one_group() -> None:
    model, source = decoder(), ReplicaPlace(Plan(tensor=2, data=2), 0, 1)
    sent = messages(model, source, ReplicaPlace(Plan(tensor=2, data=4, pipeline=2), 8, 3))
    assert {sender for sender, _ in sent} == {2, 3}
    assert {receiver for _, receiver in sent} == {14, 15, 22, 23}
    assert sum(sent.values()) == 8 * cache_bytes(model)


@pytest.mark.parametrize(
    ("plan", "groups", "message"),
    [
        (Plan(data=2), (EMPTY, EMPTY), "no tokens"),
        (Plan(data=4), (EMPTY, Batch.of([Segment(1)])), "2 batches, but the plan has 4 groups"),
        (Plan(data=2, expert=2, expert_tensor=1, tensor=3), (Batch.of([Segment(1)]),), "heads: 8"),
        (
            Plan(data=32),
            (Batch.of([Segment(1)]),),
            "2 of the ranks that share every expert|width of an expert",
        ),
    ],
)
def test_passes_that_do_not_fit_the_groups_are_refused(
    plan: Plan, groups: tuple[Batch, ...], message: str
) -> None:
    model = with_experts(hidden=8, heads=8) if plan.data == 32 else with_experts()
    with pytest.raises(UsageError, match=message):
        made(plan, *groups, model=model)


def test_tokens_go_once_to_each_node_of_their_experts() -> None:
    batch, size = Batch.of([Segment(1, 5)] * 8), 64 * 2
    plan = Plan(data=8, expert=8, node_ranks=4, expert_exchange="deepep")
    parts = moved(made(plan, batch).trace(0))
    of_node = 1 - comb(4, 2) / comb(8, 2)  # a token uses experts of a node, which has half of them
    assert parts["expert-rail", "all_to_all"] == 3 * 2 * round(8 * 2 * of_node) * size
    assert parts["expert-node", "all_to_all"] == 3 * 2 * 8 * 2 * size  # two of eight ranks, an expert each
    assert "expert" not in {group for group, _ in parts}
    for exchange in ("hierarchical", "deepep"):
        workload = make_replica(
            with_experts(), replace(plan, expert_exchange=exchange), batch, first=8, ranks=16
        )
        assert times(workload, 16)[8:].min() > 0


def test_tokens_are_sent_in_fewer_bits_and_come_back_as_values() -> None:
    batch = Batch.of([Segment(1, 5)] * 8)
    for plan in (
        Plan(data=4, expert=4),
        Plan(data=4, expert=2),
        Plan(data=4, expert=4, expert_exchange="deepep"),
    ):
        before, after = (moved(made(one, batch).trace(0)) for one in (plan, replace(plan, dispatch="fp8")))
        cast = 64 + 2  # a scale for 32 values
        for key, total in before.items():
            if key[1] == "all_to_all":
                assert after[key] * 2 * 64 * 2 == total * (cast + 64 * 2)
            elif key[0] == "expert-tensor":
                assert after[key] * 128 == total * (cast if key[1] == "all_gather" else 128)


def test_copies_of_experts_fill_ranks_that_do_not_divide_them() -> None:
    model, segments = with_experts(), [Segment(1, 5)] * 64
    with pytest.raises(UsageError, match="8 is not a multiple of 3"):
        made(Plan(data=3, expert=3), Batch.of(segments))
    plan = Plan(data=3, expert=3, redundant_experts=1)
    trace = made(plan, Batch.of(segments)).trace(0)
    shapes = {trace.layer_shapes[shape] for shape in trace.layer_shape[rows_named(trace, "experts up")]}
    assert shapes == {f"grouped_gemm 256 64 {-(-64 * 3 * 2 // 9)} x 3"}
    one = model.experts.expert.weights(64) * 2 if model.experts else 0
    more = [weight_bytes_of_stage(model, one, 0) for one in (plan, Plan(data=4, expert=4))]
    assert more[0] - more[1] == 3 * one


def test_operations_of_groups_add_up() -> None:
    loads = [Batch.of([Segment(7)]), Batch.of([Segment(1, 9)] * 8), Batch.of([Segment(3, 4)]), EMPTY]
    plan = Plan(data=4, expert=4)
    workload = made(plan, *loads)
    attention = [
        int(trace.num_ops[rows_named(trace, " attention")].sum())
        for trace in (workload.trace(rank) for rank in range(4))
    ]
    alone = [
        int(trace.num_ops[rows_named(trace, " attention")].sum()) if load.tokens else 0
        for load in loads
        for trace in [made(Plan(), load if load.tokens else loads[0]).trace(0)]
    ]
    assert attention == alone
    assert np.unique([of_experts(workload.trace(rank))[0] for rank in range(4)]).size == 1


@st.composite
def passes(draw: st.DrawFn) -> tuple[Plan, tuple[Batch, ...]]:
    """Draw a plan of groups, and a batch for each of them, some of which are empty or equal."""
    tensor, data = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2, 4]))
    expert = draw(st.sampled_from([one for one in (1, 2, 4, 8) if (tensor * data) % one == 0]))
    exchange = draw(st.sampled_from(EXCHANGES if data > 1 and expert > 1 else EXCHANGES[:1]))
    plan = Plan(
        tensor=tensor,
        data=data,
        expert=expert,
        pipeline=draw(st.sampled_from([1, 2])),
        expert_exchange=exchange,
        node_ranks=draw(st.sampled_from([2, 4, 8])),
        dispatch=draw(st.sampled_from(["values", "fp8"])) if expert > 1 else "values",
        products=draw(st.sampled_from(["", "fp8", "int4"])) if expert == 1 else "",
    )
    segment = st.builds(Segment, st.integers(1, 9), st.integers(0, 20), drafts=st.just(0))
    loads = st.lists(segment, max_size=3).map(Batch.of)
    known = draw(
        st.lists(loads, min_size=1, max_size=3).filter(lambda every: any(one.tokens for one in every))
    )
    chosen = tuple(draw(st.sampled_from(known)) for _ in range(data))
    return plan, chosen if any(one.tokens for one in chosen) else (Batch.of([Segment(3)]),) * data


@given(passes())
@settings(max_examples=6)
def test_passes_of_groups_end_when_they_end_rank_by_rank(case: tuple[Plan, tuple[Batch, ...]]) -> None:
    check_folding(*case)


@pytest.mark.deep
@given(passes())
@settings(max_examples=80)
def test_passes_of_many_groups_end_when_they_end_rank_by_rank(
    case: tuple[Plan, tuple[Batch, ...]],
) -> None:
    check_folding(*case)


def check_folding(plan: Plan, batches: tuple[Batch, ...]) -> None:
    """Compare a folded and an unfolded pass."""
    workload = made(plan, *batches) if plan.data > 1 else made(plan, batches[0])
    dims = ["FullyConnected", "Switch"], [2, plan.ranks // 2]
    dims = dims if plan.ranks > 2 else (["FullyConnected"], [plan.ranks])
    machine = {"system": system("ring", len(dims[0])), "network": network(*dims)}
    folded, unfolded = (run(workload, **machine, fold=fold) for fold in (True, False))
    assert folded.summary()["status"] == "complete"
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()
