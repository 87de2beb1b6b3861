"""The peak of memory of a recording is that of PyTorch's own tracker, and that of a simulated run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from recording_here import PROGRAMS, needs_torch, record

import et_sim

needs_torch()

PROGRAM, WORLD = "remembering.py", 8
SYSTEM = {
    "track-local-mem": 1,
    "local-mem-bw": 3350,
    "peak-perf": 989,
    "roofline-enabled": 1,
    "scheduling-policy": "FIFO",
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
}
WORKER = Path(__file__).parent / "memory_worker.py"


@pytest.mark.parametrize(
    "arguments",
    [
        ("plain", "512", "4096"),
        ("plain", "2048", "64"),
        ("checkpoints", "512", "4096"),
        ("composable", "512", "4096"),
        ("sharded", "512", "4096"),
    ],
    ids="-".join,
)
def test_the_peak_is_that_of_pytorchs_own_tracker_and_of_the_run(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    output = tmp_path / "peak"
    subprocess.run(
        [sys.executable, str(WORKER), str(output), str(WORLD), str(PROGRAMS / PROGRAM), *arguments],
        env=os.environ | {"DEVICE": "cpu", "RANK": "0", "WORLD_SIZE": str(WORLD)},
        check=True,
    )
    recording = record(tmp_path, PROGRAM, *arguments, world=WORLD)
    peak = recording.report["ranks"][0]["peak_bytes"]
    assert peak == int(output.read_text())
    result = et_sim.simulate(recording.workload, machine=f"h100-dgx:{WORLD}", system=SYSTEM)
    (of_ranks,) = result.summary()["per_rank"]
    assert of_ranks["peak_memory_bytes"] == pytest.approx(peak, rel=0.01)
