"""Options of the jobs that et-sim makes, plans and serves: each declared once, with the kinds that have it.

Each field of `Plan` is an option; so are the numbers of a model that comes from none of the presets, those of
a recommendation model, and what forward passes work on. Not here: what is done with a job (`make`, `plan`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from et_sim.basics.errors import UsageError
from et_sim.basics.units import plural

if TYPE_CHECKING:
    from et_sim.trace import Workload
    from et_sim.workloads.models.model import Model
    from et_sim.workloads.training.plan import Plan

LLM, TRANSFORMER = "llm", "transformer"  # the second is one whose numbers are given, not a known model
CNN, DLRM = "cnn", "dlrm"  # every rank has all dense weights
PREFILL, DECODE = "prefill", "decode"
SERVE = "serve"
LANGUAGE, REPLICATED, INFERENCE = (LLM, TRANSFORMER), (CNN, DLRM), (PREFILL, DECODE)
JOBS = (*LANGUAGE, *REPLICATED, *INFERENCE)
OF_MODELS = (*LANGUAGE, *INFERENCE, SERVE)  # language models
IMAGES = 32  # of a rank
MOST_STEPS = 100_000
USUAL = {"layers": 24, "hidden": 2048, "sequence": 2048, "vocabulary": 51_200}
HEAD_SIZE = 64
# Options of a plan, besides those of training a language model.
_OF_SERVING = (
    *("--tp", "--pp", "--ep", "--stage-layers"),
    *("--value-bytes", "--products", "--tflops", "--memory-gbps"),
)
_OF_INFERENCE = (*_OF_SERVING, "--dp", "--order", "--batch")
_OF_REPLICATED = (
    *("--dp", "--batch", "--micro-batches", "--bucket", "--zero", "--shard"),
    *("--value-bytes", "--gradient-bytes", "--sum-bytes", "--master-bytes", "--tflops", "--memory-gbps"),
)


def whole_numbers(text: str) -> tuple[int, ...]:
    """As they are written with commas between."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} (give whole numbers, as in 7,8,8,7)") from None


