"""docs/output.md describes every file and key that a run writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from timeline_page import timeline_page
from transcripts import REPOSITORY

import et_sim
from et_sim.cli import main
from et_sim.engine.state.resources import SENDING
from et_sim.tables.collective_tables import PHASES_OF_LAYERS
from et_sim.tables.registry import SERVING_TABLES
from et_sim.timeline import measurement, node_columns, rows
from et_sim.timeline.contents import events

PAGE = (REPOSITORY / "docs" / "output.md").read_text(encoding="utf-8")
MACHINE = {"system": "et_sim/workloads/demo/system.json", "network": "et_sim/workloads/demo/network.yml"}
# Keys of these are names from the traces, or kinds.
OPEN_ENDED = {"nodes_by_kind", "bytes_by_kind", "ignored_attributes"}


def _undocumented(names: set[str], page: str = PAGE) -> list[str]:
    return sorted(name for name in names if f"`{name}`" not in page)


def _keys(content: Any) -> set[str]:
    if isinstance(content, list):
        return set().union(*(_keys(entry) for entry in content))
    if not isinstance(content, dict):
        return set()
    nested = (_keys(value) for key, value in content.items() if key not in OPEN_ENDED)
    return set(content).union(*nested)


@pytest.fixture
def stalled(tmp_path: Path) -> Path:
    """Return a run directory with every file: rank 1 waits for a message that is never sent."""
    traces = []
    for rank in range(8):
        build = et_sim.TraceBuilder()
        work = build.compute("work", micros=1, outputs={"x": 8})
        if rank == 1:
            build.receive(0, 64, after=[work])
        traces.append(build.build())
    et_sim.write_workload(et_sim.Workload.of(traces), tmp_path / "stuck")
    system = json.loads((REPOSITORY / MACHINE["system"]).read_text(encoding="utf-8"))
    (tmp_path / "system.json").write_text(json.dumps({**system, "track-local-mem": 1}), encoding="utf-8")
    machine = {**MACHINE, "system": str(tmp_path / "system.json")}
    options = [f"--{name}={REPOSITORY / path}" for name, path in machine.items()]
    options += ["--detail=path,messages,links", f"--out={tmp_path / 'run'}"]
    assert main(["run", str(tmp_path / "stuck"), *options]) == 1
    return tmp_path / "run"


def test_every_file_is_described(stalled: Path) -> None:
    assert _undocumented({path.name for path in stalled.iterdir()}) == []


@pytest.fixture
def layers(tmp_path: Path) -> Path:
    """Return the run of a layer file."""
    (tmp_path / "layers.txt").write_text("DATA 1 l -1 100 NONE 0 100 NONE 0 100 ALLREDUCE 65536 5")
    options = [f"--{name}={REPOSITORY / path}" for name, path in MACHINE.items()]
    assert main(["run", str(tmp_path / "layers.txt"), *options, "--out", str(tmp_path / "run")]) == 0
    return tmp_path / "run"


def test_every_file_of_a_layer_file_s_run_is_described(layers: Path) -> None:
    assert _undocumented({path.name for path in layers.iterdir()}) == []


@pytest.mark.parametrize("name", ["summary.json", "run.json", "stall.json"])
def test_every_key_is_described(stalled: Path, name: str) -> None:
    section = PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]
    content = json.loads((stalled / name).read_text(encoding="utf-8"))
    assert _undocumented(set(content) | content.get("configuration", {}).keys(), section) == []
    content.pop("configuration", None)  # whose other keys are those of the machine's files
    assert _undocumented(_keys(content) - {"file", "sha256"}, PAGE + timeline_page()) == []


def test_every_word_in_the_columns_is_described() -> None:
    not_simulated = {"reduce", "gather", "scatter", "reduce_scatter_block", "barrier"}
    words = {*rows.TREATMENT_NAMES, *rows.START_CAUSES, *rows.END_CAUSES}
    words |= {*node_columns.LANE_NAMES, *node_columns.KIND_NAMES}
    words |= {*measurement.EVENTS, *events.CAUSE_NAMES, *PHASES_OF_LAYERS, *events.SENT_NAMES, SENDING}
    assert _undocumented(words - not_simulated, PAGE + timeline_page()) == []


def test_all_that_serving_writes_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "gpt2", "--layers", "1", "--machine", "h100-dgx:2", "--prefill-replicas", "1"]
    limits = ["--decode-replicas", "1", "--ttft", "1s", "--tpot", "1s", "--json"]
    assert main(["serve", "poisson:1,2,3,4", *words, *limits, "--out", str(tmp_path / "out")]) == 0
    columns = {column.name for table in SERVING_TABLES for column in table.columns}
    manifest = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))
    page = PAGE.partition("## Serving")[2]
    assert not _undocumented(_keys(json.loads(capsys.readouterr().out)) - {"name"}, page)
    assert not _undocumented(columns | set(manifest) - {"et_sim"}, page)
    described = {
        f"| `{column.name}` | {column.meaning} |" for table in SERVING_TABLES for column in table.columns
    }
    assert described <= set(page.splitlines())
