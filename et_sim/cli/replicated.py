"""Jobs whose dense weights every rank has: convolutional networks, and recommendation models."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NamedTuple

from et_sim.basics.errors import UsageError
from et_sim.cli import training

if TYPE_CHECKING:
    from et_sim.trace import Workload
    from et_sim.workloads.training.plan import Plan

CNN, DLRM = "cnn", "dlrm"
KINDS = (CNN, DLRM)
IMAGES = 32  # of a rank
# Options of training jobs that make sense here.
_KEPT = (
    *("--model", "--dp", "--batch", "--micro-batches", "--bucket", "--zero", "--shard"),
    *("--value-bytes", "--gradient-bytes", "--sum-bytes", "--master-bytes", "--tflops", "--memory-gbps"),
)
_NUMBERS = (
    ("--tables", "embedding tables, spread over the ranks"),
    ("--dimension", "values of a row of a table"),
    ("--pooling", "rows of each table that a sample names"),
    ("--dense-features", "inputs of the bottom network"),
)
_WIDTHS = (
    ("--bottom", "hidden layers of the bottom network, as in 512,256"),
    ("--top", "hidden layers of the top network"),
)
_OF_DLRM = tuple(option for option, _ in (*_NUMBERS, *_WIDTHS))


def add_options(parser: argparse.ArgumentParser) -> None:
    """The numbers of a recommendation model."""
    group = parser.add_argument_group("a recommendation model, where it differs from --model")
    for option, text in _NUMBERS:
        group.add_argument(option, type=int, help=text)
    for option, text in _WIDTHS:
        group.add_argument(option, type=training.whole_numbers, help=text)


def refuse_options(options: argparse.Namespace) -> None:
    """They are for one kind of job only."""
    for option in _OF_DLRM:
        if training.value_of(options, option) is not None:
            raise UsageError(f"{option} is not for {options.kind}", remedy=f"only {DLRM} has it")


class Job(NamedTuple):
    """A job, and what is said of it."""

    workload: Workload
    plan: Plan
    name: str
    unit: str
    layers: int
    weights: int  # dense ones
    model: dict[str, Any]  # for programs

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.name}, {self.plan}, {self.plan.batch} {self.unit} on each rank"


def make_job(options: argparse.Namespace) -> Job:
    """What the options describe."""
    for option in training.given_options(options):
        if option not in _KEPT:
            remedy = f"a rank of {options.kind} has all dense weights; --dp says how many ranks there are"
            raise UsageError(f"{option} is not for {options.kind}", remedy=remedy)
    if options.zero is not None and options.zero > 2:
        raise UsageError(
            f"--zero {options.zero} is not for {options.kind}",
            remedy="give 0, 1 or 2: weights are not shared",
        )
    return _convolution(options) if options.kind == CNN else _recommendation(options)


def _convolution(options: argparse.Namespace) -> Job:
    from et_sim.workloads.convolution.network import layers_of, network_names, read_network
    from et_sim.workloads.convolution.step import make_convolution_training

    refuse_options(options)
    if options.model is None:
        known = ", ".join(network_names())
        raise UsageError("cnn needs a model", remedy=f"add --model, a JSON file or one of: {known}")
    name, network = read_network(options.model)
    plan = training.read_plan(options, micro_batches=1, batch=IMAGES)
    layers = layers_of(network, plan)
    weights = sum(layer.weights for layer in layers)
    workload = make_convolution_training(network, plan, name)
    facts = {"name": name, "source": network.source}
    return Job(workload, plan, name, "images", len(layers), weights, facts)


def _recommendation(options: argparse.Namespace) -> Job:
    from et_sim.workloads.recommendation.model import USUAL, changed, read_dlrm
    from et_sim.workloads.recommendation.step import make_dlrm_training

    name, model = read_dlrm(options.model or USUAL)
    changes = {
        option.lstrip("-").replace("-", "_"): value
        for option in _OF_DLRM
        if (value := training.value_of(options, option)) is not None
    }
    model = changed(model, changes)
    plan = training.read_plan(options, micro_batches=1, batch=model.batch)
    facts = {"name": name, **{one: getattr(model, one) for one in model.__struct_fields__}}
    layers = len(model.bottom_widths) + len(model.top_widths) - 2
    workload = make_dlrm_training(model, plan, name)
    return Job(workload, plan, f"dlrm {name}", "samples", layers, model.dense_weights, facts)
