"""`et-convert strip`: traces without the operators of the host."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from converters.commands import add_input, add_output, add_report


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "strip",
        help="traces without the operators of the host",
        description="Remove computation that is marked is_cpu_op. What came after it comes after what it came"
        " after; its time is lost, or kept in delays.",
    )
    add_input(parser)
    add_output(parser, "write PREFIX.0.et, … (or PREFIX.workload.json)")
    parser.add_argument(
        "--keep-delays",
        action="store_true",
        help="keep the host's time: as few delay nodes as start everything when it started",
    )
    add_report(parser, run)


def run(options: argparse.Namespace) -> Iterator[str]:
    """Strip every distinct trace, then write, then report."""
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
