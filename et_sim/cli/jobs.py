"""Options of the jobs that et-sim makes, plans and serves, each declared once with the kinds that have it.

Each key of `Plan` is an option, and so are the dimensions of a custom model, those of a recommendation
model, and the lengths of forward passes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.declared_options import Command, Count, Option, OptionGroup, fields_of, flag_of
from et_sim.basics.engine_names import ENGINES
from et_sim.basics.errors import UsageError
from et_sim.basics.units import plural
from et_sim.documents.keys import keys_by_field
from et_sim.documents.kinds import COUNT, COUNTS
from et_sim.workloads.training.plan import Plan, naming_fields, plan_of
from et_sim.workloads.training.value_types import check_peaks, fields_of_machine

if TYPE_CHECKING:
    from et_sim.trace import Workload
    from et_sim.workloads.models.model import Model

Declared = TypeVar("Declared", bound=Command)

LLM, TRANSFORMER = "llm", "transformer"  # the second has explicit dimensions, no preset
CNN, DLRM = "cnn", "dlrm"  # every rank has all dense weights
PREFILL, DECODE = "prefill", "decode"
SERVE = "serve"
LANGUAGE, REPLICATED, INFERENCE = (LLM, TRANSFORMER), (CNN, DLRM), (PREFILL, DECODE)
JOBS = (*LANGUAGE, *REPLICATED, *INFERENCE)
OF_MODELS = (*LANGUAGE, *INFERENCE, SERVE)  # language models
IMAGES = 32  # per rank
MOST_STEPS = 100_000
USUAL = {"layers": 24, "hidden": 2048, "sequence": 2048, "vocabulary": 51_200}
HEAD_SIZE = 64
# Options of a plan for other jobs than training a language model, and those that training has not.
_INFERRED = (
    *("expert-products", "redundant-experts", "cache-type", "computes", "adapters", "experts-apart"),
    "attention-parts",
)
_OF_SERVING = (
    *("tp", "pp", "ep", "stage-layers", "expert-exchange", "expert-nodes", "node-ranks", "dispatch"),
    *("value-bytes", "value-type", "products", "tflops", "memory-gbps"),
    *("expert-skew", "expert-seed", "overlap-experts", "lora-rank"),
    *("dp", *_INFERRED),
)
_OF_INFERENCE = (*_OF_SERVING, "order", "batch")
_OF_REPLICATED = (
    *("dp", "batch", "micro-batches", "bucket", "zero", "shard", "value-bytes", "value-type"),
    *("gradient-bytes", "sum-bytes", "master-bytes", "tflops", "memory-gbps"),
)


def whole_numbers(text: str) -> tuple[int, ...]:
    """Return whole numbers that are separated by commas."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise UsageError(f"{text!r}", remedy="give whole numbers, as in 7,8,8,7") from None


Numbers = Annotated[tuple[int, ...] | None, Option(parse=whole_numbers)]


class Of(Struct, frozen=True):
    """Kinds of jobs that have an option."""

    jobs: tuple[str, ...]


MODEL = OptionGroup("the model of a training job")
PLAN = OptionGroup("how a training job is spread over ranks")
RECOMMENDATION = OptionGroup("a recommendation model, where it differs from --model")
PASSES = OptionGroup("forward passes of inference")
TRAINING, LEARNS, PROMPTS, TOKENS = Of(LANGUAGE), Of((DLRM,)), Of((PREFILL,)), Of((DECODE,))

Layers = Annotated[Count, "layers of the model", Of(OF_MODELS)]
Sequence = Annotated[Count, "tokens of a sequence", Of(OF_MODELS)]
Vocabulary = Annotated[Count, "size of the vocabulary", Of(OF_MODELS)]
CHANGES = ("layers", "sequence", "vocabulary")
SHAPE = ("hidden", "heads", "width")


def jobs_of(hint: Any) -> tuple[str, ...]:
    """Return the kinds of jobs that have the option with this hint; none: it belongs to no job."""
    return next((entry.jobs for entry in hint.__metadata__ if isinstance(entry, Of)), ())


