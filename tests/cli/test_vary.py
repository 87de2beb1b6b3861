"""`inspect RUN critical-path --vary` simulates again with figures of the machine changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import RING_2, sent

import et_sim
from et_sim.cli import main

pytestmark = pytest.mark.usefixtures("warm_engine")

SYSTEM = {"scheduling-policy": "FIFO", "profile": "corrected", "endpoint-delay": 10}
GRAPH = {
    "graph": {"generator": "leaf-spine", "leaves": 2, "spines": 1, "npus-per-leaf": 2, "bandwidth": "50GB/s"},
    "links": [],
    "routing": "ecmp",
}
SIZE = 1_000_000


def _run(folder: Path, model: str, *more: str) -> Path:
    """Send from ranks 0 and 1 to 2 and 3 over one link of the spine, after a computation on 0."""
    et_sim.write_workload(sent(4, [(0, 2, SIZE), (1, 3, SIZE)]), folder / "job")
    for name, content in (("system.json", SYSTEM), ("network.yml", GRAPH)):
        (folder / name).write_text(json.dumps(content))
    machine = [f"--system={folder / 'system.json'}", f"--network={folder / 'network.yml'}"]
    written = f"--out={folder / 'run'}"
    assert main(["run", str(folder / "job"), *machine, f"--network-model={model}", written, *more]) == 0
    return folder / "run"


def _varied(run: Path, capsys: pytest.CaptureFixture[str], *wanted: str) -> Any:
    capsys.readouterr()
    assert main(["inspect", str(run), "critical-path", "--json", "--vary", *wanted]) == 0
    return json.loads(capsys.readouterr().out)


def _refused(run: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    capsys.readouterr()
    assert main(["inspect", str(run), "critical-path", *options]) == 2
    return capsys.readouterr().err


def test_on_the_flow_model_differences_match_closed_forms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Vary two messages that share the link over the spine, each at half of 50 bytes per ns."""
    run = _run(tmp_path, "flow")
    assert json.loads((run / "summary.json").read_text())["makespan_ns"] == 2 * SIZE // 50
    [up, half, edge] = _varied(
        run,
        capsys,
        "bandwidth of leaf to spine=2",
        "bandwidth of leaf to spine=0.5",
        "bandwidth of NPUs to leaf=0.25",
    )
    # The links into the spine are twice as fast: those out of it still are not.
    assert (up["change_ns"], half["makespan_ns"]) == (0, 2 * SIZE * 2 // 50)
    assert (edge["makespan_ns"], edge["multiple"]) == (SIZE * 4 // 50, 0.25)


@pytest.mark.parametrize("model", ["analytical", "link"])
def test_without_names_every_figure_is_a_tenth_more_and_less(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _run(tmp_path, model)
    result = _varied(run, capsys)
    assert {line["multiple"] for line in result} == {1.1, 0.9}
    figures = {line["figure"] for line in result}
    assert "time of all kernels" not in figures  # nothing computes
    assert {"bandwidth of NPUs to leaf", "bandwidth of spine to leaf", "endpoint delay"} <= figures
    for entry in result:
        if entry["figure"].startswith("bandwidth"):
            assert (entry["change_ns"] <= 0) == (entry["multiple"] > 1) or entry["change_ns"] == 0
    assert main(["inspect", str(run), "critical-path", "--vary", "--top", "1"]) == 0
    text = capsys.readouterr().out
    assert "more figures: --top" in text
    assert "Finite differences" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_invalid_changes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = _run(tmp_path, "flow")
    assert "no figure 'bandwidth of leaf to spin'" in _refused(
        run, capsys, "--vary", "bandwidth of leaf to spin=2"
    )
    assert "did you mean 'bandwidth of leaf to spine'?" in _refused(
        run, capsys, "--vary", "bandwidth of leaf to spin=2"
    )
    for wrong in ("endpoint delay", "endpoint delay=fast", "endpoint delay=0", "=2", "endpoint delay=nan"):
        assert "FIGURE=FACTOR" in _refused(run, capsys, "--vary", wrong)
    assert "it is too small" in _refused(run, capsys, "--vary", "endpoint delay=1.01")
    assert "--vary and --verify cannot be combined" in _refused(run, capsys, "--vary", "--verify")
    (tmp_path / "job.0.et").unlink()
    assert "cannot be simulated again" in _refused(run, capsys, "--vary", "endpoint delay=2")


def test_changed_inputs_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = _run(tmp_path, "link")
    (tmp_path / "system.json").write_text(json.dumps(SYSTEM | {"endpoint-delay": 20}))
    assert "system.json has changed since the run" in _refused(run, capsys, "--vary", "endpoint delay=2")


ARRAY = {
    "model": "systolic",
    "array-height": 16,
    "array-width": 16,
    "ifmap-sram-kb": 64,
    "filter-sram-kb": 64,
    "ofmap-sram-kb": 64,
    "dataflow": "os",
    "bandwidth": 10,
}


def _systolic_run(folder: Path, *more: str, **array: Any) -> Path:
    """Run one rank with a product whose rows are four folds of the array."""
    build = et_sim.TraceBuilder()
    build.compute("product", layer_shape="gemm 64 16 100")
    et_sim.write_workload(et_sim.Workload.of([build.build()] * 2), folder / "job")
    compute = {name: value for name, value in (ARRAY | array).items() if value is not None}
    for name, content in (("system.json", SYSTEM | {"compute": compute}), ("network.yml", RING_2)):
        (folder / name).write_text(json.dumps(content))
    files = [f"--system={folder / 'system.json'}", f"--network={folder / 'network.yml'}"]
    assert main(["run", str(folder / "job"), *files, f"--out={folder / 'run'}", *more]) == 0
    return folder / "run"


def test_figures_of_an_array_are_varied_by_closed_forms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _systolic_run(tmp_path, bandwidth=None)
    wanted = ("array height=2", "array width=0.5", "array clock=2", "array height=1.1")
    results = {line["figure"]: line for line in _varied(run, capsys, *wanted[:3])}
    assert results["array height"]["makespan_ns"] == 2 * (100 + 32 + 16 - 2) - 1
    assert results["array width"]["makespan_ns"] == 8 * (100 + 16 + 8 - 2) - 1
    assert results["array clock"]["makespan_ns"] == (4 * (100 + 16 + 16 - 2) - 1) // 2
    assert _varied(run, capsys, wanted[3])[0]["multiple"] == 18 / 16
    assert "no figure 'DRAM bandwidth'" in _refused(run, capsys, "--vary", "DRAM bandwidth=2")
    assert "it is too small" in _refused(run, capsys, "--vary", "array width=1.01")


@pytest.mark.deep
def test_memories_and_bandwidth_of_an_array_are_figures_where_bandwidth_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _systolic_run(tmp_path, "--detail=path", **{"ifmap-sram-kb": 2})
    results = {
        (line["figure"], line["multiple"]): line["change_ns"] for line in _varied(run, capsys, "--top=99")
    }
    assert results["DRAM bandwidth", 1.1] < 0 < results["DRAM bandwidth", 0.9]
    assert {name for name, _ in results} >= {"array height", "array width", "array clock"}
    more = ("ifmap SRAM=4", "filter SRAM=2", "ofmap SRAM=0.5")
    assert [line["change_ns"] <= 0 for line in _varied(run, capsys, *more)] == [True] * 3
    capsys.readouterr()
    assert main(["inspect", str(run), "critical-path", "--json"]) == 0
    predicted = {load["parameter"] for load in json.loads(capsys.readouterr().out)["sensitivities"]}
    assert "time of product" in predicted
    assert not predicted & {"peak compute", "local memory bandwidth"}


def _on_ring(folder: Path, bandwidth: int, name: str) -> Path:
    """Run one message on a machine that states its accuracy."""
    et_sim.write_workload(sent(2, [(0, 1, SIZE)]), folder / "job")
    (folder / "accurate.json").write_text(json.dumps(SYSTEM | {"accuracy": {}}))
    network = {**RING_2, "bandwidth": [bandwidth]}
    (folder / f"{name}.json").write_text(json.dumps(network))
    machine = [f"--system={folder / 'accurate.json'}", f"--network={folder / f'{name}.json'}"]
    assert main(["run", str(folder / "job"), *machine, f"--out={folder / name}"]) == 0
    return folder / name


def test_a_difference_has_the_band_that_comparing_two_runs_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = _on_ring(tmp_path, 50, "before"), _on_ring(tmp_path, 100, "after")
    figure = "bandwidth of dimension 0"
    [doubled, same] = _varied(before, capsys, f"{figure}=2", f"{figure}=1")
    assert main(["compare", str(before), str(after), "--json"]) == 0
    band = json.loads(capsys.readouterr().out)["relative_band"]
    assert doubled["relative_band"] == pytest.approx([band["low"], band["high"]])
    assert doubled["relative_band"][1] < 0
    assert same["change_ns"] == 0
    assert same["relative_band"][0] <= 0 <= same["relative_band"][1]
    assert main(["inspect", str(before), "critical-path", "--vary", f"{figure}=2", f"{figure}=1.01"]) == 0
    head, first, second, *note = capsys.readouterr().out.splitlines()
    assert "80 % band" in head
    assert "≈" not in first
    assert "≈ -" in second
    assert "within the error of the model" in " ".join(" ".join(note).split())


def test_without_a_statement_of_the_machine_there_is_no_band(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _run(tmp_path, "flow")
    [varied] = _varied(run, capsys, "bandwidth of leaf to spine=2")
    assert varied["relative_band"] is None
    assert main(["inspect", str(run), "critical-path", "--vary", "bandwidth of leaf to spine=2"]) == 0
    assert "band" not in capsys.readouterr().out.replace("bandwidth", "")
