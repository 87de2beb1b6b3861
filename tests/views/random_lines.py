"""Random servings and searches as command lines, beside those of other files."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from random_commands import EXPERTS, FILES, HARDWARE, Line, small
from random_job_files import spans
from random_logs import logs, varied
from random_looks import RING_8, looks
from random_measured import LINES as OTHERS
from random_mistakes import mistakes
from random_models import SMALL_GPT2, SMALL_MIXTRAL, configs
from random_tools import tools
from random_topologies import topologies

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
LINES: dict[str, Callable[[Random], Line]] = {
    **OTHERS,
    "serves": serves,
    "spans": spans,
    "searches": searches,
    "looks": looks,
    "logs": logs,
    "configs": configs,
    "tools": tools,
    "topologies": topologies,
    "mistakes": mistakes,
    "varied": varied,
}