def with_plan(job: str, group: OptionGroup) -> Callable[[type[Declared]], type[Declared]]:
    """Return a decorator that declares the options of a plan for a kind of job."""

    def declared(options: type[Declared]) -> type[Declared]:
        for name, hint in plan_options(group).items():
            if job in jobs_of(hint) and not hasattr(options, name):
                options.__annotations__[name] = hint
                setattr(options, name, None)
        return options

    return declared


def plan_options(group: OptionGroup = PLAN) -> dict[str, Any]:
    """Return the options of the keys of a plan, in their order."""
    of_others = (((SERVE,), _OF_SERVING), (INFERENCE, _OF_INFERENCE), (REPLICATED, _OF_REPLICATED))
    types = get_type_hints(Plan)
    hints: dict[str, Any] = {}
    for field, key in keys_by_field(Plan).items():
        shown = "" if "default" in key.meaning or not key.default else f" (default: {key.default})"
        others = [job for jobs, names in of_others if key.name in names for job in jobs]
        kind: Any = types[field]
        option = Option(
            choices=key.choices or None,
            parse=whole_numbers if key.kind is COUNTS else None,
            least=int(key.minimum) if key.kind is COUNT else None,
        )
        learning = () if key.name in _INFERRED else LANGUAGE
        marks = key.meaning + shown, option, group, Of((*learning, *others))
        hints[key.name.replace("-", "_")] = Annotated[kind if kind is bool else kind | None, *marks]
    return hints


@with_plan(LLM, PLAN)
class ModelOptions(Command):
    """Options of a model, and of its distribution over ranks."""

    kind: str
    model: Annotated[str | None, "a preset, such as llama3-70b or resnet50, or a file", MODEL, Of(JOBS)] = (
        None
    )
    layers: Annotated[Layers, MODEL] = None
    sequence: Annotated[Sequence, MODEL] = None
    vocabulary: Annotated[Vocabulary, MODEL] = None
    hidden: Annotated[Count, "width of the model", MODEL, TRAINING] = None
    heads: Annotated[Count, "heads of attention (default: of 64 channels each)", MODEL, TRAINING] = None
    width: Annotated[
        Count, "width of the feed-forward part (default: 4 times that of the model)", MODEL, TRAINING
    ] = None


class JobOptions(ModelOptions):
    """Options of all kinds of training."""

    tables: Annotated[int | None, "embedding tables, spread over the ranks", RECOMMENDATION, LEARNS] = None
    dimension: Annotated[int | None, "values of a row of a table", RECOMMENDATION, LEARNS] = None
    pooling: Annotated[int | None, "rows of each table that a sample names", RECOMMENDATION, LEARNS] = None
    dense_features: Annotated[int | None, "inputs of the bottom network", RECOMMENDATION, LEARNS] = None
    bottom: Annotated[
        Numbers, "hidden layers of the bottom network, as in 512,256", RECOMMENDATION, LEARNS
    ] = None
    top: Annotated[Numbers, "hidden layers of the top network", RECOMMENDATION, LEARNS] = None


@with_plan(PREFILL, PASSES)
class InferenceOptions(JobOptions):
    """Options of training and of forward passes."""

    prompt: Annotated[Numbers, "tokens of each prompt, as in 512,2048", PASSES, PROMPTS] = None
    image_tokens: Annotated[
        int | None,
        "tokens that images add to each prompt, after the model's vision tower has encoded them",
        PASSES,
        PROMPTS,
    ] = None
    context: Annotated[
        Numbers,
        "tokens of each sequence that are cached before its next token, as in 512,2048",
        PASSES,
        TOKENS,
    ] = None
    steps: Annotated[
        int | None, "tokens of each sequence, one after the other (default: 1)", PASSES, TOKENS
    ] = None
    exchanges: Annotated[
        str | None,
        f"inference engine whose attention of tokens and all-reduces on a node run: {', '.join(ENGINES)} "
        "(default: those of the machine)",
        PASSES,
        Of(INFERENCE),
        Option(choices=ENGINES),
    ] = None
    eager: Annotated[
        bool,
        "with --exchanges: the engine launches them one by one, and not in a graph",
        PASSES,
        Of(INFERENCE),
    ] = False


