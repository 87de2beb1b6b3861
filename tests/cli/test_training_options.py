"""Options of training jobs that have no effect are refused, and only those."""

from __future__ import annotations

from pathlib import Path

import pytest

from et_sim.cli import main, needs

SHAPE = ("--hidden", "64", "--heads", "4", "--layers", "4", "--sequence", "32", "--vocabulary", "64")
LONE: tuple[tuple[str, ...], ...] = (
    ("--context-attention", "all-gather"),
    ("--context-balance", "none"),
    ("--zero", "1"),
    ("--prefetch", "3"),
    ("--stage-layers", "4"),
    ("--unfused-routing",),
    ("--node-ranks", "4"),
    ("--no-dropout",),
)


def made(folder: Path, *options: str) -> list[bytes]:
    """Return the content of the files of a job."""
    folder.mkdir()
    assert main(["make", "transformer", *SHAPE, *options, "-o", str(folder / "job")]) == 0
    return [path.read_bytes() for path in sorted(folder.iterdir())]


@pytest.mark.parametrize("option", LONE, ids=lambda option: option[0])
def test_an_option_without_effect_is_refused_with_its_cause(
    option: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["make", "transformer", *SHAPE, *option, "-o", str(tmp_path / "job")]) == 2
    err = capsys.readouterr().err
    assert f"{option[0]} has no effect: " in err
    assert "leave it out" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", LONE, ids=lambda option: option[0])
def test_no_option_that_is_refused_changes_the_job(
    option: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "OF_TRAINING", ())
    assert made(tmp_path / "with", *option) == made(tmp_path / "without")


@pytest.mark.parametrize(
    ("plan", "option"),
    [
        ("--cp 2", "--context-attention all-gather"),
        ("--cp 2", "--context-balance none"),
        ("--dp 2", "--zero 1"),
        ("--dp 2 --zero 3", "--prefetch 3"),
        ("--pp 2", "--stage-layers 1,3"),
        ("--pp 2 --tp 2", "--scatter-gather"),
    ],
)
def test_an_option_whose_need_is_met_changes_the_job(plan: str, option: str, tmp_path: Path) -> None:
    given = plan.split()
    assert made(tmp_path / "with", *given, *option.split()) != made(tmp_path / "without", *given)


def test_the_plan_of_a_job_refuses_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "llm", "--model", "gpt2", "--prefetch", "3"]) == 2
    assert "--prefetch has no effect: every rank has whole weights of its layers" in capsys.readouterr().err
