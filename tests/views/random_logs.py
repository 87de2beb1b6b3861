"""Random logs of measured collectives and times of steps, to which machines are calibrated."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from random_commands import FILES, Line

from et_sim.machine.collective_library import Call, Library, LibraryWires
from et_sim.trace import TraceBuilder, Workload, write_workload

RECORDED_STEPS = Path(__file__).parents[1] / "converters" / "data" / "stragglers" / "ST.parquet"

WHOLE = ("all_gather", "reduce_scatter", "alltoall")
INSPECTED = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "alltoall": "AlltoAll",
    "broadcast": "Broadcast",
}
NCCL_HEAD = """# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20
# Using devices
"""
SIZES = tuple(1 << power for power in range(10, 28))
LIBRARIES = {
    "a100-dgx-80gb": Library("nccl-2.30", "ampere", LibraryWires(240, True, 8, 25, 300), 8),
    "h200-dgx": Library("nccl-2.30", "hopper", LibraryWires(370.8, True, 8, 50, 450), 8),
}


def _times(draw: Random, machine: str, kind: str, ranks: int, nodes: int) -> list[tuple[int, float]]:
    """Return times in microseconds, by size, that are near to those of the library of a machine."""
    fewest = 3 if draw.random() < 0.1 else 9
    kind = {"alltoall": "all_to_all", "scatter": "broadcast"}.get(kind, kind)
    calls = [
        Call(kind, ranks, nodes, size)
        for size in sorted(draw.sample(SIZES, draw.randint(fewest, len(SIZES))))
    ]
    scale = draw.choice((1.0, 1.1, 0.9))
    times = (LIBRARIES[machine].choice(call).time_us * scale * draw.uniform(0.97, 1.03) for call in calls)
    return [(call.size, round(us, 2)) for call, us in zip(calls, times, strict=True)]


def measured(draw: Random, machine: str) -> tuple[str, str]:
    """Return the name and the text of a log, a CSV or a record of measured collectives."""
    kind = draw.choice(("all_reduce", "all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast"))
    kind = "scatter" if draw.random() < 0.05 else kind
    ranks, nodes = draw.choice(((2, 1), (4, 1), (8, 1), (8, 1), (16, 2)))
    rows = _times(draw, machine, kind, ranks, nodes)
    nodes += draw.random() < 0.05
    match draw.choice(("log", "log", "csv", "inspector")):
        case "log":
            named = f"# {kind}_perf\n" if draw.random() < 0.7 else ""
            on = "#  Rank {:2} Group  0 Pid 1 on host{} device {} [0x07] NVIDIA\n"
            hosts = "".join(on.format(rank, rank * nodes // ranks, rank % 8) for rank in range(ranks))
            head = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
            lines = "".join(
                f"{size:12} {size // 4:12} {draw.choice(('float', 'half'))} sum -1 {us} 1.00 1.00 0\n"
                for size, us in rows
            )
            if draw.random() < 0.05:
                lines += "     4096  1024 float sum -1 N/A 1 1 0\n"
            return f"{kind if draw.random() < 0.9 else 'log'}.txt", named + NCCL_HEAD + hosts + head + lines
        case "csv":
            lines = "".join(f"{kind},float32,{ranks},{nodes},{size},{us}\n" for size, us in rows)
            if draw.random() < 0.1:
                lines += draw.choice(("all_reduce,float32,2,1,0,5\n", "all_reduce,float32,x,1,8,5\n"))
            return "rows.csv", "collective,dtype,ranks,nodes,bytes,us\n" + lines
    return "records.log", _records(draw, kind, ranks, nodes, rows)


def _records(draw: Random, kind: str, ranks: int, nodes: int, rows: list[tuple[int, float]]) -> str:
    """Return records of NCCL's Inspector, of which some are lost, and some ranks late."""
    records = []
    for rank in range(ranks):
        for number, (size, us) in enumerate(rows):
            if draw.random() < 0.01:
                continue  # lost
            record = {
                "header": {"id": "0x7f", "rank": rank, "n_ranks": ranks, "nnodes": nodes},
                "metadata": {"inspector_output_format_version": "v4.0", "hostname": "h", "pid": rank},
                "coll_perf": {
                    "coll": INSPECTED.get(kind, "Other"),
                    "coll_sn": number,
                    "coll_msg_size_bytes": size // ranks if kind in WHOLE else size,
                    "coll_exec_time_us": us + us * draw.choice((0, 0.01, 0.01, 0.02, 0.3)) * (rank % 3),
                },
            }
            records.append(json.dumps(record))
    return "\n".join(records) + "\n"


