"""Random questions to results and files, as command lines: SQL, repeated runs, layers on arrays, libraries,
logs of MLPerf, and files of jobs, months and sweeps with a mistake.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from random_commands import FILES, HARDWARE, JOB, SPACE, SYSTEM, Line
from random_looks import BROKEN, JOBS, POINTS, RING_8, VARIED
from random_measured import TEXT
from random_topologies import edited

MAKE = "make all_reduce --ranks 4 --bytes {size} --repeat 2 --compute-us 3 -o job"
MODEL = (
    "make llm --model gpt2 --layers 2 --sequence 32 --vocabulary 128 {plan} --micro-batches 2 -o job",
    "make llm --model gpt2 --layers 2 --sequence 64 --vocabulary 128 --dp 4 -o small",
)
PLANS = ("--dp 4", "--pp 2 --tp 2", "--tp 2 --dp 2 --zero 1", "--pp 2 --dp 2")
SERVE = "serve poisson:300,6,200,4 --model gpt2 --layers 2 --machine h100-dgx:4 --out r0"
QUERIES = {
    "run": (
        "SELECT kind, count(*), sum(end_ns - start_ns) AS ns FROM timeline GROUP BY kind ORDER BY kind",
        "SELECT * FROM actors ORDER BY actor",
        "SELECT * FROM ranks ORDER BY rank LIMIT 3",
        "SELECT * FROM run",
        "SELECT rank, max(end_ns) FROM timeline JOIN ranks USING (actor) GROUP BY rank ORDER BY rank",
        "SELECT * FROM phases ORDER BY ALL LIMIT 5",
        "SELECT * FROM groups ORDER BY ALL LIMIT 5",
        "SELECT * FROM path ORDER BY ALL LIMIT 3",
        "SELECT name, group FROM timeline",
        "SELECT nme FROM timeline",
        "SELECT * FROM timelin",
        "SELECT * FROM memory",
        "SELECT 1; SELECT 2",
        "SELEC kind FROM timeline",
        "COPY timeline TO 'x.csv'",
        "SELECT 0.25 AS share, 'a,b' AS text, NULL AS nothing, true AS flag",
        "SELECT * FROM timeline WHERE false",
        "SELECT range AS n FROM range(250)",
        "SELECT repeat('long ', 30) AS text, 7 AS n",
    ),
    "serving": (
        "SELECT * FROM requests ORDER BY ALL",
        "SELECT count(*), sum(tokens) FROM iterations",
        "SELECT * FROM iterations ORDER BY ALL LIMIT 4",
        "SELECT * FROM timeline",
    ),
    "sweep": (
        "SELECT bandwidth, splits, makespan_ns FROM sweep ORDER BY ALL",
        "SELECT count(*) FROM times",
        "SELECT * FROM requests",
        "SELECT makespan FROM sweep",
    ),
}
FORMS = (
    "",
    "",
    "",
    "--csv -",
    "--json -",
    "--csv",
    "--json run/rows.json",
    "--csv run/rows.csv",
    "--arrow -",
)
FIGURES = (
    *("endpoint delay=2", "bandwidth {}=0.5", "bandwidth {}=2", "latency {}=1.5", "latency {}=0", "x=2"),
    *("local memory bandwidth=2", "peak compute=0.1", "endpoint delay", "endpoint delay=0.1"),
)
DETAIL = "--detail phases,messages,links,path"


def _sql(draw: Random) -> Line:
    """Return a query of a run, a serving or a sweep."""
    of = draw.choice(("run", "run", "run", "serving", "sweep"))
    makes = {
        "run": (
            MODEL[0].format(plan=draw.choice(PLANS)),
            f"run job --machine h100-dgx:4 {draw.choice((DETAIL, DETAIL + ' --no-fold', ''))} --out r0",
        ),
        "serving": (SERVE,),
        "sweep": ("sweep points.yml --workers 1 --out r0",),
    }
    query = draw.choice(QUERIES[of]).replace(" ", SPACE)
    return Line(
        f"sql r0 {query} {draw.choice(FORMS)}", 0, before=makes[of], files=FILES | {"points.yml": POINTS}
    )


def _again(draw: Random) -> Line:
    """Return a run that is repeated with figures changed, or after its input has changed."""
    model, detail = (
        draw.choice(("link", "flow", "analytical")),
        draw.choice((DETAIL,) * 7 + ("--detail links",)),
    )
    network = draw.choice(("network.yml", "graph.yml"))
    system = draw.choice(("system.json", "other.json"))
    run = f"run job --system {system} --network {network} --network-model {model} {detail} --out r0"
    own = f"of {'NPUs to switch' if network == 'graph.yml' else 'dimension 0'}"
    figure = draw.choice(FIGURES).format(own).replace(" ", SPACE)
    asked = draw.choice(
        (f"--vary {figure}", f"--vary {figure}", "--vary", "--verify", "--vary --json", "--verify --json")
    )
    asked += draw.choice(("", "", "", " --top 2", f" --network-model {model}"))
    view = draw.choice(("critical-path",) * 12 + ("summary",))
    more = ("make all_to_all --ranks 4 --bytes 9KB -o job",) * (draw.random() < 0.1)
    before = (MAKE.format(size=draw.choice(("64KiB", "2MB"))), run, *more)
    return Line(f"inspect r0 {view} {asked}", 0, before=before, files=FILES)


ARRAY = """[general]
run_name = tiny
[architecture_presets]
ArrayHeight:    {side}
ArrayWidth:     {width}
IfmapSramSzkB:  {memory}
FilterSramSzkB: {memory}
OfmapSramSzkB:  1
IfmapOffset:    0
FilterOffset:   10000000
OfmapOffset:    20000000
Dataflow : {flow}
Bandwidth : {bandwidth}
MemoryBanks: 1
[run_presets]
InterfaceBandwidth: {interface}
"""


def _systolic(draw: Random) -> Line:
    """Return layers on a systolic array."""
    interface = draw.choice(("CALC", "USER", "USER"))
    config = ARRAY.format(
        side=draw.choice((4, 8, 32)),
        width=draw.choice((4, 8)),
        memory=draw.choice((1, 2, 64)),
        flow=draw.choice(("ws", "os", "is")),
        bandwidth=draw.choice(("10", "1", "10, 5, 3")),
        interface=interface,
    )
    sizes = [draw.choice((1, 7, 32, 65)) for _ in range(6)]
    if draw.random() < 0.5:
        row = f"{draw.choice(('conv', 'conv_DP'))},{draw.choice((8, 15))},{draw.choice((8, 9))},3,"
        row += f"{draw.choice((1, 3))},2,{draw.choice((1, 4))},"
        text = f"Layer,H,W,FH,FW,C,N,S,\n{row}{draw.choice(('1,', '2,', '1,2,'))}\nlast,6,6,3,3,2,4,1,\n"
    else:
        text = "Layer,M,N,K,\n" + "".join(
            f"l{n},{sizes[n]},{sizes[n + 1]},{sizes[n + 2]},\n" for n in range(3)
        )
    form = draw.choice(("", "--json", "--out run/reports", "--rules corrected", "--input-type gemm"))
    given = {"array.cfg": edited(draw, config, 0.25), "net.csv": edited(draw, text, 0.25)}
    return Line(f"systolic net.csv --config array.cfg {form}", 1, files=given)


def _library(draw: Random) -> Line:
    """Return choices of a collective library, or the steps of an algorithm with any option."""
    machine = draw.choice(("h100-dgx", "h100-dgx", "a100-dgx-80gb", "b200-dgx", "gb200-nvl72", "mi300x-node"))
    ranks = draw.choice((1, 2, 8, 8, 16, 20, 64))
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "gather")
    words = f"collective library --machine {machine}:{ranks} --type {draw.choice(kinds)}"
    words += draw.choice(("", "", " --bytes 64KiB", " --bytes 1GiB", " --dtype int8 --bytes 3MB"))
    return Line(f"{words} {draw.choice(('', '', '--json', '--svg run/times.svg'))}", 0)


def _works(draw: Random) -> Line:
    """Return two workloads that are compared by their work."""
    makes = (draw.choice((MODEL[0].format(plan=draw.choice(PLANS)), MAKE.format(size="9KB"))), MODEL[1])
    given = draw.choice(("{a} {b}", "{b} {a}", "{a} {a}", "{a} {b} --json", "{a} {b} --threshold 2%"))
    names = {"a": f"job.{'workload.json' if 'llm' in makes[0] else '0.et'}", "b": "small.workload.json"}
    return Line(f"compare {given.format(**names)}", 0, before=makes, files=FILES)


def _machines(draw: Random) -> Line:
    """Return machines as a list, as data, or as files."""
    words = (
        *(
            "",
            "--json",
            "--out run/m",
            "h100-dgx:16 --json",
            "gb300-nvl72:80 --json",
            "from",
            "h100-dgx x.xml",
        ),
        *("h100-dgx:12,node=4 --json", "h200-dgx:8 --out run/m", "a100-dgx-80gb:16,network=ethernet --json"),
        *("h100-dgx:16,cards=2x200 --json", "h100-dgx:16,cards=4 --out run/m", "mi300x-node:8,node=4 --json"),
    )
    return Line(f"machine {draw.choice(words)}", 0)


def _ladder(draw: Random) -> Line:
    """Return a run on several network models."""
    models = draw.choice(
        ("analytical,link", "link,flow,packet", "flow,analytical", "link,link", "link,x", "link")
    )
    network = draw.choice(("network.yml", "graph.yml"))
    words = f"run job --system system.json --network {network} --network-models {models}"
    return Line(
        f"{words} --out run/r {draw.choice(('', '', '--json'))}",
        1,
        before=(MAKE.format(size="64KiB"),),
        files=FILES,
    )


def _records(draw: Random) -> Line:
    """Return records of NCCL's Inspector of a run."""
    plan = draw.choice(PLANS)
    run = f"run job --machine h100-dgx:4 {draw.choice(('', '--no-fold'))} --out r0"
    makes = draw.choice(
        ((MODEL[0].format(plan=plan), run), (MAKE.format(size="64KiB"), f"run job {HARDWARE} --out r0"))
    )
    words = f"export r0 --inspector run/records {draw.choice(('', '--node 2', '--node 3', '--ranks 0-1'))}"
    return Line(
        words,
        0,
        before=makes,
        files=FILES,
        after=("calibrate nccl run/records --machine h100-dgx -o run/m.json",),
    )