def given(options: Command, names: Iterable[str]) -> dict[str, Any]:
    """Return the options of these names that were given."""
    values = {name: vars(options).get(name) for name in names}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def refuse_others(options: Command, kind: str) -> None:
    """Refuse options that this kind of job, or microbenchmark, does not have."""
    jobs = {name: jobs_of(hint) for name, hint in fields_of(InferenceOptions).items()}
    for name in given(options, (name for name, kinds in jobs.items() if kind not in kinds)):
        noun, remedy = kind, f"only {' and '.join(JOBS)} have it"
        if LLM not in jobs[name]:
            *others, last = jobs[name]
            remedy = f"only {', '.join(others)} and {last} have it" if others else f"only {last} has it"
        elif kind in REPLICATED:
            remedy = f"a rank of {kind} has all dense weights; --dp gives the number of ranks"
        elif kind in INFERENCE:
            *kept, last = (flag_of(other) for other, kinds in jobs.items() if {kind, LLM} <= {*kinds})
            noun, remedy = "inference", f"leave it out; {', '.join(kept)} and {last} are"
        raise UsageError(f"{flag_of(name)} is not for {noun}", remedy=remedy)


class DescribedJob(Struct, frozen=True):
    """A job and its descriptions."""

    workload: Workload
    plan: Plan
    name: str
    text: str  # in words
    model: dict[str, Any]  # for programs
    more: Mapping[str, Any] = MappingProxyType({})  # likewise
    unit: str = "tokens"
    layers: int = 0
    weights: int = 0  # dense ones


@contextmanager
def naming_options() -> Iterator[None]:
    """Name the option in refusals of fields of a plan."""
    with naming_fields(flag_of):
        yield


def make_job(options: JobOptions) -> DescribedJob:
    """Return the job that the options describe."""
    refuse_others(options, options.kind)
    if isinstance(options, InferenceOptions) and options.kind in INFERENCE:
        return _inference(options)
    if options.kind in REPLICATED:
        zero = vars(options)["zero"]
        if zero is not None and zero > 2:
            raise UsageError(
                f"--zero {zero} is not for {options.kind}",
                remedy="give 0, 1 or 2: weights are not shared",
            )
        return _convolution(options) if options.kind == CNN else _recommendation(options)
    return _training(options)


def _training(options: JobOptions) -> DescribedJob:
    from msgspec import to_builtins

    from et_sim.workloads.training.step import make_training

    if options.kind == LLM and options.model is None:
        remedy = "add --model, such as --model llama3-8b, or make transformer from numbers"
        raise UsageError("llm needs a model", remedy=remedy)
    if options.kind != LLM and options.model is not None:
        raise UsageError(f"--model is not for {options.kind}", remedy=f"make llm --model {options.model}")
    plan, model = read_training(options)
    text = f"{model.name}, {plan}, {plural(plan.micro_batches, 'micro-batch', 'micro-batches')}"
    text += f", values in {plan.value_type}" if plan.value_type else ""
    return DescribedJob(make_training(model, plan), plan, model.name, text, to_builtins(model))


def read_training(options: Command) -> tuple[Plan, Model]:
    """Return the plan and the model of a training job; refuse options without effect on it."""
    from et_sim.cli.needs import OF_TRAINING, case_of, check_needs

    plan = read_plan(options)
    model = read_model(options, plan, trains=True)
    check_needs(OF_TRAINING, case_of(options, model, plan))
    return plan, model


def _convolution(options: JobOptions) -> DescribedJob:
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
    return DescribedJob(workload, plan, name, text, model, unit="images", layers=len(layers), weights=weights)


