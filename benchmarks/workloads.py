"""Workloads of the benchmark suite, by name; made once per folder.

    python benchmarks/workloads.py NAME PREFIX RANKS [AMOUNT]

A process of its own makes them, because a process that has used much memory passes that on as the peak of
those it starts. Not here: the machines they run on (`machines`), and what is measured (`suite`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from loggops import dissemination
from machines import GROUPS_OF

from et_sim.cli import main
from et_sim.trace import TraceBuilder, Workload, write_workload
from et_sim.trace.manifest import write_manifest
from et_sim.workloads import Model, Plan, make_training
from et_sim.workloads.models.model import Attention, FeedForward


def _shared(trace: Any, prefix: Path, ranks: int) -> Path:
    path = prefix.with_suffix(".workload.json")
    if not path.exists():
        write_manifest(Workload((trace,), np.zeros(ranks, np.int32)), path)
    return path


def all_reduce(prefix: Path, ranks: int, size: int = 1 << 30) -> Path:
    """Return one all-reduce, of 1 GiB by default."""
    build = TraceBuilder()
    build.collective("all_reduce", size)
    return _shared(build.build(), prefix, ranks)


def chain(prefix: Path, ranks: int, nodes: int = 20_000) -> Path:
    """Return computations one after the other, 20,000 by default."""
    build = TraceBuilder()
    last: list[int] = []
    for number in range(nodes):
        last = [build.compute("kernel", micros=1 + number % 7, after=last)]
    return _shared(build.build(), prefix, ranks)


def layers(prefix: Path, ranks: int) -> Path:
    """Return 500 times a computation and an all-reduce of 1 MiB."""
    build = TraceBuilder()
    last: list[int] = []
    for _ in range(500):
        work = build.compute("kernel", micros=10, after=last)
        last = [build.collective("all_reduce", 1 << 20, after=[work])]
    return _shared(build.build(), prefix, ranks)


def job(prefix: Path, ranks: int) -> Path:
    """Return a transformer with tensor, pipeline and data parallelism: about 5,000 nodes a rank."""
    path = prefix.with_suffix(".workload.json")
    if not path.exists():
        part = FeedForward(8192, is_gated=False)
        model = Model("decoder", "", 2048, 48, 51_200, 2048, Attention(16, 16, 128), part)
        plan = Plan(tensor=8, pipeline=16, data=ranks // 128, micro_batches=64)
        write_manifest(make_training(model, plan), path)
    return path


def distinct(prefix: Path, ranks: int) -> Path:
    """Return 5,000 nodes a rank with durations of its own, and all-reduces in groups of eight."""
    if not Path(f"{prefix}.0.et").exists():
        random = np.random.default_rng(1)
        traces = [_own_program(random.integers(1, 50, 5_000), rank // GROUPS_OF + 1) for rank in range(ranks)]
        write_workload(Workload.of(traces), prefix)
    return prefix


def _own_program(micros: Any, group: int) -> Any:
    build = TraceBuilder()
    last: list[int] = []
    for number, duration in enumerate(micros.tolist()):
        if number % 100 == 99:
            last = [build.collective("all_reduce", 1 << 20, group=str(group), after=last)]
        else:
            last = [build.compute("kernel", micros=duration, after=last)]
    return build.build()


def unlike(prefix: Path, ranks: int) -> Path:
    """Return 50 steps a rank: own durations, messages to the next rank, all-reduces in groups of eight."""
    if not Path(f"{prefix}.0.et").exists():
        random = np.random.default_rng(1)
        traces = [_short_program(random.integers(1, 50, 50), rank, ranks) for rank in range(ranks)]
        write_workload(Workload.of(traces), prefix)
    return prefix


def _short_program(micros: Any, rank: int, ranks: int) -> Any:
    build = TraceBuilder()
    last: list[int] = []
    for number, duration in enumerate(micros.tolist()):
        if number % 10 == 9:
            last = [build.collective("all_reduce", 1 << 20, group=str(rank // GROUPS_OF + 1), after=last)]
        elif number % 10 == 4:
            sent = build.send((rank + 1) % ranks, 1 << 16, tag=number, after=last)
            last = [sent, build.receive((rank - 1) % ranks, 1 << 16, tag=number, after=last)]
        else:
            last = [build.compute("kernel", micros=duration, after=last)]
    return build.build()


def experts(prefix: Path, ranks: int) -> Path:
    """Return a step of four layers of deepseek-v3, whose experts are spread over 32 ranks."""
    step = ("--layers", "4", "--micro-batches", "1", "--ranks", str(ranks), "--dp", str(ranks), "--ep", "32")
    return _made(prefix, "--model", "deepseek-v3", *step)


def slow(prefix: Path, ranks: int) -> Path:
    """Return the job of the README, with as many replicas as there are ranks for."""
    plan = ("--tp", "8", "--pp", "4", "--dp", str(ranks // 32), "--batch", "1", "--micro-batches", "16")
    more = ("--sequence-parallel", "--zero", "1", "--software", "megatron-core")
    return _made(prefix, "--model", "llama3-70b", *plan, *more, "--machine", f"h100-dgx:{ranks}")


def _made(prefix: Path, *options: str) -> Path:
    """Return what `et-sim make llm` makes."""
    path = prefix.with_suffix(".workload.json")
    if not path.exists():
        with redirect_stdout(sys.stderr):
            status = main(["make", "llm", *options, "-o", str(prefix)])
        if status:
            sys.exit(status)
    return path


def permutation(prefix: Path, ranks: int, size: int = 128 << 10) -> Path:
    """Return a permutation: each rank sends one message, of 128 KiB by default, and receives one."""
    if not Path(f"{prefix}.0.et").exists():
        targets = np.random.default_rng(1).permutation(ranks).tolist()
        builders = [TraceBuilder() for _ in range(ranks)]
        for source, target in enumerate(targets):
            builders[source].send(target, size, tag=source)
            builders[target].receive(source, size, tag=source)
        write_workload(Workload.of([builder.build() for builder in builders]), prefix)
    return prefix


def goal(prefix: Path, ranks: int) -> Path:
    """Return LogGOPSim's dissemination: rounds of eight bytes to the rank 2^k further on."""
    path = prefix.with_suffix(".goal")
    if not path.exists():
        path.write_text("".join(dissemination(ranks)))
    return path


WORKLOADS: dict[str, Callable[..., Path]] = {
    "all_reduce": all_reduce,
    "chain": chain,
    "layers": layers,
    "job": job,
    "distinct": distinct,
    "unlike": unlike,
    "experts": experts,
    "slow": slow,
    "permutation": permutation,
    "goal": goal,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=WORKLOADS)
    parser.add_argument("prefix", type=Path)
    parser.add_argument("counts", nargs="*", type=int)
    given = parser.parse_args()
    print(WORKLOADS[given.name](given.prefix, *given.counts))
