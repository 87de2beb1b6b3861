"""Sound outcomes on the command line, in both profiles, of inputs on which the reference fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cases import Case, all_cases
from reference_fails import BY_CASE, BY_WHY, CORRECTED, Intended, Outcome

from et_sim.cli import main

CASES = [case for case in all_cases() if case.category == "reference_fails"]
STATUS = {Outcome.COMPLETES: 0, Outcome.STALLS: 1, Outcome.REFUSED: 2}
# Outcomes allowed for the tags of the cases.
ALLOWED = {
    "should_work": {Outcome.COMPLETES},
    "bad_input": {Outcome.STALLS, Outcome.REFUSED},
    "unclear": set(Outcome),
}
# The reference's own deadlock (spec 3.9): its profile keeps and explains it.
KEPT = {"collnd-0068"}


def tags(case: Case) -> dict[str, Any]:
    content: dict[str, Any] = case.content["tags"]
    return content


def intended(case: Case, profile: str) -> Intended:
    if profile == "corrected" and case.name in CORRECTED:
        return CORRECTED[case.name]
    return BY_CASE.get(case.name) or BY_WHY[tags(case)["why"]]


def test_the_table_has_a_row_for_each_of_the_84_cases_and_no_others() -> None:
    assert len(CASES) == 84
    without_why = {case.name for case in CASES if "why" not in tags(case)}
    assert without_why == set(BY_CASE)
    assert {tags(case)["why"] for case in CASES if "why" in tags(case)} == set(BY_WHY)
    for case in CASES:
        row = intended(case, "reference")
        assert row.because
        assert case.name in KEPT or row.outcome in ALLOWED[tags(case)["kind"]]
        assert bool(row.printed) == (row.outcome is not Outcome.COMPLETES)


@pytest.mark.parametrize("profile", ["reference", "corrected"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_failing_case_ends_as_intended(
    case: Case,
    profile: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = intended(case, profile)
    system = {**case.content["system"], "profile": profile}
    with_profile = replace(case, content={**case.content, "system": system})
    arguments = with_profile.write(tmp_path)
    monkeypatch.chdir(tmp_path)  # paths of custom programs are relative to the working folder
    status = main(["run", *arguments, "--out", str(tmp_path / "run"), "--json"])
    printed = capsys.readouterr()
    assert status == STATUS[row.outcome], printed.err
    if row.outcome is Outcome.COMPLETES:
        assert all(entry["finish_ns"] is not None for entry in json.loads(printed.out)["per_rank"])
    else:
        assert "et-sim: error: " in printed.err
        assert row.printed in printed.err
    if row.outcome is Outcome.REFUSED:
        assert printed.out == ""
