"""The part of `et-sim make` that makes a training job: its options, and the job they describe."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from et_sim.errors import UsageError

if TYPE_CHECKING:
    from et_sim.trace import Workload

# (option, attribute of `Transformer`, kind of value, help)
_OPTIONS: tuple[tuple[str, str, Any, str], ...] = (
    ("--tp", "tensor", int, "ranks that share every layer (tensor parallelism)"),
    ("--pp", "pipeline", int, "stages of the pipeline"),
    ("--dp", "data", int, "replicas of the model (data parallelism)"),
    ("--micro-batches", "micro_batches", int, "micro-batches of a step, in every replica"),
    ("--layers", "layers", int, "layers of the model"),
    ("--hidden", "hidden", int, "width of the model"),
    ("--sequence", "sequence", int, "tokens of a sequence"),
    ("--batch", "batch", int, "sequences in a micro-batch"),
    ("--vocabulary", "vocabulary", int, "rows of embedding and head"),
    ("--value-bytes", "bytes_per_value", int, "bytes of a weight, activation or gradient"),
    ("--tflops", "tflops", float, "what a rank's kernels achieve, in 10^12 operations per second"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that only a transformer has."""
    from et_sim.generate.transformer import Transformer

    group = parser.add_argument_group(
        "options of transformer", "rank = t + tp * (d + dp * p), for places t, d and p"
    )
    usual = Transformer()
    for option, attribute, kind, text in _OPTIONS:
        group.add_argument(option, type=kind, help=f"{text} (default: {getattr(usual, attribute)})")


def refuse_options(options: argparse.Namespace) -> None:
    """Raise if an option was given that only a transformer has."""
    for option, _, _, _ in _OPTIONS:
        if _given(options, option) is not None:
            raise UsageError(f"{option} is not for {options.kind}", remedy="only make transformer has it")


def make(options: argparse.Namespace) -> tuple[Workload, str, dict[str, Any]]:
    """(the job, what it is in words, its shape for programs)."""
    from dataclasses import asdict

    from et_sim.generate.transformer import Transformer, make_transformer
    from et_sim.trace.manifest import MOST_RANKS

    for option, usual in (("--bytes", None), ("--repeat", 1), ("--compute-us", 0)):
        if _given(options, option) != usual:
            raise UsageError(
                f"{option} is not for a transformer", remedy="its shape gives all sizes and times"
            )
    given = {attribute: _given(options, option) for option, attribute, _, _ in _OPTIONS}
    model = Transformer(**{attribute: value for attribute, value in given.items() if value is not None})
    if options.ranks not in (None, model.ranks):
        raise UsageError(
            f"--ranks is {options.ranks}, and --tp {model.tensor} --pp {model.pipeline} --dp {model.data}"
            f" make {model.ranks} ranks",
            remedy="leave --ranks out, or correct one of them",
        )
    if model.ranks > MOST_RANKS:
        raise UsageError(f"{model.ranks:,} ranks are too many", remedy=f"make at most {MOST_RANKS:,} ranks")
    shape = f"tensor {model.tensor} x pipeline {model.pipeline} x data {model.data}"
    what = f"transformer, {shape}, {model.micro_batches} micro-batches"
    return make_transformer(model), what, asdict(model)


def _given(options: argparse.Namespace, option: str) -> Any:
    return getattr(options, option.lstrip("-").replace("-", "_"))
