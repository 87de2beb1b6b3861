"""After a tie, folded ranks may take events in one order (`ties_alike`) in place of being simulated alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from random_cases import random_case

import et_sim
from et_sim.api import run
from et_sim.basics.errors import EtSimError
from et_sim.cli import main
from et_sim.fold import TIE

# Seeds of `random_case` whose folded runs are given up; the order decides whether 58 stalls.
TIED = (6, 18, 21, 22, 30, 32, 50)
STALLS_BY_ORDER = 58
NEVER_TIED = (0, 1, 2, 3)


def both(seed: int) -> tuple[Any, Any]:
    case = random_case(seed)
    return run(case.workload, **case.machine), run(case.workload, **case.machine, ties_alike=True)


def is_noted(result: Any) -> bool:
    return any(warning["key"] == "--ties-alike" for warning in result.manifest["warnings"])


@pytest.mark.parametrize("seed", TIED)
def test_a_tied_run_stays_folded_and_says_so(seed: int) -> None:
    alone, alike = both(seed)
    assert TIE in alone.outcome.plan.limits
    assert len(alike.outcome.plan.actors) < len(alone.outcome.plan.actors) == alone.workload.ranks
    assert is_noted(alike)
    assert not is_noted(alone)
    assert alike.outcome.messages == alone.outcome.messages
    assert alike.finish_ns.tolist() == alone.finish_ns.tolist()  # in these, no order decides


@pytest.mark.parametrize("seed", NEVER_TIED)
def test_without_a_tie_the_result_is_the_same_and_has_no_notice(seed: int) -> None:
    try:
        alone, alike = both(seed)
    except EtSimError:
        pytest.skip("a refused case")
    assert TIE not in alone.outcome.plan.limits
    assert not is_noted(alike)
    assert alike.finish_ns.tolist() == alone.finish_ns.tolist()


def test_an_order_may_decide_whether_a_run_stalls() -> None:
    alone, alike = both(STALLS_BY_ORDER)
    assert (alone.status, alike.status) == ("stalled", "complete")
    assert is_noted(alike)


@pytest.mark.deep
def test_nearly_all_tied_runs_have_the_times_of_ranks_by_themselves() -> None:
    differ, tied = 0, 0
    for seed in range(300):
        case = random_case(seed)
        try:
            alone = run(case.workload, **case.machine)
        except EtSimError:
            continue
        if TIE not in alone.outcome.plan.limits or not alone.is_complete:
            continue
        alike = run(case.workload, **case.machine, ties_alike=True)
        tied += 1
        differ += alike.finish_ns.tolist() != alone.finish_ns.tolist()
    assert tied > 20
    assert differ <= tied // 10


def test_samples_refuse_it() -> None:
    case = random_case(TIED[0])
    with pytest.raises(EtSimError, match="--ties-alike has no effect on samples"):
        et_sim.simulate(case.workload, **case.machine, ties_alike=True, samples=4)


def test_a_run_that_folds_no_ranks_refuses_it() -> None:
    case = random_case(TIED[0])
    with pytest.raises(EtSimError, match="--ties-alike has no effect with --no-fold"):
        et_sim.simulate(case.workload, **case.machine, ties_alike=True, fold=False)


def test_the_command_takes_it_and_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["make", "all_reduce", "--ranks", "4", "--bytes", "1KiB", "-o", "job"]) == 0
    machine = ["--machine", "h100-dgx:4"]
    assert main(["run", "job", *machine, "--ties-alike", "--out", "one"]) == 0
    capsys.readouterr()
    configuration = json.loads(Path("one/run.json").read_text())["configuration"]
    assert configuration["ties_alike"] is True
    assert main(["run", "job", *machine, "--out", "two"]) == 0
    assert "ties_alike" not in json.loads(Path("two/run.json").read_text())["configuration"]
