"""`et-sim compare`: what got slower or faster from one run, or sweep, to another."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from et_sim.basics.errors import UsageError
from et_sim.cli.compare_workloads import are_workloads, compare_workloads
from et_sim.cli.options import parse_share
from et_sim.cli.unread import printing

if TYPE_CHECKING:
    from et_sim.views.compare.changes import Comparison

ROWS = 10
SLOWER = 1
WRITTEN = ("html", "svg", "png")


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "compare",
        description="Compare run B with A: by operation, group, dimension (with --detail phases) and rank. "
        "Of two sweeps over the same axes, compare the points that both have; of two workloads, files of "
        "traces or manifests, what their ranks do. "
        "With --threshold, the exit status is 1 if B, or a point of it, is slower than A by more than that, "
        "or stalled.",
    )
    parser.add_argument("a", metavar="A", help="run, sweep or workload to compare with")
    parser.add_argument("b", metavar="B", help="run, sweep or workload that may be slower or faster")
    parser.add_argument(
        "--threshold",
        metavar="SHARE",
        help="the most that B's makespan may be above A's, such as 2%% or 0.02",
    )
    parser.add_argument(
        "--top", type=int, default=ROWS, metavar="N", help=f"lines of each table (default: {ROWS})"
    )
    parser.add_argument(
        "--json", action="store_true", help="print data instead of text, with everything in it"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the comparison as an HTML page")
    for form in ("svg", "png"):
        help_text = f"draw both timelines on one axis, as {form.upper()}, into a file"
        parser.add_argument(f"--{form}", type=Path, metavar="FILE", help=help_text)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the comparison."""
    threshold = None if options.threshold is None else parse_share(options.threshold, "threshold")
    if options.top < 1:
        raise UsageError(f"cannot show {options.top} lines", place="--top", remedy="give a number from 1")
    if are_workloads(options.a, options.b):
        return _compare_workloads(options)
    from et_sim.views import open_run
    from et_sim.views.compare.changes import compare
    from et_sim.views.compare.text import comparison_lines
    from et_sim.views.sweep.directory import is_sweep
    from et_sim.views.text import terminal_width

    sweeps = [path for path in (options.a, options.b) if is_sweep(path)]
    if len(sweeps) == 1:
        remedy = "compare two runs, or two sweeps"
        raise UsageError("only one of the two is a sweep", place=sweeps[0], remedy=remedy)
    files = [name for name in WRITTEN if getattr(options, name) is not None]
    if files and options.json:
        raise UsageError(f"--json prints data, and --{files[0]} writes a file", remedy="give one of them")
    if sweeps and files:
        raise UsageError(
            f"sweeps cannot be compared with --{files[0]}", remedy="compare two of their runs (sweep --keep)"
        )
    if sweeps:
        return _compare_sweeps(options, threshold)
    comparison = compare(open_run(options.a), open_run(options.b))
    status = SLOWER if threshold is not None and comparison.exceeds(threshold) else 0
    with printing(status):
        if files:
            _write(comparison, options)
        elif options.json:
            print(json.dumps(comparison.as_dict(), indent=2, ensure_ascii=False))
        else:
            print("\n".join(comparison_lines(comparison, terminal_width(), options.top)))
    return status


def _compare_workloads(options: argparse.Namespace) -> int:
    refused = [name for name in (*WRITTEN, "threshold") if getattr(options, name) is not None]
    if refused:
        raise UsageError(
            f"workloads take no time, which --{refused[0]} is about", remedy="compare runs of them"
        )
    with printing(0):
        for line in compare_workloads(options):
            print(line)
    return 0


def _write(comparison: Comparison, options: argparse.Namespace) -> None:
    """The page and the pictures that are asked for."""
    if options.svg is not None or options.png is not None:
        from et_sim.views.drawing.scene import write_picture
        from et_sim.views.drawing.timeline import aligned_picture

        write_picture(aligned_picture(comparison), options.svg, options.png)
    if options.html is not None:
        from et_sim.basics.units import format_bytes
        from et_sim.views.report.compare_page import compare_report
        from et_sim.views.report.page import write_page

        size = write_page(compare_report(comparison), options.html)
        print(f"{options.html}: {format_bytes(size)}; open it in a browser")


def _compare_sweeps(options: argparse.Namespace, threshold: float | None) -> int:
    from et_sim.views.sweep.comparison import compare_sweeps, sweep_comparison_lines
    from et_sim.views.sweep.directory import open_sweep
    from et_sim.views.text import terminal_width

    comparison = compare_sweeps(open_sweep(options.a), open_sweep(options.b))
    options.status_unread = SLOWER if threshold is not None and comparison.exceeds(threshold) else 0
    if options.json:
        print(json.dumps(comparison.as_dict(), indent=2, ensure_ascii=False))
    else:
        print("\n".join(sweep_comparison_lines(comparison, terminal_width(), options.top)))
    return int(options.status_unread)
