"""Sweeps: the cost of a point beside its simulation, with one worker and with two, and a second time.

    python benchmarks/sweep.py [POINTS]

Each point is an all-reduce on a ring of eight ranks with another bandwidth; then, with one worker, with
another latency, and behind kernels with another factor; steps of a language model on 8, 16 and 1,024 H100,
with other links and another factor of kernels; and an all-reduce on a leaf-spine, with another latency of
links and another bandwidth of uplinks. `simulate` is the same points one after the other in this process, as
a script without sweeps would simulate them, machine files as dicts. The views of a sweep are measured on a
table of 10,000 rows made of these.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

import et_sim
from et_sim.machine.presets import preset
from et_sim.sweeps.state import plan_sweep
from et_sim.sweeps.sweep import carry_out
from et_sim.views.report.sweep_page import sweep_report
from et_sim.views.sweep.charts import sweep_picture
from et_sim.views.sweep.directory import open_sweep
from et_sim.views.sweep.summary import sweep_text
from et_sim.workloads.microbenchmarks import make_microbenchmark

AXIS = "network.bandwidth[0]"
FACTOR = "system.time-factors[0].kernels"
ROWS = 10_000  # of the table that is looked at
RING = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
SYSTEM: dict[str, Any] = {
    "scheduling-policy": "LIFO",
    "preferred-dataset-splits": 4,
    "active-chunks-per-dimension": 1,
    "collective-optimization": "localBWAware",
    **{f"{one}-implementation": ["ring"] for one in RING},
}
STEP: dict[str, Any] = {"make": "llm", "model": "llama3-8b", "layers": 2}
PLAN = {"tp": 8, "zero": 1, "micro-batches": 2}
NETWORK: dict[str, Any] = {"topology": ["Ring"], "npus_count": [8], "bandwidth": [50.0], "latency": [500.0]}
LEAF_SPINE: dict[str, Any] = {
    "graph": {
        "generator": "leaf-spine",
        "leaves": 4,
        "spines": 2,
        "npus-per-leaf": 4,
        "bandwidth": "50GB/s",
        "latency": "500ns",
    },
    "logical-dimensions": [16],
}


def main(points: int) -> None:
    """Print the table."""
    spec = {
        "base": {
            "workload": {"make": "all_reduce", "ranks": 8, "bytes": 1 << 20},
            "system": SYSTEM,
            "network": NETWORK,
        },
        "axes": {AXIS: {"range": {"from": 25.0, "to": 400.0, "count": points}}},
    }
    workload = make_microbenchmark("all_reduce", ranks=8, size=1 << 20)

    def simulate(bandwidth: float) -> None:
        et_sim.simulate(workload, system=SYSTEM, network=dict(NETWORK, bandwidth=[bandwidth]))

    few = range(min(points, 1000))

    def simulate_all() -> None:
        for one in few:
            simulate(25.0 + one)

    simulate(20.0)
    plan = plan_sweep(spec, may_be_large=True)
    _tell("simulate", _seconds(simulate_all), len(few))
    _tell("reading and counting", _seconds(lambda: plan_sweep(spec, may_be_large=True)), points)
    with TemporaryDirectory() as folder:
        for what, workers, name in (
            ("sweep, 1 worker", 1, "one"),
            ("sweep, 2 workers", 2, "two"),
            ("the same again", 2, "two"),
        ):
            seconds = _seconds(partial(carry_out, plan, Path(folder, name), workers=workers))
            _tell(what, seconds, points)
        for what, sweep in _others(points).items():
            other = plan_sweep(sweep, may_be_large=True)
            seconds = _seconds(partial(carry_out, other, Path(folder, what), workers=1))
            _tell(what, seconds, points)
        large = _enlarged(Path(folder, "two"), Path(folder, "large"))
        _tell("inspect", _seconds(lambda: sweep_text(open_sweep(large))), ROWS)
        _tell("report", _seconds(lambda: sweep_report(open_sweep(large), {})), ROWS)
        _tell("picture", _seconds(lambda: sweep_picture(open_sweep(large))), ROWS)


def _others(points: int) -> dict[str, dict[str, Any]]:
    """Return sweeps by what differs between their points."""
    factors = [{"kernels": 1.0}]
    reduce = {"make": "all_reduce", "ranks": 8, "bytes": 1 << 20, "compute-us": 100}
    ring = {"workload": reduce, "system": {**SYSTEM, "time-factors": factors}, "network": NETWORK}
    node = preset("h100-dgx:8")
    eight = {"workload": {**STEP, "plan": PLAN}, "machine": "h100-dgx:8"}
    sixteen = {"workload": {**STEP, "plan": {**PLAN, "dp": 2}}, "machine": "h100-dgx:16"}
    system = {**node.system, "time-factors": factors}
    slowed = {"workload": eight["workload"], "system": system, "network": node.network}
    many = {"workload": {**STEP, "plan": {**PLAN, "dp": 128}}, "machine": "h100-dgx:1024"}
    found = (
        ("ring, latency", ring, "network.latency[0]", 100.0, 900.0),
        ("ring, kernels", ring, FACTOR, 1.0, 2.0),
        ("8 H100, kernels", slowed, FACTOR, 1.0, 2.0),
        ("8 H100, NVLinks", eight, "network.bandwidth[0]", 200.0, 450.0),
        ("16 H100, rails", sixteen, "network.bandwidth[1]", 20.0, 50.0),
        ("16 H100, latency", sixteen, "network.latency[1]", 1000.0, 9000.0),
        ("1,024 H100, rails", many, "network.bandwidth[1]", 20.0, 50.0),
    )
    sweeps: dict[str, dict[str, Any]] = {
        what: {"base": base, "axes": {axis: {"range": {"from": least, "to": most, "count": points}}}}
        for what, base, axis, least, most in found
    }
    on_graph = {"workload": {"make": "all_reduce", "ranks": 16, "bytes": 1 << 20}, "system": SYSTEM}
    graph = {**LEAF_SPINE["graph"], "uplinks": {"bandwidth": "20GB/s"}}
    of_graph: tuple[tuple[str, dict[str, Any], str, float, str], ...] = (
        ("latency", LEAF_SPINE, "network.graph.latency", 500, "ns"),
        ("uplinks", {**LEAF_SPINE, "graph": graph}, "network.graph.uplinks.bandwidth", 20, "GB/s"),
    )
    for what, network, axis, least, unit in of_graph:
        values = [f"{least * (1 + number / points):.3f}{unit}" for number in range(points)]
        base = {**on_graph, "network": network, "model": "flow"}
        sweeps[f"leaf-spine, {what}"] = {"base": base, "axes": {axis: values}}
    return sweeps


def _enlarged(swept: Path, large: Path) -> Path:
    """Write a sweep of many rows from one of few; each row has its own bandwidth, makespan and digest."""
    table = open_sweep(swept).table
    rows = [dict(row) for row in table.to_pylist()]
    many = []
    for number in range(ROWS):
        row = rows[number % len(rows)]
        makespan = row["makespan_ns"] + number
        bandwidth = row[AXIS] + number / ROWS
        changed = {"point": number, AXIS: bandwidth, "makespan_ns": makespan, "digest": f"{number:064x}"}
        many.append(row | changed)
    large.mkdir()
    with pa.OSFile(str(large / "sweep.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(pa.Table.from_pylist(many, schema=table.schema))
    return large


def _seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Return wall seconds, and processor seconds of this process and its workers."""
    begin, before = time.perf_counter(), sum(os.times()[:4])
    call()
    return time.perf_counter() - begin, sum(os.times()[:4]) - before


def _tell(what: str, seconds: tuple[float, float], points: int) -> None:
    each = " ".join(f"{1000 * second / points:8.2f} ms" for second in seconds)
    print(f"{what:<31} {seconds[0]:7.2f} s; a point: {each} of processors")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("points", nargs="?", type=int, default=1000, help="number of points (default: 1000)")
    main(parser.parse_args().points)
