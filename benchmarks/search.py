"""Searching: how much of an exhaustive sweep of plans a search needs, and whether it finds the same.

    python benchmarks/search.py

GPT-3 175B on 1,024 H100, 512 sequences in a step: tensor, pipeline and data parallelism, sequences in a
micro-batch, their number, recomputation, and the schedule. Times are of this process and its children.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from et_sim.sweeps.state import plan_sweep
from et_sim.sweeps.sweep import carry_out

SPEC: dict[str, Any] = {
    "base": {
        "workload": {"make": "llm", "model": "gpt3-175b", "plan": {"zero": 1}},
        "machine": "h100-dgx:1024",
    },
    "axes": {
        "tp": {"field": "workload.plan.tp", "values": [1, 2, 4, 8]},
        "pp": {"field": "workload.plan.pp", "values": [1, 2, 4, 8, 16, 32]},
        "dp": {"field": "workload.plan.dp", "values": [4, 8, 16, 32, 64, 128, 256, 512]},
        "batch": {"field": "workload.plan.batch", "values": [1, 2, 4, 8, 16]},
        "micro-batches": {
            "field": "workload.plan.micro-batches",
            "values": [1, 2, 4, 8, 16, 32, 64, 128],
        },
        "recompute": {"field": "workload.plan.recompute", "values": ["none", "full"]},
        "schedule": {"field": "workload.plan.schedule", "values": ["1f1b", "gpipe"]},
    },
    "constraints": ["tp * pp * dp == 1024", "dp * batch * micro-batches == 512"],
    "search": {"minimise": ["makespan_ns"]},
}


def main() -> None:
    """Print both."""
    with TemporaryDirectory() as folder:
        report, told = _timed(
            lambda: carry_out(plan_sweep(SPEC, searches=True), Path(folder, "search"), workers=1)
        )
        found = report.search
        print(f"search      {found.evaluated:4d} of {_points()} plans evaluated, {told}")
        table, told = _timed(lambda: carry_out(plan_sweep(SPEC), Path(folder, "sweep"), workers=2).table)
        rows = [row for row in table.to_pylist() if row["status"] == "complete"]
        best = min(rows, key=lambda row: (row["makespan_ns"], row["point"]))
        print(f"exhaustive  {len(table):4d} plans, {len(rows)} of them complete, {told}")
        same = "the same plan" if found.front == [best["point"]] else f"{found.front}, not {best['point']}"
        print(f"the search found {same}: { ({name: best[name] for name in SPEC['axes']}) }")


def _points() -> int:
    return len(plan_sweep(SPEC).points)


def _timed(call: Callable[[], Any]) -> tuple[Any, str]:
    wall, processor = time.perf_counter(), _processor()
    result = call()
    return result, f"{_processor() - processor:.0f} s of processor time, {time.perf_counter() - wall:.0f} s"


def _processor() -> float:
    return sum(os.times()[:4])


if __name__ == "__main__":
    main()
