"""Flight-recorder dumps of PyTorch, one per rank: the report on a hang, or with -o the job without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from converters.recordings.format import RecordingFormat, RecordingTask

_PICKLE = b"\x80"  # the first byte of protocol 2 and later
_KEYS = (b"entries", b"pg_config", b"pg_status", b"collective_seq_id")


def _recognises(path: Path, begin: bytes) -> bool:  # noqa: ARG001
    if begin.startswith(_PICKLE):
        return b"entries" in begin or b"pg_config" in begin or b"pg_status" in begin
    return (
        begin.lstrip().startswith(b"{") and b'"collective_seq_id"' in begin and b'"profiling_name"' in begin
    )


def _convert(task: RecordingTask) -> Iterator[str]:
    from converters.recordings.flight.dumps import read_dumps
    from converters.recordings.flight.report import explain

    if task.output:
        yield from _job(task)
        return
    report = explain(read_dumps(task.files))
    yield from [json.dumps(report.as_dict(), indent=2)] if task.as_json else report.lines()


def _job(task: RecordingTask) -> Iterator[str]:
    """Write the programs of all ranks, and report."""
    from collections import Counter

    from converters.files import trace_path, write_files
    from converters.recordings.flight.dumps import read_dumps
    from converters.recordings.flight.job import job_of
    from converters.report import ConversionReport, Converted, report_lines
    from et_sim.trace.encode import encode_several

    job = job_of(read_dumps(task.files), str(task.path))
    paths = [trace_path(task.output, rank) for rank in range(len(job.traces))]
    write_files(task.files, paths, zip(paths, encode_several(job.traces), strict=True), task.output)
    nodes = Counter[str]()
    for trace in job.traces:
        nodes.update(trace.kind_counts)
    report = ConversionReport(dict(nodes), {}, tuple(job.notes()), is_total=True)
    converted = Converted(str(task.path), "dumps", tuple(map(str, paths)), report)
    yield from report_lines([converted], as_json=task.as_json)


FORMAT = RecordingFormat(
    "flight-recorder dumps of PyTorch (pickles or JSON)", recognises=_recognises, convert=_convert
)
