"""The cost of one straggler that prevents folding, and of jitter: processor time, peak memory and actors of
single runs.

Run as `python benchmarks/stragglers.py`; every row is a process of its own. `--job` simulates the training
job of the README on 1,024 H100 instead: as it is, with one slow rank, and with jitter on every kernel.
`--every-message` adds rows in which no ring is evaluated at once.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from et_sim.api import run
from et_sim.engine import driver
from et_sim.machine.presets import preset
from et_sim.run.result import Result
from et_sim.trace import TraceBuilder, Workload
from et_sim.trace.group_rule import GroupRule

CASES = ("groups", "torus", "pairs")
ONE_LATE = {"stragglers": [{"ranks": "5", "compute": 2}]}
JOB = (
    "make llm --model llama3-70b --tp 8 --pp 4 --dp 32 --batch 1 --micro-batches 16 --sequence-parallel "
    "--zero 1 --software megatron-core --machine h100-dgx:1024 -o"
)
PACES: dict[str, list[dict[str, Any]]] = {
    "even": [],
    "late": [{"ranks": "5", "compute": 1.2}],
    "jitter": [{"ranks": "all", "jitter": 0.02, "seed": 1}],
}


def network(shape: str, npus: list[int]) -> dict[str, Any]:
    """Return dimensions of one shape."""
    each = len(npus)
    return {
        "topology": [shape] * each,
        "npus_count": npus,
        "bandwidth": [50.0] * each,
        "latency": [500.0] * each,
    }


def system(dimensions: int, all_reduce: list[str], **keys: Any) -> dict[str, Any]:
    """Return collectives on rings in four chunks; the all-reduce has its own algorithm."""
    rings = {f"{kind}-implementation": ["ring"] * dimensions for kind in ("all-gather", "reduce-scatter")}
    return {
        "scheduling-policy": "LIFO",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 4,
        "preferred-dataset-splits": 4,
        "local-mem-bw": 50,
        "all-to-all-implementation": ["ring"] * dimensions,
        "all-reduce-implementation": all_reduce,
        **rings,
        **keys,
    }


def case(name: str) -> tuple[Workload, dict[str, Any]]:
    """Return a workload and its machine."""
    build, last = TraceBuilder(), list[int]()
    for layer in range(4 if name == "groups" else 1):
        work = build.compute(f"layer{layer}", micros=10, after=last)
        group = "eight" if name == "groups" else ""
        last = [build.collective("all_reduce", 1 << 20, group=group, after=[work])]
    npus = {"groups": [8, 8192], "torus": [16] * 4, "pairs": [64, 64]}[name]
    rules = {"eight": GroupRule(8, 1)} if name == "groups" else {}
    workload = Workload((build.build(),), np.zeros(int(np.prod(npus)), np.int32), group_rules=rules)
    if name == "pairs":
        on = system(2, ["oneHalvingDoubling"], profile="corrected")
    else:
        on = system(len(npus), ["ring"] * len(npus), **ONE_LATE)
    shape = "Ring" if name == "torus" else "Switch"
    return workload, {"network": network(shape, npus), "system": on}


def measure(name: str, *, fold: bool) -> None:
    """Print one row."""
    workload, machine = case(name)
    begin = time.process_time()
    show(name, "folded" if fold else "--no-fold", begin, run(workload, **machine, fold=fold))


def measure_job(name: str, workload: str, *, every_message: bool) -> None:
    """Print the row of the training job with some paces of its ranks."""
    if every_message:
        driver.FEWEST_TO_GO_AHEAD = 1 << 62
    machine = preset("h100-dgx:1024")
    begin = time.process_time()
    system = machine.system | ({"stragglers": PACES[name]} if PACES[name] else {})
    kind = "messages" if every_message else "job"
    show(name, kind, begin, run(workload, system=system, network=machine.network, model="flow"))


def show(name: str, kind: str, begin: float, result: Result) -> None:
    """Print a row."""
    seconds, peak = time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    actors, finish = len(result.outcome.plan.actors), len(np.unique(result.finish_ns))
    print(
        f"{name:7} {kind:10} {seconds:6.2f} s {peak:5} MiB"
        f" {actors:6} actors, {finish} finish times, {result.outcome.messages:,} messages",
        flush=True,
    )


def main() -> None:
    """Run all cases, each in a process of its own, or one of them here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="?", choices=[*CASES, *PACES])
    parser.add_argument("--no-fold", action="store_true")
    parser.add_argument("--job", nargs="?", const="", metavar="WORKLOAD")
    parser.add_argument("--every-message", action="store_true")
    given = parser.parse_args()
    if given.every_message and given.job is None:
        parser.error("--every-message is for --job")
    if given.case in PACES:
        measure_job(given.case, given.job, every_message=given.every_message)
    elif given.case:
        measure(given.case, fold=not given.no_fold)
    elif given.job is None:
        for each in CASES:
            for option in ([], ["--no-fold"]):
                subprocess.run([sys.executable, __file__, each, *option], check=True)
    else:
        with tempfile.TemporaryDirectory() as folder:
            command = "import sys; from et_sim.cli import main; sys.exit(main(sys.argv[1:]))"
            make = [sys.executable, "-c", command, *JOB.split(), f"{folder}/job"]
            subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
            for each in PACES:
                row = [sys.executable, __file__, each, "--job", f"{folder}/job.workload.json"]
                for option in ([], ["--every-message"]) if given.every_message else ([],):
                    subprocess.run([*row, *option], check=True)


if __name__ == "__main__":
    main()
