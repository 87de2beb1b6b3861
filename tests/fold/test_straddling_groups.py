"""Groups that straddle nodes: ranks at equal places of a pattern of cuts are folded, exactly.

The summary names the limits of folding.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from machines import network, system
from random_cases import Case, actors_of, outcome
from straddling_cases import straddling_case

from et_sim.api import run
from et_sim.machine.presets import preset
from et_sim.trace import GroupRule, TraceBuilder, Workload
from et_sim.views.summary.sentences import limits_text

NODE, RANKS = 3, 24
CUT = {"reason": "nodes of 3 ranks cut the groups 'near' of 2 in 2 ways"}
REMEDY = {"remedy": "groups of 1 or 3 ranks, or nodes of ranks that are a multiple of 2"}
LATE = {"reason": "some ranks are late, or slower than others"}


def job(size: int, *, node: int = NODE, model: str = "flow", **keys: Any) -> Case:
    """Return a run in which neighbours exchange with all pairs, and equal places then reduce."""
    build = TraceBuilder()
    first = build.collective("all_to_all", 1 << 20, group="near")
    build.collective("all_reduce", 1 << 20, group="far", after=[first])
    rules = {"near": GroupRule(size), "far": GroupRule(RANKS // size, size)}
    alike = np.zeros(RANKS, np.int32)
    workload = Workload((build.build(),), alike, relative_peers=(True,), group_rules=rules)
    found = preset(f"gb200-nvl72:{RANKS},node={node}")
    on = {name: value for name, value in found.system.items() if name not in ("compute", "costs")} | keys
    return Case(workload, {"system": on, "network": found.network, "model": model})


def limits_of(case: Case) -> list[dict[str, str]]:
    """Return the limits in the summary of a folded run."""
    found: list[dict[str, str]] = run(case.workload, **case.machine).summary()["folded"].get("limits", [])
    return found


def test_a_pattern_of_cuts_that_repeats_is_simulated_once() -> None:
    """Check that pairs on nodes of 3 are cut alike every 6 ranks, so 4 copies of the pattern are alike."""
    case = job(2)
    assert outcome(case, fold=True) == outcome(case, fold=False)
    assert actors_of(case) == 6


@pytest.mark.parametrize(("size", "node"), [(3, 3), (2, 4), (4, 12)])
def test_the_remedies_fold(size: int, node: int) -> None:
    case = job(size, node=node)
    assert (actors_of(case), limits_of(case)) == (1, [])


def test_a_single_rank_has_no_limit_of_folding() -> None:
    build = TraceBuilder()
    build.compute("alone", micros=5)
    case = Case(Workload.of([build.build()]), {"network": network(["Ring"], [1]), "system": system()})
    assert (actors_of(case), limits_of(case)) == (1, [])


def test_the_summary_names_the_groups_that_are_cut_and_sizes_that_are_not() -> None:
    assert limits_of(job(2)) == [CUT | REMEDY]


def test_the_summary_names_late_ranks_beside_groups_that_are_cut() -> None:
    late = [{"ranks": "0", "delay": "1us"}]
    cut, other = limits_of(job(2, stragglers=late))
    assert cut == CUT | REMEDY
    assert other["reason"] == LATE["reason"]
    assert [limit["reason"] for limit in limits_of(job(3, stragglers=late))] == [LATE["reason"]]


def one_collective(algorithm: str = "ring", kind: str = "all_reduce", profile: str = "reference") -> Case:
    """Return a collective of eight ranks in a row."""
    build = TraceBuilder()
    build.collective(kind, 1 << 20)
    workload = Workload((build.build(),), np.zeros(8, np.int32), relative_peers=(True,))
    on = system(algorithm, profile=profile)
    return Case(workload, {"system": on, "network": network(["Ring"], [8]), "model": "analytical"})


@pytest.mark.parametrize(
    ("case", "reasons"),
    [
        (one_collective(), []),
        (one_collective("doubleBinaryTree"), ["trees give each rank a place of its own"]),
        (one_collective("ring", "broadcast", "corrected"), ["trees give each rank a place of its own"]),
    ],
    ids=["ring", "tree", "ports"],
)
def test_the_summary_names_trees_and_links_of_others(case: Case, reasons: list[str]) -> None:
    assert [limit["reason"] for limit in limits_of(case)] == reasons


def test_the_summary_names_a_model_that_folds_nothing() -> None:
    case = one_collective()
    [limit] = limits_of(Case(case.workload, case.machine | {"model": "packet"}))
    assert limit["remedy"] == "--network-model flow folds ranks"


def test_the_summary_names_programs_that_differ() -> None:
    traces = []
    for rank in range(4):
        build = TraceBuilder()
        build.compute(micros=1 + rank)
        traces.append(build.build())
    machine = {"system": system("ring"), "network": network(["Ring"], [4])}
    [limit] = limits_of(Case(Workload.of(traces), machine))
    assert limit["reason"] == "nearly every rank has a program of its own"


def test_the_text_of_the_summary_shows_the_limits_of_many_actors() -> None:
    few, many = ({"folded": {"actors": actors, "limits": [CUT | REMEDY]}} for actors in (127, 128))
    assert limits_text(cast(Any, few)) == ""
    assert limits_text(cast(Any, many)) == f"{CUT['reason']} (fewer actors: {REMEDY['remedy']})"


@pytest.mark.deep
def test_random_groups_that_straddle_nodes_fold_exactly_and_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    folded = 0
    for seed in range(24):
        case = straddling_case(seed)
        assert outcome(case, fold=True) == outcome(case, fold=False), seed
        folded += actors_of(case) < case.workload.ranks
    assert folded >= 8


@pytest.mark.seeds(deep=20, exhaustive=2000, at_a_time=20)
def test_many_random_groups_that_straddle_nodes_fold_exactly(seeds: range) -> None:
    for seed in seeds:
        case = straddling_case(seed)
        assert outcome(case, fold=True) == outcome(case, fold=False), seed
