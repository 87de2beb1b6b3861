"""All that a job left behind names one rank, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from night import LATE, LATE_NS, RANKS, STEP_NS, STEPS, write_dumps, write_records, write_reports

from converters.cli import main
from et_sim.cli import main as simulate

MACHINE = f"a100-dgx-80gb:{RANKS}"


def test_dumps_and_records_name_the_same_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_dumps(tmp_path / "dumps")
    write_records(tmp_path / "inspector")
    assert main(["recording", str(tmp_path / "dumps"), "--json"]) == 0
    hang = json.loads(capsys.readouterr().out)
    assert (hang["kind"], hang["ranks"], hang["sequence"]) == ("missing", str(LATE), STEPS + 1)
    assert main(["recording", str(tmp_path / "inspector"), "--json"]) == 0
    (late,) = json.loads(capsys.readouterr().out)["late"]
    assert (late["rank"], late["last_in"], late["of"]) == (LATE, STEPS, STEPS)
    assert late["late_us"] == pytest.approx(LATE_NS / 1000)


@pytest.mark.deep
def test_the_recorded_run_differs_from_the_simulated_one_in_exchanges_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_reports(tmp_path / "reports")
    assert main(["recording", "reports", "-o", "two"]) == 0
    assert main(["scale", "two", "--from", "dp=2", "--to", f"dp={RANKS}", "-o", "job"]) == 0
    for name, more in (("recorded", ["--alone"]), ("simulated", [])):
        assert simulate(["run", "job.workload.json", *more, "--machine", MACHINE, "--out", name]) == 0
    capsys.readouterr()
    assert simulate(["compare", "simulated", "recorded", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert compared["makespan_ns"]["b"] == pytest.approx(STEPS * STEP_NS, abs=20_000)
    (changed,) = [entry for entry in compared["operations"] if entry["difference_ns"]]
    assert (changed["kind"], changed["group"], changed["a_count"], changed["b_count"]) == (
        *("all_reduce", ""),
        *(RANKS * STEPS, RANKS * STEPS),
    )
    assert compared["groups"] == []
