"""Results of a search in pictures and pages: the points that its table names, in its order."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_sweep_pictures import DOT, write_sweep

from et_sim.basics.errors import UsageError
from et_sim.cli import main
from et_sim.tables.sweep_tables import ABOUT
from et_sim.views.sweep.charts import RING, sweep_picture
from et_sim.views.sweep.directory import open_sweep
from et_sim.views.sweep.scales import RESOURCES

ROWS: list[dict[str, Any]] = [
    {"tp": 1, "makespan_ns": 5_000_000, "peak_memory_bytes": 2**30, "exposed_comm_ns": 900},
    {"tp": 2, "makespan_ns": 3_000_000, "peak_memory_bytes": 2**31, "exposed_comm_ns": 950},
    {"tp": 4, "makespan_ns": 6_000_000, "peak_memory_bytes": 2**31, "exposed_comm_ns": 990},
    {"tp": 8, "makespan_ns": 9_000_000, "peak_memory_bytes": 2**31, "exposed_comm_ns": 100},
]
FRONT = [1, 0, 3]
CIRCLE = re.compile(r"M([\d.]+) ([\d.]+)a")


def write_search(folder: Path, front: list[int], minimise: list[str]) -> Path:
    """Write a search that found these points."""
    counts = {"evaluated": len(ROWS), "impossible": 0, "ruled_out": 2, "left": 0}
    _change(write_sweep(folder, ("tp",), ROWS), {"minimise": minimise, "front": front, **counts})
    return folder


def _change(folder: Path, search: dict[str, Any]) -> None:
    table = pa.ipc.open_file(folder / "sweep.arrow").read_all()
    about = json.loads(table.schema.metadata[ABOUT.encode()]) | {
        "search": search,
        "description": "my plans.yml",
    }
    table = table.replace_schema_metadata({ABOUT: json.dumps(about)})
    with pa.OSFile(str(folder / "sweep.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)


@pytest.fixture
def searched(tmp_path: Path) -> Path:
    """Return a search for three objectives."""
    return write_search(
        tmp_path / "some.search", FRONT, ["makespan_ns", "peak_memory_bytes", "exposed_comm_ns"]
    )


def test_every_chart_rings_the_points_that_were_found(searched: Path) -> None:
    drawn = sweep_picture(open_sweep(searched))
    charts = drawn.split('<path class="dots"')[1:]
    assert len(charts) == 3  # tp, exposed communication and peak memory
    by_time = sorted(range(len(ROWS)), key=lambda row: ROWS[row]["makespan_ns"])
    for chart in charts:
        dots = [(float(x), float(y)) for x, y in DOT.findall(chart)]
        circle = chart.split('<path class="found"')[1]
        rings = [(round(float(x) + RING, 1), float(y)) for x, y in CIRCLE.findall(circle)]
        assert rings == [dots[by_time.index(point)] for point in FRONT]
    assert "Pareto front of makespan, peak memory and exposed communication" in drawn
    assert 'class="front"' not in drawn  # of two figures alone, which were not the objective


def test_the_page_lists_the_points_that_were_found_in_order(searched: Path, tmp_path: Path) -> None:
    (tmp_path / "my plans.yml").write_text("")
    assert main(["report", str(searched), "--html", str(tmp_path / "x.html")]) == 0
    html = (tmp_path / "x.html").read_text(encoding="utf-8")
    fronts = html.split("Pareto front of makespan, peak memory and exposed communication</h2>")[1]
    assert re.findall(r'data-row="\d+">(\d+)<', fronts.split("</table>")[0]) == list(map(str, FRONT))
    assert "cannot, by their bounds" in fronts
    data = json.loads(html.split('id="points">')[1].split("</script>")[0])
    assert data["again"] == (
        f"et-sim search '{tmp_path}/my plans.yml' --out {searched} --keep "  # and a number
    )
    parallel = html.split('aria-label="parallel coordinates"')[1]
    lines = re.findall(r'<path class="(others|tenth)" d="([^"]*)"', parallel)
    assert {name: shape.count("M") for name, shape in lines} == {"others": 1, "tenth": len(FRONT)}


def test_the_best_point_of_one_objective_is_ringed(tmp_path: Path) -> None:
    drawn = sweep_picture(open_sweep(write_search(tmp_path / "one", [3], ["exposed_comm_ns"])))
    assert "point with the least exposed communication" in drawn
    assert [len(CIRCLE.findall(chart)) for chart in drawn.split('<path class="found"')[1:]] == [1, 1, 1]


def test_points_that_a_damaged_table_does_not_have_are_not_found(tmp_path: Path) -> None:
    folder = write_search(tmp_path / "some", [0, 77], ["makespan_ns", "price"])
    drawn = sweep_picture(open_sweep(folder))
    assert 'class="found"' not in drawn  # 77 is no point, and 0 has no price


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda column: column.cast(pa.float64()), "column 'makespan_ns' is of type double, not int64"),
        (
            lambda column: pa.chunked_array([pa.nulls(len(column), column.type)]),
            "its makespan_ns is not known",
        ),
    ],
)
def test_figures_that_cannot_be_are_refused(change: Any, sentence: str, searched: Path) -> None:
    path = searched / "sweep.arrow"
    table = pa.ipc.open_file(path).read_all()
    place = table.column_names.index("makespan_ns")
    table = table.set_column(place, "makespan_ns", change(table["makespan_ns"]))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)
    with pytest.raises(UsageError, match=sentence):
        open_sweep(searched)


def test_prices_are_shown_with_their_currency() -> None:
    table = pa.table({"currency": ["USD", None]})
    titles = [quantity.of(table).title for quantity in RESOURCES if quantity.is_price]
    assert titles == ["price in USD", "price per million tokens in USD"]
