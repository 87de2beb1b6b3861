"""Predictions from one recording against another: two small trainings with PyTorch, gloo, and two ranks.

    pip install torch==2.13.0
    python benchmarks/predictions.py [--repeat 3] [--keep FOLDER]

A data-parallel training (DistributedDataParallel) and a pipeline of two stages with four micro-batches are
recorded as they are, and under other conditions: one rank slower, both faster. Predictions for these from the
first recording alone are compared with the recorded times. Most of a step is an operator that sleeps, for
two ranks share a machine with others; forward and backward passes, gradients and messages are PyTorch's own.
The network is a latency: the time of communication in the first recording, after both ranks had begun.

Each condition is recorded several times, and the fastest recordings, the least disturbed ones, are
compared. The output has the ratio of the median to the fastest, too: near 1 on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

RANKS, STEPS, WARM_UP = 2, 5, 3
SLEEP_US = 10_000
WIDTH, BATCH, LAYERS, MICRO_BATCHES = 64, 32, 4, 4
SLEEP = "bench::sleep"


class Condition(Struct, frozen=True):
    """A training as it runs, and how the machine of the base recording is changed to predict it."""

    name: str
    sleep_us: tuple[int, ...] = (SLEEP_US, SLEEP_US)  # of each rank, per layer and pass
    factors: list[dict[str, Any]] = field(default_factory=list)  # `time-factors`


def _slower(rank: int, factor: float) -> dict[str, Any]:
    return {"ranks": str(rank), "name": SLEEP, "operators": factor}


JOBS: Mapping[str, list[Condition]] = {
    "data-parallel": [
        Condition("as it is"),
        Condition("rank 1 sleeps 3 times as long", (SLEEP_US, 3 * SLEEP_US), [_slower(1, 3)]),
        Condition("both sleep half as long", (SLEEP_US // 2,) * 2, [{"name": SLEEP, "operators": 0.5}]),
    ],
    "pipeline": [
        Condition("as it is"),
        Condition("stage 1 sleeps 3 times as long", (SLEEP_US, 3 * SLEEP_US), [_slower(1, 3)]),
        Condition("both sleep half as long", (SLEEP_US // 2,) * 2, [{"name": SLEEP, "operators": 0.5}]),
    ],
}


def work(rank: int, job: str, condition: Condition, folder: str, port: int) -> None:
    """Run one rank: warm up, then record."""
    import torch
    import torch.distributed as group
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

    here = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    os.environ.update(here)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    group.init_process_group("gloo", rank=rank, world_size=RANKS)
    step = (_data_parallel if job == "data-parallel" else _pipeline)(rank, condition)
    for _ in range(WARM_UP):
        step()
    observer = ExecutionTraceObserver().register_callback(f"{folder}/et_{rank}.json")
    group.barrier()
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, execution_trace_observer=observer
    ) as profiler:
        for _ in range(STEPS):
            step()
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/kineto_{rank}.json")
    group.destroy_process_group()


def _layers(sleep_us: int) -> Any:
    """Return layers whose forward and backward passes sleep."""
    import torch

    library = torch.library.Library("bench", "DEF")
    library.define("sleep(Tensor x, int us) -> Tensor")

    def sleep(x: Any, us: int) -> Any:
        time.sleep(us / 1e6)
        return x.clone()

    library.impl("sleep", sleep, "CPU")

    class Sleeping(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(_: Any, x: Any) -> Any:
            return torch.ops.bench.sleep(x, sleep_us)

        @staticmethod
        def backward(_: Any, gradient: Any) -> Any:
            return torch.ops.bench.sleep(gradient, sleep_us)

    class Layer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(WIDTH, WIDTH)
            self.library = library  # its operators live as long

        def forward(self, x: Any) -> Any:
            return torch.relu(self.linear(Sleeping.apply(x)))

    return torch.nn.Sequential(*(Layer() for _ in range(LAYERS)))


def _data_parallel(rank: int, condition: Condition) -> Any:
    import torch

    layers = _layers(condition.sleep_us[rank])
    model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(BATCH, WIDTH)).square().mean().backward()
        optimizer.step()

    return step


def _pipeline(rank: int, condition: Condition) -> Any:
    import torch
    import torch.distributed as group

    layers = _layers(condition.sleep_us[rank])
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        inputs = [torch.randn(BATCH, WIDTH, requires_grad=True) for _ in range(MICRO_BATCHES)]
        sent, outputs = [], []
        if rank == 0:
            for one in inputs:
                outputs.append(layers(one))
                sent.append(group.isend(outputs[-1].detach(), 1))
            for output in outputs:
                gradient = torch.empty_like(output)
                group.recv(gradient, 1)
                output.backward(gradient)
        else:
            for one in inputs:
                with torch.no_grad():
                    group.recv(one, 0)
                layers(one).square().mean().backward()
                sent.append(group.isend(one.grad, 0))
        for message in sent:
            message.wait()
        optimizer.step()

    return step


def record(job: str, condition: Condition, folder: Path) -> None:
    """Record both ranks."""
    from torch import multiprocessing

    folder.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    multiprocessing.spawn(work, (job, condition, str(folder), port), nprocs=RANKS)


def _events(folder: Path, rank: int) -> list[dict[str, Any]]:
    """Return the actions of a rank in the order of beginning."""
    content = json.loads((folder / f"kineto_{rank}.json").read_text())
    events = [event for event in content["traceEvents"] if event.get("cat") in ("cpu_op", "user_annotation")]
    return sorted(events, key=lambda event: event["ts"])


def span_ms(folder: Path) -> float:
    """Return the time from the first to the last event of both ranks."""
    events = [event for rank in range(RANKS) for event in _events(folder, rank)]
    last = max(event["ts"] + event["dur"] for event in events)
    return float((last - min(event["ts"] for event in events)) / 1000)


SYSTEM = {
    "profile": "corrected",
    "scheduling-policy": "FIFO",
    "endpoint-delay": 0,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"],
}


def predicted_ms(folder: Path, condition: Condition, network: dict[str, Any]) -> float:
    """Return the prediction for the recorded training under a condition."""
    from converters.pytorch.folders import convert_all, jobs_of_folder
    from et_sim import simulate

    with tempfile.TemporaryDirectory() as place:
        jobs, _ = jobs_of_folder(folder, f"{place}/run", frozenset())
        list(convert_all(jobs, 1, lambda *_: None))
        factors = {"time-factors": condition.factors} if condition.factors else {}
        result = simulate(f"{place}/run", system=SYSTEM | factors, network=network)
        return float(result.makespan_ns / 1e6)


def network_of(base: Path) -> dict[str, Any]:
    """Return the network file: the time of communication after both ranks had begun is a latency."""
    ranks = [_events(base, rank) for rank in range(RANKS)]
    took, steps = [], 1
    for kinds in (("gloo:all_reduce",) * 2, ("gloo:send", "gloo:recv"), ("gloo:recv", "gloo:send")):
        sides = [
            [event for event in events if event["name"] == kind]
            for events, kind in zip(ranks, kinds, strict=True)
        ]
        if kinds[0] == kinds[1] and sides[0]:
            steps = 2  # of a ring of two
        for pair in zip(*sides, strict=True):
            receiving = [event for event in pair if event["name"] != "gloo:send"]
            begun = max(event["ts"] for event in pair)
            took.append(max(event["ts"] + event["dur"] for event in receiving) - begun)
    latency = round(1000 * max(0, statistics.median(took)) / steps)
    return {"topology": ["Ring"], "npus_count": [RANKS], "bandwidth": [1000.0], "latency": [latency]}


def rows(folder: Path, repeat: int) -> Iterator[str]:
    """Yield the lines of the table."""
    for job, conditions in JOBS.items():
        recorded = {
            one.name: [folder / job / f"{at} {number}" for number in range(repeat)]
            for at, one in enumerate(conditions)
        }
        for number in range(repeat):  # in turn, so that what else the machine does falls on all alike
            for one in conditions:
                record(job, one, recorded[one.name][number])
        fastest = {name: min(paths, key=span_ms) for name, paths in recorded.items()}
        base = fastest[conditions[0].name]
        for one in conditions:
            took, told = span_ms(fastest[one.name]), predicted_ms(base, one, network_of(base))
            slower = statistics.median(map(span_ms, recorded[one.name])) / took - 1
            error = (told - took) / took
            yield f"{job:14} {one.name:32} {took:8.1f} ms {slower:+8.0%} {told:10.1f} ms {error:+7.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=4, help="recordings of each condition")
    parser.add_argument("--keep", type=Path, help="where to leave the recordings")
    options = parser.parse_args()
    print(f"{'':14} {'':32} {'recorded':>11} {'median':>8} {'predicted':>13} {'error':>7}")
    with tempfile.TemporaryDirectory() as place:
        for row in rows(options.keep or Path(place), options.repeat):
            print(row, flush=True)


if __name__ == "__main__":
    main()