GRAPH = "host:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 8 nNodes {nodes} localRanks 8\n" + (
    "host:1:2 [0] NCCL INFO Pattern 4, crossNic 0, nChannels {channels}, bw {speed}/{speed}, type NVL/PIX\n"
)
TUNING = "host:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 8 nNodes 1 localRanks 8\n" + (
    "{kind}: {size} Bytes -> Algo {algorithm} proto {protocol} channel{{Lo..Hi}}={{0..3}}\n"
)


STEPS = {  # layers, tokens of a sequence, and the simulated time on each machine
    "job": ("2", "64", {"h100-dgx:4": 3.18, "mi300x-node:4": 2.62}),
    "other": ("4", "64", {"h100-dgx:4": 5.69, "mi300x-node:4": 4.69}),
    "third": ("2", "256", {"h100-dgx:4": 3.65, "mi300x-node:4": 3.16}),
}
FIGURES = ("", "--host-time", "--software-factor", "--device-rate", "--memory-rate", "--software-and-power")


def _steps(draw: Random, output: str) -> Line:
    """Return a calibration by the times of steps."""
    machine, scale = draw.choice(("h100-dgx:4", "mi300x-node:4")), draw.choice((0.95, 1.2, 1.2, 1.5))
    times = {
        name: f"{of[machine] * scale * draw.uniform(0.97, 1.03):.3f}ms" for name, (*_, of) in STEPS.items()
    }
    words = (
        f"calibrate step job --machine {machine} --measured {times['job']} {draw.choice(FIGURES)} {output}"
    )
    for name in ("other", "third")[: draw.choice((0, 1, 2))]:
        words += f" --other {name}={times[name]}"
    makes = [
        f"make llm --model gpt2 --layers {layers} --sequence {tokens} --vocabulary 512 --dp 4 -o {name}"
        for name, (layers, tokens, _) in STEPS.items()
    ]
    return Line(words, 0, before=tuple(makes), files=FILES)


def logs(draw: Random) -> Line:
    """Return a calibration by logs of collectives, or of steps of several jobs."""
    output = "-o run/machine.json" + draw.choice(("", " --json"))
    if draw.random() < 0.3:
        return _steps(draw, output)
    files: dict[str, Any] = {}
    machine = draw.choice(sorted(LIBRARIES))
    for folder in ("logs", "more", "further")[: draw.choice((1, 2, 3))]:
        name, text = measured(draw, machine)
        files[f"{folder}/{name}"] = text
    given = " ".join(draw.choice((name, name.partition("/")[0])) for name in files)
    words = f"calibrate nccl {given} --machine {machine} {output}"
    if draw.random() < 0.3:
        files["graph.txt"] = GRAPH.format(
            nodes=draw.choice((1, 1, 2)), channels=draw.choice((8, 16)), speed=draw.choice(("20.0", "44.0"))
        )
        words += " --graph graph.txt"
    if draw.random() < 0.3:
        files["tuning.txt"] = "".join(
            TUNING.format(
                kind="Other" if draw.random() < 0.05 else draw.choice(("AllReduce", "AllGather")),
                size=size,
                algorithm=draw.choice(("RING", "TREE", "1", "NVLS")),
                protocol=draw.choice(("LL", "LL128", "SIMPLE", "2")),
            )
            for size in draw.sample(SIZES, 3)
        )
        words += " --tuning tuning.txt"
    return Line(words, 0, files=FILES | files)


