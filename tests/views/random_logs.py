"""Random logs of measured collectives and times of steps, to which machines are calibrated."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from random_commands import FILES, Line

from et_sim.machine.collective_library import Call, Library, LibraryWires

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
