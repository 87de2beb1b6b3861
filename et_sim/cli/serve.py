"""`et-sim serve`: requests that arrive over time, on replicas of a language model."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from et_sim.basics.errors import UsageError
from et_sim.cli.jobs import CHANGES, SERVE, plan_options, read_model, read_plan
from et_sim.cli.options import add_run_options, run_options

if TYPE_CHECKING:
    from et_sim.run.options import RunOptions
    from et_sim.serving.results import Serving
    from et_sim.serving.serve import Setup


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "serve",
        description="Serve requests with replicas of a language model, batch by batch. Every distinct forward"
        " pass, and every transfer of a cache, is simulated on the machine.",
    )
    parser.add_argument(
        "requests",
        metavar="REQUESTS",
        help="CSV file with the columns arrival_s, prompt_tokens, output_tokens; or"
        " poisson:RATE,COUNT,PROMPT,OUTPUT",
    )
    parser.add_argument("--seed", type=int, help="of poisson (default: 0)")
    _add_model(parser)
    _add_serving(parser)
    machine = parser.add_argument_group("the machine")
    names = ("system", "network", "machine", "profile", "fold", "model")
    add_run_options(machine, *names)
    parser.add_argument("--out", type=Path, help="directory to write (default: ./NAME.serve)")
    parser.add_argument("--json", action="store_true", help="print the content of summary.json")
    parser.set_defaults(run=run)


def _add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the model, and a replica of it")
    group.add_argument(
        "--model", required=True, help="one that et-sim knows, such as llama3-8b, or a config.json"
    )
    for option in (*CHANGES, *(option for _, option in plan_options())):
        if SERVE in option.jobs:
            option.add(group)


def _add_serving(parser: argparse.ArgumentParser) -> None:
    from et_sim.serving.batcher import POLICIES

    group = parser.add_argument_group("how requests are served")
    group.add_argument("--replicas", type=int, help="replicas that do both, prompts and tokens (default: 1)")
    group.add_argument("--prefill-replicas", type=int, help="replicas that only work on prompts")
    group.add_argument(
        "--decode-replicas", type=int, help="replicas that get their caches, for further tokens"
    )
    group.add_argument("--decode-tp", type=int, help="of the latter (default: --tp)")
    group.add_argument("--policy", default="chunked", help=f"{' or '.join(POLICIES)} (default: chunked)")
    for option, default, text in (
        ("--max-batch", 256, "sequences that run at a time on a replica"),
        ("--token-budget", 2048, "tokens of a batch; with prefill-first, of its prompts"),
        ("--block", 16, "tokens whose cache is allocated together"),
        ("--context-step", 64, "round cached contexts up to so many tokens; 1: exact"),
    ):
        group.add_argument(option, type=int, default=default, help=f"{text} (default: {default})")
    group.add_argument("--capacity", help="memory of an NPU, such as 80GiB (default: what the machine says)")
    group.add_argument(
        "--memory-share", type=float, default=0.9, help="of it, for weights and caches (default: 0.9)"
    )
    group.add_argument("--ttft", help="the longest time to first token of a good request, such as 200ms")
    group.add_argument("--tpot", help="the longest time per output token of a good request, such as 20ms")


def run(options: argparse.Namespace) -> int:
    """Serve, write the directory, and print the summary."""
    from et_sim.cli.progress import Progress
    from et_sim.serving.serve import serve
    from et_sim.timeline import check_target
    from et_sim.views.serving import summary_lines
    from et_sim.views.text import terminal_width

    target = options.out or Path(f"{_name(options.requests)}.serve")
    check_target(target)
    model, setup, machine = _read(options)
    with Progress() as progress:
        progress.stage("serving")
        serving = serve(options.requests, model, setup, machine, progress.serving)
        progress.stage("adding up and writing")
        serving.write(target)
    _warn(serving)
    summary = serving.summary()
    if options.json:
        print(json.dumps(summary, indent=2, ensure_ascii=False))
        return 0
    print("\n".join(summary_lines(summary, terminal_width())))
    print(f"\nwritten to {target}; look closer with: et-sim inspect {target}, or et-sim sql")
    return 0


def _name(requests: str) -> str:
    return requests.partition(":")[0] if ":" in requests else Path(requests).stem


def _read(options: argparse.Namespace) -> tuple[Any, Setup, RunOptions]:
    """The model, how it is served, and the machine."""
    from et_sim.basics.units import parse_bytes, parse_time_ns
    from et_sim.serving.batcher import Policy
    from et_sim.serving.results import Objectives
    from et_sim.serving.serve import Setup

    plan = read_plan(options)
    model = read_model(options, plan)
    policy = Policy(options.policy, options.max_batch, options.token_budget, options.block)
    replicas, prefill = _replicas(options)
    limits = (_quantity(options, name, parse_time_ns, "a time such as 200ms") for name in ("ttft", "tpot"))
    setup = Setup(
        plan=plan,
        replicas=replicas,
        prefill_replicas=prefill,
        decode_plan=None if options.decode_tp is None else replace(plan, tensor=options.decode_tp),
        policy=policy,
        context_step=options.context_step,
        memory_share=options.memory_share,
        capacity_bytes=_quantity(options, "capacity", parse_bytes, "a size such as 80GiB"),
        seed=options.seed,
        objectives=Objectives(*limits),
    )
    return model, setup, run_options(options)


def _replicas(options: argparse.Namespace) -> tuple[int, int]:
    """How many replicas, the last ones if there are several pools; and how many only for prompts."""
    prefill, decode, both = options.prefill_replicas, options.decode_replicas, options.replicas
    for option, value in (
        ("--replicas", both),
        ("--prefill-replicas", prefill),
        ("--decode-replicas", decode),
    ):
        if value is not None and value < 1:
            raise UsageError(f"{option} is {value}", remedy="give a number from 1 up")
    if prefill is None and decode is None:
        if options.decode_tp is not None:
            raise UsageError(
                "--decode-tp is about replicas of their own", remedy="give --decode-replicas, too"
            )
        return both or 1, 0
    if both is not None:
        raise UsageError(
            "--replicas do both, and others are given that do one",
            remedy="leave out --replicas, or --prefill-replicas and --decode-replicas",
        )
    if prefill is None or decode is None:
        raise UsageError(
            "replicas for prompts need others for further tokens, and they them",
            remedy="give both --prefill-replicas and --decode-replicas",
        )
    return decode, prefill


def _quantity(options: argparse.Namespace, name: str, parse: Callable[[str], float], remedy: str) -> int:
    """What an option says; 0: nothing."""
    text = vars(options)[name]
    if text is None:
        return 0
    quantity = int(parse(text))
    if quantity < 1:
        raise UsageError(f"--{name} is {text}", remedy=f"give {remedy}")
    return quantity


def _warn(serving: Serving) -> None:
    for notice in serving.manifest["warnings"]:
        place = f"{notice['place']}: " if notice["place"] else ""
        print(f"et-sim: warning: {place}{notice['text']}", file=sys.stderr)
