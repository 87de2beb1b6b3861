"""Times of passes of groups with batches of their own: equal to the engine's, from few layers."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from test_chains import CountedTimes, random_batch, random_machine
from training_jobs import with_experts

from et_sim.run.options import RunOptions
from et_sim.run.planning import Plan as RunPlan
from et_sim.serving import replicas
from et_sim.serving.layouts import GroupChain, PassLayout
from et_sim.serving.replicas import BOTH, CachePool, SimulatedTimes
from et_sim.serving.shortened import Cycle, cycles_of
from et_sim.workloads import Batch, Model, Plan, Segment
from et_sim.workloads.counting import ExchangeStep, KernelStep
from et_sim.workloads.inference.batch import GroupBatches, sights
from et_sim.workloads.inference.forward import make_replica
from et_sim.workloads.inference.halves import reserving


def test_equal_layers_are_one_cycle() -> None:
    assert cycles_of([0] * 9, 3) == (Cycle(0, 1, 9, 3),)
    assert Cycle(0, 1, 9, 3).left_out == range(3, 9)
    assert Cycle(0, 1, 9, 3).ends == (1, 2)


def test_layers_that_differ_in_turn_are_taken_together() -> None:
    (cycle,) = cycles_of([5, 0, 1, 0, 1, 0, 1, 0, 1, 0], 3)
    assert cycle == Cycle(1, 2, 4, 3)
    assert (cycle.left_out, cycle.ends) == (range(7, 9), (4, 6))


def test_few_layers_have_no_cycle() -> None:
    assert cycles_of([0, 0, 0], 3) == ()


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(2, 5))
def test_a_part_that_is_left_out_equals_one_that_is_simulated(labels: list[int], kept: int) -> None:
    left = [(cycle, part) for cycle in cycles_of(labels, kept) for part in cycle.left_out]
    assert len({part for _, part in left}) == len(left)
    for cycle, part in left:
        assert labels[part] == labels[cycle.first + (part - cycle.first) % cycle.period]


def groups(chance: random.Random, model: Model, count: int) -> GroupBatches:
    """Return batches of groups, of which some are empty and some equal."""
    some = [
        Batch.of([], sights=sights(model)),
        *(random_batch(chance, model) for _ in range(chance.randint(1, 3))),
    ]
    found = tuple(chance.choice(some) for _ in range(count))
    return found if any(batch.tokens for batch in found) else (*found[1:], some[1])


def check_passes(model: Model, plan: Plan, machine: dict[str, Any], count: int, seed: int) -> tuple[int, int]:
    """Compare random passes with whole simulations; return those needed, and different passes."""
    chance, ranks = random.Random(seed), 8
    times, reference = (kind(model, RunOptions(**machine), ranks) for kind in (CountedTimes, SimulatedTimes))
    pool = CachePool(BOTH, plan, 1, 8 - plan.ranks, 10**6, 1)
    passes = [groups(chance, model, plan.data) for _ in range(count)]
    for batches in passes:
        software = reserving(plan, [batches], None)
        workload = make_replica(model, plan, batches, first=pool.first_rank, ranks=ranks, software=software)
        assert times.pass_ns(pool, batches) == reference._simulated(workload)
    return times.simulations, len(set(passes))


LONG = replace(with_experts(sequence=4096), layers=30)


def test_a_pass_of_unequal_groups_takes_the_time_of_its_simulation() -> None:
    plan = Plan(tensor=2, data=4, expert=8)
    simulations, different = check_passes(LONG, plan, {"machine": "h100-dgx:8"}, 6, 1)
    assert (simulations, different) == (1, 6)  # simulated as a whole beside the first one


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(8))
def test_a_pass_of_unequal_groups_on_a_random_machine_takes_the_time_of_its_simulation(seed: int) -> None:
    chance = random.Random(seed)
    plan = chance.choice(
        [
            Plan(tensor=1, data=8, expert=8),
            Plan(tensor=2, data=4, expert=8),
            Plan(tensor=2, data=2, expert=4),
            Plan(tensor=4, data=2, expert=4),
        ]
    )
    windows = chance.choice([(), (0, 64)])
    machine = random_machine(chance)
    if system := machine.get("system"):
        system["reduce-scatter-implementation"] = system["all-gather-implementation"]
    check_passes(replace(LONG, windows=windows), plan, machine, 6, seed)


@pytest.mark.deep
def test_passes_in_halves_whose_exchanges_take_memory_take_the_time_of_their_simulation() -> None:
    plan = Plan(data=8, expert=8, expert_exchange="deepep", node_ranks=4, overlap_experts=True)
    check_passes(LONG, plan, {"machine": "h100-dgx:8"}, 5, 211)


def kernel(size: int) -> KernelStep:
    return KernelStep(0, 1, size, None, None, ())


def sum_step(size: int) -> ExchangeStep:
    return ExchangeStep("all_reduce", size, ("tensor",))


def test_a_group_with_fewer_exchanges_has_none_in_their_place() -> None:
    layout = PassLayout.__new__(PassLayout)
    layout.cuts = (("all_reduce", ("tensor",)), ("all_to_all", ("data",)), None, ("all_reduce", ("tensor",)))
    pairs = ExchangeStep("all_to_all", 7, ("data",))
    few = GroupChain(((kernel(5), kernel(6)), (), (kernel(3),)), (pairs, None))
    times = {kernel(size): size for size in range(9)}.__getitem__
    placed = layout.placed(few, times)
    assert placed is not None
    assert (placed.times.tolist(), placed.sizes) == ([0, 11, 0, 0, 3], (0, 7, 0))
    every = GroupChain(((), (kernel(1),), (), (), ()), (sum_step(4), pairs, None, sum_step(8)))
    placed = layout.placed(every, times)
    assert placed is not None
    assert (placed.times.tolist(), placed.sizes) == ([0, 1, 0, 0, 0], (4, 7, 8))
    assert layout.placed(GroupChain(((), (), ()), (pairs, pairs)), times) is None


@pytest.mark.deep
def test_passes_of_groups_are_few_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    chance, plan, layouts = random.Random(4), Plan(tensor=2, data=4, expert=8), list[PassLayout]()
    begin = PassLayout.__init__

    def counted(layout: PassLayout, *given: Any) -> None:
        layouts.append(layout)
        begin(layout, *given)

    monkeypatch.setattr(PassLayout, "__init__", counted)
    times = SimulatedTimes(LONG, RunOptions(machine="h100-dgx:8"), 8)
    pool = CachePool(BOTH, plan, 1, 0, 10**6, 1)
    for _ in range(12):
        times.pass_ns(pool, groups(chance, LONG, plan.data))
    assert len(layouts) <= 6


@pytest.mark.deep
def test_few_passes_of_equal_groups_need_no_times_of_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "MOST_EQUAL", 2)
    plan, options = Plan(tensor=2, data=4, expert=8), RunOptions(machine="h100-dgx:8")
    times, reference = (SimulatedTimes(LONG, options, 8) for _ in range(2))
    pool = CachePool(BOTH, plan, 1, 0, 10**6, 1)
    chains = times._plan_times(pool).chains
    singles = [Batch.of([Segment(1, context)], sights=sights(LONG)) for context in (10, 700, 900, 950)]
    prompt = Batch.of([Segment(500)], sights=sights(LONG))
    passes: list[GroupBatches] = [(prompt, *singles[:1] * 3), *singles[1:]]
    for batch in passes:
        workload = make_replica(LONG, plan, batch, first=0, ranks=8)
        assert times.pass_ns(pool, batch) == reference._simulated(workload)
        assert bool(chains) == (batch is passes[-1])


@pytest.mark.deep
def test_sizes_near_others_are_planned_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    plans, assembled = list[int](), RunPlan.assembled

    def counted(plan: RunPlan) -> RunPlan:
        plans.append(1)
        return assembled(plan)

    monkeypatch.setattr(RunPlan, "assembled", counted)
    times, plan = SimulatedTimes(LONG, RunOptions(machine="h100-dgx:8"), 8), Plan(tensor=2, data=4, expert=8)
    pool = CachePool(BOTH, plan, 1, 0, 10**6, 1)
    of = [Batch.of([Segment(1, 9)] * count, sights=sights(LONG)) for count in range(10)]
    times.pass_ns(pool, (of[1], of[2], of[1], of[1]))
    times.pass_ns(pool, (of[2], of[3], of[2], of[1]))
    before = len(plans)
    for count in range(1, 6):
        times.pass_ns(pool, (of[count], of[count + 1], of[count + 2], of[8 - count]))
    assert len(plans) == before


def test_equal_groups_are_one_program() -> None:
    first, second = (Batch.of([Segment(1, context)], sights=sights(LONG)) for context in (10, 700))
    plan = Plan(tensor=1, data=8, expert=8)
    workload = make_replica(LONG, plan, (first,) * 5 + (second,) * 3, first=0, ranks=8)
    assert len(workload.templates) == 2
    assert workload.template_of_rank.tolist() == [0] * 5 + [1] * 3


@pytest.mark.parametrize("is_equal", [True, False])
def test_passes_whose_exchanges_have_parts_side_by_side_are_simulated(is_equal: bool) -> None:
    plan = Plan(tensor=1, data=8, expert=8, expert_exchange="deepep", node_ranks=4)
    options = RunOptions(machine="h100-dgx:8")
    times, reference = (kind(LONG, options, 8) for kind in (CountedTimes, SimulatedTimes))
    pool = CachePool(BOTH, plan, 1, 0, 10**6, 1)
    for context in (10, 700, 900):
        first, second = (Batch.of([Segment(1, at)], sights=sights(LONG)) for at in (context, 5))
        batches = (first,) * 8 if is_equal else (first,) * 5 + (second,) * 3
        workload = make_replica(LONG, plan, batches, first=0, ranks=8)
        assert times.pass_ns(pool, batches) == reference._simulated(workload)
