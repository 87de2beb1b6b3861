"""`et-sim search`: find the best points of a sweep without trying all of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from et_sim.cli.sweep import add_workers, check_workers, print_sweep, resumable, tell_warnings


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "search",
        help="find the best points of a sweep without trying all",
        description="Find the points of a sweep with the least time, memory, energy, price or ranks, the most"
        " tokens per second or MFU, or the best compromises of several of these. Plans that bounds rule out"
        " are not simulated; where there are no bounds, Optuna chooses what is. What a directory already"
        " holds is not simulated again."
        " Exit status 1: no point is what was looked for.",
    )
    parser.add_argument(
        "spec", metavar="SPEC", type=Path, help="YAML file of a sweep that says what to search for, too"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="directory to write (default: ./NAME.search)")
    add_workers(parser)
    parser.add_argument(
        "--keep",
        default="none",
        metavar="WHICH",
        help="write the whole run of these points, too: best:3 of what is found, all that were evaluated, or"
        " their numbers, such as 0-3,6",
    )
    parser.add_argument("--json", action="store_true", help="print what inspect --json says of the search")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Evaluate, write the tables, and print what they say."""
    from et_sim.sweeps.journal import check_folder
    from et_sim.sweeps.progress import Progress
    from et_sim.sweeps.search import plan_search, search

    check_workers(options)
    planned = plan_search(options.spec)
    folder = options.out or Path(planned.name)
    check_folder(folder)
    with resumable(folder), Progress() as progress:
        report = search(
            planned,
            folder,
            workers=options.workers,
            dask=options.dask,
            keep=options.keep,
            watch=progress,
        )
    tell_warnings(report.table)
    status = 0 if report.found.front else 1
    print_sweep(folder, status, as_json=options.json)
    return status
