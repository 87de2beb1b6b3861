"""`et-convert slice`: some iterations, some time, some ranks of a workload."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from converters.commands import add_input, add_output, add_report, number_ranges
from et_sim.basics.errors import UsageError


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "slice",
        help="some iterations, some time or some ranks of a workload",
        description="Write a part of a workload. Dependencies that lead out of it are bridged; communication"
        " whose partners are not in it is refused, or left out with --drop-open.",
    )
    add_input(parser)
    add_output(parser, "write PREFIX.0.et, … (or PREFIX.workload.json)")
    parser.add_argument("--iterations", metavar="LIST", help='keep these iterations: "2" or "1-3,7"')
    parser.add_argument(
        "--marker",
        metavar="TEXT",
        action="append",
        help="iterations begin with nodes of this name, with a number behind it or in place of a #"
        " (default: ProfilerStep); of several, a trace goes by the first it knows",
    )
    parser.add_argument(
        "--window",
        metavar="BEGIN:END",
        help='keep nodes recorded to start in this time: "10ms:20ms" from the earliest start of all ranks',
    )
    parser.add_argument("--ranks", metavar="LIST", help='keep these ranks: "0-3,6"')
    parser.add_argument("--renumber", action="store_true", help="count the ranks of the slice from 0 on")
    parser.add_argument(
        "--drop-open", action="store_true", help="leave out communication whose partners are not in the slice"
    )
    parser.add_argument(
        "--groups", metavar="FILE", type=Path, help="the groups file; PREFIX.groups.json is written"
    )
    add_report(parser, run)


def run(options: argparse.Namespace) -> Iterator[str]:
    """Choose, cut, write, report."""
    from converters.editing.files import read_input, write_edited
    from converters.editing.groups import read_groups_file
    from converters.editing.slicing import MARKER, Wanted, cut, parse_window
    from converters.report import report_lines

    if options.iterations is None and options.window is None and options.ranks is None:
        raise UsageError(
            "nothing says what the slice is to hold", remedy="give --iterations, --window or --ranks"
        )
    if options.marker is not None and options.iterations is None:
        raise UsageError(
            "--marker without --iterations has no meaning", remedy="say which with --iterations 1-3"
        )
    ranks = _ranks(options.ranks)
    wanted = Wanted(
        iterations=_iterations(options.iterations),
        markers=tuple(options.marker) if options.marker is not None else (MARKER,),
        window_us=parse_window(options.window) if options.window is not None else None,
        ranks=ranks,
        renumber=options.renumber,
        drop_open=options.drop_open,
        groups=read_groups_file(options.groups),
    )
    given = read_input(options.input)
    edit = cut(given, wanted, options.output)
    conversions = write_edited(given, edit, options.output)
    yield from report_lines(conversions, [*given.workload.notices, *edit.remarks], as_json=options.json)


def _ranks(text: str | None) -> tuple[int, ...] | None:
    """The ranks of "0-3,6", ascending."""
    from et_sim.basics.units import parse_ranks

    return None if text is None else tuple(sorted({rank for piece in parse_ranks(text) for rank in piece}))


def _iterations(text: str | None) -> tuple[range, ...] | None:
    return None if text is None else tuple(number_ranges("--iterations", text))
