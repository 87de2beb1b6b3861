"""`et-sim sql`: every table is a view, answers are complete in every form, refusals are sentences."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from machines import ring
from pyarrow import feather
from runs_to_show import layered, run_written

import et_sim
from et_sim.cli import main
from et_sim.tables.registry import table_named
from et_sim.views import open_run
from et_sim.views.sql import FIGURES_OF_RUN, Database

pytestmark = pytest.mark.usefixtures("warm_engine")

RANKS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run in which six ranks are one actor."""
    workload = et_sim.Workload.of([layered(10)] * RANKS)
    folder = run_written(tmp_path_factory.mktemp("sql") / "run", workload, ring(RANKS, "50GB/s"))
    assert feather.read_table(folder / "actors.arrow").num_rows == 1
    return folder


def _queried(folder: Path, query: str, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["sql", str(folder), query, *options]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def _refused(folder: Path, query: str, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["sql", str(folder), query, *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err.removeprefix("et-sim: error: ").removesuffix("\n")


def test_text_is_aligned_with_numbers_to_the_right(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT kind, count(*) AS n, NULL AS none, 0.5 AS half FROM timeline GROUP BY ALL ORDER BY ALL"
    assert _queried(folder, query, capsys).splitlines() == [
        "kind        n  none  half",
        "all_reduce  3  -      0.5",
        "compute     3  -      0.5",
    ]


def test_every_rank_is_a_row_of_the_view_of_ranks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(
        _queried(folder, "SELECT rank, actor, finish_ns FROM ranks ORDER BY rank", capsys, "--json")
    )
    assert [row["rank"] for row in rows] == list(range(RANKS))
    assert {row["actor"] for row in rows} == {0}
    assert len({row["finish_ns"] for row in rows}) == 1


def test_the_timeline_of_a_rank_is_that_of_its_actor(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "SELECT node, end_ns FROM timeline JOIN ranks USING (actor) WHERE rank = 4 ORDER BY node"
    rows = feather.read_table(folder / "timeline.arrow").select(["node", "end_ns"]).to_pylist()
    assert json.loads(_queried(folder, query, capsys, "--json")) == rows


@pytest.mark.deep
def test_a_million_ranks_are_counted_without_a_million_timelines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = 1 << 20
    build = et_sim.TraceBuilder()
    build.compute("work", micros=1)
    run_written(tmp_path / "run", et_sim.Workload.of([build.build()] * ranks), ring(ranks, "50GB/s"))
    query = "SELECT count(*) AS n, max(rank) AS last FROM ranks JOIN timeline USING (actor) WHERE node = 0"
    assert json.loads(_queried(tmp_path / "run", query, capsys, "--json")) == [
        {"n": ranks, "last": ranks - 1}
    ]


def test_results_fit_the_terminal_and_name_columns_that_do_not(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["sql", str(folder), "SELECT * FROM timeline"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    notice = " ".join(lines[next(at for at, line in enumerate(lines) if line.startswith("no room")) :])
    shown = lines[0].split()
    assert shown[:3] == ["actor", "node", "name"]
    hidden = notice.removeprefix("no room for ").partition(":")[0].split(", ")
    assert [*shown, *hidden] == list(table_named("timeline").column_names)


def test_csv_json_and_arrow_hold_the_same(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "SELECT node, name, kind, sequence, end_ns FROM timeline ORDER BY node"
    as_json = json.loads(_queried(folder, query, capsys, "--json"))
    as_csv = list(csv.DictReader(io.StringIO(_queried(folder, query, capsys, "--csv"))))
    assert _queried(folder, query, capsys, "--arrow", str(tmp_path / "a.arrow")) == ""
    assert feather.read_table(tmp_path / "a.arrow").to_pylist() == as_json
    texts = [{name: "" if value is None else str(value) for name, value in row.items()} for row in as_json]
    assert as_csv == texts


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_named_file_holds_the_printed_text(
    folder: Path, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "SELECT node, name FROM timeline ORDER BY node"
    printed = _queried(folder, query, capsys, f"--{form}")
    assert _queried(folder, query, capsys, f"--{form}", str(tmp_path / "file")) == ""
    assert (tmp_path / "file").read_text(encoding="utf-8") == printed


def test_sums_are_plain_integers_in_arrow(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "sums.arrow"
    assert main(["sql", str(folder), "SELECT sum(bytes) AS total FROM timeline", "--arrow", str(target)]) == 0
    table = feather.read_table(target)
    assert str(table.schema.field("total").type) == "int64"
    assert table.to_pylist() == [{"total": 3 << 20}]


def test_a_sum_beyond_64_bits_is_refused_in_arrow_and_leaves_no_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "sums.arrow"
    query = "SELECT sum(9223372036854775807) AS total FROM timeline"
    assert "does not fit 64 bits" in _refused(folder, query, capsys, "--arrow", str(target))
    assert list(tmp_path.iterdir()) == []


def test_long_answers_are_cut_on_the_screen_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT * FROM range(1000)"
    lines = _queried(folder, query, capsys).splitlines()
    assert len(lines) == 202
    assert lines[-1] == "… and more rows than these 200: --csv, --json and --arrow give all"
    assert len(json.loads(_queried(folder, query, capsys, "--json"))) == 1000


def test_an_answer_without_rows_is_still_an_answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT node FROM timeline WHERE actor = 99"
    assert _queried(folder, query, capsys) == "node\n"
    assert _queried(folder, query, capsys, "--csv") == "node\n"
    assert json.loads(_queried(folder, query, capsys, "--json")) == []


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (
            "SELECT * FROM timelin",
            "there is no table 'timelin' (did you mean 'timeline'?; tables: timeline, ",
        ),
        ("SELECT foo FROM actors", "there is no column 'foo' (columns of actors: actor, ranks, rank_count, "),
        ("SELECT t.foo FROM timeline t", "there is no column 'foo' (columns of timeline: actor, node, "),
        ("SELECT * FROM phases", "this run has no table 'phases' (simulate with --detail phases)"),
        (
            "SELECT group FROM timeline",
            "the query is not SQL near 'FROM' (the column \"group\" is written in ",
        ),
        ("SELECT count(", "the query is not SQL near '(' (tables: "),
        ("", "the query is empty (give one query that begins with SELECT)"),
        ("-- nothing", "the query is empty (give one query that begins with SELECT)"),
        ("SELECT 1; SELECT 2", "these are 2 statements (give one query that begins with SELECT)"),
        ("DROP VIEW ranks", "a run is queried with SELECT, not DROP (give one query that begins"),
        ("SELECT * FROM '/etc/passwd'", "there is no table '/etc/passwd' (tables: "),
        ("SELECT * FROM read_csv('/etc/passwd')", "a query reads these tables and nothing else"),
        ("SELECT name::INTEGER FROM timeline", "the query cannot be answered: "),
        ("SELECT frobnicate(1)", "the query cannot be answered: "),
        ("SELECT query FROM database", "there is no table 'database'"),
    ],
)
def test_refusals_list_tables_and_columns(
    folder: Path, query: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _refused(folder, query, capsys).startswith(sentence)


def test_two_columns_of_one_name_are_refused_where_one_would_be_lost(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "two columns are called 'a'" in _refused(folder, "SELECT 1 AS a, 2 AS a", capsys, "--json")
    assert _queried(folder, "SELECT 1 AS a, 2 AS a", capsys, "--csv") == "a,a\n1,2\n"


def test_outputs_that_cannot_be_written_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot be written" in _refused(folder, "SELECT 1", capsys, "--csv", str(folder / "no" / "file"))
    assert "--arrow needs a file" in _refused(folder, "SELECT 1", capsys, "--arrow")


def test_a_damaged_table_is_named(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "timeline.arrow").write_bytes((folder / "timeline.arrow").read_bytes()[:500])
    assert "timeline.arrow: cannot be read" in _refused(tmp_path, "SELECT 1", capsys)


def test_tables_and_views_have_the_names_of_their_columns(folder: Path) -> None:
    with Database(open_run(folder)) as database:
        assert database.tables["actors"][:3] == ("actor", "ranks", "rank_count")
        assert database.tables["run"] == (*FIGURES_OF_RUN, "actors")
