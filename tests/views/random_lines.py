"""Further random command lines: servings, files of long jobs, searches, views of many kinds, and logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from random_commands import A_WRONG_ONE, EXPERTS, FILES, HARDWARE, SYSTEM, VIEWS, Line, small
from random_measured import LINES as OTHERS
from random_measured import TEXT

from et_sim.machine.collective_library import Call, Library, LibraryWires
from et_sim.views.view import DRAWN

# Loads of a serving: by times of arrival, in sessions, in a closed loop, in batches, and of files.
LOADS = (
    *("poisson:200,6,90,5", "constant:500,5,200,3", "gamma:300,{spread},5,90,4"),
    *("sessions:300,2,3,60,4,0.0001", "closed:80,4,5", "rollout:80,4,4,2", "requests.csv", "requests.csv"),
)
HOST = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 900, "remote-mem-bw": 20}
TARGETS = ("queue:1", "requests:2", "busy:0.5", "busy:2", "queue")
FLEET = "--most-replicas 3 --autoscale queue:1 --start-time 1ms --scale-every 2ms --scale-down-after 1ms"
APART = "--prefill-replicas 1 --decode-replicas 1"
SERVED = {
    "ttft": ("1ms", "20ms", "1s"),
    "tpot": ("200us", "3ms"),
    "rate": ("50", "5000"),
    "warm-up": ("0", "1", "3", "9"),
    "good-share": ("0.5 --find-rate --ttft 5ms", "0.9 --find-rate --tpot 1ms", "1.5 --find-rate --ttft 9ms"),
    "tolerance": ("0.5 --find-rate --ttft 5ms", "0.1"),
    "find-rate": ("--ttft 5ms", "--tpot 1ms", ""),
    "lengths": ("0.5", "0.1", "2"),
    "concurrency": ("1", "2", "4"),
    "cache-tokens": ("96", "400", "9000"),
    "block": ("1", "16", "64"),
    "prompt-every": ("1", "3"),
    "max-batch": ("1", "2", "8"),
    "token-budget": ("32", "128", "2048"),
    "context-step": ("1", "64"),
    "memory-share": ("0.3", "0.9", "1.2"),
    "speculate": ("ngram:2 --acceptance 1.7", "gpt2:2 --acceptance 1", "ngram:3 --acceptance 9", "ngram:1"),
    "acceptance": ("1.5 --speculate ngram:2", "2 --speculate gpt2:3"),
    "prefix-cache": ("all", "0", "64", "some"),
    "offload": ("all --prefix-cache 0 --memory memory.json", "200 --prefix-cache 90 --memory memory.json"),
    "router": ("load --replicas 2", "prefix --prefix-cache all --replicas 2"),
    "engine": ("vllm", "sglang", "trtllm", "vllm:0.10.0", "tgi"),
    "policy": ("static", "prefill-first", "decode-first", "chunked"),
    "autoscale": tuple(f"{target} --most-replicas 3 --start-time 1ms" for target in TARGETS),
    "weights-from": tuple(f"{source} {FLEET}" for source in ("peer", "store", "disk")),
    "second-model": (
        *("gpt2,share=0.5", "gpt2-medium,share=0.3,tp=2", "gpt2,share=1,replicas=2", "gpt2,dp=2,share=0.4"),
        *("gpt2,share=2", "gpt2,prefill-replicas=1,decode-replicas=1,share=0.5", "gpt2,part=1"),
    ),
    "transfer": (f"layers {APART}", f"whole {APART}"),
    "prefill-replicas": ("1 --decode-replicas 1", "2 --decode-replicas 1"),
    "decode-replicas": ("2 --prefill-replicas 1",),
    "decode-tp": (f"2 {APART}",),
    "decode-pp": (f"2 {APART}",),
    "decode-dp": (f"2 {APART}",),
    "decode-ep": (f"2 --decode-dp 2 {APART}",),
    "ep": ("2 --dp 2", "4 --dp 4"),
    "dp": ("2", "4"),
    "expert-exchange": ("hierarchical --ep 4 --dp 4", "deepep --dp 4 --ep 4 --node-ranks 2"),
    "expert-seed": ("3 --expert-skew zipf:1",),
    "expert-nodes": ("1 --expert-exchange deepep --dp 4 --ep 4 --node-ranks 2",),
    "attention-parts": ("--overlap-experts --dp 2 --ep 2",),
    "overlap-experts": ("--dp 2 --ep 2",),
    "experts-apart": ("--dp 2 --ep 2",),
    "adapters": ("4 --lora-rank 8",),
    "stage-layers": ("1,1 --pp 2", "0,2 --pp 2"),
    "profile": ("reference", "corrected"),
    "network-model": ("analytical", "link"),
}
OF_EXPERTS = {
    *("ep", "dp", "decode-dp", "decode-ep", "expert-skew", "expert-seed", "expert-exchange", "expert-nodes"),
    *("expert-products", "redundant-experts", "experts-apart", "dispatch", "node-ranks", "attention-parts"),
    *("overlap-experts", "image-tokens"),
}
FLEETS = (
    *("", "", "", "--replicas 2", "--dp 2", "--tp 2", "--pp 2", "--find-rate --ttft 5ms"),
    "--prefill-replicas 1 --decode-replicas 2",
    "--prefill-replicas 2 --decode-replicas 1 --decode-tp 2 --transfer layers",
    FLEET,
    "--prefix-cache 0 --offload all --memory memory.json",
    "--prefix-cache all --replicas 2 --router prefix",
    "--second-model gpt2,share=0.5",
)


def requests(draw: Random) -> str:
    """Return a file of requests, of this or another project, now and then with a mistake."""
    times = sorted(draw.randrange(5000) for _ in range(draw.choice((1, 4, 6))))
    sizes = [(draw.choice((20, 90, 300)), draw.choice((1, 3, 6))) for _ in times]
    wrong = draw.choice(("-1", "x", "0", "1e99")) if draw.random() < 0.12 else ""
    match draw.choice(("own", "sessions", "azure", "burst", "mooncake")):
        case "own":
            rows = [
                f"{wrong or at / 1e6},{prompt},{output}" for at, (prompt, output) in _zipped(times, sizes)
            ]
            return "\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n"
        case "sessions":
            rows = [
                f"{number % 2},{'' if number > 1 else at / 1e6},{wrong or prompt + 90 * number},{output},"
                + (draw.choice(("0.0001", "0")) if number > 1 else "")
                for number, (at, (prompt, output)) in enumerate(_zipped(times, sizes))
            ]
            return "\n".join(["session,arrival_s,prompt_tokens,output_tokens,think_s", *rows]) + "\n"
        case "azure":
            rows = [
                f"2023-11-16 18:15:{40 + at // 1000}.{at % 1000:03}0000,{prompt},{wrong or output}"
                for at, (prompt, output) in _zipped(times, sizes)
            ]
            return "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n"
        case "burst":
            head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
            rows = [
                f"{at // 1000},ChatGPT,{prompt},{wrong or output},{prompt + output},API log"
                for at, (prompt, output) in _zipped(times, sizes)
            ]
            return "\n".join([head, *rows]) + "\n"
    of_json = [
        {
            "timestamp": at // 100,
            "input_length": prompt,
            "output_length": output,
            "hash_ids": [7, number][: max(1, -(-prompt // 512))] if not wrong else [0, 0],
        }
        for number, (at, (prompt, output)) in enumerate(_zipped(times, sizes))
    ]
    return "".join(json.dumps(row) + "\n" for row in of_json)


def _zipped(times: list[int], sizes: list[tuple[int, int]]) -> list[tuple[int, tuple[int, int]]]:
    return list(zip(times, sizes, strict=True))


def serves(draw: Random) -> Line:
    """Return a serving with a load, a fleet and options, and how it is shown."""
    model, files = "--model gpt2 --layers 2", dict[str, Any]()
    if draw.random() < 0.4:
        files = {"model.json": small(draw, EXPERTS)}
        model = f"--model model.json {draw.choice(('', '--dp 2 --ep 2', '--dp 4 --ep 4', '--tp 2'))}"
    machine = draw.choice(("--machine h100-dgx:16", "--machine mi300x-node:8", f"{HARDWARE} --capacity 9GB"))
    load = draw.choice(LOADS).format(spread=draw.choice((0, 2)))
    words, fleet = f"serve {load} {model} {machine}", draw.choice(FLEETS)
    if load[0] != "r" or "file" in fleet:
        words += f" {fleet}" if not {*fleet.split()} & {*words.split()} & {"--dp", "--tp"} else ""
    words += " --concurrency 2" * (load.startswith("closed") and draw.random() < 0.95)
    words += f" --seed {draw.randrange(3)}" * (load[0] in "ps" and draw.random() < 0.3)
    without = (OF_EXPERTS if not files else {"image-tokens"}) | (set() if load[0] == "c" else {"concurrency"})
    shown = ("inspect run/s", "inspect run/s --json", "report run/s --html run/page.html")
    return Line(
        f"{words} --out run/s",
        draw.choice((0, 1, 1, 2)),
        after=shown[: draw.choice((1, 2, 3))],
        files=FILES | files | {"requests.csv": requests(draw), "memory.json": HOST, "network.yml": RING_8},
        values=SERVED,
        without=without | {"seed", "send-weights" if load[0] != "r" else "rate"},
    )


RING_8 = {"topology": ["Ring"], "npus_count": [8], "bandwidth": [50], "latency": [500]}
SPANS = ("90s", "10min", "2h", 40, "1d")
PARTS: tuple[dict[str, Any], ...] = (
    {"name": "gpu", "per-1000-node-days": 5},
    {"name": "gpu", "effect": "corrupts", "per-1000-node-days": 4, "detection": "5h"},
    {"name": "nic", "per-1000-node-days": 9, "link": True, "repair": "1d"},
    {"name": "nic", "per-1000-node-days": 9, "effect": "halves-link", "detection": "1h"},
    {"name": "power", "per-1000-node-days": 1, "nodes": 8, "repair": "2d"},
    {"name": "software", "per-1000-node-days": 9, "nodes": 0},
    {"name": "slow", "per-1000-node-days": 9, "effect": "slows", "detection": "3h", "nodes": 1},
    {"name": "rare", "per-1000-node-days": 0},
)
WRONG_KEYS: tuple[dict[str, Any], ...] = (
    {"step": 0},
    {"spares": {"hot": -1}},
    {"failures": {"preset": "rsc-9"}},
    {"run": "r0"},
    {"checkpoints": {"interval": "1 fortnight"}},
    {"machine": "h100-dgx"},
    {"failures": {"parts": [{"name": "new"}]}},
    {"elastic": 1000},
    {"when-full": "stop"},
    {"recovry": {}},
)


def spans(draw: Random) -> Line:
    """Return months of a long job, whose file has any of its keys, and how they are shown."""

    def some(given: dict[str, Any], share: float = 0.4) -> dict[str, Any]:
        return {name: value for name, value in given.items() if draw.random() < share}

    step = {"step": draw.choice(("5s", "800ms", 31)), "tokens-of-step": 4_000_000}
    step |= {"gpus": draw.choice((8, 64, 1024))}
    if draw.random() < 0.35:
        plan = draw.choice(({"dp": 4}, {"dp": 2, "tp": 2}, {"pp": 2, "dp": 2}, {"dp": 4, "zero": 3}))
        recipe = {"make": "llm", "model": "gpt2", "layers": 2, "sequence": 32, "plan": plan}
        step = {"workload": recipe, "machine": draw.choice(("h100-dgx:4", "h100-dgx:4,node=2"))}
    is_large = step.get("gpus", 0) >= 64
    memory = {"interval": "3min", **some({"stall": "2s", "load": "20s", "copies": draw.choice((1, 2, 3))})}
    checkpoints = some(
        {
            "interval": draw.choice(SPANS),
            "how": draw.choice(("asynchronous", "synchronous")),
            "bytes": draw.choice(("1TB", "20TB")),
            "storage": draw.choice(("100GB/s", "4TB/s")),
            "stall": draw.choice(SPANS),
            "memory": memory,
        },
        0.5,
    )
    if "step" in step:
        checkpoints.setdefault("bytes", "2TB")
    failures = some({"preset": draw.choice(("rsc-1", "llama3-2024")), "slower": 2.5}, 0.5)
    failures |= some({"early": {"factor": draw.choice((1, 4)), "decay": draw.choice(("3d", 9000))}}, 0.3)
    parts = draw.sample(PARTS, draw.randint(0, 4))
    if draw.random() < 0.93:  # names only once, and no rack that is larger than the job
        parts = [*{part["name"]: part for part in parts if part["name"] != "power" or is_large}.values()]
    failures |= {"parts": parts}
    described = {
        **step,
        "failures": failures,
        "checkpoints": checkpoints,
        **some({"gpus-of-node": draw.choice((4, 8)), "tokens": 1e11, "price-per-gpu-hour": 2}, 0.3),
        **some(
            {
                "recovery": some({name: draw.choice(SPANS) for name in RECOVERY}, 0.4),
                "spares": some({"hot": draw.choice((1, 8)), "cold": draw.choice((1, 3))}, 0.6),
                "elastic": draw.choice((1, 3)) if is_large or draw.random() < 0.1 else 0,
                "maintenance": {"every": draw.choice(("5d", "20h")), **some({"for": "3h"})},
            }
        ),
    }
    if draw.random() < 0.12:
        described |= draw.choice(WRONG_KEYS)
    days, seed = draw.choice(("3", "12", "0.2")), draw.randrange(4)
    return Line(
        f"goodput job.yml --runs {draw.choice((1, 4, 9))} --days {days} --seed {seed} --out run/g",
        draw.choice((0, 0, 1)),
        after=("inspect run/g --svg run/m.svg", "inspect run/g --json")[: draw.choice((0, 1, 2))],
        files=FILES | {"job.yml": described},
    )


RECOVERY = ("detection", "drain", "schedule", "cold-spare", "start", "load", "warm-up")
SMALL_GPT2 = {
    "model_type": "gpt2",
    "n_embd": 128,
    "n_head": 4,
    "n_layer": 2,
    "vocab_size": 512,
    "n_positions": 64,
}
SMALL_MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 256,
    "vocab_size": 512,
    "max_position_embeddings": 256,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}


def searches(draw: Random) -> Line:
    """Return a search for the best plan of a model, or for the fleet that serves best."""
    model = draw.choice((SMALL_GPT2, SMALL_GPT2, SMALL_MIXTRAL))
    machine = draw.choice(("h100-dgx:2", "h100-dgx:4,node=2", "mi300x-node:2", "h100-dgx:2,a100-dgx-80gb"))
    if draw.random() < 0.5:
        words = f"--machine {machine} --global-batch {draw.choice((1, 2, 3))} --sequence 32"
        words += f" --budget {draw.choice((3, 6))}"
        words += draw.choice(("", "", " --within 0", " --within 50%"))
        words += draw.choice(("", " --objective price", " --objective energy", " --software torchtitan"))
    else:
        load = draw.choice(("poisson:200,4,48,3", "closed:40,3", "constant:100,3,40,3"))
        words = f"--machine {machine.partition(',a')[0]} --serve {load} --engine {draw.choice(ENGINES)}"
        words += draw.choice(("", " --ttft 1s", " --tpot 1us", " --ttft 1s --tpot 1s --good-share 0.5"))
        words += " --concurrency 1,2" * load.startswith("closed")
        words += " --objective npus" * (draw.random() < 0.3)
    shown = ("inspect run/s", "inspect run/s --json", "report run/s --html run/p.html")
    return Line(
        f"search --model model.json {words} --workers 1 --out run/s",
        draw.choice((0, 0, 1)),
        after=shown[: draw.choice((1, 2, 3))],
        files=FILES | {"model.json": model},
    )


ENGINES = ("vllm", "sglang", "trtllm")
VARIED = [
    {"kind": "kernel", "level": "element", "family": "log-normal", "spread": 0.05},
    {"kind": "kernel", "level": "event", "family": "gamma", "spread": 0.1, "correlation": 0.4},
]
JOBS = {
    "jobs": [
        {"name": "job", "workload": "job", "npus": "0-3"},
        {"name": "other", "workload": "small", "npus": "4-7", "start": "5us"},
    ]
}
PIPELINE = (
    "make llm --model gpt2 --layers 4 --sequence 32 --vocabulary 128 --pp 2 --tp 2 --micro-batches 3"
    " --schedule {schedule} -o job"
)
# Commands that make a folder to look at, and what is looked at.
SCENES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "pipeline": (
        (
            PIPELINE,
            "run job --machine h100-dgx:4 --detail {detail} --out r0",
            "run job --machine a100-dgx-80gb:4 --detail {detail} --out r1",
        ),
        VIEWS,
    ),
    "experts": (
        (
            "make llm --model model.json --sequence 32 --dp 4 --ep 2 --zero 1 --micro-batches 2 -o job",
            "run job --machine h100-dgx:4 --detail {detail} --out r0",
            "run job --machine h100-dgx:4,node=2 --detail {detail} --out r1",
        ),
        VIEWS,
    ),
    "samples": (
        (
            PIPELINE,
            "run job --system varied.json --network network.yml --samples 5 --seed 1 --out r0",
            "run job --system varied.json --network network.yml --samples 6 --seed 2 --out r1",
        ),
        ("samples", "samples", "summary", "ranks"),
    ),
    "jobs": (
        (
            "make all_reduce --ranks 4 --bytes 300KB --repeat 2 --compute-us 3 -o job",
            "make all_to_all --ranks 4 --bytes 100KB --repeat 3 -o small",
            "run jobs.yml --system system.json --network eight.yml --detail {detail} --out r0",
            "run jobs.yml --system other.json --network eight.yml --detail {detail} --out r1",
        ),
        ("summary", "jobs", "jobs", "groups", "timeline", "waits", "links", "idle", "critical-path"),
    ),
    "flows": (
        (
            "make all_to_all --ranks 4 --bytes 1MB --repeat 2 -o job",
            "run job --system system.json {graph} --detail {detail} --out r0",
            "run job --system other.json {graph} --detail {detail} --out r1",
        ),
        ("flows", "links", "queues", "topology", "bandwidth", "phases", "groups", "summary", "waits"),
    ),
    "packets": (
        (
            "make all_to_all --ranks 4 --bytes 200KB -o job",
            "run job --system system.json --network graph.yml --network-model packet --detail ports --out r0",
            "run job --system system.json --network graph.yml --network-model packet --detail links --out r1",
        ),
        ("queues", "queues", "links", "flows", "summary"),
    ),
    "layers": (
        (
            "run layers.txt --system system.json --network network.yml --detail {detail} --out r0",
            "run layers.txt --system other.json --network network.yml --detail {detail} --out r1",
        ),
        ("layers", "layers", "summary", "ops", "idle", "timeline"),
    ),
    "stalled": (
        (
            "make all_reduce --ranks 4 --bytes 64KiB -o job",
            "make send_receive --ranks 4 --bytes 64KiB -o small",
            "run job --system system.json --network broken.yml --network-model flow --out r0",
            "run small --system system.json --network network.yml --out r1",
        ),
        ("summary", "ranks", "waits", "groups", "timeline", "topology"),
    ),
    "sweeps": (("sweep points.yml --workers 1 --out r0", "sweep others.yml --workers 1 --out r1"), ("",)),
    "servings": (
        (
            "serve poisson:300,6,200,4 --model gpt2 --layers 2 --machine h100-dgx:4 --out r0",
            "serve closed:90,4,6 --concurrency 2 --model gpt2 --machine h100-dgx:4 --replicas 2 --out r1",
        ),
        ("",),
    ),
}
DETAILS = ("phases,messages,links,path", "phases", "messages,path", "links")
LOOKED = {
    "ranks": ("0-1", "1", "0,3", "2,3"),
    "window": ("0:10us", "3us:9us", "5us:2ms", "0:1s"),
    "job": ("job", "other", "third"),
    "top": ("1", "2", "5"),
    "svg": ("run/picture.svg",),
    "threshold": ("0", "2%", "1000%"),
    "html": ("run/page.html",),
    "csv": ("run/table.csv",),
    "arrow": ("run/table.arrow",),
    "network-model": ("analytical", "link"),
}
NOT_ALONE = {"job", "network-model", "csv", "svg", "html", "groups"}  # they belong to some views or commands
BROKEN = {
    "topology": ["Ring"],
    "npus_count": [4],
    "bandwidth": [50],
    "latency": [500],
    "failures": [{"gpu": 1, "at": "3us"}],
}
POINTS = {
    "base": {
        "workload": {"make": "all_reduce", "ranks": 4, "bytes": 65536},
        "system": "system.json",
        "network": "network.yml",
    },
    "axes": {
        "bandwidth": {"field": "network.bandwidth[0]", "values": [25, 50, 100]},
        "splits": {"field": "system.preferred-dataset-splits", "values": [1, 2, 4]},
    },
}


def looks(draw: Random) -> Line:
    """Return a look at a folder of one of many kinds: a view, a page, a comparison, an export or a query."""
    scene = draw.choice(sorted(SCENES))
    makes, views = SCENES[scene]
    drawn = {
        "schedule": draw.choice(("1f1b", "gpipe", "zero-bubble")),
        "detail": draw.choice(DETAILS),
        "graph": f"--network graph.yml --network-model {draw.choice(('link', 'flow', 'packet'))}",
    }
    view = draw.choice(views)
    svg = "--svg run/picture.svg" if not view or view in DRAWN or draw.random() < 0.1 else ""
    of_folders = [f"inspect r0 {view} {form}" for form in ("", "", "--json", svg * (scene != "servings"))]
    of_sweeps = [f"compare r0 r1 {form}" for form in ("", "--json")]
    of_runs = [f"compare r0 r1 {form}" for form in ("--html run/page.html", "--svg run/p.svg")]
    of_runs += ["export r0 --chrome run/t.json", "export r0 --perfetto run/t.pftrace", "show r0"]
    others = of_sweeps * (scene != "servings") + of_runs * bool(view)
    words = draw.choice([*of_folders, *others, "report r0 --html run/page.html"])
    if draw.random() < A_WRONG_ONE:
        words = draw.choice(of_runs)
    axes = POINTS["axes"] | draw.choice(
        ({}, {"delay": {"field": "system.endpoint-delay", "values": [0, 90]}})
    )
    others = POINTS | {"axes": {name: axes[name] for name in draw.sample(sorted(axes), 2)}}
    given = {
        "model.json": SMALL_MIXTRAL,
        "layers.txt": TEXT.format(how="DATA", nanos=700, size=4096, kind="ALLGATHER"),
        "varied.json": SYSTEM | {"variation": draw.sample(VARIED, draw.randint(1, 2))},
        "jobs.yml": JOBS,
        "eight.yml": RING_8,
        "broken.yml": BROKEN,
        "points.yml": POINTS,
        "others.yml": others,
    }
    before = tuple(make.format(**drawn) for make in makes)
    if "r1" not in words:
        before = before[:-1]
    without = NOT_ALONE if view else NOT_ALONE | {"ranks", "window"}
    return Line(words, 2, before=before, files=FILES | given, values=LOOKED, without=without, may_stall=True)


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
    name = INSPECTED.get(kind, "Other")
    records = []
    for rank in range(ranks):
        for number, (size, us) in enumerate(rows):
            if draw.random() < 0.01:
                continue  # lost
            record = {
                "header": {"id": "0x7f", "rank": rank, "n_ranks": ranks, "nnodes": nodes},
                "metadata": {"inspector_output_format_version": "v4.0", "hostname": "h", "pid": rank},
                "coll_perf": {
                    "coll": name,
                    "coll_sn": number,
                    "coll_msg_size_bytes": size // ranks if kind in WHOLE else size,
                    "coll_exec_time_us": us + us * draw.choice((0, 0.01, 0.01, 0.02, 0.3)) * (rank % 3),
                },
            }
            records.append(json.dumps(record))
    return "records.log", "\n".join(records) + "\n"


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


LLAMA = {
    **dict.fromkeys(("hidden_size", "intermediate_size"), 256),
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 256,
}
LATENT = {
    **LLAMA,
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 1,
    "q_lora_rank": 64,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "moe_intermediate_size": 64,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
}
WINDOWS = {
    **LLAMA,
    "model_type": "gemma3_text",
    "num_key_value_heads": 2,
    "head_dim": 64,
    "sliding_window": 64,
    "num_hidden_layers": 4,
}
CHANGES: tuple[dict[str, Any], ...] = (
    {"num_key_value_heads": 2},
    {"num_key_value_heads": 3},
    {"head_dim": 32},
    {"tie_word_embeddings": True},
    {"attention_bias": True, "mlp_bias": True},
    {"sliding_window": 16},
    {"sliding_window": None},
    {"layer_types": ["full_attention", "sliding_attention"]},
    {"num_hidden_layers": 3},
    {"num_hidden_layers": 0},
    {"hidden_size": "many"},
    {"model_type": "lama"},
    {"torch_dtype": "float32"},
    {"num_nextn_predict_layers": 1},
    {"hidden_act": "gelu"},
    {"n_routed_experts": 6},
    {"n_group": 2, "topk_group": 1},
    {"sliding_window_pattern": 2},
    {"rope_scaling": {"type": "yarn", "factor": 4}},
    {"vocab_size": 1},
)
EXCLUDED = (
    *("lm_head", "self_attn", "model.layers.0", "*.mlp.*", "re:.*down_proj", "re:(", "mlp.shared_experts"),
    *("model.layers.1.mlp.experts", "self_attn.o_proj"),
)


def quantization(draw: Random) -> dict[str, Any]:
    """Return how a file states the formats of its weights, now and then with a mistake."""

    def some(given: dict[str, Any], share: float = 0.5) -> dict[str, Any]:
        return {name: value for name, value in given.items() if draw.random() < share}

    bits = draw.choice((4, 8))
    scheme = {"num_bits": bits, "type": draw.choice(("int", "float"))}
    scheme |= some({"strategy": draw.choice(("block", "channel", "group", "tensor"))})
    scheme |= some({"group_size": draw.choice((32, 128, -1, None)), "block_structure": [64, 64]}, 0.4)
    inputs = some(
        {
            "input_activations": draw.choice(
                ({"num_bits": 8}, {"num_bits": 16}, {}, None, {"num_bits": None}, {"num_bits": "8"})
            )
        }
    )
    group = {"weights": scheme, **inputs, "targets": [draw.choice(("Linear", "Linear", "re:.*mlp.*"))]}
    found = draw.choice(
        (
            {
                "quant_method": "fp8",
                **some({"weight_block_size": draw.choice(([128, 128], [64, 32], [128]))}),
            },
            {"quant_method": "fbgemm_fp8"},
            {"quant_method": "mxfp4"},
            {"quant_method": draw.choice(("awq", "gptq")), "bits": bits}
            | some({"group_size": draw.choice((-1, 64)), "zero_point": True, "sym": draw.random() < 0.5}),
            {"quant_method": "modelopt", "quant_algo": draw.choice(("FP8", "NVFP4", "W4A16_AWQ", "FP9"))}
            | some({"group_size": 16}),
            *({"quant_method": "compressed-tensors", "config_groups": {"group_0": group}},) * 3,
            {"quant_method": draw.choice(("fp7", "bitsandbytes"))},
        )
    )
    excluded = draw.sample(EXCLUDED, draw.randint(1, 3))
    found |= some({draw.choice(("ignore", "modules_to_not_convert", "exclude_modules")): excluded})
    found |= some({"kv_cache_quant_algo": draw.choice(("FP8", "INT8", "NVFP4", "FP7"))}, 0.3)
    return found | some({"kv_cache_scheme": {"type": draw.choice(("float", "int")), "num_bits": 8}}, 0.2)


def configs(draw: Random) -> Line:
    """Return a pass or a plan of a model whose file has any keys of its family, and formats of weights."""
    model: dict[str, Any] = dict(draw.choice((LLAMA, LATENT, LATENT, WINDOWS, SMALL_MIXTRAL)))
    for change in draw.sample(CHANGES, draw.choice((0, 0, 1, 1, 2))):
        model |= change
    if draw.random() < 0.7:
        name = draw.choice(("quantization_config", "quantization_config", "hf_quant_config"))
        found = quantization(draw)
        model[name] = {"quantization": found} if name == "hf_quant_config" and draw.random() < 0.5 else found
    kind = draw.choice(("prefill", "decode", "plan"))
    axes = draw.choice(("", "", "--tp 2", "--dp 2", "--pp 2"))
    words = {
        "prefill": f"make prefill --model model.json --prompt 40 {axes} --json -o run/job",
        "decode": f"make decode --model model.json --context 30 {axes} --json -o run/job",
        "plan": f"plan llm --model model.json --sequence 64 {axes}",
    }
    return Line(words[kind], 0, kind, files={"model.json": model})


LINES: dict[str, Callable[[Random], Line]] = {
    **OTHERS,
    "serves": serves,
    "spans": spans,
    "searches": searches,
    "looks": looks,
    "logs": logs,
    "configs": configs,
}
