"""The page and the picture of a comparison have the figures of the files of both runs."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from machines import FIFO_RING, network, ring
from pyarrow import feather
from runs_to_show import layered, run_written

import et_sim
from et_sim.basics.units import parse_ranks
from et_sim.cli import main
from et_sim.views import open_run
from et_sim.views.compare.changes import averages, compare, main_change
from et_sim.views.compare.pairs import most_different
from et_sim.views.drawing.network import dimensions
from et_sim.views.drawing.scene import LEFT, PIXELS
from et_sim.views.drawing.timeline import aligned_picture
from et_sim.views.report import compare_page
from et_sim.views.report.compare_page import compare_report
from et_sim.views.summary.parts import PARTS
from et_sim.views.summary.phase_totals import phase_totals

pytestmark = pytest.mark.usefixtures("warm_engine")


def _run(folder: Path, ranks: int, bandwidth: int, **options: Any) -> Path:
    micros = [10 + 7 * (rank == 1) for rank in range(ranks)]
    workload = et_sim.Workload.of(
        [layered(work_us, names=("work {}", "sum <b>"), size=1 << 18) for work_us in micros]
    )
    return run_written(folder, workload, ring(ranks, f"{bandwidth}GB/s"), **options)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("compare-page")
    return {
        "slow": _run(folder / "slow", 4, 25),
        "fast": _run(folder / "fast", 4, 50, fold=False),
        "wide": _run(folder / "wide", 6, 50),
    }


def _actors(path: Path) -> dict[int, int]:
    rows = feather.read_table(path / "actors.arrow").to_pylist()
    return {rank: row["actor"] for row in rows for span in parse_ranks(row["ranks"]) for rank in span}


def _ends(path: Path, actor: int) -> dict[int, int]:
    rows = feather.read_table(path / "timeline.arrow").to_pylist()
    return {row["node"]: row["end_ns"] for row in rows if row["actor"] == actor}


def test_marks_stand_where_ranks_begin_to_differ_and_lines_where_runs_end(runs: dict[str, Path]) -> None:
    comparison = compare(open_run(runs["slow"]), open_run(runs["fast"]))
    drawn = ElementTree.fromstring(aligned_picture(comparison))
    paths = [element for element in drawn.iter() if element.tag.endswith("path")]
    marks = [float(path.attrib["d"][1:].split()[0]) for path in paths if path.get("class") == "parting"]
    whole, expected = max(comparison.makespans_ns), []
    of_rank = _actors(runs["slow"]), _actors(runs["fast"])
    seen = dict.fromkeys((of_rank[0][rank], of_rank[1][rank]) for rank in range(4))
    for in_a, in_b in seen:
        a, b = _ends(runs["slow"], in_a), _ends(runs["fast"], in_b)
        first = min(min(a[node], b[node]) for node in a if a[node] != b[node])
        expected.append(round(LEFT + PIXELS * first / whole, 1))
    assert marks == expected
    dashed = [float(path.attrib["d"][1:].split()[0]) for path in paths if path.get("stroke-dasharray")]
    assert dashed == [round(LEFT + PIXELS * end / whole, 2) for end in comparison.makespans_ns]


@pytest.mark.parametrize("other", ["fast", "wide", "slow"])
def test_rows_of_ranks_are_those_that_both_runs_have(runs: dict[str, Path], other: str) -> None:
    pairs, count = most_different(open_run(runs["slow"]), open_run(runs[other]), 99)
    of_rank = _actors(runs["slow"]), _actors(runs[other])
    expected: dict[tuple[int, int], list[int]] = {}
    for rank in range(4):
        expected.setdefault((of_rank[0][rank], of_rank[1][rank]), []).append(rank)
    named = {pair.actors: [r for span in parse_ranks(pair.ranks) for r in span] for pair in pairs}
    assert named == expected
    assert count == len(expected)


def test_the_page_gives_the_cause_and_shows_every_part(runs: dict[str, Path]) -> None:
    comparison = compare(open_run(runs["slow"]), open_run(runs["fast"]))
    for run in (comparison.a, comparison.b):
        assert sum(averages(run).values()) == pytest.approx(run.summary["makespan_ns"], abs=len(PARTS))
    page = compare_report(comparison)
    assert "B takes " in main_change(comparison)
    assert "less of exposed communication" in main_change(comparison)
    assert "<b>" not in re.sub(r"<b>[0-9][^<]*</b>", "", page)  # names are escaped
    for name in ("headline", "timeline", "ranks", "operations", "groups", "inputs"):
        assert f'<section id="{name}"' in page
    assert page.count("<tbody>") == page.count("</tbody>")
    assert compare_report(comparison) == page


def test_the_legend_names_an_activity_that_one_of_the_runs_has(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.collective("all_reduce", 1 << 18)
    without = run_written(tmp_path / "without", et_sim.Workload.of([build.build()] * 4), ring(4))
    alike = layered(10, size=1 << 18)
    run_written(tmp_path / "with", et_sim.Workload.of([alike] * 4), ring(4))
    either = [open_run(path) for path in (without, tmp_path / "with")]
    figures = [averages(run) for run in either]
    page = compare_report(compare(*either))
    [legend] = re.findall('<ul class="legend">(.*?)</ul>', page)
    for part in PARTS:
        assert (f'class="{part.short}"' in legend) == any(each[part.figure] for each in figures)
    assert figures[0]["compute_ns"] == 0 < figures[1]["compute_ns"]


def test_the_page_of_runs_with_other_ranks_shows_comparable_parts(runs: dict[str, Path]) -> None:
    page = compare_report(compare(open_run(runs["slow"]), open_run(runs["wide"])))
    assert "A has 4 ranks, B 6 ranks: shown are ranks that both have" in page
    assert "Ranks are not compared one by one: the runs have 4 and 6 of them" in page
    assert 'class="parting"' not in page
    assert "all_reduce" in page


def test_a_run_and_itself_take_as_long(runs: dict[str, Path]) -> None:
    comparison = compare(open_run(runs["slow"]), open_run(runs["slow"]))
    assert main_change(comparison) == "every operation, group and rank took as long in both"
    assert 'class="parting"' not in aligned_picture(comparison)


def test_files_do_not_change_the_exit_status(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, picture = tmp_path / "change.html", tmp_path / "change.svg"
    slower = ["compare", str(runs["fast"]), str(runs["slow"]), "--threshold", "1%"]
    assert main([*slower, "--html", str(page), "--svg", str(picture)]) == 1
    assert "open it in a browser" in capsys.readouterr().out
    assert ElementTree.fromstring(picture.read_text()).tag.endswith("svg")
    assert "<!DOCTYPE html>" in page.read_text()
    assert main([*slower, "--html", str(page), "--json"]) == 2


def _tensor_and_data(folder: Path, bandwidth: int, *, halves: bool = False, **options: Any) -> Path:
    """Run sums of pairs along dimension 0 and of fours along dimension 1, or of halves along both."""
    traces = []
    for rank in range(8):
        build = et_sim.TraceBuilder()
        build.collective("all_reduce", 1 << 20, group=f"tensor {rank // 2}")
        build.collective("all_reduce", 1 << 20, group=f"data {rank % 2}")
        build.collective("all_reduce", 1 << 20)
        if halves:
            build.collective("all_reduce", 1 << 20, group=f"half {rank // 4}")
        traces.append(build.build())
    groups = {f"tensor {pair}": [2 * pair, 2 * pair + 1] for pair in range(4)}
    groups |= {f"data {first}": list(range(first, 8, 2)) for first in range(2)}
    groups |= {f"half {half}": [*range(4 * half, 4 * half + 4)] for half in range(2)} if halves else {}
    rings = network(["Ring", "Ring"], [2, 4], ["50GB/s", f"{bandwidth}GB/s"])
    system = FIFO_RING | {"all-reduce-implementation": ["ring", "ring"]}
    workload = et_sim.Workload.of(traces)
    return run_written(folder, workload, rings, system, groups=groups, detail="phases", **options)


@pytest.mark.parametrize("fold", [True, False])
def test_a_faster_dimension_is_the_one_whose_phases_take_less(tmp_path: Path, fold: bool) -> None:
    runs = [_tensor_and_data(tmp_path / str(rate), rate, fold=fold) for rate in (25, 50)]
    comparison = compare(*map(open_run, runs))
    assert comparison.dimensions is not None
    changes = {change.name: change.difference_ns for change in comparison.dimensions}
    assert changes[("0",)] == 0
    assert changes[("1",)] < 0
    for run in runs:
        rows = feather.read_table(run / "phases.arrow").to_pylist()
        of_group = {(row["node"], row["dimension"]) for row in rows}
        tensor, data, every = sorted({node for node, _ in of_group})
        assert of_group == {(tensor, 0), (data, 1), (every, 0), (every, 1)}


def test_phases_that_cross_several_dimensions_at_once_are_of_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [_tensor_and_data(tmp_path / str(rate), rate, halves=True) for rate in (25, 50)]
    opened = [open_run(run) for run in runs]
    for run in opened:
        rows = run.table("phases").to_pylist()
        both = {node for node, of in _dimensions_of_nodes(rows).items() if of == {None}}
        [node] = both
        named = [row for row in run.table("timeline").to_pylist() if row["node"] == node]
        assert {row["group"] for row in named} <= {"half 0", "half 1"}
        heat = dimensions(run)
        assert heat is not None
        assert heat.names == ("dimension 0", "dimension 1", "several at once")
        totals = phase_totals(run)
        assert totals is not None
        assert list(dict.fromkeys(total.dimension for total in totals)) == [0, 1, None]
    changes = compare(*opened).dimensions
    assert changes is not None
    assert {change.name for change in changes} == {("0",), ("1",), ("several",)}
    assert main(["inspect", str(runs[0]), "phases"]) == 0
    assert "several: of groups whose members differ in several dimensions" in capsys.readouterr().out.replace(
        "\n", " "
    )


def _dimensions_of_nodes(rows: list[dict[str, Any]]) -> dict[int, set[int | None]]:
    dimensions_of: dict[int, set[int | None]] = {}
    for row in rows:
        dimensions_of.setdefault(row["node"], set()).add(row["dimension"])
    return dimensions_of


def test_tiers_have_the_figures_of_their_run_those_whose_use_differs_most_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uses: dict[str, list[Any]] = {
        "A": [("leaf", 1000, 0.5), ("rail", 3000, 0.25), ("host", 4000, 0.125)],
        "B": [("leaf", 7000, 0.375), ("rail", 2000, 0.75), ("spine", 5000, 0.125)],
    }
    monkeypatch.setattr(compare_page, "link_table", lambda run: run)
    monkeypatch.setattr(
        compare_page,
        "tier_uses",
        lambda run, _links, _slices: [
            SimpleNamespace(tier=tier, bytes=size, used=used) for tier, size, used in uses[run]
        ],
    )
    either: Any = SimpleNamespace(a="A", b="B")
    rows = [re.findall(r"<td[^>]*>([^<]*)", row) for row in compare_page._links(either).split("<tr>")]
    assert [row for row in rows if row] == [
        ["rail", "3,000", "2,000", "25 %", "75 %"],
        ["host", "4,000", "-", "12 %", "-"],
        ["leaf", "1,000", "7,000", "50 %", "38 %"],
        ["spine", "-", "5,000", "-", "12 %"],
    ]
