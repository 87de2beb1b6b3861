"""Lower bounds of plans: no run is shorter, and none needs less memory."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import network, system
from msgspec.structs import replace
from training_jobs import decoder, with_experts

from et_sim.api import run
from et_sim.compute import recorded_ns
from et_sim.trace.columns import Trace
from et_sim.workloads import Model, Plan, make_training
from et_sim.workloads.pipeline import Direction, Pass, PipelineShape, schedule
from et_sim.workloads.training import bounds, plan_bounds
from et_sim.workloads.training.bounds import Bounds, bounds_of, ends_of_passes, passes_by_place
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.units import units_of


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def _recorded(trace: Trace, rows: Any, _: int) -> Any:
    return recorded_ns(trace)[rows]


def _bounds(model: Model, plan: Plan) -> Bounds:
    return bounds_of(model, plan, _recorded)


def _check(model: Model, plan: Plan, **of_system: Any) -> tuple[Bounds, Any]:
    machine = system(**{"track-local-mem": 1, "profile": "corrected", **of_system})
    done = run(make_training(model, plan), system=machine, network=network(["Switch"], [plan.ranks]))
    result = _bounds(model, plan)
    assert 0 < result.time_ns <= done.makespan_ns
    assert 0 < result.memory_bytes <= done.statistics.peak_memory_bytes.max()
    return result, done


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a plan that fits the small decoder."""
    pipeline = draw(st.sampled_from([1, 2, 4]))
    name = draw(st.sampled_from(["gpipe", "1f1b", "zero-bubble"] + ["interleaved"] * (pipeline == 2)))
    tensor, data = draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 4))
    is_sequence = tensor > 1 and draw(st.booleans())
    zero = draw(st.integers(0, 3))
    layers = draw(st.permutations([0, 0, 1, 3])) if pipeline == 4 and draw(st.booleans()) else ()
    return Plan(
        tensor=tensor,
        context=draw(st.sampled_from([1, 2])),
        data=data,
        pipeline=pipeline,
        schedule=name,
        chunks=2 if name == "interleaved" else 1,
        stage_layers=tuple(layers),
        micro_batches=pipeline * draw(st.integers(1, 3)),
        batch=draw(st.integers(1, 2)),
        sequence_parallel=is_sequence,
        tensor_overlap=draw(st.sampled_from([1, 2])) if is_sequence else 1,
        overlap_tensor=True,
        context_attention=draw(st.sampled_from(["ring", "all-gather", "all-to-all"])),
        context_balance=draw(st.sampled_from(["zigzag", "none"])),
        recompute=draw(st.sampled_from(["none", "selective", "full", "op", "norms+activation"])),
        zero=zero,
        shard=data if zero and draw(st.booleans()) else 0,
        tflops=draw(st.sampled_from([0.001, 0.1, 200.0])),
    )


@pytest.mark.deep
@settings(max_examples=4)
@given(plans())
def test_no_run_is_shorter_and_none_needs_less_memory(plan: Plan) -> None:
    _check(decoder(), plan)


@pytest.mark.deep
@settings(max_examples=30)
@given(plans(), st.booleans())
def test_no_run_of_many_plans_is_shorter(plan: Plan, is_reference: bool) -> None:
    _check(decoder(layers=4), plan, profile="reference" if is_reference else "corrected")


@pytest.mark.deep
@settings(max_examples=20)
@given(plans(), st.sampled_from([1, 2, 4]))
def test_no_run_of_a_plan_with_experts_is_shorter(plan: Plan, expert: int) -> None:
    inner = plan.tensor * plan.context * plan.data
    how: dict[str, Any] = {
        "expert": expert if inner % expert == 0 else 1,
        "sequence_parallel": plan.tensor > 1,
    }
    if plan.recompute == "op":  # which models with experts refuse
        how["recompute"] = "norms+moe"
    _check(with_experts(), replace(plan, **how))


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"pipeline": 4},
        {"pipeline": 4, "schedule": "gpipe"},
        {"pipeline": 2, "schedule": "interleaved", "chunks": 2},
        {"pipeline": 4, "schedule": "zero-bubble", "micro_batches": 8},
        {"pipeline": 2, "recompute": "full", "micro_batches": 7},
    ],
)
def test_bounds_of_time_and_memory_are_exact_with_slow_kernels(how: dict[str, Any]) -> None:
    plan = Plan(**{"micro_batches": 4, "tflops": 1e-5, **how})
    result, done = _check(decoder(), plan)
    assert done.makespan_ns <= result.time_ns * 1.001
    assert done.statistics.peak_memory_bytes.max() <= result.memory_bytes * 1.2


