"""Every golden case whose features are simulated gives the reference's nanoseconds, rank by rank."""

from __future__ import annotations

import pytest
from cases import Case, all_cases, nodes_of

from et_sim.api import run

NOT_YET_SIMULATED_KEYS = ("model-shared-bus", "track-local-mem")
UNKNOWN_TO_US = "some-unknown-key"  # the reference ignores it, we refuse it


def _is_simulated(case: Case) -> bool:
    system = case.system
    return (
        case.backend == "unaware"
        and case.status in ("ok", "crash_heap")
        and case.category != "reference_fails"
        and UNKNOWN_TO_US not in system
        and not any(system.get(key) for key in NOT_YET_SIMULATED_KEYS)
        and not system.get("rendezvous-protocol")
        and not any("custom" in key for key in system)
        and "doubleBinaryTree" not in case.algorithms
    )


CASES = [case for case in all_cases() if _is_simulated(case)]


def test_the_selection_covers_every_category_that_the_straight_road_must_reproduce() -> None:
    counts: dict[str, int] = {}
    for case in CASES:
        counts[case.category] = counts.get(case.category, 0) + 1
    at_least = {"coll1d": 95, "collnd": 170, "collsize": 35, "chunking": 25, "compute": 25, "p2p": 35}
    assert {category: counts[category] >= count for category, count in at_least.items()} == dict.fromkeys(
        at_least, True
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_the_reference(case: Case) -> None:
    result = run(case.workload(), **case.machine)
    assert result.finish_ns.tolist() == case.expected_finish()
    assert result.exposed_comm_ns.tolist() == case.expected_exposed()
    for rank, expected in case.expected_nodes().items():
        assert nodes_of(result, rank) == expected
    actors = result.outcome.plan.actor_of_rank
    ours = {"comm": result.statistics.communication_ns, "gpu": result.statistics.compute_ns}
    for figure, expected_figures in case.expected_statistics().items():
        if figure in ours:  # the reference prints no line for a kind of node that a rank lacks
            assert ours[figure][actors].tolist() == [value or 0 for value in expected_figures]
