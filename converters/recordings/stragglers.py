"""Recorded steps of pipeline-parallel training: the Parquet files of StragglerAnalysis (ByteDance)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from converters.recordings.format import RecordingFormat, RecordingTask
from et_sim.basics.errors import UsageError

if TYPE_CHECKING:
    from converters.report import ConversionReport
    from et_sim.trace import Trace
    from et_sim.trace.recorded_steps.table import StepRecording
    from et_sim.trace.recorded_steps.work import Work


def read(path: Path) -> StepRecording:
    """Read the recording in a file."""
    from et_sim.trace.recorded_steps.table import read_steps

    return read_steps(path)


def write(
    recording: StepRecording,
    work: Work,
    output: str,
    *,
    with_gaps: bool,
    notes: Mapping[str, str],
    as_json: bool,
) -> Iterator[str]:
    """Write the traces of all ranks and report."""
    from converters.files import trace_path, write_files
    from converters.report import Converted, report_lines
    from et_sim.trace.encode import encode_several
    from et_sim.trace.recorded_steps.program import program_of

    traces = list(program_of(recording, with_gaps=with_gaps).traces(work))
    paths = [trace_path(output, rank) for rank in range(len(traces))]
    files = zip(paths, encode_several(traces), strict=True)
    write_files([Path(recording.source)], paths, files, output)
    report = _report(traces, recording, dict(notes), output)
    form = "recorded steps"
    converted = Converted(recording.source, form, tuple(str(path) for path in paths), report)
    yield from report_lines([converted], as_json=as_json)


def _report(
    traces: list[Trace], recording: StepRecording, notes: dict[str, str], output: str
) -> ConversionReport:
    from collections import Counter

    from converters.report import ConversionReport
    from et_sim.basics.files import in_shell
    from et_sim.basics.units import plural

    nodes = Counter[str]()
    for trace in traces:
        nodes.update(trace.kind_counts)
    steps, replicas, stages = recording.shape
    ranks = recording.ranks.reshape(-1).tolist()
    shown = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
    about = {
        "steps": f"{steps}, each begins when all ranks have ended the one before",
        "ranks": f"{plural(replicas, 'replica')} of {plural(stages, 'stage')}; in the recording: {shown}",
        "sizes": "not recorded: the work of communication is replayed after the wait for its participants",
        **notes,
        "run with": f"et-sim run {in_shell(output)} --profile corrected --network FILE --system FILE",
    }
    return ConversionReport(dict(nodes), {}, tuple(about.items()), is_total=True)


def only_steps(
    recording: StepRecording, work: Work, text: str, ranges: Sequence[range]
) -> tuple[StepRecording, Work]:
    """Return recording and work of the steps in some ranges; `text` names them in messages."""
    import numpy as np

    places = np.flatnonzero([any(step in numbers for numbers in ranges) for step in recording.steps])
    if not len(places):
        recorded = f"{len(recording.steps)} of {recording.steps[0]} to {recording.steps[-1]}"
        raise UsageError(f"--steps {text!r} names no recorded step", remedy=f"recorded: {recorded}")
    return recording.chosen(places), {kind: values[places] for kind, values in work.items()}


def chosen_work(recording: StepRecording, even: bool, uneven: Sequence[str]) -> tuple[Work, dict[str, str]]:
    """Return the work of the operations as recorded, or even but for the operations that `uneven` names, and
    notes for the report.
    """
    from et_sim.trace.recorded_steps.work import even_work, mixed_work, recorded_work

    work = recorded_work(recording)
    if not even and not uneven:
        return work, {}
    wanted: dict[str, list[int | str]] = {}
    for text in uneven:
        name, _, value = text.partition("=")
        wanted.setdefault(name, []).append(_value(recording, text, name, value))
    note = "all operations of a kind take the same time"
    base = even_work(work)
    if not wanted:
        return base, {"even": note}
    return mixed_work(recording, work, base, wanted), {
        "even": f"{note}, but for those of {', '.join(uneven)}"
    }


def _value(recording: StepRecording, text: str, name: str, value: str) -> int | str:
    if name == "kind":
        known = list(recording.kinds)
        if value in known:
            return value
    else:
        numbers = {
            "stage": range(recording.stages),
            "replica": range(recording.replicas),
            "rank": recording.ranks.reshape(-1).tolist(),
        }.get(name)
        if numbers is None:
            raise UsageError(
                f"--uneven {text!r} cannot be understood", remedy="give stage=, replica=, rank= or kind="
            )
        if value.isdecimal() and value.isascii() and int(value) in numbers:
            return int(value)
        known = [f"{min(numbers)} to {max(numbers)}"]
    raise UsageError(f"--uneven {text!r}: no such {name}", remedy=f"recorded: {', '.join(known)}")


def _recognises(path: Path, begin: bytes) -> bool:
    from et_sim.trace.recorded_steps.table import is_step_table

    return begin.startswith(b"PAR1") and is_step_table(path)


def _convert(task: RecordingTask) -> Iterator[str]:
    from et_sim.trace.recorded_steps.work import recorded_work

    if len(task.files) > 1:
        raise UsageError(
            f"holds {len(task.files)} recordings of steps",
            place=str(task.path),
            remedy="name one of the files",
        )
    prefix = task.prefix
    recording = read(task.files[0])
    yield from write(
        recording, recorded_work(recording), prefix, with_gaps=True, notes={}, as_json=task.as_json
    )


FORMAT = RecordingFormat("recorded steps of StragglerAnalysis (Parquet)", _recognises, _convert)
