"""`et-sim search`: output, kept runs and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_sweeps import TEXT, write

from et_sim.cli import main

MODEL = {
    "model_type": "gpt2",
    "n_embd": 64,
    "n_head": 4,
    "n_layer": 2,
    "vocab_size": 256,
    "n_positions": 32,
}
PLANS = """\
base:
  workload: {make: llm, model: model.json, plan: {}}
  machine: h100-dgx:4
axes:
  tp: {field: workload.plan.tp, values: [1, 2, 4]}
  dp: {field: workload.plan.dp, values: [1, 2, 4]}
  micro-batches: {field: workload.plan.micro-batches, values: [4, 2, 1]}
constraints:
  - tp * dp == 4
  - dp * micro-batches == 4
"""
SEARCH = "search:\n  minimise: [makespan_ns]\n  at-once: 1\n"


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    monkeypatch.setenv("COLUMNS", "100")


def _write(folder: Path, search: str = SEARCH) -> Path:
    (folder / "model.json").write_text(json.dumps(MODEL))
    (folder / "plans.yml").write_text(PLANS + search)
    return folder / "plans.yml"


def _search(spec: Path, *options: str) -> int:
    return main(["search", str(spec), "--out", str(spec.parent / "out"), "--workers", "1", *options])


def test_a_search_prints_the_same_as_inspect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _search(_write(tmp_path)) == 0
    printed = capsys.readouterr().out
    assert main(["inspect", str(tmp_path / "out")]) == 0
    assert printed.startswith(capsys.readouterr().out.rstrip())
    assert "points       3: 1 evaluated, 2 ruled out by their bounds" in printed
    assert main(["inspect", str(tmp_path / "out"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["search"]["front"] == [document["best"][0]["point"]]


@pytest.mark.deep
def test_a_sweep_of_the_rest_keeps_the_front(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, out = _write(tmp_path), str(tmp_path / "out")
    _search(spec, "--json")
    front = json.loads(capsys.readouterr().out)["search"]["front"]
    assert main(["sweep", str(spec), "--out", out, "--workers", "1", "--json"]) == 0
    swept = json.loads(capsys.readouterr().out)
    assert (swept["evaluated"], swept["search"]["front"]) == (3, front)
    assert swept["search"]["evaluated"] == 3
    assert main(["sweep", str(spec), "--out", str(tmp_path / "all"), "--workers", "1", "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert "search" not in alone
    assert alone["best"] == swept["best"]


@pytest.mark.parametrize(
    ("search", "why"),
    [
        ("", "this sweep has no section `search`"),
        (
            "search: {minimise: [makespan_ns], ladder: [analytical, link]}\n",
            "a sweep does not support a ladder",
        ),
    ],
)
def test_a_sweep_that_would_lose_the_front_is_refused(
    search: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _search(_write(tmp_path))
    before = (tmp_path / "out" / "sweep.arrow").read_bytes()
    assert main(["sweep", str(_write(tmp_path, search)), "--out", str(tmp_path / "out")]) == 2
    output = capsys.readouterr().err.splitlines()[-1]
    assert f"holds the results of a search, and {why} (choose another directory" in output
    assert (tmp_path / "out" / "sweep.arrow").read_bytes() == before


@pytest.mark.deep
def test_whole_runs_of_found_points_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = _write(tmp_path, SEARCH.replace("[makespan_ns]", "[makespan_ns, peak_memory_bytes]"))
    assert _search(spec, "--keep", "best:1", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    rows = {row["point"]: row for row in document["best"]}
    first = rows[document["search"]["front"][0]]
    kept = list((tmp_path / "out" / "runs").iterdir())
    assert [path.name for path in kept] == [first["digest"][:12]]
    assert json.loads((kept[0] / "summary.json").read_text())["makespan_ns"] == first["makespan_ns"]


def test_a_point_that_was_not_evaluated_cannot_be_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _search(_write(tmp_path), "--keep", "0-2") == 2
    assert "which the search did not evaluate" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "out")]) == 0  # and nothing is lost


@pytest.mark.parametrize("condition", ["makespan_ns <= 1ns", "tp == 8"])
def test_no_point_is_simulated_where_none_can_be_found(
    condition: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _search(_write(tmp_path, f"{SEARCH}  constraints: [{condition}]\n")) == 1
    printed = capsys.readouterr().out
    assert "points       3: 3 that cannot run, or cannot meet the constraints" in printed
    assert "No evaluated point meets the search's conditions." in printed


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        (TEXT, [], "has no section `search`"),
        (TEXT + SEARCH, [], "no bounds are known of these points, so the search needs a limit"),
        (TEXT + SEARCH + "  method: optuna\n", [], "optuna rules no point out, so the search needs"),
        (TEXT + SEARCH, ["--keep", "9"], "--keep names point 9"),
        (
            TEXT + SEARCH + "  method: all\n  within: 0.1\n",
            [],
            "search: `within` has no effect with method all (leave it out, or take method bounds)",
        ),
        (TEXT + SEARCH + "  method: bounds\n  seed: 1\n", [], "`seed` has no effect with method bounds"),
        (TEXT + SEARCH, ["--dask", "x", "--workers", "2"], "cannot be combined"),
        (
            TEXT.replace("base:", "base:\n  profile: corected") + SEARCH,
            [],
            "rings.yml: line 2: profile 'corected' is not known (did you mean 'corrected'?)",
        ),
    ],
)
def test_a_wrong_search_is_one_sentence(
    text: str, options: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = str(write(tmp_path, text))
    assert main(["search", spec, "--out", str(tmp_path / "out"), *options]) == 2
    output = capsys.readouterr().err.splitlines()
    assert sentence in output[-1]
    assert sum("error" in line for line in output) == 1
