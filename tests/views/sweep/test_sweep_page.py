"""Pages of sweeps: every value and every place is that of sweep.arrow, and every point leads to its run."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from small_sweeps import write
from test_sweep_pictures import write_sweep

from et_sim.basics.units import format_bytes, format_ns
from et_sim.cli import main
from et_sim.views.sweep.scales import LAST

ROWS: list[dict[str, Any]] = [
    {
        "tp": tp,
        "net": net,
        "makespan_ns": 10**6 * (10 // tp + len(net)),
        "exposed_comm_ns": 1000 * tp,
        "peak_memory_bytes": 2**30 // tp if tp < 4 else None,
        "ranks": 8 * tp,
    }
    for tp in (1, 2, 4)
    for net in ("<ring>", "</script>")
]
FAILED = {"tp": 8, "net": "<ring>", "status": "refused", "error": "no <such> machine", "bottleneck": None}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    """Return a page, its data, and the rows of the table, the fastest first."""
    folder = tmp_path_factory.mktemp("page")
    swept = write_sweep(folder / "some.sweep", ("tp", "net"), [*ROWS, FAILED])
    assert main(["report", str(swept), "--html", str(folder / "some.html")]) == 0
    html = (folder / "some.html").read_text(encoding="utf-8")
    data = re.search(r'<script type="application/json" id="points">(.*?)</script>', html, re.DOTALL)
    assert data is not None
    with pa.OSFile(str(swept / "sweep.arrow")) as source:
        rows = pa.ipc.open_file(source).read_all().to_pylist()
    done = [row for row in rows if row["status"] == "complete"]
    return html, json.loads(data[1]), sorted(done, key=lambda row: (row["makespan_ns"], row["point"]))


def test_every_value_is_that_of_the_table(page: tuple[str, dict[str, Any], list[dict[str, Any]]]) -> None:
    _, data, rows = page
    shown = {name: [texts[at] for at in places] for name, texts, places in data["values"]}
    assert shown["point"] == [str(row["point"]) for row in rows]
    assert shown["tp"] == [str(row["tp"]) for row in rows]
    assert shown["net"] == [row["net"] for row in rows]
    assert shown["makespan"] == [format_ns(row["makespan_ns"]) for row in rows]
    assert shown["exposed communication"] == [format_ns(row["exposed_comm_ns"]) for row in rows]
    assert shown["NPUs"] == [str(row["ranks"]) for row in rows]
    peaks = [row["peak_memory_bytes"] for row in rows]
    assert shown["peak memory"] == ["" if peak is None else format_bytes(peak) for peak in peaks]


def test_every_place_is_that_of_its_value(page: tuple[str, dict[str, Any], list[dict[str, Any]]]) -> None:
    _, data, rows = page
    makespan, tp, net, npus, memory = data["scales"]
    longest = max(row["makespan_ns"] for row in rows)
    least = min(row["makespan_ns"] for row in rows)
    first = 0 if 2 * least <= longest else least - (longest - least) / 20
    spread = longest - first
    assert makespan == [round(LAST * (row["makespan_ns"] - first) / spread) for row in rows]
    assert tp == [round(LAST * math.log(row["tp"]) / math.log(4)) for row in rows]
    assert net == [0 if row["net"] == "<ring>" else LAST for row in rows]
    assert npus == [round(LAST * row["ranks"] / 32) for row in rows]
    peaks = [row["peak_memory_bytes"] for row in rows]
    assert memory == [None if peak is None else round(LAST * peak / 2**30) for peak in peaks]


def test_fronts_and_failures_are_tables(page: tuple[str, dict[str, Any], list[dict[str, Any]]]) -> None:
    html, _, rows = page
    front = re.search(r"no other point has both less NPUs.*?</table>", html, re.DOTALL)
    assert front is not None
    shown = [int(row) for row in re.findall(r'data-row="(\d+)"', front[0])]
    figures = [(row["ranks"], row["makespan_ns"]) for row in rows]
    beaten = {
        point
        for point in figures
        for two in figures
        if two != point and two[0] <= point[0] and two[1] <= point[1]
    }
    assert [figures[row] for row in shown] == sorted(set(figures) - beaten)
    assert "no &lt;such&gt; machine" in html
    assert "not complete (1)" in html
    assert html.count("</script>") == 2  # words of the table end no script


@pytest.mark.deep
def test_kept_runs_are_one_click_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    out = tmp_path / "out"
    assert main(["sweep", str(write(tmp_path)), "--out", str(out), "--workers", "1", "--keep", "best:2"]) == 0
    assert main(["report", str(out), "--html", str(tmp_path / "my page.html")]) == 0
    html = (tmp_path / "my page.html").read_text(encoding="utf-8")
    links = re.findall(r'<a href="([^"]+)">report</a>', html)
    assert len(links) == 2
    for link in links:
        assert "<h2" in (tmp_path / link.replace("%20", " ")).read_text(encoding="utf-8")
    assert ", and 2 pages of runs beside it" in capsys.readouterr().out
    next(iter(sorted((out / "runs").iterdir()))).joinpath("run.json").write_text("{")
    assert main(["report", str(out), "--html", str(tmp_path / "again.html")]) == 0
    assert "et-sim: warning: the run of point" in capsys.readouterr().err


def test_a_sweep_without_a_complete_point_has_a_page(tmp_path: Path) -> None:
    for number, rows in enumerate(([], [FAILED])):
        folder = write_sweep(tmp_path / f"{number}.sweep", ("tp", "net"), rows)
        assert main(["report", str(folder), "--html", str(tmp_path / "x.html")]) == 0
        html = (tmp_path / "x.html").read_text(encoding="utf-8")
        assert ("no &lt;such&gt; machine" in html) == bool(rows)


def test_the_overview_names_the_slowest_point(page: tuple[str, dict[str, Any], list[dict[str, Any]]]) -> None:
    html, _, rows = page
    assert rows[0]["makespan_ns"] < rows[-1]["makespan_ns"]
    assert f"<dt>the slowest point</dt><dd><b>{format_ns(rows[-1]['makespan_ns'])}</b>" in html
