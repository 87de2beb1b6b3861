"""Edited traces to files of the input's form: one file per rank, or a manifest and its templates.

Every file is read by et-sim's own reader before any is written. Not here: what was edited.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from converters.editing.inputs import Input
from converters.files import refuse_overwriting, trace_path
from converters.records import Dropped
from converters.report import Converted, as_plain, as_text, make_report
from converters.watching import watched
from et_sim.trace import Trace, Workload, decode
from et_sim.trace.disk import replace_all
from et_sim.trace.manifest import ENDING, manifest_files

Notes = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Edited:
    """What becomes of a workload: per template its new file, and what there is to say about it."""

    workload: Workload
    contents: list[bytes]
    notes: list[Notes]
    words: list[str]  # how the report calls what was done to each template
    more: list[tuple[Path, bytes]] = field(default_factory=list)  # files besides


def decoded(given: Workload, contents: Sequence[bytes], sources: Sequence[str]) -> Workload:
    """The workload with the traces that the new files hold, called by the names they will have."""
    held: dict[bytes, Trace] = {}
    traces = []
    for content, source in zip(contents, sources, strict=True):
        traces.append(held.setdefault(content, decode(content, source)))
    return replace(given, templates=tuple(traces), inputs=(), has_file_per_rank=False)


def output_names(given: Input, prefix: str) -> list[str]:
    """What the file of each template will be called, where many ranks share one: that of the first."""
    if given.is_manifest:
        return [trace.source for trace in given.traces]
    of_rank = given.workload.template_of_rank.tolist()
    return [str(trace_path(prefix, of_rank.index(template))) for template in range(len(given.traces))]


def write_edited(given: Input, edit: Edited, prefix: str, *, is_manifest: bool) -> list[Converted]:
    """Write everything, or nothing; returns what to report, one entry per rank or template."""
    workload = edit.workload
    if is_manifest:
        files = manifest_files(workload, edit.contents, f"{prefix.removesuffix(ENDING)}{ENDING}")
        paths = {content: path for path, content in files[1:]}
        entries = [(template, str(paths[content])) for template, content in enumerate(edit.contents)]
        files = [*files[1:], *edit.more, files[0]]
    else:
        of_rank = workload.template_of_rank.tolist()
        entries = [(template, str(trace_path(prefix, rank))) for rank, template in enumerate(of_rank)]
        files = [*((Path(path), edit.contents[template]) for template, path in entries), *edit.more]
    refuse_overwriting(given.files, [path for path, _ in files])
    reports = {
        template: make_report(workload.templates[template], Dropped(), edit.notes[template])
        for template in dict.fromkeys(template for template, _ in entries)
    }
    replace_all(watched(files, len(files), "files"))
    sources = [path for path, _ in given.workload.inputs] if given.workload.has_file_per_rank else []
    is_alike = len(sources) == len(entries)
    return [
        Converted(
            sources[at] if is_alike else workload.templates[template].source,
            edit.words[template],
            (path,),
            reports[template],
        )
        for at, (template, path) in enumerate(entries)
    ]


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