def _recommendation(options: JobOptions) -> DescribedJob:
    from et_sim.workloads.recommendation import USUAL as USUAL_MODEL
    from et_sim.workloads.recommendation import changed, make_dlrm_training, read_dlrm

    known, model = read_dlrm(options.model or USUAL_MODEL)
    numbers = given(
        options, (name for name, hint in fields_of(JobOptions).items() if LEARNS in hint.__metadata__)
    )
    model = changed(model, numbers)
    plan = read_plan(options, micro_batches=1, batch=model.batch)
    facts = {"name": known, **{field: getattr(model, field) for field in model.__struct_fields__}}
    layers = len(model.bottom_widths) + len(model.top_widths) - 2
    workload, name = make_dlrm_training(model, plan, known), f"dlrm {known}"
    text = f"{name}, {plan}, {plan.batch} samples on each rank"
    return DescribedJob(
        workload, plan, name, text, facts, unit="samples", layers=layers, weights=model.dense_weights
    )


def _inference(options: InferenceOptions) -> DescribedJob:
    from msgspec import to_builtins

    from et_sim.cli.needs import OF_PASSES, case_of, check_needs
    from et_sim.serving.engines.reading import read_engine
    from et_sim.serving.images import images_of
    from et_sim.workloads.inference.batch import Batch, Segment, check, sights
    from et_sim.workloads.inference.forward import Encoded, make_inference, run_by
    from et_sim.workloads.inference.numbers import check_cache_type
    from et_sim.workloads.inference.separate import words_for

    if options.model is None:
        raise UsageError("inference needs a model", remedy="add --model, such as --model llama3-8b")
    plan = read_plan(options)
    model = read_model(options, plan)
    check(model, plan)
    check_needs(OF_PASSES, case_of(options, model, plan))
    check_cache_type(model, plan, plan.types, vars(options).get("machine") or "it")
    images = images_of(options.image_tokens, options.model)
    if options.kind == PREFILL:
        more = 0 if images is None else images.tokens
        lengths = _lengths(options.kind, "--prompt", options.prompt, model, more)
        segments = [[Segment(length + more) for length in lengths]]
    else:
        steps = 1 if options.steps is None else options.steps
        if not 1 <= steps <= MOST_STEPS:
            raise UsageError(f"--steps is {steps}", remedy=f"give a number from 1 to {MOST_STEPS:,}")
        lengths = _lengths(options.kind, "--context", options.context, model, steps)
        segments = [[Segment(1, length + step) for length in lengths] for step in range(steps)]
    batches = [Batch.of(step * plan.batch, sights=sights(model)) for step in segments]
    if plan.overlap_experts and batches[0].tokens < 2:
        raise UsageError(
            "--overlap-experts has no effect: a group has one token, which has no halves",
            remedy="give --batch, 2 or more, or leave it out",
        )
    if plan.attention_parts and options.kind == PREFILL:
        raise UsageError(
            "--attention-parts has no effect: halves of prompts take turns at exchanges only",
            remedy="leave it out, or make decode",
        )
    each = f"{len(batches)} steps, the first of" if len(batches) > 1 else ""
    text = " ".join(filter(None, (f"{model.name}, {plan},", each, str(batches[0]))))
    tokens = {"tokens": [batch.tokens for batch in batches]}
    engine = None
    if options.exchanges:
        separate = words_for(read_engine(options.exchanges).separate, model, plan)
        engine = run_by(options.exchanges, eager=options.eager, separate=separate)
    encoded = None
    if images is not None:
        images.check(plan)
        warn_of(images.tower.remarks)
        count = len(segments[0]) * plan.batch
        encoded = Encoded(images.tower, images.plan(plan), images.batch(count))
        text += f", with {plural(images.tokens * count, 'token')} of images"
    workload = make_inference(model, plan, batches, engine, encoded)
    return DescribedJob(workload, plan, model.name, text, to_builtins(model), tokens)


