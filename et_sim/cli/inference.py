"""Options of inference: a model, how it is spread, and what its forward passes work on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from et_sim.basics.errors import UsageError
from et_sim.cli import training

if TYPE_CHECKING:
    from et_sim.trace import Workload
    from et_sim.workloads.inference.batch import Batch
    from et_sim.workloads.models.model import Model
    from et_sim.workloads.training.plan import Plan

PREFILL, DECODE = "prefill", "decode"
KINDS = (PREFILL, DECODE)
MOST_STEPS = 100_000
# Options of training jobs that make sense here.
_NUMBERS = ("--value-bytes", "--products", "--tflops", "--memory-gbps")
SPREAD = ("--tp", "--pp", "--ep", "--stage-layers", *_NUMBERS)
_KEPT = ("--model", "--layers", "--sequence", "--vocabulary", *SPREAD, "--dp", "--order", "--batch")
_OWN = ("--prompt", "--context", "--steps")
_OF_KIND = {PREFILL: ("--prompt",), DECODE: ("--context", "--steps")}


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the passes work on."""
    group = parser.add_argument_group("forward passes of inference")
    group.add_argument("--prompt", type=training.whole_numbers, help="tokens of each prompt, as in 512,2048")
    group.add_argument(
        "--context",
        type=training.whole_numbers,
        help="tokens of each sequence that are cached before its next token, as in 512,2048",
    )
    group.add_argument("--steps", type=int, help="tokens of each sequence, one after the other (default: 1)")


def refuse_options(options: argparse.Namespace, *kept: str) -> None:
    """They are for inference only."""
    for option in _OWN:
        if option not in kept and training.value_of(options, option) is not None:
            kinds = [kind for kind, own in _OF_KIND.items() if option in own]
            raise UsageError(f"{option} is not for {options.kind}", remedy=f"only {kinds[0]} has it")


def make_job(options: argparse.Namespace) -> tuple[Workload, str, dict[str, Any]]:
    """(the passes, what they are in words, their shape for programs)."""
    from dataclasses import asdict

    from et_sim.workloads.inference.forward import make_inference

    refuse_options(options, *_OF_KIND[options.kind])
    model, plan = read_model_and_plan(options, _KEPT)
    batches = _prompts(options, model, plan) if options.kind == PREFILL else _steps(options, model, plan)
    each = f"{len(batches)} steps, the first of" if len(batches) > 1 else ""
    what = " ".join(filter(None, (f"{model.name}, {plan},", each, str(batches[0]))))
    facts = {"model": asdict(model), "plan": asdict(plan), "tokens": [batch.tokens for batch in batches]}
    return make_inference(model, plan, batches), what, facts


def read_model_and_plan(options: argparse.Namespace, kept: tuple[str, ...]) -> tuple[Model, Plan]:
    """The model, which must be a known one, and how it is spread."""
    for option in training.given_options(options):
        if option not in kept:
            raise UsageError(f"{option} is not for inference", remedy=f"leave it out; {_listed(kept)} are")
    if options.model is None:
        raise UsageError("inference needs a model", remedy="add --model, such as --model llama3-8b")
    return training.read_options(options)


def _listed(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _prompts(options: argparse.Namespace, model: Model, plan: Plan) -> list[Batch]:
    from et_sim.workloads.inference.batch import Batch, Segment

    lengths = _lengths(options, "--prompt", model, 0)
    return [Batch.of([Segment(length) for length in lengths] * plan.batch)]


def _steps(options: argparse.Namespace, model: Model, plan: Plan) -> list[Batch]:
    from et_sim.workloads.inference.batch import Batch, Segment

    steps = 1 if options.steps is None else options.steps
    if not 1 <= steps <= MOST_STEPS:
        raise UsageError(f"--steps is {steps}", remedy=f"give a number from 1 to {MOST_STEPS:,}")
    lengths = _lengths(options, "--context", model, steps)
    return [Batch.of([Segment(1, length + step) for length in lengths] * plan.batch) for step in range(steps)]


def _lengths(options: argparse.Namespace, option: str, model: Model, more: int) -> tuple[int, ...]:
    from et_sim.workloads.inference.checks import check_length

    lengths: tuple[int, ...] | None = training.value_of(options, option)
    if lengths is None:
        raise UsageError(f"{options.kind} needs {option}", remedy=f"add it, as in {option} 2048")
    for length in lengths:
        if length < 1:
            raise UsageError(f"{option} has the length {length}", remedy="give tokens from 1 up")
        check_length(model, length + more)
    return lengths
