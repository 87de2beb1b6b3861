"""Flight-recorder dumps of PyTorch, one per rank: the report on a hang."""

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

    task.refuse_output("dumps hold the operations of a hang, and no work", "leave -o out for the report")
    report = explain(read_dumps(task.files))
    yield from [json.dumps(report.as_dict(), indent=2)] if task.as_json else report.lines()


FORMAT = RecordingFormat(
    "flight-recorder dumps of PyTorch (pickles or JSON)", recognises=_recognises, convert=_convert
)