def warn_of(remarks: Iterable[str]) -> None:
    """Print remarks on a model's file to stderr."""
    for remark in remarks:
        print(f"et-sim: warning: {remark}", file=sys.stderr)


def _lengths(kind: str, flag: str, lengths: Numbers, model: Model, more: int) -> tuple[int, ...]:
    from et_sim.workloads.inference.batch import check_length

    if lengths is None:
        raise UsageError(f"{kind} needs {flag}", remedy=f"add it, as in {flag} 2048")
    for length in lengths:
        if length < 1:
            raise UsageError(f"{flag} has the length {length}", remedy="give tokens from 1 up")
        check_length(model, length + more)
    return lengths


def read_plan(options: Command, **usual: Any) -> Plan:
    """Return the plan that the options describe; `usual` holds the defaults."""
    chosen, values = {}, given(options, plan_options())
    for (field, key), name in zip(keys_by_field(Plan).items(), plan_options(), strict=True):
        if name in values:
            chosen[field] = key.becomes(values[name]) if key.becomes else values[name]
    known = vars(options).get("machine")
    if not known:
        return plan_of(chosen, **usual)
    from et_sim.machine.presets import preset

    machine = preset(known)
    peaks = () if vars(options).get("system") else machine.peaks  # a system file describes other NPUs
    decided = fields_of_machine(machine.node, peaks, chosen)
    if vars(options).get("kind", SERVE) not in (SERVE, *INFERENCE):
        plan = plan_of({**decided, **chosen}, **usual)
        check_peaks(plan.values, plan.cast_to, peaks, machine.name)
        return plan
    plan = plan_of({**decided, "computes": ",".join(peaks), **chosen}, **usual)
    check_peaks(plan.values, "", peaks, machine.name)
    return plan


def read_model(options: Command, plan: Plan, *, trains: bool = False) -> Model:
    """Return the language model that the options describe; remarks on its file go to stderr."""
    from et_sim.workloads.models import configuration
    from et_sim.workloads.models.keys import OTHER_PARTS, VISION

    numbers, known = given(options, (*CHANGES, *SHAPE)), vars(options)["model"]
    if known is None:
        return _of_numbers(numbers, plan.tensor)
    for name in given(options, SHAPE):
        raise UsageError(
            f"--{name} conflicts with --model {known}",
            remedy="leave it out, or leave out --model",
        )
    model = configuration.read_model(known)
    if "layers" in numbers and not model.has_equal_layers:
        differ = "see windows of different sizes" if len(set(model.windows)) > 1 else "differ in kind"
        raise UsageError(
            f"--layers is given, and layers of {known} {differ}", remedy="change both in its file"
        )
    simulated = OTHER_PARTS[VISION] if vars(options).get("image_tokens") else None
    warn_of(each for each in model.remarks if simulated is None or not each.endswith(simulated))
    on_sequence = configuration.remark_on_sequence(model)
    if on_sequence and trains and "sequence" not in numbers:
        print(f"et-sim: warning: {on_sequence}", file=sys.stderr)
    return replace(model, **numbers)


def _of_numbers(numbers: dict[str, int], tensor: int) -> Model:
    """Return a decoder of equal layers without biases; the head has its own weights."""
    from et_sim.workloads.models.model import Attention, FeedForward, Model

    chosen = USUAL | numbers
    hidden = chosen["hidden"]
    heads = chosen.get("heads") or _usual_heads(hidden, tensor)
    if hidden % heads:
        raise UsageError(
            f"--hidden is {hidden}, not a multiple of the {heads} heads", remedy="change --hidden or --heads"
        )
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
    """Return a number of heads of 64 channels, or of fewer if each tensor-parallel rank needs one."""
    wanted = max(hidden // HEAD_SIZE, tensor, 1)
    fitting = (heads for heads in range(wanted, hidden + 1) if hidden % heads == 0 and heads % tensor == 0)
    return next(fitting, wanted)
