"""The step of Llama 3 405B on 16,384 H100 with random times of kernels: writes rows of docs/variation.md.

Pipelines of 128 GPUs wait for each other only where they exchange gradients, at the end of a step. So the
step takes as long as the slowest of 128 pipelines, each of which is simulated with draws of its own. From
some of them, the mean of the slowest of 128 is that of normal times (Blom). 64 take 4 minutes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from published_plans import rows

from et_sim.cli import main
from et_sim.machine.presets import preset
from et_sim.run.options import RunOptions
from et_sim.run.simulation import Task, prepare
from et_sim.samples.plans import SampledPlan

ROW, MACHINE, PIPELINES = 1, "h100-dgx:128,network=roce", 128
PASSES = {"kind": "kernel", "level": "event", "family": "normal", "spread": 0.0323, "shared": "node"}
GPUS = {"kind": "kernel", "level": "element", "family": "normal", "spread": 0.0104}
CAUSES = {"passes": [PASSES], "GPUs": [GPUS], "both": [PASSES, GPUS]}


def times(task: Task, pipelines: int) -> Any:
    """Return the time of each pipeline over that without variation, less 1; the number of one is its seed."""
    found: list[int] = []
    for seed in range(pipelines):
        plan = SampledPlan(task.workload, task.machine, task.network_model(), seed=seed, may_fold=True)
        if not found:
            found.append(int(plan.outcome(None).finish_ns.max()))
        found.append(int(plan.outcome(0).finish_ns.max()))
    return np.array(found[1:]) / found[0] - 1


def measure(pipelines: int) -> None:
    """Print a row for each cause."""
    place = (PIPELINES - 0.375) / (PIPELINES + 0.25)
    with tempfile.TemporaryDirectory() as folder:
        job = str(Path(folder) / "job")
        make = rows()[ROW]["make"].replace(" --dp 128", "").replace(" --zero 1", "")
        main(["make", *make.split(), "-o", job])
        print(
            "| kernels vary by | a pipeline | the slowest of 128 | processor s |\n|---|---|---|---|",
            flush=True,
        )
        for name, entries in CAUSES.items():
            begin = time.process_time()
            system = {**preset(MACHINE).system, "variation": entries}
            options = RunOptions(system=system, machine=MACHINE, when_full="report")
            longer = times(prepare(f"{job}.workload.json", options), pipelines)
            slowest = longer.mean() + NormalDist().inv_cdf(place) * longer.std(ddof=1)
            took = time.process_time() - begin
            print(f"| {name} | +{longer.mean():.2%} | +{slowest:.2%} | {took:.0f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipelines", type=int, default=64)
    measure(parser.parse_args().pipelines)
