"""`et-sim report`: a run as one HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from et_sim.errors import UsageError


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "report",
        help="write a run as an HTML page",
        description="Write a run as one HTML page that needs nothing else, not even a network.",
    )
    parser.add_argument("directory", metavar="RUN", help="directory that et-sim run wrote")
    parser.add_argument("--html", type=Path, metavar="FILE", required=True, help="the page to write")
    parser.add_argument("--ranks", help='ranks of the timeline, such as "0-3,6" (default: one of each actor)')
    parser.add_argument("--window", metavar="FROM:TO", help="its time, such as 10ms:20ms (default: all)")
    parser.add_argument(
        "--limit", type=int, metavar="N", help="draw at most about N nodes (default: 100000); more are merged"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the page."""
    if options.limit is not None and options.limit < 1:
        raise UsageError(f"--limit is {options.limit}", remedy="draw at least one node")
    from et_sim.units import format_bytes
    from et_sim.views import open_run
    from et_sim.views.drawing.nodes import ALWAYS
    from et_sim.views.report.page import write_report
    from et_sim.views.report.timeline import MOST_SLICES
    from et_sim.views.run.selection import selection

    opened, window = open_run(options.directory), selection(window=options.window).window or ALWAYS
    size = write_report(opened, options.html, options.ranks, window, options.limit or MOST_SLICES)
    print(f"{options.html}: {format_bytes(size)}; open it in a browser")
    return 0
