"""The notebook's cells give what it shows; results are at home in notebooks, with or without frames."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from notebook import outputs_of
from transcripts import REPOSITORY

import et_sim
from et_sim.errors import UsageError

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


@pytest.fixture(scope="module")
def result() -> Any:
    build = et_sim.TraceBuilder()
    build.compute("<b>&", micros=5)
    build.collective("all_reduce", 1024)
    system = {"scheduling-policy": "FIFO", "all-reduce-implementation": ["ring"], "local-mem-bw": 50}
    network = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
    return et_sim.simulate(et_sim.Workload.of([build.build()] * 4), system=system, network=network)


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
