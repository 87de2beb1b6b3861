"""Kineto timelines and execution traces of PyTorch, as `et-convert pytorch` converts them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from converters.recordings.format import RecordingFormat, RecordingTask
from et_sim.basics.files import is_folder

_SIGNS = re.compile(rb'"(traceEvents|deviceProperties)"\s*:|^\s*\{\s*"schema"\s*:\s*"\d+\.\d')


def _recognises(path: Path, begin: bytes) -> bool:  # noqa: ARG001
    return begin.lstrip()[:1] in (b"{", b"[") and _SIGNS.search(begin) is not None


def _convert(task: RecordingTask) -> Iterator[str]:
    from converters.files import ShareProgress
    from converters.pytorch.folders import convert_all, job_of_file, jobs_of_folder
    from converters.pytorch.report import lines_of_ranks
    from et_sim.basics.command_line import processors

    if is_folder(task.path):
        jobs, notes = jobs_of_folder(task.path, task.prefix, frozenset())
    else:
        output = Path(task.prefix if task.prefix.endswith((".et", ".et.gz")) else f"{task.prefix}.0.et")
        jobs, notes = [job_of_file(task.path, output, frozenset())], []
    progress = ShareProgress("recordings", sum(path.stat().st_size for job in jobs for path in job.inputs))
    try:
        done = convert_all(jobs, processors(), progress, notes)
    finally:
        progress.close()
    reports = [job.report for job in done]
    yield from lines_of_ranks(reports, notes, as_json=task.as_json)


FORMAT = RecordingFormat(
    "recordings of PyTorch (Kineto timelines, execution traces)", recognises=_recognises, convert=_convert
)
