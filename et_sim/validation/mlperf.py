"""Logs of MLPerf Training as measured steps: a row for the runs of a benchmark on a system.

A log has lines `:::MLLOG {json}`. The step of a run follows from its blocks, without evaluations: the first
block is left out if there are others, as it warms up. Logs count in different ways: the samples of a block
follow from steps, else from the samples up to its begin and end, else both state the samples of the block.
Runs in one folder with the same benchmark, batch and length are one row, with the mean of their steps and
its 95 % interval. Submissions describe their systems in a folder `systems` beside that of the results: what
it states counts more than the platform in the log. Facts that nothing states are named with the option that
gives them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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


class _System(Struct, frozen=True):
    """The description of a system in a submission."""

    submitter: str = ""
    accelerator_model_name: str = ""
    accelerators_per_node: str | int = 0
    number_of_nodes: str | int = 0
    framework: str = ""
    other_software_stack: Any = ""  # a text, or versions by name
    problem: str = ""  # why it cannot be read

    @property
    def software(self) -> str:
        """Return the software that it states."""
        further = self.other_software_stack
        return "; ".join([self.framework, *([further] if isinstance(further, str) and further else [])])

    @property
    def accelerators(self) -> int:
        """Return their number; 0 if it is not stated."""
        try:
            return _count(int(self.accelerators_per_node) * int(self.number_of_nodes))
        except ValueError:
            return 0


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
    return [
        _row(path, number, runs, given, _system_of(folder))
        for number, ((folder, *_), runs) in enumerate(systems.items(), 1)
    ]


def _system_of(folder: Path) -> _System:
    """Return the description of the system whose logs a folder has: results/SYSTEM/BENCHMARK."""
    above = folder.absolute().parents
    path = above[min(2, len(above) - 1)] / "systems" / f"{above[0].name}.json" if above else folder
    if path.suffix != ".json" or not path.is_file():
        return _System()
    try:
        return msgspec.json.decode(path.read_bytes(), type=_System)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _System(problem=f"{path} cannot be read: {reason(error)}")


def read_run(path: Path) -> Run:
    """Read a log."""
    texts, counts = dict(TEXTS), dict.fromkeys(COUNTS, 0)
    blocks: list[tuple[_Line, _Line]] = []
    begun: _Line | None = None
    for line in _lines(path):
        if line.key in texts and isinstance(line.value, str):
            texts[line.key] = line.value
        elif line.key in counts and (count := _count(line.value)):
            counts[line.key] = count
        elif line.key == "block_start" and begun is None:  # each process of a job may write it
            begun = line
        elif line.key == "block_stop" and begun is not None:
            blocks.append((begun, line))
            begun = None
    return Run(texts, counts, _step(blocks, counts["global_batch_size"]))


def _count(value: object) -> int:
    """Return a count, which some logs write as 1.0; 0 for another value."""
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0
    return int(value) if is_whole and isinstance(value, int | float) and 0 < value < 1 << 31 else 0


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


def _step(blocks: Sequence[tuple[_Line, _Line]], batch: int) -> float:
    """Return the seconds of a step; 0 without a block that is over."""
    counted = [
        (samples, last.time_ms - first.time_ms)
        for first, last in blocks
        if (samples := _samples(first.metadata, last.metadata, batch)) and last.time_ms > first.time_ms
    ]
    chosen = counted[1:] or counted
    samples = sum(block[0] for block in chosen)
    return sum(block[1] for block in chosen) / 1000 * batch / samples if samples else 0.0


def _samples(first: Mapping[str, Any], last: Mapping[str, Any], batch: int) -> int:
    """Return the samples of a block, by what its first and last line count; 0 if they do not state it."""
    steps = [_number(metadata.get("step")) for metadata in (first, last)]
    if -1 < steps[0] < steps[1]:
        return (steps[1] - steps[0]) * batch
    begin, end = (_number(metadata.get("samples_count")) for metadata in (first, last))
    return max(end if begin == end else end - begin, 0) if begin >= 0 else 0


def _number(value: object) -> int:
    """Return a count or 0; -1 for another value."""
    return 0 if value == 0 and not isinstance(value, bool) else _count(value) or -1


def _row(path: Path, number: int, runs: list[Run], given: StepOptions, system: _System) -> Row:
    first, table = runs[0], path.stem if path.is_file() else path.name
    steps = [run.step_s for run in runs if run.step_s > 0]
    benchmark, *others = first.texts.values()
    organisation, platform = system.submitter or others[0], system.accelerator_model_name or others[1]
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
    if system.problem:
        return replace(row, why=f"{what}; {system.problem}")
    model = given.model or MODELS.get(benchmark, "")
    unknown = [f"{name} ({option})" for name, option, value in _needed(first, model, given) if not value]
    if unknown:
        return replace(row, why=f"{what}; the log does not state {', '.join(unknown)}")
    try:
        stated = {"hardware": platform, "software": system.software, "measured_s": repr(mean.value_ns)}
        line = _line(first, replace(given, model=model), system.accelerators)
        whole = step_of(Path("mlperf"), 1, line | stated)
    except (EtSimError, KeyError, TypeError, ValueError, ArithmeticError) as error:
        return replace(row, why=f"{what}; {reason(error)}")
    return replace(row, job=whole.job, size_class=whole.size_class, remarks=whole.remarks)


def _needed(run: Run, model: str, given: StepOptions) -> Iterator[tuple[str, str, object]]:
    yield "the model", "--model NAME", model
    yield "the plan", "--plan 'tp1 pp1 dp8 zero1'", given.plan
    yield "the datatype of products", "--precision bf16", given.precision
    for name in COUNTS:
        yield name, "another log", run.counts[name]


def _line(run: Run, given: StepOptions, accelerators: int) -> dict[str, str]:
    """Return the training step of a run, as a line of a file of steps states it."""
    axes = axes_of_plan(given.plan)
    sizes = {axis: axes.get(axis, 1) for axis in ("tensor", "pipeline", "context")}
    replicas, plan = axes.get("data"), given.plan
    if replicas is None:
        replicas, rest = divmod(accelerators, math.prod(sizes.values()))
        if rest or not replicas:
            stated = f"{accelerators} accelerators" if accelerators else "no description states accelerators"
            raise ValueError(f"the plan {plan!r} has no dp, and {stated}: add dp")
        plan += f" dp{replicas}"
    ranks = math.prod(sizes.values()) * replicas
    if accelerators not in (0, ranks):
        raise ValueError(
            f"the plan {plan!r} has {plural(ranks, 'rank')}, and the system's description states"
            f" {plural(accelerators, 'accelerator')}: leave out dp"
        )
    batch, length, micro_batches = run.counts.values()
    share, rest = divmod(batch, replicas * micro_batches)
    if rest:
        raise ValueError(
            f"a batch of {batch} is not a multiple of {micro_batches} micro-batches x dp{replicas}"
        )
    return {
        "model": given.model,
        "machine": "",
        "gpus": str(ranks),
        "plan": plan,
        "micro_batch": str(share),
        "micro_batches": str(micro_batches),
        "seq": str(length),
        "precision": given.precision,
    }
