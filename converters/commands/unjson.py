"""`et-convert unjson`: trace files to JSON lines, without loss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from converters.commands import JsonReport
from et_sim.basics.declared_options import Command, Option
from et_sim.basics.errors import UsageError

if TYPE_CHECKING:
    from et_sim.trace import Trace


class Options(Command):
    """Write the traces of all ranks as JSON lines, PREFIX.<rank>.jsonl, from which et-convert json makes the
    same files again, byte for byte."""

    input: Annotated[str, "PREFIX for PREFIX.<rank>.et, or a file", "INPUT"]
    output: Annotated[str, "write PREFIX.0.jsonl, PREFIX.1.jsonl, …", "PREFIX", Option("-o --output")]
    json: JsonReport = False


def run(options: Options) -> Iterator[str]:
    """Check every file with the reader, write all, and report."""
    from converters.editing.files import read_input, sources_of
    from converters.files import refuse_overwriting, watched
    from converters.json_lines import as_lines
    from converters.records import Dropped, frame_bytes
    from converters.report import Converted, make_report, report_lines
    from et_sim.trace.disk import replace_all

    given = read_input(options.input, drop_dangling=True)
    if given.is_manifest:
        raise UsageError(
            "is a workload manifest, which is JSON already",
            place=options.input,
            remedy="name the files of its templates one by one",
        )
    of_rank = given.workload.template_of_rank.tolist()
    paths = [Path(f"{options.output}.{rank}.jsonl") for rank in range(len(of_rank))]
    refuse_overwriting(given.files, paths)
    texts = [
        as_lines(frame_bytes((trace.header, *trace.records)), trace.source)
        for trace in watched(given.traces, len(given.traces), "traces")
    ]
    replace_all((path, texts[template][0]) for path, template in zip(paths, of_rank, strict=True))
    reports = [
        make_report(recorded.trace, Dropped(), [*spelling.notes(), *_dangling(recorded.trace)])
        for recorded, (_, spelling) in zip(given.traces, texts, strict=True)
    ]
    conversions = [
        Converted(source, "JSON lines", (str(path),), reports[template])
        for source, path, template in zip(sources_of(given), paths, of_rank, strict=True)
    ]
    yield from report_lines(conversions, given.workload.notices, as_json=options.json)


def _dangling(trace: Trace) -> Iterator[tuple[str, str]]:
    from et_sim.basics.units import plural

    if trace.dropped_dependencies:
        count = plural(trace.dropped_dependencies, "dependency", "dependencies")
        yield "dangling", f"{count} on nodes that are not in the file; kept, and et-convert json refuses them"
