"""Logs of MLPerf Training as measured steps: a row for the runs of a benchmark on a system.

A log has lines `:::MLLOG {json}`. The step of a run follows from its blocks, without evaluations: the first
block is left out if there are others, as it warms up. Runs in one folder with the same benchmark, batch and
length are one row, with the mean of their steps and its 95 % interval. Facts that no log states are
named with the option that gives them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import EtSimError, UsageError, unreadable
from et_sim.basics.estimates import mean_of
from et_sim.basics.units import format_ns, plural
from et_sim.validation.row import Row, reason, refused
from et_sim.validation.steps import axes_of_plan, step_of

SIGN = b":::MLLOG {"
BYTES_READ = 1 << 16
MOST_LINE = 1 << 20
MODELS = {  # benchmarks that are one model
    "llama31_8b": "llama3-8b",
    "llama31_405b": "llama3-405b",
    "gpt3": "gpt3-175b",
}
TEXTS = {"submission_benchmark": "", "submission_org": "", "submission_platform": ""}
COUNTS = ("global_batch_size", "max_sequence_length", "gradient_accumulation_steps")


class StepOptions(Struct, frozen=True):
    """Facts that logs do not state; empty if not given."""

    model: str = ""
    plan: str = ""
    precision: str = ""


class _Line(Struct, frozen=True):
    key: str = ""
    value: Any = None
    time_ms: int = 0
    metadata: dict[str, Any] = {}


class Run(Struct, frozen=True):
    """A run: what its log states, and the seconds of a step."""

    texts: Mapping[str, str]
    counts: Mapping[str, int]
    step_s: float  # 0: the blocks do not state it


def is_mlperf(path: Path) -> bool:
    """Check whether a path is a folder with logs, or a log."""
    if path.is_dir():
        return any(True for _ in _files(path))
    try:
        with path.open("rb") as file:
            return SIGN in file.read(BYTES_READ)
    except OSError:
        return False


def _files(path: Path) -> Iterator[Path]:
    """Yield the logs: the file, or those in a folder and in the folders below it."""
    if not path.is_dir():
        yield path
        return
    for file in sorted(path.rglob("*.txt")):
        if file.is_file() and is_mlperf(file):
            yield file


def read_mlperf(path: Path, given: StepOptions) -> list[Row]:
    """Return a row for each benchmark and system."""
    systems: dict[tuple[Any, ...], list[Run]] = {}
    for file in _files(path):
        run = read_run(file)
        key = (file.parent, *run.texts.values(), *run.counts.values())
        systems.setdefault(key, []).append(run)
    return [_row(path, number, runs, given) for number, runs in enumerate(systems.values(), 1)]


def read_run(path: Path) -> Run:
    """Read a log."""
    texts, counts = dict(TEXTS), dict.fromkeys(COUNTS, 0)
    begun: dict[int, int] = {}  # time by samples
    ended: dict[int, int] = {}
    for line in _lines(path):
        samples = line.metadata.get("samples_count")
        if line.key in texts and isinstance(line.value, str):
            texts[line.key] = line.value
        elif line.key in counts and _is_count(line.value):
            counts[line.key] = line.value
        elif line.key == "block_start" and isinstance(samples, int):
            begun.setdefault(samples, line.time_ms)
        elif line.key == "block_stop" and isinstance(samples, int):
            ended[samples] = line.time_ms
    return Run(texts, counts, _step(begun, ended, counts["global_batch_size"]))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31


def _lines(path: Path) -> Iterator[_Line]:
    """Yield the lines that can be read; programs print others between them."""
    decoder = msgspec.json.Decoder(_Line)
    try:
        with path.open("rb") as file:
            while text := file.readline(MOST_LINE):
                at = text.find(SIGN)
                if at < 0:
                    continue
                try:
                    yield decoder.decode(text[at + len(SIGN) - 1 :])
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    continue
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {unreadable(error)}", remedy="name a log") from None


def _step(begun: Mapping[int, int], ended: Mapping[int, int], batch: int) -> float:
    """Return the seconds of a step; 0 without a block that is over."""
    blocks = []
    starts = sorted(begun)
    for at, first in enumerate(starts):
        following = starts[at + 1] if at + 1 < len(starts) else None
        last = next(
            (end for end in sorted(ended) if end > first and (following is None or end <= following)), None
        )
        if last is not None and ended[last] > begun[first]:
            blocks.append((last - first, ended[last] - begun[first]))
    chosen = blocks[1:] or blocks
    samples = sum(block[0] for block in chosen)
    return sum(block[1] for block in chosen) / 1000 * batch / samples if samples else 0.0


def _row(path: Path, number: int, runs: list[Run], given: StepOptions) -> Row:
    first, table = runs[0], path.stem if path.is_file() else path.name
    steps = [run.step_s for run in runs if run.step_s > 0]
    benchmark, organisation, platform = first.texts.values()
    batch, length, _ = first.counts.values()
    by, on = organisation or "an unknown organisation", platform or "an unknown machine"
    place = f"{benchmark or 'a benchmark'} of {by} on {on}"
    about = f"{place}, batch {batch}, {length} tokens, {plural(len(runs), 'run')}"
    if not steps:
        return refused(table, number, f"{about}: no block of steps states its samples", platform)
    mean = mean_of(steps)
    within = None
    what = f"{about}: {format_ns(round(mean.value_ns * 1e9))} a step"
    if mean.low_ns is not None and mean.high_ns is not None:
        within = (mean.low_ns * 1e6, mean.high_ns * 1e6)
        what += f" ({' to '.join(format_ns(round(us * 1000)) for us in within)})"
    row = Row(
        table, number, platform, "", "iteration", "", what, mean.value_ns * 1e6, None, interval_us=within
    )
    model = given.model or MODELS.get(benchmark, "")
    unknown = [f"{name} ({option})" for name, option, value in _needed(first, model, given) if not value]
    if unknown:
        return replace(row, why=f"{what}; the log does not state {', '.join(unknown)}")
    try:
        job, size, remarks = _job(first, replace(given, model=model), mean.value_ns)
    except (EtSimError, KeyError, TypeError, ValueError, ArithmeticError) as error:
        return replace(row, why=f"{what}; {reason(error)}")
    return replace(row, job=job, size_class=size, remarks=remarks)


def _needed(run: Run, model: str, given: StepOptions) -> Iterator[tuple[str, str, object]]:
    yield "the model", "--model NAME", model
    yield "the plan", "--plan 'tp1 pp1 dp8 zero1'", given.plan
    yield "the datatype of products", "--precision bf16", given.precision
    for name in COUNTS:
        yield name, "another log", run.counts[name]


def _job(run: Run, given: StepOptions, step_s: float) -> tuple[Any, str, tuple[str, ...]]:
    """Return the training step of a run, its size class and remarks."""
    axes = axes_of_plan(given.plan)
    sizes = [axes.get(axis, 1) for axis in ("tensor", "pipeline", "context", "data")]
    batch, length, micro_batches = run.counts.values()
    share, rest = divmod(batch, sizes[-1] * micro_batches)
    if rest:
        raise ValueError(
            f"a batch of {batch} is not a multiple of {micro_batches} micro-batches x dp{sizes[-1]}"
        )
    line = {
        "hardware": run.texts["submission_platform"],
        "model": given.model,
        "machine": "",
        "gpus": str(math.prod(sizes)),
        "plan": given.plan,
        "micro_batch": str(share),
        "micro_batches": str(micro_batches),
        "seq": str(length),
        "precision": given.precision,
        "measured_s": repr(step_s),
    }
    row = step_of(Path("mlperf"), 1, line)
    return row.job, row.size_class, row.remarks
