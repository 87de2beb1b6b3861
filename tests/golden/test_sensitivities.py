"""Predicted changes of the makespan agree with simulations, on workloads of every category.

A parameter of the machine is changed a little, within the range in which the path stays the same, and the
workload is simulated again: if everything is served in the same order, the makespan is as predicted.
The machine's files can state the changes exactly: latencies and delays are whole.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from cases import Case, some
from test_reference_2x import CASES

from et_sim.api import run
from et_sim.run.result import Result
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.critical.sensitivity import (
    MOST_CHANGES,
    MakespanChange,
    ParameterEffect,
    Sensitivities,
    parameters,
)

PER_CATEGORY = 3
SYSTEM_KEYS = {
    "local memory bandwidth": "local-mem-bw",
    "peak compute": "peak-perf",
    "endpoint delay": "endpoint-delay",
}
# A prediction is exact on the path; beyond this range, nodes are served in another order. Whole numbers need
# a wider range.
FARTHEST, FARTHEST_OF_WHOLE = 1.01, 1.11
SMALLEST_CHANGE = 0.002  # ranges that end before end where things come within their rounding of each other


def _sample() -> list[Case]:
    """Return a few cases of every category and network model, spread over its cases."""
    results: dict[tuple[str, str], list[Case]] = {}
    for case in CASES:
        if not case.content.get("extra_et") and not case.content.get("extra_files"):
            results.setdefault((case.category, case.model), []).append(case)
    return [case for cases in results.values() for case in cases[:: max(len(cases) // PER_CATEGORY, 1)]]


@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize("case", some(_sample(), 12, deep_step=3))
def test_the_makespan_changes_as_predicted(case: Case, tmp_path: Path) -> None:
    result = run(case.workload(), **case.machine, model=case.model, detail="path")
    outcome = sensitivities(result, tmp_path / "run")
    by_name = {parameter.name: parameter for parameter in parameters(outcome.path)}
    assert outcome.changes() == [MakespanChange.of(effect) for effect in outcome.all()][:MOST_CHANGES]
    for effect in outcome.all():
        for side in (effect.better, effect.worse):
            for machine, multiple in changes(case.machine, effect.parameter, side):
                factor = 1 / multiple if effect.is_rate else multiple
                predicted = result.makespan_ns + side.slope_ns * (factor - 1)
                allowed = outcome.rounding_ns(by_name[effect.parameter], factor)
                again = run(case.workload(), **machine, model=case.model)
                if again.makespan_ns != pytest.approx(predicted, abs=allowed + 1):
                    again = run(case.workload(), **machine, model=case.model, detail="path")
                    assert not in_one_order(result, again), (effect.parameter, multiple)


def in_one_order(before: Result, other: Result) -> bool:
    """Return whether two runs have the same causes, so that everything was served in one order."""
    first, second = (result.table("path") for result in (before, other))
    numbers = ("critical_parent", "other_parent", "resource")
    return all(first[name].equals(second[name]) for name in numbers) and first["kind"].cast("string").equals(
        second["kind"].cast("string")
    )


def sensitivities(result: Result, folder: Path) -> Sensitivities:
    """Return the predictions for a result that has a record of causes."""
    write_run(result, folder)
    return Sensitivities(CriticalPath(PathRecord(open_run(folder))))


def changes(machine: dict[str, Any], name: str, side: ParameterEffect) -> list[tuple[dict[str, Any], float]]:
    """Return machines with one parameter changed while the path stays the same, and the factors."""
    changed = []
    for wanted, end in changed_within(side, name):
        again = copy.deepcopy(machine)
        if match := re.fullmatch(r"(bandwidth|latency) of dimension (\d+)", name):
            figures, key = again["network"][match[1]], int(match[2])
        elif name == "endpoint delay" and machine["groups"]:
            continue  # the key is not that of groups, which have a delay of their own
        elif name in SYSTEM_KEYS:
            figures, key = again["system"], SYSTEM_KEYS[name]
        else:
            continue
        before = figures.get(key) if isinstance(figures, dict) else figures[key]
        if not before:
            continue
        is_whole = is_whole_number(name) or isinstance(before, int)
        if is_whole and before != int(before):
            continue
        figures[key] = round(before * wanted) if is_whole else before * wanted
        multiple = figures[key] / before
        is_inside = 1 < multiple <= end or end <= multiple < 1
        if is_inside and abs(multiple - 1) >= SMALLEST_CHANGE:
            changed.append((again, multiple))
    return changed


def is_whole_number(name: str) -> bool:
    """Return whether a parameter is given in whole nanoseconds."""
    return name == "endpoint delay" or name.startswith("latency")


def changed_within(side: ParameterEffect, name: str) -> list[tuple[float, float]]:
    """Return multiples of a parameter that keep the path, and as a rule the order, with the farthest one."""
    farthest = FARTHEST_OF_WHOLE if is_whole_number(name) else FARTHEST
    end = min(max(side.same_path_until, 1 / farthest), farthest)
    return [(wanted, end) for wanted in sorted({end**0.3, end**0.9})]
