"""Pages of the runs that a sweep kept, in a folder beside its own page."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from et_sim.basics.errors import EtSimError, UsageError
from et_sim.tables.of_sweeps import NUMBER, RUNS
from et_sim.views.drawing.nodes import ALWAYS
from et_sim.views.report.page import write_report
from et_sim.views.report.sweep_page import MOST_BEST
from et_sim.views.report.timeline import MOST_SLICES
from et_sim.views.run.directory import open_run
from et_sim.views.sweep.directory import SweepDirectory
from et_sim.views.sweep.summary import complete, is_kept, run_name


def write_pages(sweep: SweepDirectory, target: Path) -> tuple[dict[int, str], list[str]]:
    """Write a page for each of the best points whose run was kept.

    Returns their addresses from the sweep's page, by point, and which runs cannot be read.
    """
    folder = target.with_name(f"{target.stem}.runs")
    kept = [row for row in complete(sweep.table.to_pylist())[:MOST_BEST] if is_kept(sweep, row)]
    if kept:
        _make(folder)
    found, warnings = {}, []
    for row in kept:
        name = f"{run_name(row)}.html"
        try:
            run = open_run(sweep.path / RUNS / run_name(row))
        except EtSimError as error:
            warnings.append(f"the run of point {row[NUMBER]} has no page: {error}")
            continue
        write_report(run, folder / name, None, ALWAYS, MOST_SLICES)
        found[row[NUMBER]] = f"{quote(folder.name)}/{name}"
    return found, warnings


def _make(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"cannot be written: {reason}", place=str(folder), remedy="name a page in a writable folder"
        ) from None
