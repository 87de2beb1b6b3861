"""`et-sim inspect` from the outside: views, data, and refusals."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from et_sim.cli import _wrong_figures_refused, main
from et_sim.views.view import VIEWS

pytestmark = pytest.mark.usefixtures("warm_engine")

SHOWN = [name for name in VIEWS if name not in ("layers", "critical-path", "picture")]  # of any run, as text


@pytest.mark.parametrize("view", SHOWN)
@pytest.mark.parametrize("columns", [80, 100])
def test_every_view_fits_a_terminal_and_has_no_colours(
    demo: Path, view: str, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(demo.parent)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["inspect", "run", view]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert "\x1b" not in "".join(lines)
    assert max(len(line) for line in lines) <= columns


def test_the_summary_is_the_default_view(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["inspect", str(demo)])
    default = capsys.readouterr().out
    main(["inspect", str(demo), "summary"])
    assert capsys.readouterr().out == default


def test_json_is_the_summary_file_byte_for_byte(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(demo), "--json"]) == 0
    assert capsys.readouterr().out == (demo / "summary.json").read_text(encoding="utf-8")


def test_other_views_are_data_too(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = {}
    for view in SHOWN:
        assert main(["inspect", str(demo), view, "--json"]) == 0
        content[view] = json.loads(capsys.readouterr().out)
    assert content["ranks"] == content["summary"]["per_rank"]
    assert content["stalls"] is None
    assert content["memory"] is None
    assert content["notices"]["defaults"] == content["summary"]["defaults"]
    gradient = content["ops"][0]
    assert (gradient["kind"], gradient["name"], gradient["count"]) == ("all_reduce", "layer # gradient", 96)


def test_the_picture_goes_into_the_named_file(
    demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "picture.svg"
    assert main(["inspect", str(demo), "picture", "--svg", str(target)]) == 0
    assert capsys.readouterr().out == ""
    assert target.read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize(
    "arguments", [["picture"], ["notices", "--svg", "x.svg"], ["picture", "--svg", "x.svg", "--json"]]
)
def test_options_that_do_not_fit_are_refused(
    demo: Path,
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", str(demo), *arguments]) == 2
    assert capsys.readouterr().err.startswith("et-sim: error: ")
    assert list(tmp_path.iterdir()) == []


def test_bars_are_coloured_on_a_terminal_unless_disabled(
    demo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    main(["inspect", str(demo), "ranks"])
    plain = capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    main(["inspect", str(demo), "ranks"])
    painted = capsys.readouterr().out
    assert "\x1b[34m█" in painted
    assert re.sub("\x1b\\[[0-9;]*m", "", painted) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    main(["inspect", str(demo), "ranks"])
    assert capsys.readouterr().out == plain


def test_a_part_of_a_run_is_the_same_as_text_and_as_data(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = ["--ranks", "3-5", "--window", "20ms:40ms", "--top", "2"]
    assert main(["inspect", str(demo), "ranks", *part, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [entry["ranks"] for entry in content] == ["3", "4"]
    assert all(0 < entry["compute_ns"] <= 20_000_000 for entry in content)
    assert main(["inspect", str(demo), "ranks", *part]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "only ranks 3-5 from 20 ms to 40 ms"
    assert lines[-1] == "… and 1 more line: --top"
    for view in ("summary", "groups", "ops"):
        assert main(["inspect", str(demo), view, *part]) == 0
        assert "only ranks 3-5 from 20 ms to 40 ms" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["stalls", "--top", "3"], "the view stalls does not support --top (views that do: summary, ranks, "),
        (["memory", "--window", "1ms:"], "the view memory does not support --window"),
        (["--json", "--ranks", "3"], "--json is the whole summary.json and does not support --ranks"),
        (["ranks", "--ranks", "8"], "--ranks: there is no rank 8 (the last one is 7)"),
        (["ranks", "--top", "0"], "--top: cannot show 0 lines"),
        (["ranks", "--window", "5ms"], "window '5ms' cannot be understood"),
        (["ranks", "--window", "2ms:1ms"], "window '2ms:1ms' does not end after its begin"),
        (["ranks", "--window", "1s:"], "--window: the window begins at 1 s, and the run ends at 52.42854 ms"),
        (["picture", "--window", "1s:2s", "--svg", "x.svg"], "the window begins at 1 s"),
    ],
)
def test_a_part_that_makes_no_sense_is_refused(
    demo: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(demo), *arguments]) == 2
    assert sentence in capsys.readouterr().err


def _refusal(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["inspect", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("rum", "did you mean '{run}'?"),
        ("", "runs in it: {run}"),
        ("run/timeline.arrow", "name its directory: {run}"),
        ("traces", "is not the directory of a run"),
    ],
)
def test_a_misplaced_path_is_refused_with_a_command(
    demo: Path, path: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert remedy.format(run=demo) in _refusal(demo.parent / path, capsys)


@pytest.mark.parametrize("name", ["timeline.arrow", "actors.arrow", "summary.json", "run.json"])
@pytest.mark.parametrize("how", ["missing", "cut"])
def test_an_incomplete_or_damaged_run_is_named_with_its_file(
    demo: Path, tmp_path: Path, name: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(demo, copy)
    content = (copy / name).read_bytes()
    (copy / name).unlink()
    if how == "cut":
        (copy / name).write_bytes(content[: len(content) // 2])
    refusal = _refusal(copy, capsys)
    assert name in refusal
    assert "simulate again" in refusal


@pytest.mark.parametrize("command", [("inspect",), ("sql", "SELECT name FROM timeline")])
def test_texts_that_lie_outside_of_their_dictionary_are_refused(
    demo: Path, tmp_path: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Check positions outside of the dictionary: DuckDB, which trusts the file, would read foreign memory."""
    copy = tmp_path / "copy"
    shutil.copytree(demo, copy)
    with pa.ipc.open_file(str(copy / "timeline.arrow")) as file:
        table = file.read_all()
    at, column = table.column_names.index("name"), table["name"].combine_chunks()
    outside = pa.array([10**9] * len(column), pa.int32())
    names = pa.DictionaryArray.from_arrays(outside, column.dictionary, safe=False)
    with pa.ipc.new_file(str(copy / "timeline.arrow"), table.schema) as writer:
        writer.write_table(table.set_column(at, table.schema.field(at), names))
    assert main([command[0], str(copy), *command[1:]]) == 2
    refusal = capsys.readouterr().err
    assert "timeline.arrow: cannot be read" in refusal
    assert "simulate again" in refusal


def test_figures_of_runs_that_overflow_or_mean_nothing_are_errors() -> None:
    largest = np.array([1.7e308])
    with _wrong_figures_refused():
        for wrong in (lambda: largest * 2, lambda: np.array([np.inf]) - np.inf):
            with pytest.raises(FloatingPointError):
                wrong()
