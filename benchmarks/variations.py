"""A run simulated again with changes: inputs read each time or once, one process or two.

Run as `python benchmarks/variations.py`. Rows are measured by turns in one process, the best of `--rounds`:
processor time of the process that works most, which does not depend on who else uses the machine, and the
clock. Results of all ways are compared. `--job` is a workload manifest for 1,024 H100 (the README's).
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from et_sim.calibrate.kernels import Kernels, MeasuredKernel, fit, left_out
from et_sim.calibrate.machine_file import device_of
from et_sim.execution import execute
from et_sim.machine import Machine, read_machine
from et_sim.machine.scaling import figures
from et_sim.run import workers
from et_sim.run.isolated import isolated_times
from et_sim.run.options import RunOptions
from et_sim.run.simulation import NoWatcher, Recorder, carry_out, prepare
from et_sim.run.variation import Variations
from et_sim.trace import TraceBuilder, Workload, write_workload
from et_sim.validation.predictions import predictions
from et_sim.validation.rows import read_rows, shipped

Way = Callable[[], list[Any]]
NEVER = 1e9  # seconds of work that are worth a second process
MACHINE = "h100-dgx:1024"
TABLE = "vtrain_multi"
ITERATIONS = 12  # of the table
RING = {"topology": ["Ring"], "npus_count": [512], "bandwidth": [50.0], "latency": [500.0]}
SYSTEM = {
    "scheduling-policy": "FIFO",
    "profile": "corrected",
    "preferred-dataset-splits": 4,
    **{f"{kind}-implementation": ["ring"] for kind in ("all-reduce", "all-gather", "reduce-scatter")},
    "all-to-all-implementation": ["direct"],
}


def figures_changed(job: str) -> dict[str, Way]:
    """Vary ten figures by a tenth up and down, as `--vary` does."""
    options = RunOptions(machine=MACHINE)
    machine = read_machine(**options.parts)
    changes = [(name, factor) for name in list(figures(machine))[:10] for factor in (1.1, 0.9)]

    def from_files() -> list[Any]:
        ended = []
        for name, factor in changes:
            scaled = figures(machine)[name](factor)
            assert scaled is not None
            changed = scaled[0]
            ended.append(execute(job, options, change=partial(_instead, changed)).makespan_ns)
        return ended

    def read_once() -> list[Any]:
        endings = Variations(job, options).with_figures(changes, print)
        return [ending.makespan_ns for ending in endings]

    return {"reading each time": from_files, "reading once": _alone(read_once), "two processes": read_once}


def _instead(changed: Machine, _: Machine) -> Machine:
    return changed


def kernels_left_out() -> dict[str, Way]:
    """Fit 64 products; each of sixteen parts is predicted from the others, as in `calibrate kernels`."""
    rows = [
        MeasuredKernel(
            f"gemm {m} {n} {k}", "bf16", 6 + m * n * k / 1.1e8 + (m * k + k * n + m * n) / 8e5, "here"
        )
        for m in (64, 256, 1024, 4096)
        for n in (1024, 2048, 4096, 8192)
        for k in (512, 1024, 2048, 8192)
    ]
    kernels = Kernels.of(rows)
    device = fit(device_of("a100-dgx-80gb"), kernels).device

    def ratios() -> list[Any]:
        return [ratio for _, ratio in left_out(device, kernels)]

    return {"one process": _alone(ratios), "two processes": ratios}


def iterations_predicted() -> dict[str, Way]:
    """Predict the iterations of a table, as `validate` does."""
    every = [row for path in shipped() for row in read_rows(path)]
    rows = [row for row in every if row.table == TABLE][:ITERATIONS]

    def predicted() -> list[Any]:
        return [prediction.predicted_us for prediction in predictions(rows)]

    return {"one process": _alone(predicted), "two processes": predicted}


def jobs_isolated(folder: Path) -> dict[str, Way]:
    """Run two jobs of 256 ranks together and then alone, as `--isolated` does."""
    for name, micros in (("a", 3), ("b", 4)):
        traces = []
        for rank in range(256):
            build, last = TraceBuilder(), list[int]()
            for _ in range(60):
                work = build.compute("work", micros=micros + rank % 7, after=last)
                last = [build.collective("all_reduce", 1 << 22, after=[work])]
            traces.append(build.build())
        write_workload(Workload.of(traces), folder / name)
    placed = (("a", "0-255"), ("b", "256-511"))
    jobs = [{"name": name, "workload": str(folder / name), "npus": npus} for name, npus in placed]
    (folder / "jobs.json").write_text(json.dumps({"jobs": jobs}))
    options = RunOptions(system=SYSTEM, network=RING, model="flow", isolated=True)
    task = prepare(str(folder / "jobs.json"), options)
    together = carry_out(task, True, NoWatcher(), Recorder())

    def isolated() -> list[Any]:
        return list(isolated_times(folder / "jobs.json", options, task, together, NoWatcher()))

    return {"one process": _alone(isolated), "two processes": isolated}


def _alone(way: Way) -> Way:
    """Run the same work in this process only."""

    def alone() -> list[Any]:
        usual, workers.WORTH_SECONDS = workers.WORTH_SECONDS, NEVER
        try:
            return way()
        finally:
            workers.WORTH_SECONDS = usual

    return alone


def measure(about: str, ways: dict[str, Way], rounds: int) -> None:
    """Print a line for each way."""
    best: dict[str, tuple[float, float]] = {}
    results = []
    for _ in range(rounds):
        for name, way in ways.items():
            begin = time.perf_counter(), time.process_time(), _of_others()
            results.append(way())
            clock, own, others = time.perf_counter(), time.process_time(), _of_others()
            spent = max(own - begin[1], others - begin[2]), clock - begin[0]
            best[name] = min(spent, best.get(name, spent))
    assert all(result == results[0] for result in results)
    first = next(iter(best.values()))[0]
    for name, (seconds, clock) in best.items():
        print(f"| {about} | {name} | {seconds:.2f} s | {first / seconds:.2f}x | {clock:.2f} s |", flush=True)


def _of_others() -> float:
    """Return the processor seconds of ended workers."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", help="of --vary: left out without it")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("| what | how | busiest process | ratio | by the clock |\n|---|---|---|---|---|")
    if options.job:
        measure("--vary, 20 simulations", figures_changed(options.job), options.rounds)
    measure("kernels left out", kernels_left_out(), options.rounds)
    measure("iterations predicted", iterations_predicted(), options.rounds)
    with TemporaryDirectory() as folder:
        measure("two jobs alone", jobs_isolated(Path(folder)), options.rounds)


if __name__ == "__main__":
    main()
