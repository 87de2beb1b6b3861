"""Simulating into a directory, as the commands do it: progress, warnings and stalls go to stderr."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from et_sim.cli.unread import printing

if TYPE_CHECKING:
    from et_sim.run.options import RunOptions
    from et_sim.run.result import Result
    from et_sim.timeline import OutputFilter


def simulate_into(
    target: Path,
    workload: str,
    options: RunOptions,
    *,
    as_json: bool,
    output_filter: OutputFilter | None = None,
) -> int:
    """Simulate into a directory; a stalled run is written too, explained, and is status 1."""
    from et_sim.timeline import OutputFilter

    result, status = simulated_into(target, workload, options, output_filter or OutputFilter(), set())
    with printing(status):
        if as_json:
            print(json.dumps(result.summary(), indent=2, ensure_ascii=False))
        elif not status:
            from et_sim.cli.inspect import show
            from et_sim.views.view import view_text

            show(view_text("summary", target))
            print(f"\nwritten to {target}; look closer with: et-sim inspect {target}")
    return status


def simulated_into(
    target: Path, workload: str, options: RunOptions, output_filter: OutputFilter, reported: set[str]
) -> tuple[Result, int]:
    """Simulate and write; warnings, but for those that were `said` before, and a stall go to stderr.

    Returns the exit status, too.
    """
    from et_sim import api
    from et_sim.cli.progress import Progress
    from et_sim.timeline import write_run

    with Progress() as progress:
        result = api.execute(workload, options, watch=progress, output_filter=output_filter)
        stall = result.stall
        progress.stage("adding up and writing")
        write_run(result, target, stall.as_dict() if stall else None, output_filter)
    for notice in result.manifest["warnings"]:
        place = f"{notice['place']}: " if notice["place"] else ""
        key = f"key {notice['key']!r}: " if notice["key"] else ""
        warning = f"et-sim: warning: {place}{key}{notice['text']}"
        if warning not in reported:
            reported.add(warning)
            print(warning, file=sys.stderr)
    if not stall and not result.is_stopped:
        return result, 0
    error = stall.as_error() if stall else result.why_stopped()
    with printing(error.exit_status):
        print(f"et-sim: error: {error.report}", file=sys.stderr)
        print(f"What did happen is in {target}", file=sys.stderr)
    return result, error.exit_status