class Option(NamedTuple):
    """An option, and the kinds of jobs that have it."""

    flag: str
    kind: Any  # what makes its value of a text; bool: the option alone says it
    help: str
    jobs: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of its value."""
        return self.flag.lstrip("-").replace("-", "_")

    def of(self, options: argparse.Namespace) -> Any:
        """What was given; None: nothing was."""
        value = getattr(options, self.name, None)
        return None if value is False else value

    def add(self, parser: argparse._ActionsContainer) -> None:
        """Have a parser take it."""
        if self.kind is bool:
            parser.add_argument(self.flag, action="store_true", help=self.help)
        else:
            parser.add_argument(self.flag, type=self.kind, help=self.help)


CHANGES = (
    Option("--layers", int, "layers of the model", OF_MODELS),
    Option("--sequence", int, "tokens of a sequence", OF_MODELS),
    Option("--vocabulary", int, "words that the model knows", OF_MODELS),
)
SHAPE = (
    Option("--hidden", int, "width of the model", LANGUAGE),
    Option("--heads", int, "heads of attention (default: of 64 channels each)", LANGUAGE),
    Option("--width", int, "width of the feed-forward part (default: 4 times that of the model)", LANGUAGE),
)
MODEL = (
    Option("--model", str, "one that et-sim knows, such as llama3-70b or resnet50, or a file", JOBS),
    *CHANGES,
    *SHAPE,
)
RECOMMENDATION = (
    Option("--tables", int, "embedding tables, spread over the ranks", (DLRM,)),
    Option("--dimension", int, "values of a row of a table", (DLRM,)),
    Option("--pooling", int, "rows of each table that a sample names", (DLRM,)),
    Option("--dense-features", int, "inputs of the bottom network", (DLRM,)),
    Option("--bottom", whole_numbers, "hidden layers of the bottom network, as in 512,256", (DLRM,)),
    Option("--top", whole_numbers, "hidden layers of the top network", (DLRM,)),
)
PROMPT = Option("--prompt", whole_numbers, "tokens of each prompt, as in 512,2048", (PREFILL,))
CONTEXT = Option(
    "--context",
    whole_numbers,
    "tokens of each sequence that are cached before its next token, as in 512,2048",
    (DECODE,),
)
STEPS = Option("--steps", int, "tokens of each sequence, one after the other (default: 1)", (DECODE,))
PASSES = (PROMPT, CONTEXT, STEPS)


def plan_options() -> Iterator[tuple[Any, Option]]:
    """The fields of a plan, each with its option."""
    from et_sim.workloads.training.plan import Plan

    of_others = (((SERVE,), _OF_SERVING), (INFERENCE, _OF_INFERENCE), (REPLICATED, _OF_REPLICATED))
    for field in fields(Plan):
        flag, text, default = field.metadata["flag"], field.metadata["help"], field.default
        shown = "" if "default" in text or not default or default is True else f" (default: {default})"
        others = [job for jobs, flags in of_others if flag in flags for job in jobs]
        kind = whole_numbers if isinstance(default, tuple) else type(default)
        yield field, Option(flag, kind, text + shown, (*LANGUAGE, *others))


def add_options(parser: argparse.ArgumentParser, *, has_passes: bool) -> None:
    """The options of all kinds of jobs; those of forward passes only if there are any."""
    for title, options in (
        ("the model of a training job", MODEL),
        ("how a training job is spread over ranks", [option for _, option in plan_options()]),
        ("a recommendation model, where it differs from --model", RECOMMENDATION),
        ("forward passes of inference", PASSES if has_passes else ()),
    ):
        group = parser.add_argument_group(title)
        for option in options:
            option.add(group)


def refuse_others(options: argparse.Namespace, kind: str) -> None:
    """Refuse options that this kind of job, or microbenchmark, does not have."""
    plan = [option for _, option in plan_options()]
    for option in (*RECOMMENDATION, *PASSES, *MODEL, *plan):
        if kind in option.jobs or option.of(options) is None:
            continue
        noun, remedy = kind, f"only {' and '.join(JOBS)} have it"
        if LLM not in option.jobs:
            remedy = f"only {option.jobs[0]} has it"
        elif kind in REPLICATED:
            remedy = f"a rank of {kind} has all dense weights; --dp says how many ranks there are"
        elif kind in INFERENCE:
            *kept, last = (other.flag for other in (*MODEL, *plan) if kind in other.jobs)
            noun, remedy = "inference", f"leave it out; {', '.join(kept)} and {last} are"
        raise UsageError(f"{option.flag} is not for {noun}", remedy=remedy)


class Job(NamedTuple):
    """A job, and what is said of it."""

    workload: Workload
    plan: Plan
    name: str
    text: str  # in words
    model: dict[str, Any]  # for programs
    more: Mapping[str, Any] = MappingProxyType({})  # likewise
    unit: str = "tokens"
    layers: int = 0
    weights: int = 0  # dense ones


def make_job(options: argparse.Namespace) -> Job:
    """What the options describe."""
    refuse_others(options, options.kind)
    if options.kind in INFERENCE:
        return _inference(options)
    if options.kind in REPLICATED:
        if options.zero is not None and options.zero > 2:
            raise UsageError(
                f"--zero {options.zero} is not for {options.kind}",
                remedy="give 0, 1 or 2: weights are not shared",
            )
        return _convolution(options) if options.kind == CNN else _recommendation(options)
    return _training(options)


def _training(options: argparse.Namespace) -> Job:
    from msgspec import to_builtins

    from et_sim.workloads.training.step import make_training

    if options.kind == LLM and options.model is None:
        remedy = "add --model, such as --model llama3-8b, or make transformer from numbers"
        raise UsageError("llm needs a model", remedy=remedy)
    if options.kind != LLM and options.model is not None:
        raise UsageError(f"--model is not for {options.kind}", remedy=f"make llm --model {options.model}")
    plan = read_plan(options)
    model = read_model(options, plan)
    text = f"{model.name}, {plan}, {plural(plan.micro_batches, 'micro-batch', 'micro-batches')}"
    return Job(make_training(model, plan), plan, model.name, text, to_builtins(model))


def _convolution(options: argparse.Namespace) -> Job:
    from et_sim.workloads.convolution import (
        layers_of,
        make_convolution_training,
        network_names,
        read_network,
    )

    if options.model is None:
        known = ", ".join(network_names())
        raise UsageError("cnn needs a model", remedy=f"add --model, a JSON file or one of: {known}")
    name, network = read_network(options.model)
    plan = read_plan(options, micro_batches=1, batch=IMAGES)
    layers = layers_of(network, plan)
    weights = sum(layer.weights for layer in layers)
    workload = make_convolution_training(network, plan, name)
    model, text = (
        {"name": name, "source": network.source},
        f"{name}, {plan}, {plan.batch} images on each rank",
    )
    return Job(workload, plan, name, text, model, unit="images", layers=len(layers), weights=weights)


def _recommendation(options: argparse.Namespace) -> Job:
    from et_sim.workloads.recommendation import USUAL as USUAL_MODEL
    from et_sim.workloads.recommendation import changed, make_dlrm_training, read_dlrm

    known, model = read_dlrm(options.model or USUAL_MODEL)
    given = {option.name: option.of(options) for option in RECOMMENDATION}
    model = changed(model, {name: value for name, value in given.items() if value is not None})
    plan = read_plan(options, micro_batches=1, batch=model.batch)
    facts = {"name": known, **{field: getattr(model, field) for field in model.__struct_fields__}}
    layers = len(model.bottom_widths) + len(model.top_widths) - 2
    workload, name = make_dlrm_training(model, plan, known), f"dlrm {known}"
    text = f"{name}, {plan}, {plan.batch} samples on each rank"
    return Job(workload, plan, name, text, facts, unit="samples", layers=layers, weights=model.dense_weights)


def _inference(options: argparse.Namespace) -> Job:
    from msgspec import to_builtins

    from et_sim.workloads.inference.batch import Batch, Segment
    from et_sim.workloads.inference.forward import make_inference

    if options.model is None:
        raise UsageError("inference needs a model", remedy="add --model, such as --model llama3-8b")
    plan = read_plan(options)
    model = read_model(options, plan)
    if options.kind == PREFILL:
        lengths = _lengths(options, PROMPT, model, 0)
        batches = [Batch.of([Segment(length) for length in lengths] * plan.batch)]
    else:
        steps = 1 if options.steps is None else options.steps
        if not 1 <= steps <= MOST_STEPS:
            raise UsageError(f"--steps is {steps}", remedy=f"give a number from 1 to {MOST_STEPS:,}")
        lengths = _lengths(options, CONTEXT, model, steps)
        batches = [
            Batch.of([Segment(1, length + step) for length in lengths] * plan.batch) for step in range(steps)
        ]
    each = f"{len(batches)} steps, the first of" if len(batches) > 1 else ""
    text = " ".join(filter(None, (f"{model.name}, {plan},", each, str(batches[0]))))
    tokens = {"tokens": [batch.tokens for batch in batches]}
    return Job(make_inference(model, plan, batches), plan, model.name, text, to_builtins(model), tokens)


def _lengths(options: argparse.Namespace, option: Option, model: Model, more: int) -> tuple[int, ...]:
    from et_sim.workloads.inference.batch import check_length

    lengths: tuple[int, ...] | None = option.of(options)
    if lengths is None:
        raise UsageError(f"{options.kind} needs {option.flag}", remedy=f"add it, as in {option.flag} 2048")
    for length in lengths:
        if length < 1:
            raise UsageError(f"{option.flag} has the length {length}", remedy="give tokens from 1 up")
        check_length(model, length + more)
    return lengths


def read_plan(options: argparse.Namespace, **usual: Any) -> Plan:
    """The plan that the options describe; `usual` stands where they are left out."""
    from et_sim.workloads.training.plan import Plan

    chosen = usual
    for field, option in plan_options():
        if (value := option.of(options)) is not None:
            chosen[field.name] = not field.default if option.kind is bool else value
    return Plan(**chosen)


def read_model(options: argparse.Namespace, plan: Plan) -> Model:
    """The language model that the options describe."""
    from et_sim.workloads.models import configuration

    given = {option.name: option.of(options) for option in (*CHANGES, *SHAPE)}
    numbers = {name: value for name, value in given.items() if value is not None}
    for name, value in numbers.items():
        if value < 1:
            raise UsageError(f"--{name} is {value}", remedy="give a number from 1 up")
    if options.model is None:
        return _of_numbers(numbers, plan.tensor)
    for option in SHAPE:
        if option.name in numbers:
            raise UsageError(
                f"{option.flag} is given, and --model {options.model} has its own",
                remedy="leave it out, or leave out --model",
            )
    model = configuration.read_model(options.model)
    if "layers" in numbers and len(set(model.windows)) > 1:
        raise UsageError(
            f"--layers is given, and layers of {options.model} see windows of different sizes",
            remedy="change both in its file",
        )
    return replace(model, **numbers)


def _of_numbers(numbers: dict[str, int], tensor: int) -> Model:
    """A decoder of equal layers, without biases; the head has weights of its own."""
    from et_sim.workloads.models.model import Attention, FeedForward, Model

    chosen = USUAL | numbers
    hidden = chosen["hidden"]
    heads = chosen.get("heads") or _usual_heads(hidden, tensor)
    if hidden % heads:
        raise UsageError(f"a width of {hidden} is not divided by {heads} heads", remedy="change --heads")
    return Model(
        name="transformer",
        source="numbers on the command line",
        hidden=hidden,
        layers=chosen["layers"],
        vocabulary=chosen["vocabulary"],
        sequence=chosen["sequence"],
        attention=Attention(heads, heads, hidden // heads),
        feed_forward=FeedForward(chosen.get("width", 4 * hidden), is_gated=False),
    )


def _usual_heads(hidden: int, tensor: int) -> int:
    """Of 64 channels, or of fewer where tensor-parallel ranks would have none."""
    wanted = max(hidden // HEAD_SIZE, tensor, 1)
    fitting = (heads for heads in range(wanted, hidden + 1) if hidden % heads == 0 and heads % tensor == 0)
    return next(fitting, wanted)
