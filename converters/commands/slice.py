"""`et-convert slice`: some iterations, some time or some ranks of a workload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from converters.commands import EditedOutput, JsonReport, WorkloadInput, number_ranges
from et_sim.basics.declared_options import Command
from et_sim.basics.errors import UsageError


class Options(Command):
    """Write a part of a workload. Dependencies that lead out of it are bridged; communication whose partners
    are not in it is refused, or left out with --drop-open."""

    input: WorkloadInput
    output: EditedOutput
    iterations: Annotated[str | None, 'keep these iterations: "2" or "1-3,7"', "LIST"] = None
    marker: Annotated[
        Sequence[str] | None,
        "iterations begin with nodes of this name, with a number behind it or in place of a #"
        " (default: ProfilerStep); of several, the first that a trace contains applies",
        "TEXT",
    ] = None
    window: Annotated[
        str | None,
        'keep nodes recorded to start in this time: "10ms:20ms" from the earliest start of all ranks',
        "BEGIN:END",
    ] = None
    ranks: Annotated[str | None, 'keep these ranks: "0-3,6"', "LIST"] = None
    renumber: Annotated[bool, "count the ranks of the slice from 0 on"] = False
    drop_open: Annotated[bool, "leave out communication whose partners are not in the slice"] = False
    groups: Annotated[Path | None, "the groups file; PREFIX.groups.json is written", "FILE"] = None
    json: JsonReport = False


def run(options: Options) -> Iterator[str]:
    """Choose the nodes, cut, write, and report."""
    from converters.editing.files import read_input, write_edited
    from converters.editing.groups import read_groups_file
    from converters.editing.slicing import MARKER, Wanted, cut, parse_window
    from converters.report import report_lines

    if options.iterations is None and options.window is None and options.ranks is None:
        raise UsageError("the slice has no limits", remedy="give --iterations, --window or --ranks")
    if options.marker is not None and options.iterations is None:
        raise UsageError("--marker requires --iterations", remedy="choose iterations with --iterations 1-3")
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
    """Return the ranks of "0-3,6", ascending."""
    from et_sim.basics.units import parse_ranks

    return None if text is None else tuple(sorted({rank for piece in parse_ranks(text) for rank in piece}))


def _iterations(text: str | None) -> tuple[range, ...] | None:
    return None if text is None else tuple(number_ranges("--iterations", text))
