"""Options of training jobs, for the commands that make and plan them: a model, and how it is spread.

Each field of `Plan` is an option; so are the numbers of a model that comes from none of the presets.
"""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from et_sim.basics.errors import UsageError

if TYPE_CHECKING:
    from et_sim.workloads.models.model import Model
    from et_sim.workloads.training.plan import Plan

# (option, help): numbers of a model; those above the line may also change a preset.
_CHANGES = (
    ("--layers", "layers of the model"),
    ("--sequence", "tokens of a sequence"),
    ("--vocabulary", "words that the model knows"),
)
_SHAPE = (
    ("--hidden", "width of the model"),
    ("--heads", "heads of attention (default: of 64 channels each)"),
    ("--width", "width of the feed-forward part (default: 4 times that of the model)"),
)
_USUAL = {"layers": 24, "hidden": 2048, "sequence": 2048, "vocabulary": 51_200}
_HEAD_SIZE = 64


def add_options(parser: argparse.ArgumentParser) -> None:
    """The model and the plan."""
    from et_sim.workloads.training.plan import Plan

    group = parser.add_argument_group("the model of a training job")
    group.add_argument("--model", help="one that et-sim knows, such as llama3-70b or resnet50, or a file")
    for option, text in (*_CHANGES, *_SHAPE):
        group.add_argument(option, type=int, help=text)
    group = parser.add_argument_group("how a training job is spread over ranks")
    for one in fields(Plan):
        option, text = one.metadata["flag"], one.metadata["help"]
        if isinstance(one.default, bool):
            group.add_argument(option, action="store_true", help=text)
            continue
        kind: Any = whole_numbers if isinstance(one.default, tuple) else type(one.default)
        shown = "" if "default" in text or not one.default else f" (default: {one.default})"
        group.add_argument(option, type=kind, help=text + shown)


def whole_numbers(text: str) -> tuple[int, ...]:
    """As they are written with commas between."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} (give whole numbers, as in 7,8,8,7)") from None


def given_options(options: argparse.Namespace) -> list[str]:
    """The options of a training job that were given, as they are written."""
    from et_sim.workloads.training.plan import Plan

    names = ["--model", *(option for option, _ in (*_CHANGES, *_SHAPE))]
    names += [one.metadata["flag"] for one in fields(Plan)]
    given = ((name, value_of(options, name)) for name in names)
    return [name for name, value in given if value is not None and value is not False]


def read_options(options: argparse.Namespace) -> tuple[Model, Plan]:
    """The model and the plan that the options describe."""
    plan = read_plan(options)
    return _model(options, plan.tensor), plan


def read_plan(options: argparse.Namespace, **usual: Any) -> Plan:
    """The plan that the options describe; `usual` stands where they are left out."""
    from et_sim.workloads.training.plan import Plan

    chosen = usual
    for one in fields(Plan):
        value = value_of(options, one.metadata["flag"])
        if isinstance(one.default, bool):
            if value:
                chosen[one.name] = not one.default
        elif value is not None:
            chosen[one.name] = value
    return Plan(**chosen)


def _model(options: argparse.Namespace, tensor: int) -> Model:
    from et_sim.workloads.models.configuration import read_model

    numbers = {
        option.lstrip("-"): value_of(options, option)
        for option, _ in (*_CHANGES, *_SHAPE)
        if value_of(options, option) is not None
    }
    for name, value in numbers.items():
        if value < 1:
            raise UsageError(f"--{name} is {value}", remedy="give a number from 1 up")
    if options.model is None:
        return _of_numbers(numbers, tensor)
    for option, _ in _SHAPE:
        if value_of(options, option) is not None:
            raise UsageError(
                f"{option} is given, and --model {options.model} has its own",
                remedy="leave it out, or leave out --model",
            )
    model = read_model(options.model)
    if "layers" in numbers and len(set(model.windows)) > 1:
        raise UsageError(
            f"--layers is given, and layers of {options.model} see windows of different sizes",
            remedy="change both in its file",
        )
    return replace(model, **numbers)


def _of_numbers(numbers: dict[str, int], tensor: int) -> Model:
    """A decoder of equal layers, without biases; the head has weights of its own."""
    from et_sim.workloads.models.model import Attention, FeedForward, Model

    chosen = _USUAL | numbers
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
    wanted = max(hidden // _HEAD_SIZE, tensor, 1)
    fitting = (heads for heads in range(wanted, hidden + 1) if hidden % heads == 0 and heads % tensor == 0)
    return next(fitting, wanted)


def value_of(options: argparse.Namespace, option: str) -> Any:
    """What was given for an option, as it is written."""
    return getattr(options, option.lstrip("-").replace("-", "_"))
