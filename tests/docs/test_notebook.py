"""The notebook's cells give the outputs shown; results are displayed with or without pandas."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from machines import FIFO_RING, RING_4, ring
from notebook import outputs_of
from transcripts import REPOSITORY

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.views import open_run
from et_sim.views.summary.parts import PARTS

pytestmark = pytest.mark.usefixtures("warm_engine")
NOTEBOOK = REPOSITORY / "docs" / "notebook.ipynb"


def test_every_cell_gives_the_outputs_that_are_shown(tmp_path: Path) -> None:
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    shown = [cell["outputs"] for cell in content["cells"] if cell["cell_type"] == "code"]
    assert outputs_of(content["cells"], tmp_path) == shown, (
        "python tests/docs/notebook.py docs/notebook.ipynb"
    )


def test_the_notebook_runs_without_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    test_every_cell_gives_the_outputs_that_are_shown(tmp_path)


@pytest.mark.deep
def test_jupyter_gives_the_outputs_that_are_shown(tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    shown = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    nbformat.validate(executed := nbformat.read(NOTEBOOK, as_version=4))
    nbclient.NotebookClient(executed, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell, again in zip(shown["cells"], executed.cells, strict=True):
        assert _joined(cell.get("outputs", ())) == _joined(again.get("outputs", ()))


def _joined(outputs: Any) -> tuple[str, dict[str, Any]]:
    """Return the text that cells print, joined, and the data of their last expressions."""
    text = "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")
    data: dict[str, Any] = {}
    for output in outputs:
        data |= {kind: "".join(content) for kind, content in output.get("data", {}).items()}
    return text, data


def test_the_notebook_needs_no_package_index() -> None:
    assert "pip install et-sim" not in NOTEBOOK.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def result() -> Any:
    build = et_sim.TraceBuilder()
    build.compute("<b>&", micros=5)
    build.collective("all_reduce", 1024)
    return et_sim.simulate(et_sim.Workload.of([build.build()] * 4), system=FIFO_RING, network=RING_4)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("table", ["timeline", "actors"])
def test_frames_hold_the_rows_of_the_tables(result: Any, library: str, table: str) -> None:
    pytest.importorskip(library)
    frame = getattr(result, f"to_{library}")(table)
    column = "end_ns" if table == "timeline" else "finish_ns"
    expected = result.timeline if table == "timeline" else result.table("actors")
    assert list(frame[column]) == expected[column].to_pylist()
    assert list(frame.columns) == expected.column_names


def test_a_frame_without_its_library_or_table_is_refused(
    result: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="did you mean 'timeline'"):
        result.to_polars("timelin")
    with pytest.raises(UsageError, match=r"no table 'phases' \(simulate with --detail phases\)"):
        result.to_polars("phases")
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(UsageError, match=f"{name} is not installed"):
            getattr(result, f"to_{name}")()


def test_a_result_shows_itself_as_html(result: Any) -> None:
    shown = result._repr_html_()
    assert "<b>makespan" in shown
    assert "<td>0-3</td>" in shown
    assert shown.count("<tr>") == 2


def test_a_result_of_many_unlike_ranks_is_one_screen() -> None:
    builds = [et_sim.TraceBuilder() for _ in range(300)]
    for rank, build in enumerate(builds):
        build.compute(micros=1 + rank)
    system = {"profile": "corrected", "scheduling-policy": "FIFO", "local-mem-bw": 50}
    network = ring(300)
    workload = et_sim.Workload.of([build.build() for build in builds])
    shown = repr(et_sim.simulate(workload, system=system, network=network)).splitlines()
    assert shown[0] == "makespan 300 µs · 300 ranks, 300 simulated · analytical network, corrected profile"
    assert shown[2].split() == ["299", "300", "µs", "300", "µs", *["0", "ns"] * 4]
    assert shown[-1] == "… and 292 lines of faster ranks"
    assert len(shown) <= 24
    assert all(len(line) <= 100 for line in shown)


def test_a_result_is_saved_as_the_command_line_writes_it(result: Any, tmp_path: Path) -> None:
    assert result.save(tmp_path / "run") == tmp_path / "run"
    saved = open_run(tmp_path / "run")
    assert saved.summary == result.summary()
    assert saved.table("timeline").to_pylist() == result.timeline.to_pylist()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(UsageError, match="is not empty"):
        result.save(tmp_path / "other")


def test_figures_of_ranks_are_attributes_of_the_result(result: Any) -> None:
    [entry] = result.summary()["per_rank"]
    for part in PARTS:
        if part.figure != "exposed_memory_ns":
            assert getattr(result, part.figure).tolist() == [entry[part.figure]] * 4
    assert result.transfer_ns.tolist() == [entry["transfer_ns"]] * 4
    assert result.reference_exposed_ns.tolist() == [entry["reference_exposed_ns"]] * 4


def test_the_critical_path_is_there_if_it_was_recorded(result: Any) -> None:
    with pytest.raises(UsageError, match=r'simulate again with detail="path"'):
        result.critical_path()
    build = et_sim.TraceBuilder()
    build.compute("work", micros=3, after=[build.collective("all_reduce", 1024)])
    system = {"profile": "corrected", "scheduling-policy": "FIFO", "all-reduce-implementation": ["ring"]}
    workload = et_sim.Workload.of([build.build()] * 4)
    outcome = et_sim.simulate(workload, system=system, network=RING_4, detail="path").critical_path(top=3)
    assert sum(outcome["causes"].values()) == outcome["makespan_ns"]
    assert outcome["operations"][-1] == {"kind": "compute", "name": "work", "group": None, "ns": 3000}
