"""Points of a sweep that the model can distinguish."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_sweep_pictures import write_sweep

from et_sim.basics.uncertainty import Composition, ErrorTerm
from et_sim.cli import main
from et_sim.views.sweep.directory import open_sweep
from et_sim.views.sweep.summary import sweep_text

WHOLE, TERM = ErrorTerm("assumed", 0.02, 0.05), ErrorTerm("modelled", 0.2, 0.1)


def made_of(*items: str) -> str:
    composition = Composition.of("board", WHOLE, {"gemm": TERM}, {("gemm", item): 1.0 for item in items})
    assert composition is not None
    return json.dumps(composition.as_dict())


POINTS: list[dict[str, Any]] = [
    {"x": 1, "makespan_ns": 1000, "made_of": made_of("a", "b")},
    {"x": 2, "makespan_ns": 1020, "made_of": made_of("a", "b")},
    {"x": 3, "makespan_ns": 1100, "made_of": made_of("a", "b")},
    {"x": 4, "makespan_ns": 1100, "made_of": made_of("c", "d")},
]
MORE_NS = (10, 200, 0, 0)


def test_points_within_the_band_of_the_best_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check points 1 and 3, which may be as fast; for point 3, errors of other shapes count separately."""
    sweep = str(write_sweep(tmp_path / "a.sweep", ("x",), POINTS))
    assert main(["inspect", sweep]) == 0
    out = " ".join(capsys.readouterr().out.split())
    sentence = "2 of 3 other points (≈) may be as fast as the best, by their 80 % band."
    assert sentence in out
    assert "+6 to +14 %" in out
    assert main(["inspect", sweep, "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["best"]
    assert "made_of" not in best[0]
    bands = [point.get("slower_by_band") for point in best]
    assert bands[0] is None
    assert [low <= 0 <= high for low, high in bands[1:]] == [True, False, True]
    assert main(["report", sweep, "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert sentence in page
    assert "+6 to +14 %" in page


def test_distinct_points_are_stated_as_distinct(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = str(write_sweep(tmp_path / "a.sweep", ("x",), [POINTS[0], POINTS[2]]))
    assert main(["inspect", sweep]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "The best differs from 1 other point by more than the error of the model: the 80 % band of each."
        in out
    )


def test_two_sweeps_count_the_changes_that_may_be_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = zip(POINTS, MORE_NS, strict=True)
    later = [{**row, "makespan_ns": row["makespan_ns"] + more} for row, more in pairs]
    sweeps = [str(write_sweep(tmp_path / name, ("x",), rows)) for name, rows in (("a", POINTS), ("b", later))]
    assert main(["compare", *sweeps]) == 0
    assert "uncertainty  1 of these changes may be none, by their 80 % band" in capsys.readouterr().out
    assert main(["compare", *sweeps, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["points"][0]["relative_band"]) == 2


@pytest.mark.parametrize("text", ["{", "5", "{}", '{"classes": [], "whole": {}}'])
def test_a_damaged_column_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [POINTS[0], {**POINTS[1], "made_of": text}]
    assert main(["inspect", str(write_sweep(tmp_path / "a.sweep", ("x",), rows))]) == 2
    error = capsys.readouterr().err
    assert "column 'made_of' of point 1" in error
    assert "sweep again" in error


def test_a_point_may_be_slower_by_over_100_percent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = [{"x": number, "makespan_ns": ns} for number, ns in enumerate((1000, 1996, 2500))]
    assert main(["inspect", str(write_sweep(tmp_path / "a.sweep", ("x",), points))]) == 0
    out = capsys.readouterr().out
    assert "150 %" in out
    assert ">99 %" not in out


def test_a_bottleneck_of_every_point_is_named(tmp_path: Path) -> None:
    sweep = open_sweep(write_sweep(tmp_path / "a.sweep", ("x",), POINTS))
    assert "\nMost time goes to compute at every point." in sweep_text(sweep)