def _table_of_steps(draw: Random) -> None:
    """Write some steps of a recorded job, whose times vary more or less."""
    table = pq.read_table(RECORDED_STEPS)
    steps = sorted(set(table["step"].to_pylist()))
    first, count = draw.randrange(len(steps) - 8), draw.choice((3, 4, 6, 8))
    chosen = table.filter(np.isin(table["step"].to_numpy(), steps[first : first + count]))
    at = chosen.schema.get_field_index("duration")
    factors = [draw.choice((1.0, 1.0, 1.02, 0.97, 1.3)) for _ in range(len(chosen))]
    pq.write_table(
        chosen.set_column(at, "duration", [chosen["duration"].to_numpy() * factors]), "steps.parquet"
    )


def _single_steps(draw: Random) -> None:
    """Write steps of two ranks; the second one has other kernels, and an operation may lack in a step."""
    for step in range(6):
        traces, factor = [], draw.choice((1.0, 1.1, 0.9))
        for rank in range(2):
            build = TraceBuilder()
            for number in range(draw.choice((12, 12, 12, 11))):
                build.compute("gemm", nanos=round(1000 * factor) + draw.randrange(90) + number)
            build.compute("host", nanos=draw.choice((0, 400, 500)), cpu=True)
            build.collective("all_reduce", 8, nanos=draw.choice((300, 330)))
            for _ in range(2 * rank):
                build.compute("norm", nanos=40)
            traces.append(build.build())
        write_workload(Workload.of(traces), Path(f"step{step}"))


def _inspector(draw: Random) -> None:
    """Write records of NCCL's Inspector of two ranks, of which the second may come late."""
    Path("records").mkdir()
    late, count, spread = draw.choice((0, 0, 0, 300)), draw.choice((5, 40)), draw.choice((0.0, 0.05, 0.2))
    sizes = [size for size in (1 << 20, 1 << 24) for _ in range(count)]
    took = [size / 20_000 * draw.lognormvariate(0, spread) for size in sizes]
    for rank in range(2):
        lines = [
            {
                "header": {"id": "0x1", "rank": rank, "n_ranks": 2, "nnodes": 1},
                "metadata": {"inspector_output_format_version": "v4.0", "hostname": "h", "pid": rank},
                "coll_perf": {
                    "coll": "AllReduce",
                    "coll_sn": number,
                    "coll_msg_size_bytes": size,
                    "coll_exec_time_us": us + late * rank,
                },
            }
            for number, (size, us) in enumerate(zip(sizes, took, strict=True))
        ]
        Path(f"records/h-pid{rank}.log").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")


SIMULATED = 0.2  # of tables of steps, whose whole steps are simulated for ten seconds
TWO = {"topology": ["Switch"], "npus_count": [2], "bandwidth": [50], "latency": [10]}


def varied(draw: Random) -> Line:
    """Return a calibration of how times vary: by a table, traces of a step each, runs of them, or records."""
    output = "-o run/varied.json" + draw.choice(("", " --json"))
    by = draw.choice(("", "", "--by kind"))
    build: Callable[[Random], None] = _single_steps
    match draw.choice(("table", "table", "steps", "steps", "records")):
        case "table":
            simulated = draw.random() < SIMULATED
            words, build = f"steps.parquet{' --no-steps' * (not simulated)}", _table_of_steps
        case "records":
            build, by = _inspector, draw.choice(("--by kind", "--by kind", "--by kind", ""))
            words = draw.choice(("records", "records", "records", "records none.json"))
        case _:
            words = " ".join(f"step{number}" for number in range(draw.choice((3, 4, 5, 6))))
    return Line(f"calibrate variation {words} {by} {output}", 0, files=FILES | {"two.yml": TWO}, build=build)
