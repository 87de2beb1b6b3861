"""`et-sim report`: write a run or a sweep as one HTML page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from et_sim.basics.declared_options import Command, Count, Option
from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_bytes, plural

OF_RUNS = ("ranks", "window", "limit")  # options that sweeps do not support


class Options(Command):
    """Write a run or a sweep as one self-contained HTML page. Runs of the best points of a sweep that were
    kept have pages of their own beside it.
    """

    directory: Annotated[str, "directory that et-sim run, sweep or serve wrote", "RUN"]
    html: Annotated[Path, "the page to write", "FILE", Option()]
    ranks: Annotated[str | None, 'ranks of the timeline, such as "0-3,6" (default: one of each actor)'] = None
    window: Annotated[str | None, "its time, such as 10ms:20ms (default: all)", "FROM:TO"] = None
    limit: Annotated[Count, "draw at most about N nodes (default: 100000); more are merged", "N"] = None


def run(options: Options) -> int:
    """Write the page."""
    from et_sim.views.run.directory import is_serving
    from et_sim.views.sweep.directory import is_sweep

    if is_sweep(options.directory):
        return _write_sweep(options)
    if is_serving(options.directory):
        return _write_serving(options)
    from et_sim.views import open_run
    from et_sim.views.drawing.nodes import ALWAYS
    from et_sim.views.report.page import write_report
    from et_sim.views.report.timeline import MOST_SLICES
    from et_sim.views.run.selection import selection

    opened, part = open_run(options.directory), selection(window=options.window)
    part.check_window(opened)
    window = part.window or ALWAYS
    size = write_report(opened, options.html, options.ranks, window, options.limit or MOST_SLICES)
    print(f"{options.html}: {format_bytes(size)}; open it in a browser")
    return 0


def _refuse_options(options: Options, description: str, remedy: str) -> None:
    given = [f"--{name}" for name in OF_RUNS if getattr(options, name) is not None]
    if given:
        cause = f"this {description}, and {given[0]} is about a run"
        raise UsageError(cause, place=options.directory, remedy=remedy)


def _write_serving(options: Options) -> int:
    """Write the page of a serving."""
    _refuse_options(options, "is what et-sim serve wrote", "leave it out")
    from et_sim.views.report.page import serving_report, write_page
    from et_sim.views.run.directory import open_serving

    size = write_page(serving_report(open_serving(options.directory)), options.html)
    print(f"{options.html}: {format_bytes(size)}; open it in a browser")
    return 0


def _write_sweep(options: Options) -> int:
    """Write the page of a sweep, after those of the runs that it links to."""
    remedy = f"report a run in {options.directory}/runs, which et-sim sweep --keep writes"
    _refuse_options(options, "is a sweep", remedy)
    from et_sim.views.report.page import write_page
    from et_sim.views.report.sweep_page import sweep_report, write_pages
    from et_sim.views.sweep.directory import open_sweep

    sweep = open_sweep(options.directory)
    pages, warnings = write_pages(sweep, options.html)
    for warning in warnings:
        print(f"et-sim: warning: {warning}", file=sys.stderr)
    size = write_page(sweep_report(sweep, pages), options.html)
    beside = f", and {plural(len(pages), 'page')} of runs beside it" if pages else ""
    print(f"{options.html}: {format_bytes(size)}{beside}; open it in a browser")
    return 0