MLLOG = ':::MLLOG {{"namespace": "", "time_ms": {at}, "event_type": "POINT", "key": "{key}", "value": {value}'


def _mlperf(draw: Random) -> Line:
    """Return a log of MLPerf, with or without the description of its system."""
    at, lines = 1_759_966_714_693, list[str]()
    counted = draw.choice(("samples_count", "samples_count", "step"))

    def note(key: str, value: Any, **metadata: int) -> None:
        lines.append(
            MLLOG.format(at=at, key=key, value=json.dumps(value)) + f', "metadata": {json.dumps(metadata)}}}'
        )

    for key, value in (
        ("global_batch_size", draw.choice((32, 32.0, 64))),
        ("gradient_accumulation_steps", draw.choice((1, 2))),
        ("max_sequence_length", draw.choice((2048, 8192))),
        ("submission_benchmark", draw.choice(("llama31_8b", "llama31_8b", "llama2_70b_lora"))),
        ("submission_org", "AMD"),
        ("submission_platform", draw.choice(("MI350X", "DGX H100", "tpu"))),
    ):
        if draw.random() < 0.97:
            note(key, value)
    for block in range(draw.choice((1, 2, 3))):
        note("block_start", None, **{counted: block * 64})
        at += draw.choice((4000, 90_000))
        lines.append("another program prints this")
        if draw.random() < 0.95:
            note("block_stop", None, **{counted: (block + 1) * 64 if draw.random() < 0.9 else block * 64})
    system = {
        "accelerator_model_name": draw.choice(("AMD Instinct MI355X", "NVIDIA H100 80GB HBM3", "TPU")),
        "accelerators_per_node": draw.choice((8, 8, 8, "8", 4, "x")),
        "number_of_nodes": draw.choice((1, 1, "1", 2)),
        "framework": "PyTorch",
        "other_software_stack": draw.choice(("", "ROCm 7")),
    }
    files: dict[str, Any] = {"sub/results/box/llama/result_0.txt": "\n".join(lines) + "\n"}
    files |= {"sub/systems/box.json": system} if draw.random() < 0.8 else {}
    path = draw.choice(("sub", "sub/results/box/llama/result_0.txt", "sub/results/box"))
    words = f"validate {path}{draw.choice((' --model gpt2', ' --model gpt2', ' --model llama3-8b', ''))}"
    words += f" --precision {draw.choice(('bf16', 'bf16', 'fp8', 'x'))}" * (draw.random() < 0.9)
    words += draw.choice(("", "", "", " --machine mi355x-node", " --host-time 5us"))
    words += f" --plan {draw.choice(('tp1', 'tp2', 'tp2␣pp2', 'tp2␣zero1', 'dp8', 'tp3'))}" * (
        draw.random() < 0.9
    )
    return Line(f"{words} {draw.choice(('', '--json'))}", 0, files=files)


