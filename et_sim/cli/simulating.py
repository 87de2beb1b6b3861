"""Simulation into a directory for commands: progress, warnings and stalls go to stderr.

A workload is simulated on one network model, or on several in turn.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.basics.files import in_shell
from et_sim.basics.json_text import indented
from et_sim.cli.progress import Progress, printing
from et_sim.network.registry import MODELS, as_named, check_model

if TYPE_CHECKING:
    from et_sim.run.options import RunOptions
    from et_sim.run.result import Result
    from et_sim.tables.summary import Notice
    from et_sim.timeline import OutputFilter


def simulate_into(
    target: Path,
    workload: str,
    options: RunOptions,
    *,
    as_json: bool,
    output_filter: OutputFilter | None = None,
) -> int:
    """Simulate into a directory; a stalled run is also written and explained, with status 1."""
    from et_sim.timeline import OutputFilter

    written = output_filter or OutputFilter()
    result, status = simulated_into(target, workload, options, written, set(), other_software=True)
    with printing(status):
        if as_json:
            print(indented(result.summary()))
        elif not status:
            from et_sim.cli.styled import show
            from et_sim.views.run.directory import open_written
            from et_sim.views.view import view_text

            del result  # it may take most of the memory, and is on disk
            run = open_written(target)
            show(view_text("summary", run))
            if options.samples is not None:
                print()
                show(view_text("samples", run))
            print(f"\nwritten to {target}; look closer with: et-sim inspect {in_shell(target)}")
    return status


def simulated_into(
    target: Path,
    workload: str,
    options: RunOptions,
    output_filter: OutputFilter,
    reported: set[str],
    *,
    other_software: bool = False,
) -> tuple[Result, int]:
    """Simulate and write; a stall, and warnings that are not in `reported`, go to stderr.

    Return the result and the exit status. With `other_software`, training whose software is assumed is also
    simulated in another one.
    """
    from et_sim.execution import execute
    from et_sim.timeline import write_run

    with Progress() as progress:
        result = execute(workload, options, watch=progress, output_filter=output_filter)
        stall = result.stall
        software = result.workload.software
        if other_software and software is not None and software.is_assumed:
            from et_sim.cli.assumed_software import in_other_software

            if (other := in_other_software(result, options, progress.stage)) is not None:
                result.manifest["other_software"] = other
        progress.stage("adding up and writing")
        write_run(result, target, stall.as_dict() if stall else None, output_filter)
    for notice in result.manifest["warnings"]:
        warning = warning_line(notice)
        if warning not in reported:
            reported.add(warning)
            print(warning, file=sys.stderr)
    if not stall and not result.is_stopped:
        return result, 0
    error = stall.as_error() if stall else result.why_stopped()
    with printing(error.exit_status):
        print(f"et-sim: error: {error.report}", file=sys.stderr)
        print(f"The run up to then is in {target}", file=sys.stderr)
    return result, error.exit_status


def models_named(text: str) -> list[str]:
    """Return the models of a list such as `analytical,link`, all of which exist."""
    names = [name for name in (as_named(part.strip()) for part in text.split(",")) if name]
    for name in names:
        check_model(name)
    if len(names) < 2 or len(set(names)) < len(names):
        raise UsageError(
            f"--network-models is {text!r}",
            remedy="name two or more different models, as in --network-models analytical,link",
        )
    return names


def check_ladder(target: Path, names: Sequence[str]) -> None:
    """Refuse a target that holds anything but such runs."""
    from et_sim.timeline import check_target

    if target.is_dir():
        known = {*MODELS, *names}
        foreign = sorted(entry.name for entry in target.iterdir() if entry.name not in known)
        if foreign:
            raise UsageError(
                f"{target} holds {foreign[0]!r}, and a directory for every model is to be written there",
                remedy="choose another directory with --out; nothing was overwritten",
            )
    for name in names:
        check_target(target / name)


def simulate_ladder(
    target: Path,
    workload: str,
    options: RunOptions,
    names: Sequence[str],
    *,
    as_json: bool,
    output_filter: OutputFilter,
) -> int:
    """Simulate into a directory for each model, and print the ladder; return 1 if a run stalled."""
    from et_sim.cli.simulating import simulated_into
    from et_sim.views import open_run
    from et_sim.views.compare.text import ladder, ladder_lines
    from et_sim.views.text import terminal_width

    reported: set[str] = set()
    status = 0
    for name in names:
        of_model = replace(options, model=name)
        _, stalled = simulated_into(target / name, workload, of_model, output_filter, reported)
        status = max(status, stalled)
    rungs = ladder([open_run(target / name) for name in names])
    with printing(status):
        if as_json:
            print(indented([rung.as_dict() for rung in rungs]))
            return status
        print("\n".join(ladder_lines(rungs, terminal_width())))
        print(f"written to {', '.join(str(target / name) for name in names)}")
        print(f"look closer with: et-sim compare {in_shell(target / names[0])} {in_shell(target / names[1])}")
    return status


def warning_line(notice: Notice) -> str:
    """Return the line that is printed for a warning: its place, its key, and the text."""
    place = f"{notice['place']}: " if notice["place"] else ""
    key = f"key {notice['key']!r}: " if notice["key"] else ""
    return f"et-sim: warning: {place}{key}{notice['text']}"
