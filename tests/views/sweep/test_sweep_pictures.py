"""Pictures of sweeps: every point is at the values in sweep.arrow, and the front is the Pareto front."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.units import parse_time_ns
from et_sim.cli import main
from et_sim.tables.sweep_tables import ABOUT, FIGURES
from et_sim.views.sweep.charts import INSET, front_of, sweep_picture
from et_sim.views.sweep.directory import open_sweep
from et_sim.views.sweep.scales import LAST, MAKESPAN, axis_scale, quantity_scale

DOT = re.compile(r"M([\d.]+) ([\d.]+)h\.01")
MARK = re.compile(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">([^<]+)</text>')
TYPES = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}


def write_sweep(folder: Path, axes: Sequence[str], rows: Sequence[dict[str, Any]]) -> Path:
    """Write a sweep with these rows."""
    usual = {
        "status": "complete",
        "bottleneck": "compute",
        "bottleneck_share": 1.0,
        "ranks": 8,
        "warnings": "",
    }
    full = [{**usual, "digest": f"{number:064x}", **row} for number, row in enumerate(rows)]
    columns = {"point": pa.array(range(len(full)), pa.int64())}
    columns |= {axis: pa.array([row[axis] for row in full]) for axis in axes}
    for figure in FIGURES:
        columns[figure.name] = pa.array([row.get(figure.name) for row in full], TYPES[figure.kind])
    about = {"points": len(full), "axes": [{"name": axis, "field": axis} for axis in axes]}
    table = pa.table(columns).replace_schema_metadata({ABOUT: json.dumps(about)})
    folder.mkdir()
    with pa.OSFile(str(folder / "sweep.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)
    return folder


ROWS = [
    {"tp": tp, "net": net, "makespan_ns": 10**6 * (10 // tp + len(net)), "peak_memory_bytes": 2**30 // tp}
    for tp in (1, 2, 4)
    for net in ("ring", "switch")
]


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    """Return six points, and one that failed."""
    failed = {"tp": 8, "net": "ring", "status": "refused", "error": "no <such> machine", "bottleneck": None}
    return write_sweep(tmp_path / "some.sweep", ("tp", "net"), [*ROWS, failed])


def test_dots_have_the_places_of_the_marks(swept: Path) -> None:
    drawn = sweep_picture(open_sweep(swept))
    charts = drawn.split('<path class="dots"')[1:]
    dots_of_charts = [[(float(x), float(y)) for x, y in DOT.findall(chart)] for chart in charts]
    assert [len(dots) for dots in dots_of_charts] == [6, 6, 6]  # the failed point is none of them
    marks = [(float(y), text) for _, y, anchor, text in MARK.findall(drawn) if anchor == "end"]
    (low, low_text), (high, high_text) = marks[0], marks[1]
    low_ns, high_ns = parse_time_ns(low_text), parse_time_ns(high_text)
    done = sorted(ROWS, key=lambda row: row["makespan_ns"])
    for dots in dots_of_charts:
        for (_, y), row in zip(dots, done, strict=True):
            expected = low - 4 + (row["makespan_ns"] - low_ns) / (high_ns - low_ns) * (high - low)
            assert y == pytest.approx(expected, abs=0.5)
    xs = {
        value: {x for (x, _), row in zip(dots_of_charts[0], done, strict=True) if row["tp"] == value}
        for value in (1, 2, 4)
    }
    places = [min(xs[value]) for value in (1, 2, 4)]
    assert all(len(places) == 1 for places in xs.values())
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.3)  # equal factors


def test_words_stand_in_the_order_of_points_and_numbers_by_size() -> None:
    assert axis_scale("net", ["switch", "ring", "switch"]).places == (0, LAST, 0)
    assert axis_scale("rate", [300, 100, 200]).places == (LAST, 0, LAST // 2)
    assert axis_scale("rate", [5, 5]).places == (LAST // 2, LAST // 2)
    assert axis_scale("rate", [None, 1.5]).marks == ((0, "none"), (LAST, "1.5"))


@given(st.lists(st.integers(1, 2**53), min_size=1, max_size=30))
def test_a_longer_makespan_never_stands_lower(times: list[int]) -> None:
    places = quantity_scale(MAKESPAN, times).places
    order = sorted(range(len(times)), key=lambda row: times[row])
    heights = [places[row] for row in order]
    assert heights == sorted(heights)
    assert all(place is not None and 0 <= place <= LAST for place in heights)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
def test_any_numbers_have_places(values: list[float]) -> None:
    scale = axis_scale("x", values)
    assert all(place is not None and 0 <= place <= LAST for place in scale.places)
    assert all(-INSET <= place <= LAST + INSET for place, _ in scale.marks)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30))
def test_no_other_point_beats_the_front(points: list[tuple[int, int]]) -> None:
    front = [points[row] for row in front_of(*zip(*points, strict=True))]
    beaten = {
        point
        for point in points
        for other in points
        if other != point and other[0] <= point[0] and other[1] <= point[1]
    }
    assert front == sorted(set(points) - beaten)


def test_a_picture_is_written_and_the_same_each_time(swept: Path, tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    for name in ("a", "b"):
        files = [str(tmp_path / f"{name}.{form}") for form in ("svg", "png")]
        assert main(["inspect", str(swept), "--svg", files[0], "--png", files[1]]) == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [(["--json"], "a picture does not support --json"), (["--top", "3"], "a picture does not support --top")],
)
def test_unknown_axes_of_a_picture_are_refused(
    words: list[str], sentence: str, swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(swept), "--svg", str(tmp_path / "x.svg"), *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_sweep_without_a_complete_point_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"tp": 1, "status": "refused", "error": "no", "bottleneck": None}
    folder = write_sweep(tmp_path / "none.sweep", ("tp",), [row])
    assert main(["inspect", str(folder), "--png", str(tmp_path / "x.png")]) == 2
    assert "no point of the sweep is complete" in capsys.readouterr().err
