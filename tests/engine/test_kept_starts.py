"""Kept starts: a run that begins from the start of another one has the tables of a new run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from et_sim.compiled.signature import fields_of
from et_sim.compiled.tables_by_reference import Tables
from et_sim.engine import driver
from et_sim.engine.start import LARGEST_JOINED, KeptStart, _Saved
from et_sim.machine.presets import preset
from et_sim.plan.records import LINE_BYTES, Action
from et_sim.run.options import RunOptions
from et_sim.run.planning import Plan, plan_of
from et_sim.run.simulation import Task, prepare
from et_sim.trace import TraceBuilder, Workload

SLOW_MEMORY = 5  # GB/s, so that a message is copied in the time of its flight
NO_RECORDS = driver.Recorders()


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def task_with(rails: str, model: str) -> Task:
    """Return two collectives of sixteen ranks on two nodes whose cards have a bandwidth."""
    build = TraceBuilder()
    work = build.compute("work", micros=1)
    build.collective("all_reduce", 3 << 20, after=[work])
    build.collective("all_to_all", 1 << 20, after=[work])
    known = preset("h100-dgx:16")
    machine = {
        "system": {**known.system, "local-mem-bw": SLOW_MEMORY},
        "network": {**known.network, "bandwidth": ["450GB/s", rails]},
    }
    workload = Workload((build.build(),), np.zeros(16, np.int32))
    return prepare(workload, RunOptions(**machine, model=model))


def plans_of(first: Task, second: Task, *, may_fold: bool) -> tuple[Plan, Plan]:
    """Return the plan of a task, and the same plan with the paces of another task."""
    plan = plan_of(first.workload, first.machine, first.network_model(), may_fold=may_fold)
    other = plan.on(second.machine)
    assert other is not None
    return plan, other


def begun(plan: Plan, task: Task, kept: KeptStart | None) -> Any:
    """Return a run before its first event."""
    model, network = task.network_model(), task.machine.network
    begin = driver._begin(plan.lowered, network, model, NO_RECORDS, None, kept, goes_ahead=False)
    return begin.start.run


def first_start(plan: Plan, task: Task) -> Any:
    """Return the first run that a kept start begins, which is a new one."""
    kept = KeptStart()
    begun(plan, task, kept)  # states the rules, and keeps nothing
    return begun(plan, task, kept)


def arrays_in(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all arrays of tables with their places."""
    if isinstance(value, np.ndarray):
        yield place, value
    elif isinstance(value, Tables):
        for name in fields_of(type(value)):
            yield from arrays_in(getattr(value, name), f"{place}.{name}")
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from arrays_in(item, f"{place}[{number}]")


def contents(run: Any) -> dict[str, Any]:
    """Return the contents of all tables, but for the states of nodes, which actors set when they start."""
    return {place: array.tolist() for place, array in arrays_in(run) if not place.startswith(".nodes")}


@pytest.mark.parametrize("model", ["flow", "link", "analytical"])
@pytest.mark.parametrize("may_fold", [False, True])
def test_a_run_from_a_kept_start_begins_with_the_tables_of_a_new_one(model: str, may_fold: bool) -> None:
    slow, fast = task_with("390Gbps", model), task_with("400Gbps", model)
    first, second = plans_of(slow, fast, may_fold=may_fold)
    kept = KeptStart()
    begun(first, slow, kept)
    for plan, task in ((first, slow), (second, fast), (first, slow), (second, fast), (second, fast)):
        run = begun(plan, task, kept)
        alone = first_start(plan, task)
        assert contents(run) == contents(alone)
        _scramble(run)


def test_a_kept_start_takes_the_nodes_and_collectives_of_the_next_plan() -> None:
    task = task_with("390Gbps", "flow")
    plan = plan_of(task.workload, task.machine, task.network_model(), may_fold=True)
    others = plan.lowered.collectives[::-1].copy()
    nodes = plan.lowered.nodes.copy()
    nodes["action"][1] = Action.DELAY
    changed = replace(plan, lowered=replace(plan.lowered, nodes=nodes, collectives=others))
    kept = KeptStart(is_due=True)
    first = begun(plan, task, kept)
    again = begun(changed, task, kept)
    assert again.nodes is first.nodes, "it begins from the kept start"
    assert again.plan.nodes["action"].tolist() == nodes["action"].tolist()
    assert again.plan.collectives.tolist() == others.tolist() != plan.lowered.collectives.tolist()


def _scramble(run: Any) -> None:
    """Change everything that a run may change."""
    for place, array in arrays_in(run):
        if not place.startswith(".plan"):
            array.view(np.ndarray).reshape(-1).view(np.uint8)[...] = 77


def test_the_times_of_copies_and_the_equal_pauses_differ_between_these_starts() -> None:
    slow, fast = task_with("390Gbps", "flow"), task_with("400Gbps", "flow")
    one, two = (begun(plan, slow, None) for plan in plans_of(slow, fast, may_fold=False))
    assert not np.array_equal(one.plan.programs["copy_ns"], two.plan.programs["copy_ns"])
    assert not np.array_equal(one.alike_transfers, two.alike_transfers)


def test_large_arrays_of_a_kept_start_are_restored_and_those_of_zeros_keep_no_copy() -> None:
    size = LARGEST_JOINED // 8 + 1
    given = np.arange(size), np.zeros(size, np.int64), np.arange(3), np.empty(0, np.int64)
    saved = _Saved(given)
    assert saved.nbytes == given[0].nbytes + LINE_BYTES
    for array in saved.tables:
        array[...] = 77
    saved.restore()
    assert [array.tolist() for array in saved.tables] == [array.tolist() for array in given]