def _with_mistakes(draw: Random) -> Line:
    """Return a file of jobs, layers, months, samples or a sweep, in which there may be a mistake."""
    texts = {
        "jobs.yml": json.dumps(JOBS, indent=1),
        "layers.txt": TEXT.format(
            how=draw.choice(("DATA", "MODEL", "HYBRID")), nanos=700, size=4096, kind="ALLGATHER"
        ),
        "job.yml": json.dumps(JOB, indent=1),
        "points.yml": json.dumps(POINTS, indent=1),
        "varied.json": json.dumps(SYSTEM | {"variation": VARIED}, indent=1),
        "broken.yml": json.dumps(BROKEN, indent=1),
    }
    makes = (MAKE.format(size="64KiB"), "make all_to_all --ranks 4 --bytes 9KB -o small")
    name = draw.choice(sorted(texts))
    words, before = {
        "jobs.yml": ("run jobs.yml --system system.json --network eight.yml --out run/r", makes),
        "layers.txt": ("run layers.txt --system system.json --network network.yml --out run/r", ()),
        "job.yml": ("goodput job.yml --runs 2 --days 1 --out run/g", ()),
        "points.yml": (
            f"sweep points.yml --workers 1 --out r{draw.choice('01')}",
            ("sweep sound.yml --workers 1 --out r0",),
        ),
        "varied.json": (
            "run job --system varied.json --network network.yml --samples 3 --out run/r",
            makes[:1],
        ),
        "broken.yml": (
            "run job --system system.json --network broken.yml --network-model flow --out run/r",
            makes[:1],
        ),
    }[name]
    given = texts | {name: edited(draw, texts[name], 0.9), "sound.yml": POINTS, "eight.yml": RING_8}
    return Line(words, 0, before=before, files=FILES | given)


KINDS: tuple[Callable[[Random], Line], ...] = (
    *(_sql, _sql, _again, _again, _systolic, _systolic, _library, _works, _machines, _ladder, _records),
    *(_mlperf, _mlperf, _with_mistakes, _with_mistakes, _with_mistakes),
)


def tools(draw: Random) -> Line:
    """Return a question to a result or a file, of one of many kinds."""
    return draw.choice(KINDS)(draw)
