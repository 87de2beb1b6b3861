"""PyTorch records, et-convert converts, et-sim checks and simulates: end to end, where there is a PyTorch.

ET_SIM_TORCH=/path/to/a/python/with/torch pytest tests/converters/test_pytorch_recorded_here.py
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from machines import ring, system

import et_sim
from converters.cli import main
from et_sim.cli import main as simulator

PYTHON = os.environ.get("ET_SIM_TORCH", "")
SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "record_gloo.py"
SYSTEM = system(**{"scheduling-policy": "FIFO", "preferred-dataset-splits": 4})
NETWORK = ring(2, 1.0, 5000.0)


@pytest.mark.skipif(not PYTHON, reason="ET_SIM_TORCH names no Python with torch")
def test_two_ranks_recorded_by_pytorch_run_as_long_as_they_ran(tmp_path: Path) -> None:
    subprocess.run([PYTHON, str(SCRIPT), str(tmp_path / "recorded"), "--ranks", "2"], check=True)
    prefix, report = str(tmp_path / "ddp"), tmp_path / "report.json"
    assert main(["pytorch", str(tmp_path / "recorded"), "-o", prefix, "--report", str(report)]) == 0
    ranks = json.loads(report.read_text())["ranks"]
    for rank in ranks:
        assert rank["linkage"]["method"] == "record-function ids"
        assert rank["linkage"]["linked"] == rank["linkage"]["host_operators"]
        assert {entry["operation"] for entry in rank["communication"]} >= {
            "all_reduce",
            "all_gather",
            "all_to_all",
            "barrier",
        }
    system, network = tmp_path / "system.json", tmp_path / "network.yml"
    system.write_text(json.dumps(SYSTEM))
    network.write_text(json.dumps(NETWORK))
    assert simulator(["check", prefix, "--system", str(system), "--network", str(network)]) == 0
    replayed = et_sim.simulate(prefix, system=SYSTEM | {"replay-only": 1}, network=NETWORK)
    assert replayed.finish_ns.tolist() == [rank["time"]["measured_ns"] for rank in ranks]
    simulated = et_sim.simulate(prefix, system=SYSTEM, network=NETWORK)
    assert simulated.makespan_ns > 0
