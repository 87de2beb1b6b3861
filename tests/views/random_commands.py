"""Random command lines, with options drawn from their declarations: a seed and a kind determine one.

Some of their values are wrong, so that refusals are among what they print.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from machines import RING_4, algorithms
from msgspec import Struct

from converters.cli import main as convert
from et_sim.basics.declared_options import Command, Described, Option, described, fields_of
from et_sim.cli import main
from et_sim.cli.jobs import JOBS, jobs_of

CONVERT = "convert"  # the first word of lines of et-convert
PRESETS = Path(import_module("et_sim.workloads.models").__file__ or "").with_name("presets")
SPACE = "␣"  # within a word of a line
WRONG = ("0", "-1", "x", "1.5", "2,x", "none")
A_WRONG_ONE, OF_ANOTHER_JOB = 0.04, 0.03  # of values and of options
# Values by option, where its type does not give them, or not the ones that matter.
VALUES: dict[str, Sequence[str]] = {
    "layers": ("2", "3", "4"),
    "sequence": ("32", "64"),
    "vocabulary": ("128", "500"),
    "hidden": ("64", "128"),
    "heads": ("4", "8"),
    "width": ("96", "128"),
    "expert-skew": ("zipf:1", "zipf:0.5", "[3,1]"),
    "order": ("tp-cp-ep-dp-pp", "dp-tp-pp-cp-ep", "pp-dp-cp-tp", "tp-dp"),
    "stage-layers": ("1,1", "1,3", "3,1", "2,2"),
    "recompute": ("none", "selective", "full", "op", "norms", "attention", "norms,mlp"),
    "recompute-layers": ("every:2", "first:1", "first:3"),
    "document-tokens": ("16", "20"),
    "bucket": ("1000", "30000"),
    "value-type": ("bf16", "fp16"),
    "value-bytes": ("1", "2", "4"),
    "zero": ("0", "1", "2", "3"),
    "software": ("megatron-core", "torchtitan", "maxtext", "deepspeed-zero3", "fsdp2", "megatron-2021"),
    "computes": ("bf16", "bf16,fp8"),
    "global-batch": ("4", "8", "6"),
    "bottom": ("32,16", "64"),
    "top": ("32,1", "64,16"),
    "prompt": ("40", "17,64"),
    "context": ("100", "30,200,30"),
    "machine": ("h100-dgx:4", "h100-dgx:8", "mi300x-node:4", "a100-dgx-80gb:8"),
    "master-bytes": ("0", "8", "12"),
    "bytes": ("100", "64KiB"),
    "tflops": ("1", "30"),
    "memory-gbps": ("9", "400"),
    "capacity-factor": ("1", "1.5"),
    "capacity": ("1GB", "80GiB"),
    "workspace": ("10%", "0.2"),
    "ranks": ("0-1", "1", "0,3", "4", "2-1"),
    "window": ("0:10us", "3us:9us", "5us", "9us:1us"),
    "job": ("job", "other"),
    "detail": ("phases", "messages,links", "path", "ports"),
    "network-model": ("analytical", "link", "flow", "packet", "loggops", "fast"),
    "network-models": ("analytical,link", "link", "link,link"),
    "profile": ("reference", "corrected", "astra-1.0", "best"),
    "when-full": ("stop", "continue", "spill", "report"),
    "power": ("500W", "0W", "many"),
    "system": ("system.json", "other.json", "network.yml"),
    "network": ("network.yml", "graph.yml", "system.json"),
    "memory": ("memory.json", "none.json"),
    "groups": ("none.json", "system.json"),
    "compress": ("lz4", "zstd", "none", "best"),
    "threshold": ("2%", "0.5", "1000%"),
    "limit": ("5", "1000"),
    "path": ("0:3", "1:2", "0:9"),
    "dtype": ("int8", "bf16"),
    "days": ("2", "0.5"),
    "runs": ("2", "3"),
    "keep": ("best:1", "all", "0,1"),
    "objective": ("tokens", "price", "npus"),
    "within": ("5%", "0.5"),
    "other": ("job=1ms", "job=80us", "job"),
    "host-time": ("3us", "0us"),
    "figures": ("layer", "before", "layer,before", "layer,step"),
    "part": ("1/2", "1/3", "isl=40", "mode=agg"),
    "table": ("made", "a100_gemm_bf16", "rows"),
    "plan": ("tp1 pp1 dp8 zero1", "tp2 dp4", "tp2"),
    "precision": ("bf16", "fp8", "int1"),
    "csv": ("run/table.csv",),
    "arrow": ("run/table.arrow",),
    "svg": ("run/picture.svg",),
    "html": ("run/page.html",),
    "chrome": ("run/trace.json",),
    "perfetto": ("run/trace.pftrace",),
    "inspector": ("run/records",),
    "kernels": ("run/kernels.csv",),
    "collectives": ("run/collectives.csv",),
}
OF_KIND: dict[Any, Sequence[str]] = {
    int: ("1", "2", "2", "3", "4"),
    float: ("0.5", "2"),
    tuple: ("1,2", "2"),
    str: ("x", "a,b"),
    Path: ("none.json", "system.json"),
}
# Options that matter only beside others.
COMPANIONS = {
    "recompute-layers": "--recompute full",
    "gather-cast": "--zero 3 --products fp8 --dp 2",
    "chunks": "--schedule interleaved --pp 2",
    "tensor-overlap": "--sequence-parallel --tp 2",
    "prefetch": "--zero 3 --dp 2",
    "shard": "--zero 3 --dp 4",
    "context-balance": "--cp 2",
    "context-attention": "--cp 2",
    "node-ranks": "--expert-exchange hierarchical",
    "scatter-gather": "--pp 2 --tp 2",
    "stage-layers": "--pp 2",
    "adapters": "--lora-rank 8",
    "expert-seed": "--expert-skew zipf:1",
    "computes": "--products fp8",
    "attention-parts": "--overlap-experts",
    "eager": "--exchanges vllm",
    "schedule": "--pp 2",
    "no-overlap-pipeline": "--pp 2",
    "no-overlap-tensor": "--tp 2",
    "overlap-experts": "--dp 2 --ep 2",
    "expert-exchange": "--dp 2 --ep 2",
    "etp": "--dp 4 --ep 2",
}
# Options that take other programs, more processes or packages, or that a line gives by itself.
SKIPPED = {
    *("output", "out", "png", "files", "manifest", "workers", "dask", "verify", "vary", "samples", "json"),
    *("compute-model", "isolated", "yes", "budget", "graph", "tuning", "seconds", "folder", "no-steps"),
}
EXPERTS = ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b", "llama4-scout", "deepseek-v3.2")
SHAPE = "--hidden 64 --heads 4 --layers 4 --sequence 32 --vocabulary 128"
SYSTEM = {
    "scheduling-policy": "LIFO",
    "preferred-dataset-splits": 2,
    "collective-optimization": "localBWAware",
    **algorithms("ring"),
}
FILES: dict[str, Any] = {
    "system.json": SYSTEM,
    "other.json": SYSTEM | {"peak-perf": 10, "local-mem-bw": 50, "roofline-enabled": 1, "track-local-mem": 1},
    "network.yml": RING_4,
    "graph.yml": {"graph": {"generator": "star", "npus": 4, "bandwidth": "50GB/s", "latency": "500ns"}},
    "memory.json": {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 9, "remote-mem-bw": 5},
}


PROGRESS = re.compile(r"^et-sim: \d+ s · .*\n", re.MULTILINE)  # its times are those of this computer


class Line(Struct):
    """A command line: words in any case, and more."""

    words: str
    others: int = 3  # the most options that are drawn beside them
    job: str = ""  # whose options are drawn; empty: all of the command
    before: tuple[str, ...] = ()  # commands that make its inputs
    after: tuple[str, ...] = ()  # commands that show its outputs
    files: Mapping[str, Any] = {}  # its inputs: texts, or content for JSON
    build: Callable[[Random], None] | None = None  # writes more of them
    values: Mapping[str, Sequence[str]] = {}  # of options, before those of all commands
    without: Collection[str] = ()  # options that have no effect, and are seldom drawn
    may_stall: bool = False  # a command that makes its inputs


def small(draw: Random, names: Sequence[str]) -> dict[str, Any]:
    """Return a model like a preset, with few layers."""
    model: dict[str, Any] = json.loads((PRESETS / f"{draw.choice(names)}.json").read_text())
    layers = {name: 4 for name in ("n_layer", "num_hidden_layers") if name in model}
    if "layer_types" in model:
        model["layer_types"] = model["layer_types"][:4]
    if "hybrid_override_pattern" in model:
        model["hybrid_override_pattern"] = "M-*-"
    if "quantization_config" in model and draw.random() < 0.5:
        del model["quantization_config"]
    return model | layers | {"vocab_size": draw.choice((512, 1000))}


def _axes(draw: Random, names: Sequence[str], most: int = 2) -> str:
    """Draw ranks for some axes of a plan."""
    chosen = draw.sample(names, draw.randint(0, most))
    return " ".join(f"--{name} {draw.choice(('2', '2', '4'))}" for name in chosen)


def _model(draw: Random, axes: str) -> tuple[str, dict[str, Any]]:
    """Draw a model, some with experts, which are spread."""
    names = EXPERTS if draw.random() < 0.5 else sorted(path.stem for path in PRESETS.glob("*.json"))
    model = small(draw, names)
    if any("experts" in name for name in model):
        axes += " --sequence-parallel" * ("--tp" in axes)
        axes += " --ep 2" * (draw.random() < 0.6 and len(axes) > len("--pp 2"))
    return f"--model model.json {axes}", {"model.json": model}


def training(draw: Random) -> Line:
    """Return a training job, or its plan."""
    command, axes = draw.choice(("make", "make", "plan")), _axes(draw, ("tp", "pp", "dp", "cp"))
    model, files = _model(draw, axes)
    output = " -o run/job" * (command == "make")
    if command == "make" and draw.random() < 0.25:
        return Line(f"make transformer {SHAPE} --micro-batches 2 {axes}{output}", 4, "transformer")
    size = "--sequence 64 --micro-batches 2"
    return Line(f"{command} llm {model} {size}{output}", 4, "llm", files=files)


def jobs(draw: Random) -> Line:
    """Return passes of inference, a job of another kind, or a microbenchmark."""
    model, files = _model(draw, _axes(draw, ("tp", "pp", "dp")))
    kind = draw.choice(("prefill", "prefill", "decode", "decode", "cnn", "dlrm", ""))
    given = {
        "prefill": f"{model} --prompt {draw.choice(VALUES['prompt'])}",
        "decode": f"{model} --context {draw.choice(VALUES['context'])}",
        "cnn": f"--model {draw.choice(('resnet50', 'vgg16'))} --dp 2 --batch {draw.choice((1, 8))}",
        "dlrm": f"--model {draw.choice(('hoti-2020', 'mlperf'))} --dp {draw.choice((2, 4))}",
    }
    made = draw.choice(("all_reduce", "all_to_all", "send_receive", "broadcast", "compute", "barrier"))
    words = f"{kind} {given[kind]}" if kind else f"{made} --ranks 4 --bytes 64KiB"
    return Line(f"make {words} -o run/job", 3, kind or "none", files=files)


HARDWARE = "--system system.json --network network.yml"
RUNS = (
    "make all_reduce --ranks 4 --bytes 64KiB --repeat 2 --compute-us 3 -o job",
    f"run job {HARDWARE} --detail phases,messages,links,path --out r0",
    "run job --system other.json --network graph.yml --network-model flow --out r1",
)
VIEWS = (
    *("summary", "ranks", "groups", "ops", "activity", "waits", "bandwidth", "schedule", "spread", "idle"),
    *("phases", "memory", "links", "critical-path", "roofline", "queues", "topology", "flows", "layers"),
)
JOB = {
    "step": "5s",
    "tokens-of-step": 4_000_000,
    "gpus": 64,
    "failures": {"preset": "rsc-1"},
    "checkpoints": {"bytes": "1TB", "interval": "30min"},
}


def uses(draw: Random) -> Line:
    """Return another command on small inputs."""
    machine = draw.choice((HARDWARE, "--machine h100-dgx:4"))
    algorithm = draw.choice(("ring", "direct", "halvingDoubling", "doubleBinaryTree", "tree", "library"))
    word = draw.choice(("endpoint-delay", "makespan", "timeline.ready_ns", "wait", "--fold", "enpoint-delay"))
    words = draw.choice(
        (
            *(f"run job {machine} --out run/r",) * 3,
            *(f"inspect r0 {draw.choice(VIEWS)}",) * 3,
            f"check job {machine}",
            f"show {draw.choice(('job', 'r0'))}",
            "compare r0 r1",
            "report r0 --html run/page.html",
            f"export r0 {draw.choice(('--chrome run/t.json', '--perfetto run/t.pftrace'))}",
            f"collective {algorithm} --ranks {draw.choice((4, 5, 8))}",
            f"network {draw.choice(('network.yml', 'graph.yml'))}",
            f"machine {draw.choice(('h100-dgx:16', 'gb200-nvl72:100', 'mi300x-node', 'tpu'))}",
            f"explain {word}",
            "goodput job.yml --runs 2 --days 2 --out run/g",
            "serve poisson:90,3,40,3 --model gpt2 --layers 2 --machine h100-dgx:2 --out run/s",
        )
    )
    needs = RUNS[: 3 if " r1" in words else 2 if " r0" in words else 1 if " job" in words else 0]
    return Line(words, 2, before=needs, files=FILES | {"job.yml": JOB})


LINES: dict[str, Callable[[Random], Line]] = {"steps": training, "jobs": jobs, "uses": uses}


def words_of(line: Line, draw: Random) -> list[str]:
    """Return a command line with its options."""
    words = [word.replace(SPACE, " ") for word in line.words.split()]
    options = [each for each in options_of(words[:2], line.job, draw) if each.flag not in words]
    if line.without and draw.random() > A_WRONG_ONE:
        options = [each for each in options if each.flag.lstrip("-") not in line.without]
    for option in draw.sample(options, min(draw.randint(0, line.others), len(options))):
        words += [option.flag, *_value(draw, option, line.values)]
        beside = COMPANIONS.get(option.flag[2:], "").split()
        if beside and line.job and beside[0] not in words and draw.random() < 1 - A_WRONG_ONE:
            words += beside
    return words


def options_of(words: Sequence[str], job: str, draw: Random) -> list[Described]:
    """Return the options of a command or of a job that may be drawn."""
    where = f"converters.commands.{words[1]}" if words[0] == CONVERT else f"et_sim.cli.{words[0]}"
    declared: type[Command] = import_module(where.replace("-", "_")).Options
    if words[1:] and words[1] in declared.commands:
        declared = declared.commands[words[1]].Options
    found = []
    for name, hint in fields_of(declared).items():
        option = described(declared, name, hint)
        is_of_job = not job or job in jobs_of(hint) or (job not in JOBS and not jobs_of(hint))
        is_drawn = is_of_job or draw.random() < OF_ANOTHER_JOB
        if is_drawn and isinstance(option.form, Option) and option.flag.lstrip("-") not in SKIPPED:
            found.append(option)
    return found


def _value(draw: Random, option: Described, values: Mapping[str, Sequence[str]]) -> list[str]:
    """Draw the value of an option; none: it is a switch."""
    if option.kind is bool:
        return []
    if draw.random() < A_WRONG_ONE:
        return [draw.choice(WRONG)]
    name = option.flag.lstrip("-")
    if name in values:
        return draw.choice(values[name]).split()
    given = VALUES.get(name) or option.form.choices
    if given is None or (option.kind is int and not given[0].isalnum()):
        given = OF_KIND.get(option.kind, ("x",))
    return [draw.choice(given)]


def called(line: Line, draw: Random, folder: Path) -> str:
    """Carry out a command line, write what it prints, and return its status."""
    folder.mkdir()
    for name, content in line.files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        Path(name).write_text(text, encoding="utf-8")
    if line.build is not None:
        line.build(draw)
    for words in line.before:
        assert _printed(words.split())[0] <= line.may_stall, words
    words_ = words_of(line, draw)
    status, *printed = _printed(words_)
    shown = [_printed(words.split())[1:] for words in line.after if status == 0]
    (folder / "printed.json").write_text(json.dumps([words_, printed, shown]), encoding="utf-8")
    return f"{status}"


def _printed(words: list[str]) -> tuple[int, str, str]:
    """Return the status of a command, its output and its messages."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as messages:
        try:
            status = convert(words[1:]) if words[0] == CONVERT else main(words)
        except SystemExit as end:
            status = int(end.code or 0)
    return status, out.getvalue(), PROGRESS.sub("", messages.getvalue())
