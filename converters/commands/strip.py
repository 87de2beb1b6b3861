"""`et-convert strip`: traces without the operators of the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from converters.commands import EditedOutput, JsonReport, WorkloadInput
from et_sim.basics.declared_options import Command


class Options(Command):
    """Remove computation that is marked is_cpu_op and connect its successors to its predecessors. Its time is
    lost, or kept in delays.
    """

    input: WorkloadInput
    output: EditedOutput
    keep_delays: Annotated[
        bool, "keep the host's time: as few delay nodes as start everything when it started"
    ] = False
    json: JsonReport = False


def run(options: Options) -> Iterator[str]:
    """Strip every distinct trace, write the files, and report."""
    from converters.editing.files import Edited, read_input, sources_of, write_edited
    from converters.editing.stripping import strip
    from converters.files import watched
    from converters.report import report_lines

    given = read_input(options.input)
    stripped = [
        strip(recorded, keep_delays=options.keep_delays)
        for recorded in watched(given.traces, len(given.traces), "traces")
    ]
    contents, notes = [trace.content for trace in stripped], [trace.notes for trace in stripped]
    edit = Edited(given.workload, contents, notes, "stripped", sources_of(given))
    conversions = write_edited(given, edit, options.output)
    yield from report_lines(conversions, given.workload.notices, as_json=options.json)
