"""Edited traces to files of the input's form: one file per rank, or a manifest and its templates.

Every file is read by et-sim's own reader before any is written. Not here: what was edited.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from converters.editing.inputs import Input
from converters.files import refuse_overwriting, trace_path, watched
from converters.records import Dropped
from converters.report import Converted, as_plain, as_text, make_report
from et_sim.trace import Trace, Workload, decode
from et_sim.trace.disk import replace_all
from et_sim.trace.manifest import ENDING, manifest_files

Notes = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Edited:
    """What becomes of a workload: per template its new file, and what there is to say about it."""

    workload: Workload  # its traces are the old ones
    contents: list[bytes]
    notes: list[Notes]
    word: str  # how the report calls what was done
    sources: list[str]  # the file that each rank had; of a manifest, each template
    more: list[tuple[Path, bytes]] = field(default_factory=list)  # files besides
    remarks: list[str] = field(default_factory=list)  # about all files together


def sources_of(given: Input) -> list[str]:
    """The file of each rank; of a manifest, of each template."""
    if given.workload.has_file_per_rank:
        return [path for path, _ in given.workload.inputs]
    return [trace.source for trace in given.traces]


def write_edited(given: Input, edit: Edited, prefix: str) -> list[Converted]:
    """Write everything, or nothing; returns what to report, one entry per rank or template."""
    of_rank = edit.workload.template_of_rank.tolist()
    templates = range(len(edit.contents))
    if given.is_manifest:
        files = manifest_files(edit.workload, edit.contents, f"{prefix.removesuffix(ENDING)}{ENDING}")
        place_of = {content: str(path) for path, content in files[1:]}
        entries = [(template, place_of[edit.contents[template]]) for template in templates]
        files = [*files[1:], *edit.more, files[0]]
    else:
        entries = [(template, str(trace_path(prefix, rank))) for rank, template in enumerate(of_rank)]
        files = [*((Path(path), edit.contents[template]) for template, path in entries), *edit.more]
    refuse_overwriting(given.files, [path for path, _ in files])
    first_path = dict(reversed(entries))
    traces = decoded([(edit.contents[template], first_path[template]) for template in templates])
    edit.workload = replace(edit.workload, templates=tuple(traces))
    reports = [make_report(trace, Dropped(), notes) for trace, notes in zip(traces, edit.notes, strict=True)]
    replace_all(watched(files, len(files), "files"))
    return [
        Converted(source, edit.word, (path,), reports[template])
        for source, (template, path) in zip(edit.sources, entries, strict=True)
    ]


def decoded(contents: Iterable[tuple[bytes, str]]) -> list[Trace]:
    """The traces that files will hold; equal files share one."""
    held: dict[bytes, Trace] = {}
    found = []
    for content, source in contents:
        if content not in held:
            held[content] = decode(content, source)
        found.append(held[content])
    return found


def report_lines(
    conversions: list[Converted], notices: Iterable[str], *, as_json: bool, **figures: Any
) -> Iterator[str]:
    """The report as text or JSON; `figures` are further keys of the JSON form."""
    if as_json:
        content = {**as_plain(conversions, notices), **figures}
        yield json.dumps(content, indent=2, ensure_ascii=False)
        return
    yield from as_text(conversions)
    yield from (f"note: {notice}" for notice in notices)
