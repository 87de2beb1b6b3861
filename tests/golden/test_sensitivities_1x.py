"""Predicted changes of the makespan of ASTRA-sim 1.0 agree with simulations, on networks of every shape.

The figures of the files are changed a little, within the range in which the path stays the same, and the
layer file is simulated again.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from cases import some
from test_reference_1x import RUNS, simulate
from test_sensitivities import SMALLEST_CHANGE, changed_within, in_one_order, is_whole_number, sensitivities

from et_sim.views.critical.sensitivity import parameters

NETWORK_KEYS = {  # of JSON files; those in YAML have the parameter's own words
    "bandwidth": {"": "link-bandwidth", ": memory": "hbm-bandwidth"},
    "latency": {
        "": "link-latency",
        ": cards": "nic-latency",
        ": router": "router-latency",
        ": memory": "hbm-latency",
    },
}
LARGE = ("ex3_1_themis_1GB_512npu", "ex3_1_baseline_1GB_512npu")
ALWAYS = ("switch4_hbm_bound", "switch4_sample_json", "tiny_FWD_IN_BCKWD_torus2d_p2_LIFO")
Case = dict[str, Any]


def _sample() -> list[Case]:
    """Return a case of every shape of network, algorithm, training loop, and order of chunks."""
    results: dict[Any, Case] = {}
    for case in (case for case in RUNS if case["id"] not in LARGE):
        settings, network = case["system"] | case["args"], case["network"]
        shapes = network.get("topologies-per-dim") or network["topology"]
        names = ("all-reduce-implementation", "inter-dimension-scheduling", "intra-dimension-scheduling")
        key = (*shapes, case["workload"].split()[0], *(str(settings.get(name)) for name in names))
        results.setdefault(key, case)
    return list(
        {case["id"]: case for case in (*results.values(), *(c for c in RUNS if c["id"] in ALWAYS))}.values()
    )


@pytest.mark.deep
@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize("case", some(_sample(), 10, deep_step=2))
def test_the_makespan_of_1_0_changes_as_predicted(case: Case, tmp_path: Path) -> None:
    result = simulate(case, tmp_path, fold=True, detail="path")
    outcome = sensitivities(result, tmp_path / "run")
    by_name = {parameter.name: parameter for parameter in parameters(outcome.path)}
    tried = 0
    for effect in outcome.all():
        if effect.parameter.startswith("bandwidth") and is_greedy(case):
            continue  # the sizes of chunks and the order of dimensions follow from the bandwidths
        for side in (effect.better, effect.worse):
            for wanted, end in changed_within(side, effect.parameter):
                again, multiple = change(case, effect.parameter, wanted)
                if not is_within(multiple, end):
                    continue
                factor = 1 / multiple if effect.is_rate else multiple
                predicted = result.makespan_ns + side.slope_ns * (factor - 1)
                allowed = outcome.rounding_ns(by_name[effect.parameter], factor)
                changed = simulate(again, tmp_path, fold=True, detail="path")
                is_as_predicted = changed.makespan_ns == pytest.approx(predicted, abs=allowed)
                tried += is_as_predicted
                assert is_as_predicted or not in_one_order(result, changed), (effect.parameter, multiple)
    assert tried or is_greedy(case), "nothing changed as predicted"


def change(case: Case, name: str, wanted: float) -> tuple[Case, float]:
    """Return the case with about `wanted` times a parameter, and the exact factor: 1 if no file has it."""
    case = copy.deepcopy(case)
    figures, key = _where(case, name)
    before = figures[key] if key is not None else 0
    if not before:
        return case, 1.0
    figures[key] = round(before * wanted) if is_whole_number(name) else before * wanted
    return case, float(figures[key] / before)


def is_greedy(case: Case) -> bool:
    """Return whether chunks follow the loads of dimensions."""
    return "Greedy" in str((case["system"] | case["args"]).get("inter-dimension-scheduling"))


def is_within(multiple: float, end: float) -> bool:
    """Return whether the multiple is a change in the direction of `end` and not beyond."""
    return (1 < multiple <= end or end <= multiple < 1) and abs(multiple - 1) >= SMALLEST_CHANGE


def _where(case: Case, name: str) -> tuple[Any, Any]:
    """Return the figures of the case that hold a parameter, and its key."""
    network, settings = case["network"], case["system"] | case["args"]
    if match := re.fullmatch(r"(bandwidth|latency) of dimension (\d+)(: \w+)?", name):
        key = match[1] if "topology" in network else NETWORK_KEYS[match[1]][match[3] or ""]
        return case["args"].get(key, network.get(key)), int(match[2])
    if name == "endpoint delay" and "injection-scale" not in settings:
        case["args"]["endpoint-delay"] = settings["endpoint-delay"]
        return case["args"], "endpoint-delay"
    if name == "time of all kernels":
        case["args"].setdefault("compute-scale", 1.0)
        return case["args"], "compute-scale"
    return None, None
