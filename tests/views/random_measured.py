"""Random sweeps, calibrations, comparisons with measurements, and conversions, as command lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import random_commands
from random_commands import CONVERT, FILES, RUNS, VALUES, Line
from small_sweeps import WORKLOAD

from et_sim.trace import TraceBuilder, Workload, write_workload

MEASURED = Path(str(files("et_sim.validation") / "measurements"))
STEPS = Path(__file__).parents[1] / "measurements" / "steps_today.csv"

AXES: dict[str, Any] = {
    "bandwidth": {"field": "network.bandwidth[0]", "values": [25, 50, 100]},
    "latency": {"field": "network.latency[0]", "range": {"from": 100, "to": 900, "count": 3}},
    "splits": {"field": "system.preferred-dataset-splits", "values": [1, 2, 4]},
    "size": {"field": "workload.bytes", "values": [1024, 65536, "1MiB"]},
    "kind": {"field": "workload.make", "values": ["all_reduce", "all_gather", "all_to_all"]},
    "delay": {"field": "system.endpoint-delay", "values": [0, 100]},
    "model": {"field": "model", "values": ["analytical", "link"]},
}
SEARCHES: Sequence[dict[str, Any]] = (
    {"minimise": ["makespan_ns"], "budget": 5},
    {"minimise": ["makespan_ns"], "budget": 3, "at-once": 1},
    {"minimise": ["makespan_ns", "messages"], "seed": 1, "budget": 4},
    {"minimise": ["makespan_ns"]},
    {"minimise": ["price"], "budget": 2},
)
SWEPT = (
    "inspect run/s",
    "inspect run/s --json",
    "inspect run/s --svg run/points.svg",
    "report run/s --html run/p.html",
)


def sweeps(draw: Random) -> Line:
    """Return a sweep or a search over a small collective, a job or a serving, and how it is shown."""
    axes = {name: AXES[name] for name in draw.sample(sorted(AXES), draw.randint(1, 2))}
    base: dict[str, Any] = {"workload": WORKLOAD, "system": "system.json", "network": "network.yml"}
    if draw.random() < 0.3:
        base |= {"workload": {"make": "llm", "model": "gpt2", "layers": 1, "sequence": 32, "plan": {"dp": 4}}}
        base = {"workload": base["workload"], "machine": "h100-dgx:4"}
        axes = {"zero": {"field": "workload.plan.zero", "values": [0, 1, 3]}}
        axes |= (
            {"micro": {"field": "workload.plan.micro-batches", "values": [1, 2]}}
            if draw.random() < 0.5
            else {}
        )
    spec: dict[str, Any] = {"base": base, "axes": axes}
    names = [*axes]
    if draw.random() < 0.3:
        spec["constraints"] = [draw.choice((f"{names[0]} != 50", f"{names[-1]} > 1", f"{names[0]} <"))]
    if len(names) == 2 and draw.random() < 0.3:
        spec["zip"] = [names]
    words = "sweep"
    if draw.random() < 0.35:
        words, spec["search"] = "search", draw.choice(SEARCHES)
    return Line(
        f"{words} points.yml --workers 1 --out run/s", 1, after=SWEPT, files=FILES | {"points.yml": spec}
    )


@cache
def lines_of(name: str) -> list[str]:
    """Return the lines of a shipped CSV."""
    return (MEASURED / name).read_text(encoding="utf-8").splitlines()


@cache
def tables_of(name: str) -> list[dict[str, Any]]:
    """Return the shipped tables of a file."""
    found: list[dict[str, Any]] = json.loads((MEASURED / name).read_text(encoding="utf-8"))
    return found


def kernel_rows(draw: Random, count: int) -> dict[str, Any]:
    """Return some measured kernels, and the descriptions of their tables."""
    name = draw.choice(("kernels", "kernels_by_type"))
    head, *rows = lines_of(f"{name}.csv")
    table = draw.choice(sorted({row.partition(",")[0] for row in rows}))
    of_table = [row for row in rows if row.startswith(f"{table},")]
    chosen = draw.sample(of_table, min(count, len(of_table)))
    about = json.loads((MEASURED / f"{name}.json").read_text(encoding="utf-8"))
    return {"rows.csv": "\n".join((head, *chosen)) + "\n", "rows.json": {table: about[table]}}


HARDWARE = (
    "A100-SXM4-80GB",
    "8xH100 SXM, 8x400 Gb/s per node",
    "MI300X, 4 per node",
    "H200",
    "GPU X",
    "L40S PCIe",
)
NETWORKS = ("NVLink4 NVSwitch", "8x200 Gb/s per node", "4x HDR InfiniBand", "EFA 400 Gb/s", "unknown", "")


def collectives(draw: Random) -> list[dict[str, Any]]:
    """Return tables of measured collectives with a few rows, some of other hardware."""
    found = []
    for table in draw.sample(tables_of("collectives.json"), 2):
        changed = table | {"rows": draw.sample(table["rows"], 3)}
        if draw.random() < 0.5:
            nodes = draw.choice((1, 2))
            changed |= {"hardware": draw.choice(HARDWARE), "interconnect": draw.choice(NETWORKS)}
            changed |= {"nodes": nodes, "gpus": nodes * draw.choice((2, 4, 8)), "algo_forced": None}
        if draw.random() < 0.1:
            changed["quality"] = "degraded"
        if draw.random() < 0.15:
            changed["rows"] = [draw.choice(([-1, 2.0], [1024], [1024, "x"], [1 << 20, 0.0]))]
        found.append(changed)
    return found


PLANS = (
    "tp2 dp4",
    "pp2 dp4 zero1",
    "tp2 pp2x2 cp1 dp2 ep1 zero1 none",
    "dp8 zero3 full",
    "dp8 x7",
    "tp2 tp2 dp2",
)


def iterations(draw: Random) -> list[dict[str, Any]]:
    """Return a measured iteration, with few layers."""
    table = draw.choice([table for table in tables_of("iterations.json") if "layers" in table["columns"]])
    row = dict(zip(table["columns"], draw.choice(table["rows"]), strict=True))
    row |= {"layers": 2, "gpus": 4, "pp": 1, "dp": 2, "tp": 2, "global_batch": 4, "micro_batch": 1}
    row |= {"heads": draw.choice((16, 15))} if draw.random() < 0.2 else {}
    row |= {"hardware": draw.choice(HARDWARE)} if "hardware" in row and draw.random() < 0.3 else {}
    return [table | {"columns": [*row], "rows": [[*row.values()]]}]


def steps(draw: Random) -> str:
    """Return lines of measured steps of a small model, with texts like those of published ones."""
    published = list(csv.DictReader(io.StringIO(STEPS.read_text(encoding="utf-8"))))
    out = io.StringIO()
    writer = csv.DictWriter(out, [*published[0]])
    writer.writeheader()
    for _ in range(2):
        row = draw.choice(published) | {
            "model": "gpt2",
            "machine": draw.choice(("h100-dgx", "h200-dgx", "mi300x-node")),
        }
        row |= {
            "gpus": "8",
            "plan": draw.choice(PLANS),
            "micro_batches": "2",
            "micro_batch": "1",
            "seq": "64",
        }
        row |= draw.choice(
            (
                {},
                {},
                {"note": "selective op"},
                {"software": "Something 1.2"},
                {"precision": draw.choice(("fp8", "int3"))},
                {"gpus": "7"},
                {"hardware": "16 H200"},
                {"source": "a page"},
            )
        )
        writer.writerow(row)
    return out.getvalue()


def servings(draw: Random, count: int) -> str:
    """Return measured servings of a small model."""
    columns = "backend model_path system mode isl osl concurrency tp_size moe_tp_size moe_ep_size"
    columns += " attention_dp_size ttft_ms tpot_ms campaign"
    rows, engine = [columns.replace(" ", ",")], draw.choice(("vllm", "sglang", "trtllm"))
    for number in range(count):
        engine = engine if draw.random() < 0.95 else "other"
        model = draw.choice(("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", "a/b"))
        mode, system = (
            draw.choice(("agg", "agg", "disagg")),
            draw.choice(("h100_sxm", "h200_sxm", "b200_sxm", "tpu")),
        )
        of = [
            engine,
            model,
            system,
            mode,
            20 + 9 * number,
            draw.choice((1, 3, 3)),
            draw.choice((1, 2)),
            draw.choice((1, 2)),
            1,
            1,
            1,
        ]
        rows.append(",".join(map(str, [*of, 9.5, draw.choice((2.5, "")), draw.choice("AB")])))
    return "\n".join(rows) + "\n"


def checks(draw: Random) -> Line:
    """Return a comparison with some measured rows."""
    kind = draw.choice(("kernels", "collectives", "collectives", "iterations", "steps", "servings"))
    given: dict[str, Any] = {}
    match kind:
        case "kernels":
            given = kernel_rows(draw, 4)
        case "collectives":
            given = {"rows.json": collectives(draw)}
        case "iterations":
            given = {"rows.json": iterations(draw)}
        case "steps":
            given = {"rows.csv": steps(draw)}
        case _:
            given = {"rows.csv": servings(draw, 1)}
    name = "rows.csv" if "rows.csv" in given else "rows.json"
    form = draw.choice(("", " --json"))
    return Line(f"validate {name}{form}", 1, files=FILES | given)


MACHINES = {
    "a100": "a100-dgx-80gb",
    "h100": "h100-dgx",
    "h200": "h200-dgx",
    "b200": "b200-dgx",
    "mi300x": "mi300x-node",
}


def machine_of(draw: Random, name: str) -> str:
    """Return the machine on which a table was measured; now and then another one."""
    found = next((machine for part, machine in MACHINES.items() if part in name), "h100-dgx")
    return found if draw.random() < 0.9 else draw.choice([*MACHINES.values()])


def recording(draw: Random) -> None:
    """Write two ranks with kernels of several shapes, and exchanges, at recorded times."""
    traces = []
    shapes = [f"gemm {draw.choice((512, 2048, 8192))} {1024 * number} 4096" for number in range(1, 9)]
    for rank in range(2):
        build, device = TraceBuilder(), {"stream": 7}
        for turn in range(draw.choice((2, 3))):
            for number, shape in enumerate(shapes):
                took = 400_000 * (number + 1) + 700 * turn + draw.randrange(500)
                build.compute(shape, layer_shape=shape, dtype="bf16", nanos=took, attributes=device)
            build.compute("norm", tensor_bytes=1 << 24, nanos=20_000, attributes=device)
            build.compute("host", nanos=5_000, cpu=True)
            late = 9_000 * (rank == turn % 2)
            name = f"ncclDevKernel_AllReduce_Sum_{draw.choice(('f16_RING_LL', 'bf16_TREE_LL'))}(ncclDevComm*)"
            build.collective("all_reduce", 1 << 20, name=name, nanos=60_000 + late, attributes=device)
        traces.append(build.build())
    for step in range(4):
        write_workload(Workload.of(traces), Path(f"recorded{step or ''}"))


def fits(draw: Random) -> Line:
    """Return a calibration by some rows or jobs."""
    kind = draw.choice(
        ("kernels", "nccl", "nccl", "step", "step", "recording", "recording", "serving", "variation")
    )
    output, given = "-o run/machine.json" + draw.choice(("", " --json")), dict[str, Any]()
    words, before, recorded = "", (), None
    match kind:
        case "kernels":
            given = kernel_rows(draw, 40)
            words = f"rows.csv --machine {machine_of(draw, next(iter(given['rows.json'])))}"
        case "nccl":
            tables = tables_of("collectives.json")
            system = draw.choice([table["id"].partition("x")[0] for table in tables])
            given["rows.json"] = draw.sample([table for table in tables if table["id"].startswith(system)], 2)
            words = f"rows.json --machine {machine_of(draw, system)}"
        case "serving":
            given = {"rows.csv": servings(draw, 6)}
            words = (
                f"rows.csv --part {draw.choice(VALUES['part'])} --figures {draw.choice(VALUES['figures'])}"
            )
        case "variation":
            recorded, words = recording, "recorded recorded1 recorded2 recorded3 --no-steps"
        case "recording":
            recorded, words = recording, f"recorded --machine {draw.choice([*MACHINES.values()])}:2"
        case _:
            before, measured = RUNS[:1], draw.choice(("20us", "45us", "200us", "2ms"))
            words = f"job --machine {draw.choice([*MACHINES.values()])}:4 --measured {measured}"
    return Line(f"calibrate {kind} {words} {output}", 1, before=before, files=FILES | given, build=recorded)


LAYERS = """Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,
Conv1, 28, 28, 3, 3, {channels}, 16, {stride},
Conv2, 14, 14, 1, 1, 16, {channels}, 1,
"""
PRODUCTS = """Layer, M, N, K,
first, {size}, 64, 32, {how}
second, 64, {size}, 64, DATA
"""
TEXT = """{how}
2
first -1 {nanos} NONE 0 1000 ALLREDUCE {size} 500 ALLREDUCE {size} 10
second -1 200 {kind} {size} 300 NONE 0 900 ALLREDUCE 4096 20
"""
MSCCL = """<algo name="pass" proto="Simple" nchunksperloop="2" ngpus="2" coll="{kind}" inplace="{place}">
<gpu id="0" i_chunks="1" o_chunks="2" s_chunks="0"><tb id="0" send="1" recv="-1" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
</tb></gpu>
<gpu id="1" i_chunks="1" o_chunks="2" s_chunks="0"><tb id="0" send="-1" recv="0" chan="0">
<step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="{at}" cnt="1" depid="-1" deps="-1" hasdep="0"/>
</tb></gpu>
</algo>
"""
GOAL = """num_ranks 2
rank 0 {{
l1: calc {nanos} cpu 0
l2: send {size}b to 1 tag {tag}
l2 requires l1
}}
rank 1 {{
l1: recv {size}b from {source} tag 3
l2: calc 7
l2 irequires l1
}}
"""
EDITS = (
    "stats job",
    "show job",
    "stats made.workload.json",
    "strip job -o run/e",
    "scale job -o run/e --replicas 2",
    "slice job -o run/e --ranks 0-1",
    "repair job -o run/e",
    "graph job -o run/graph.dot --rank 1",
    "unjson job -o run/e",
    "expand made.workload.json -o run/e",
)
MADE = (
    "make llm --model gpt2 --layers 1 --sequence 32 --dp 2 --tp 2 --micro-batches 2 --files -o job",
    "make llm --model gpt2 --layers 2 --sequence 32 --dp 2 --pp 2 --micro-batches 2 --manifest -o made",
)


def conversions(draw: Random) -> Line:
    """Return a conversion of a small text, or an edit of a small job."""
    size, nanos = draw.choice((64, 4096, 100_001)), draw.choice((0, 50, 7000))
    kind = draw.choice(("gemm", "gemm", "text", "msccl", "goal", "edit", "edit", "edit"))
    match kind:
        case "gemm":
            images = draw.random() < 0.5
            text = (
                LAYERS.format(channels=draw.choice((3, 8)), stride=draw.choice((1, 2)))
                if images
                else PRODUCTS.format(size=size, how=draw.choice(("MODEL", "DATA", "OTHER", "")))
            )
            words = (
                f"gemm layers.csv -o run/layers.txt --ranks {draw.choice((2, 8))}" + " --images 4" * images
            )
            return Line(f"{CONVERT} {words}", 2, files=FILES | {"layers.csv": text})
        case "text":
            how = draw.choice(("DATA", "MODEL", "HYBRID_DATA_MODEL", "MICRO", "OTHER"))
            sent = draw.choice(("ALLGATHER", "ALLTOALL", "NONE", "SOME"))
            text = TEXT.format(how=how, nanos=nanos, size=size, kind=sent)
            return Line(
                f"{CONVERT} text layers.txt -o run/t --ranks 4", 2, files=FILES | {"layers.txt": text}
            )
        case "msccl":
            text = MSCCL.format(
                kind=draw.choice(("allgather", "allreduce")),
                place=draw.choice((0, 1)),
                at=draw.choice((0, 1)),
            )
            return Line(f"{CONVERT} msccl a.xml -o run/m --bytes {size}", 1, files=FILES | {"a.xml": text})
        case "goal":
            text = GOAL.format(
                nanos=nanos, size=size, tag=draw.choice((3, 3, 4)), source=draw.choice((0, 0, 1))
            )
            return Line(f"{CONVERT} goal a.goal -o run/g", 1, files=FILES | {"a.goal": text})
    return Line(f"{CONVERT} {draw.choice(EDITS)}", 2, before=MADE, files=FILES)


LINES: dict[str, Callable[[Random], Line]] = {
    **random_commands.LINES,
    "sweeps": sweeps,
    "fits": fits,
    "checks": checks,
    "conversions": conversions,
}
