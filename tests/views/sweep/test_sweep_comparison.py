"""Comparing sweeps: points are matched by the values of their axes, with any numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_sweep_pictures import write_sweep

from et_sim.cli import main

A = [{"x": x, "net": net, "makespan_ns": 1000 * x} for x in (1, 2, 4) for net in ("ring", "mesh")]
FAILED = {"makespan_ns": None, "status": "refused", "error": "no", "bottleneck": None}


@pytest.fixture
def sweeps(tmp_path: Path) -> tuple[str, str]:
    """Write a and b, which has other numbers and changed, failed, missing and new points."""
    b = [dict(row) for row in reversed(A)]
    b[0]["makespan_ns"] = 8000  # 4, mesh: twice as slow
    b[2]["makespan_ns"] = 1500  # 2, mesh: faster
    b[4] |= FAILED  # 1, mesh
    b[5] |= {"x": 16}
    return (
        str(write_sweep(tmp_path / "a.sweep", ("x", "net"), A)),
        str(write_sweep(tmp_path / "b.sweep", ("net", "x"), b)),
    )


def test_points_in_both_are_compared(sweeps: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *sweeps]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "points       5 in both, 1 only in A, 1 only in B",
        "makespan     1 slower, 1 faster, 2 as before",
        "best         2 µs, then 1.5 µs: -500 ns (-25.0 %)",
        "",
        "x  net   before   after  difference",
        "4  mesh    4 µs    8 µs       +4 µs  +100.0 %",
        "2  mesh    2 µs  1.5 µs     -500 ns   -25.0 %",
        "",
        "x 1, net mesh: complete, then refused",
    ]
    assert main(["compare", *sweeps, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["points"][0] == {
        "axes": {"x": 4, "net": "mesh"},
        "status": ["complete", "complete"],
        "makespan_ns": [4000, 8000],
    }


def test_a_threshold_is_for_every_point(sweeps: tuple[str, str]) -> None:
    assert main(["compare", sweeps[0], sweeps[0], "--threshold", "0"]) == 0
    assert main(["compare", *sweeps, "--threshold", "99%"]) == 1
    assert main(["compare", *sweeps, "--threshold", "200%"]) == 1  # a point is complete no more
    assert main(["compare", *reversed(sweeps), "--threshold", "34%"]) == 0


def test_sweeps_with_nothing_in_common_are_refused(
    sweeps: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_sweep(tmp_path / "c.sweep", ("x",), [{"x": 1, "makespan_ns": 1}])
    far = write_sweep(tmp_path / "d.sweep", ("x", "net"), [{"x": 9, "net": "ring", "makespan_ns": 1}])
    assert main(["compare", sweeps[0], str(other)]) == 2
    assert "only one of the two sweeps varies net" in capsys.readouterr().err
    assert main(["compare", sweeps[0], str(far)]) == 2
    assert "no point with equal values" in capsys.readouterr().err
