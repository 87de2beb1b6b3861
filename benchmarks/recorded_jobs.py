"""The slowdown of recorded jobs by uneven work, simulated, against the figures that their publishers state.

Run as `python benchmarks/recorded_jobs.py FOLDER [JOB…]`, where FOLDER has trace-JOB.parquet and
result-JOB.json of github.com/ByteDance-Seed/StragglerAnalysis (data). The jobs are ST, SE and AR. Each row is
a simulation of all recorded steps: with recorded times, with all operations of a kind alike, and with the
recorded times of one stage, replica, kind of operation or worker only; the largest of these names the cause.
Workers are simulated where there are at most 16.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from et_sim.api import run
from et_sim.trace import Workload
from et_sim.trace.recorded_steps.program import Program, program_of
from et_sim.trace.recorded_steps.table import StepRecording, read_steps
from et_sim.trace.recorded_steps.work import Work, even_work, mixed_work, recorded_work

JOBS = ("ST", "SE", "AR")
MOST_WORKERS = 16
# names of the publishers for several kinds together
PAIRS = {
    "forward-pp-comm": ("forward-send", "forward-recv"),
    "backward-pp-comm": ("backward-send", "backward-recv"),
}


def machine(ranks: int) -> dict[str, Any]:
    """Return a machine whose messages take no time, as the work of communication is recorded."""
    network = {"topology": ["FullyConnected"], "npus_count": [ranks], "bandwidth": [1e6], "latency": [0]}
    return {"network": network, "system": {"profile": "corrected", "endpoint-delay": 0}}


def seconds_per_step(recording: StepRecording, program: Program, work: Work) -> float:
    """Simulate all steps and return the mean duration of one."""
    traces = tuple(program.traces(work))
    workload = Workload(traces, np.arange(len(traces), dtype=np.int32))
    return run(workload, **machine(len(traces))).makespan_ns / len(recording.steps) / 1e9


def causes(recording: StepRecording) -> Iterator[tuple[str, str, dict[str, tuple[Any, ...]]]]:
    """Yield the groups of operations whose part is simulated: their sort, name and choice."""
    yield from (("stage", f"{stage}", {"stage": (stage,)}) for stage in range(recording.stages))
    yield from (("dp_rank", f"{replica}", {"replica": (replica,)}) for replica in range(recording.replicas))
    paired = {kind for pair in PAIRS.values() for kind in pair}
    kinds = {kind: (kind,) for kind in recording.kinds if kind not in paired} | PAIRS
    yield from (("optype", name, {"kind": members}) for name, members in kinds.items())
    ranks = recording.ranks.reshape(-1).tolist()
    if len(ranks) <= MOST_WORKERS:
        yield from (("worker", f"{rank}", {"rank": (rank,)}) for rank in ranks)


def measure(folder: Path, job: str) -> None:
    """Print the figures of a job."""
    begin = time.process_time()
    published = json.loads((folder / f"result-{job}.json").read_text())
    recording = read_steps(folder / f"trace-{job}.parquet")
    program, work = program_of(recording), recorded_work(recording)
    even = even_work(work)
    uneven_s, even_s = (seconds_per_step(recording, program, each) for each in (work, even))
    print(f"{job}: {len(recording.steps)} steps of {recording.replicas} x {recording.stages} ranks")
    for name, key, seconds in (("recorded", "step_t_nodelay", uneven_s), ("even", "step_t_noblk", even_s)):
        print(f"  {name:10} step {seconds:.7f} s, published {np.mean([*published[key].values()]):.7f} s")
    print(f"  slowdown   {uneven_s / even_s:.7f}, published {published['blocking_slowdown']:.7f}")
    found: dict[str, dict[str, float]] = {}
    for sort, name, uneven in causes(recording):
        mixed = mixed_work(recording, work, even, uneven)
        found.setdefault(sort, {})[name] = seconds_per_step(recording, program, mixed) / even_s
    for sort, slowdowns in found.items():
        given = published.get(f"blocking_decompose_by_{sort}") or {}
        first = max(slowdowns, key=slowdowns.__getitem__)
        worst = max((abs(slowdowns[name] / value - 1) for name, value in given.items()), default=float("nan"))
        top = max(given, key=given.__getitem__) if given else "not given"
        print(
            f"  {sort:10} {first} alone: {slowdowns[first]:.4f}; {top} {given.get(top, 0):.4f} published;"
            f" furthest of {len(slowdowns)}: {100 * worst:.4f} %"
        )
    print(f"  {time.process_time() - begin:.0f} s of processor time", flush=True)


def main() -> None:
    """Measure each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("jobs", nargs="*", default=JOBS)
    options = parser.parse_args()
    for job in options.jobs:
        measure(options.folder, job)


if __name__ == "__main__":
    main()
