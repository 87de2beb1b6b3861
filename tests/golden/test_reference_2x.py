"""Every golden case that the reference completed gives its nanoseconds, rank by rank, node by node."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, all_cases, nodes_of

from et_sim.api import run
from et_sim.errors import MachineError
from et_sim.timeline import Result

COMPLETED = ("ok", "crash_heap")  # in a heap crash the figures are those the reference means to compute
# The reference ignores unknown keys; here they are errors, and nothing else about the case matters.
UNKNOWN_KEY = "some-unknown-key"
TRACKS_MEMORY = "track-local-mem"


def _is_comparable(case: Case) -> bool:
    return (
        case.status in COMPLETED
        and not case.content["expected"].get("ref_wrong")
        and not case.system.get(TRACKS_MEMORY)
        and UNKNOWN_KEY not in case.system
    )


CASES = [case for case in all_cases() if _is_comparable(case)]


def test_nearly_every_completed_case_is_compared() -> None:
    completed = [case for case in all_cases() if case.status in COMPLETED]
    left_out = {case.name for case in completed} - {case.name for case in CASES}
    assert len(CASES) > 1190
    assert len(left_out) <= 10


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_the_reference(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case.write_programs(tmp_path)
    monkeypatch.chdir(tmp_path)  # paths of custom programs are relative to the working folder
    for fold in (True, False):
        _compare(case, run(case.workload(), **case.machine, model=case.model, fold=fold))


def _compare(case: Case, result: Result) -> None:
    assert result.finish_ns.tolist() == case.expected_finish()
    assert result.exposed_comm_ns.tolist() == case.expected_exposed()
    for rank, expected in case.expected_nodes().items():
        assert nodes_of(result, rank) == expected
    actors = result.outcome.plan.actor_of_rank
    ours = {"comm": result.statistics.communication_ns, "gpu": result.statistics.compute_ns}
    for figure, expected_figures in case.expected_statistics().items():
        if figure in ours:  # the reference prints no line for a kind of node that a rank lacks
            assert ours[figure][actors].tolist() == [value or 0 for value in expected_figures]


def test_an_unknown_key_that_the_reference_ignores_is_refused() -> None:
    [case] = [case for case in all_cases() if UNKNOWN_KEY in case.system]
    with pytest.raises(MachineError, match=UNKNOWN_KEY):
        run(case.workload(), **case.machine, model=case.model)