def test_the_kernels_of_one_micro_batch_give_those_of_all() -> None:
    model = decoder()
    one, two, nine = (_bounds(model, Plan(micro_batches=count)).time_ns for count in (1, 2, 9))
    assert nine - one == 8 * (two - one)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.data())
def test_the_bytes_that_wait_are_of_the_forward_passes_before_the_first_backward_pass(
    stages: int, laps: int, chunks: int, data: st.DataObject
) -> None:
    name = "interleaved" if chunks > 1 else "1f1b"
    plan = Plan(pipeline=stages, micro_batches=laps * stages, chunks=chunks, schedule=name)
    place = data.draw(st.integers(0, stages - 1))
    passes = schedule(name, PipelineShape(stages, plan.micro_batches, chunks))(place)
    first = takewhile(lambda pass_: pass_.direction is Direction.FORWARD, passes)
    left = [100**chunk for chunk in range(chunks)]
    assert plan_bounds._waiting_bytes(plan, place, left) == sum(left[pass_.chunk] for pass_ in first)


_NANOS = st.integers(1, 1000)


@given(st.integers(1, 5), st.integers(1, 6), _NANOS, _NANOS, st.data())
def test_passes_of_one_direction_after_the_other_end_by_a_closed_form(
    stages: int, count: int, forward: int, backward: int, data: st.DataObject
) -> None:
    """Check that a place waits for outputs sent before a pass ends, up to the last stage and back."""
    up, down = data.draw(st.integers(0, forward)), data.draw(st.integers(0, backward))
    plan = Plan(pipeline=stages, micro_batches=count, schedule="gpipe")
    orders = passes_by_place(plan)
    lengths = {Direction.FORWARD: (forward, up), Direction.BACKWARD: (backward, down)}
    took, sent = ([{of: lengths[of.direction][at] for of in order} for order in orders] for at in range(2))
    turn = (stages - 1) * up + count * forward
    assert ends_of_passes(plan, orders, took, sent) == [
        turn + (stages - 1 - place) * down + count * backward for place in range(stages)
    ]


@given(st.integers(1, 5), st.integers(1, 3), _NANOS, _NANOS)
def test_an_even_pipeline_ends_after_its_passes_and_the_ramp(
    stages: int, laps: int, forward: int, backward: int
) -> None:
    count = laps * stages
    plan = Plan(pipeline=stages, micro_batches=count, schedule="1f1b")
    orders = passes_by_place(plan)
    nanos = {Direction.FORWARD: forward, Direction.BACKWARD: backward}
    took = [{pass_: nanos[pass_.direction] for pass_ in order} for order in orders]
    ends = ends_of_passes(plan, orders, took, took)
    assert ends[0] == (count + stages - 1) * (forward + backward)
    assert ends == [ends[0] - place * backward for place in range(stages)]


def test_a_pass_beside_another_one_sends_as_if_they_began_together() -> None:
    pair = [Pass(Direction.FORWARD, 1, is_paired=True), Pass(Direction.BACKWARD, 0)]
    orders = [[Pass(Direction.FORWARD, 0), Pass(Direction.FORWARD, 1)], [Pass(Direction.FORWARD, 0), *pair]]
    orders[0] += [Pass(Direction.BACKWARD, 0)]
    took = [{of: 10 if of.direction is Direction.FORWARD else 20 for of in order} for order in orders]
    ends = ends_of_passes(Plan(pipeline=2, micro_batches=2), orders, took, took)
    assert ends == [(20 + 20) + 20, 20 + 10 + 20]  # the second place begins its pair at 20


@pytest.mark.parametrize(("name", "waits"), [("gpipe", 6), ("1f1b", 3), ("zero-bubble", 4)])
def test_activations_wait_for_the_last_pass_that_needs_them(name: str, waits: int) -> None:
    """Check place 1 of 4: of 6 micro-batches, those wait that are ahead of it; weights wait one pass more."""
    model, plan = decoder(), Plan(pipeline=4, micro_batches=6, schedule=name)
    layers = ModelLayers(model, plan)
    units = units_of(layers, plan.part(model, 1, 0))
    order = passes_by_place(plan)[1]
    left = sum(unit.left_bytes for unit in units)
    with_none = bounds._memory(plan, [units], [])
    assert left > 0
    assert bounds._memory(plan, [units], order) == with_none + waits * left
