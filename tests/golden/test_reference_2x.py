"""Every golden case that the reference completed gives its nanoseconds, rank by rank, node by node.

Every run of these tests compares every fourth case of each kind folded, and some small ones unfolded and
recorded. With `--deep` all cases are compared folded, every second one unfolded (and the others on the next
day), and every eighth recorded; with `--exhaustive` all of them in every way.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cases import Case, all_cases, nodes_of, of_every_kind
from causes import check, check_causes
from traffic_checks import DETAIL, check_traffic, check_unfolded

from et_sim.api import run
from et_sim.basics.errors import MachineError
from et_sim.run.result import Result
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord

COMPLETED = ("ok", "crash_heap")  # in a heap crash the figures are those the reference means to compute
# The reference ignores unknown keys; here they are errors, and nothing else about the case matters.
UNKNOWN_KEY = "some-unknown-key"


def _is_comparable(case: Case) -> bool:
    return (
        case.status in COMPLETED
        and not case.content["expected"].get("ref_wrong")
        and UNKNOWN_KEY not in case.system
    )


# Actors that a folded run of each case ends with.
ACTORS = json.loads((Path(__file__).parent / "data" / "actors.json").read_text())
CASES = [case for case in all_cases() if _is_comparable(case)]
# Messages and links are recounted for some, which are many and alike; for more of those on links.
WITH_TRAFFIC = {
    case.name for number, case in enumerate(CASES) if number % (3 if case.model == "link" else 10) == 0
}


def test_nearly_every_completed_case_is_compared() -> None:
    completed = [case for case in all_cases() if case.status in COMPLETED]
    left_out = {case.name for case in completed} - {case.name for case in CASES}
    assert len(CASES) > 1200
    assert len(left_out) <= 5


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # paths of custom programs are relative to the working folder
    return tmp_path


@pytest.mark.parametrize("case", of_every_kind(CASES, 4, also_large=True))
def test_folded_the_run_equals_the_reference(case: Case, folder: Path) -> None:
    case.write_programs(folder)
    result = run(case.workload(), **case.machine, model=case.model)
    _compare(case, result)
    assert len(result.outcome.plan.actors) <= ACTORS[case.name], "folds less than it did"


@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize("case", of_every_kind(CASES, 64))
def test_unfolded_the_run_equals_the_reference(case: Case, folder: Path) -> None:
    case.write_programs(folder)
    _compare(case, run(case.workload(), **case.machine, model=case.model, fold=False))


@pytest.mark.parametrize("case", of_every_kind(CASES, 64, deep_step=8))
def test_records_explain_the_run_and_do_not_change_it_folded_or_not(case: Case, folder: Path) -> None:
    case.write_programs(folder)
    folded, unfolded = (_recorded(case, folder, fold=fold) for fold in (True, False))
    if case.name in WITH_TRAFFIC and folded.outcome.plan.is_folded:
        check_unfolded(folded, unfolded)


def _recorded(case: Case, folder: Path, *, fold: bool) -> Result:
    """Return a run, after comparing it with the reference and checking its records."""
    detail = f"path,{DETAIL}" if case.name in WITH_TRAFFIC else "path"
    result = run(case.workload(), **case.machine, model=case.model, fold=fold, detail=detail)
    _compare(case, result)
    check(result)
    write_run(result, folder / "run")
    check_causes(CriticalPath(PathRecord(open_run(folder / "run"))), result)
    if case.name in WITH_TRAFFIC:
        check_traffic(result)
    return result


def _compare(case: Case, result: Result) -> None:
    assert result.finish_ns.tolist() == case.expected_finish()
    assert result.reference_exposed_ns.tolist() == case.expected_exposed()
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


TRACKED = [case for case in CASES if case.content["expected"].get("peak_local_mem")]
MEASURED = [case for case in CASES if "compute_util_pct" in case.expected_statistics()]


def _as_the_reference_prints(size: float) -> str:
    """Return a size with two decimals, and with the units of powers of 1000 for powers of 1024."""
    units = ["B", "KB", "MB", "GB", "TB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.2f} {units[0]}"


def test_there_are_cases_with_memory_and_with_utilisation() -> None:
    assert len(TRACKED) == 5
    assert len(MEASURED) == 37


@pytest.mark.parametrize("case", TRACKED, ids=lambda case: case.name)
def test_peak_memory_equals_the_output_of_the_reference(case: Case) -> None:
    result = run(case.workload(), **case.machine, model=case.model)
    printed = [text for text, count in case.content["expected"]["peak_local_mem"] for _ in range(count)]
    assert [_as_the_reference_prints(peak) for peak in result.peak_memory_bytes.tolist()] == printed
    assert result.coverage["without_tensors"] == 0


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: case.name)
def test_utilisation_equals_the_output_of_the_reference_except_averages(case: Case) -> None:
    """Check averages: the reference divides by the time of all computation, and by one nanosecond more."""
    result = run(case.workload(), **case.machine, model=case.model)
    printed = case.expected_statistics()
    rows = [row for row in result.timeline.to_pylist() if row["kind"] == "compute"]
    for rank, actor in enumerate(result.outcome.plan.actor_of_rank.tolist()):
        nodes = [row for row in rows if row["actor"] == actor]
        all_time = sum(row["end_ns"] - row["start_ns"] for row in nodes)
        kernels = [row for row in nodes if row["compute_utilisation"] is not None]
        time = np.array([row["end_ns"] - row["start_ns"] for row in kernels])
        averages = {
            "compute_bound_share": ("compute_bound_pct", 100, [not row["memory_bound"] for row in kernels]),
            "compute_utilisation": ("compute_util_pct", 100, [row["compute_utilisation"] for row in kernels]),
            "memory_utilisation": ("memory_util_pct", 100, [row["memory_utilisation"] for row in kernels]),
            "operational_intensity": ("op_intensity", 1, [row["operational_intensity"] for row in kernels]),
        }
        for ours, (theirs, scale, values) in averages.items():
            weighted = float((np.array(values) * time).sum())
            assert scale * weighted / (1 + all_time) == pytest.approx(printed[theirs][rank], abs=0.00051)
            if time.sum():
                assert getattr(result.statistics, ours)[actor] == pytest.approx(weighted / time.sum())
