"""`et-sim run`: simulate a workload on a machine and write the run's directory."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from et_sim.cli.options import add_run_options, run_options

if TYPE_CHECKING:
    from et_sim.engine.stall import Stall
    from et_sim.run_options import RunOptions
    from et_sim.timeline import OutputFilter, Result

WORKLOAD_HELP = (
    "trace prefix: PREFIX for PREFIX.0.et, PREFIX.1.et, …; a workload manifest; "
    "or a layer file of ASTRA-sim 1.0"
)


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "run", help="simulate a workload on a machine", description="Simulate a workload on a machine."
    )
    parser.add_argument("workload", help=WORKLOAD_HELP)
    add_run_options(parser)
    parser.add_argument(
        "--out",
        type=Path,
        help="directory to write (default: ./NAME.run, NAME being the last part of WORKLOAD)",
    )
    parser.add_argument("--ranks", help='write the rows of these ranks only, such as "0-3,6"')
    parser.add_argument("--window", metavar="FROM:TO", help="write the rows of this time only: 10ms:20ms")
    parser.add_argument("--compress", default="lz4", metavar="HOW", help="lz4 (default), zstd or none")
    parser.add_argument("--json", action="store_true", help="print the content of summary.json")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Simulate, write the directory, and print the summary."""
    from et_sim.timeline import OutputFilter, check_target
    from et_sim.trace.manifest import ENDING

    target = options.out or Path(f"{Path(options.workload).name.removesuffix(ENDING)}.run")
    check_target(target)
    output_filter = OutputFilter(compression=options.compress)
    if options.ranks is not None or options.window is not None:
        from et_sim.views.run.selection import selection

        part = selection(options.ranks, options.window)
        output_filter = OutputFilter(part.ranks, part.window, options.compress)
    return simulate_into(
        target, options.workload, run_options(options), as_json=options.json, output_filter=output_filter
    )


def simulate_into(
    target: Path,
    workload: str,
    options: RunOptions,
    *,
    as_json: bool,
    output_filter: OutputFilter | None = None,
) -> int:
    """Simulate into a directory; a stalled run is written too, explained, and is status 1."""
    from et_sim import api
    from et_sim.cli.progress import Progress
    from et_sim.timeline import OutputFilter, write_run

    with Progress() as progress:
        result = api.execute(workload, options, watch=progress, output_filter=output_filter or OutputFilter())
        stall = _stall_of(result)
        progress.stage("adding up and writing")
        write_run(result, target, stall.as_dict() if stall else None, output_filter or OutputFilter())
    for notice in result.manifest["warnings"]:
        place = f"{notice['place']}: " if notice["place"] else ""
        key = f"key {notice['key']!r}: " if notice["key"] else ""
        print(f"et-sim: warning: {place}{key}{notice['text']}", file=sys.stderr)
    if as_json:
        print(json.dumps(result.summary(), indent=2, ensure_ascii=False))
    if stall:
        error = stall.as_error()
        print(f"et-sim: error: {error.report}", file=sys.stderr)
        print(f"What did happen is in {target}", file=sys.stderr)
        return error.exit_status
    if not as_json:
        from et_sim.cli.inspect import show
        from et_sim.views.summary.inspect import summary_text

        show(summary_text(target))
        print(f"\nwritten to {target}; look closer with: et-sim inspect {target}")
    return 0


def _stall_of(result: Result) -> Stall | None:
    """Why a run is not complete; None if it is."""
    if result.is_complete:
        return None
    from et_sim.engine.stall import explain_stall

    return explain_stall(result.outcome, result.workload)
