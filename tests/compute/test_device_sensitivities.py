"""Effects of figures of a device that the critical path predicts agree with simulations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_compute_model import NETWORK, RANKS
from test_compute_model import SYSTEM as COMMON
from test_device import DEVICE
from test_systolic_model import ARRAY

from et_sim import TraceBuilder, Workload
from et_sim.cli import main
from et_sim.trace import shapes, write_workload


@pytest.fixture
def run(tmp_path: Path) -> str:
    """Return a step of kernels with every bound, timed by two rules, and a collective."""
    build = TraceBuilder()
    fc = build.compute("fc", layer_shape=shapes.gemm(4096, 4096, 1024))
    add = build.compute("add", layer_shape=shapes.elementwise(10**7, 2), after=[fc])
    small = build.compute("small", layer_shape=shapes.softmax(100, 100), dtype="fp32", after=[add])
    conv = build.compute("array", layer_shape="conv 9 9 3 3 8 8 1 1", after=[small])
    build.collective("all_reduce", 1 << 20, after=[conv])
    write_workload(Workload.of([build.build()] * RANKS), tmp_path / "step")
    device = {**DEVICE, "launch-overhead": 900, "efficiency": {"gemm": {"peak": 0.8, "half": 1e9}}}
    rules = [{**ARRAY, "where": {"operation": "conv"}}, device]
    (tmp_path / "system.json").write_text(json.dumps({**COMMON, "local-mem-bw": 100, "compute": rules}))
    (tmp_path / "network.yml").write_text(json.dumps(NETWORK))
    files = [f"--system={tmp_path}/system.json", f"--network={tmp_path}/network.yml"]
    out = str(tmp_path / "out")
    assert main(["run", str(tmp_path / "step"), *files, "--detail", "path", "--out", out]) == 0
    return out


FIGURES = {
    "peak of bf16",
    "efficiency of gemm",
    "bandwidth of HBM",
    "bandwidth of L2",
    "memory efficiency of other",
    "launch overhead",
    "local memory bandwidth",
}


@pytest.mark.deep
def test_predicted_effects_of_a_device_are_simulated(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["inspect", run, "critical-path", "--verify", "--top", "30", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {change["parameter"] for change in document} >= FIGURES
    assert [change for change in document if not change["as_predicted"]] == []


def test_every_figure_of_rules_can_be_varied(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    wanted = [f"{figure}=2" for figure in (*sorted(FIGURES), "array clock", "array height")]
    assert main(["inspect", run, "critical-path", "--json", "--vary", *wanted]) == 0
    results = {load["figure"]: load["change_ns"] for load in json.loads(capsys.readouterr().out)}
    assert results.pop("array height") != 0
    assert results.pop("launch overhead") == 3 * 900
    assert all(change < 0 for change in results.values())
