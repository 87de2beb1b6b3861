"""`et-sim sweep`: vary fields of a run's inputs, and compare the runs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from et_sim.basics.declared_options import Command
from et_sim.basics.errors import UsageError
from et_sim.basics.files import in_shell
from et_sim.basics.units import plural
from et_sim.cli.progress import printing
from et_sim.network.registry import as_named, model_named
from et_sim.run.options import HELP

if TYPE_CHECKING:
    from et_sim.sweeps.sweep import SweepReport

WARNINGS_SHOWN = 5


WORKERS = "processes that simulate (default: one less than there are cores)"
CLUSTER = "simulate on a Dask cluster: its scheduler's address, or its file"
MODEL = "network model instead of that of the file; your own model must be named here"
KEPT = "write the whole run of these points, too: {}, or their numbers, such as 0-3,6"


class EvaluationOptions(Command):
    """Options of sweeps and searches."""

    spec: Path | None
    out: Path | None
    workers: Annotated[int | None, WORKERS, "N"] = None
    dask: Annotated[str | None, CLUSTER, "WHERE"] = None
    network_model: Annotated[str | None, MODEL, "NAME"] = None
    when_full: Annotated[str | None, HELP["when_full"]] = None
    keep: str
    json: bool


class Further(NamedTuple):
    """Results that are printed after those of a search: lines of text, and keys of the JSON."""

    lines: list[str]
    content: dict[str, Any]


class Options(EvaluationOptions):
    """Simulate a run at every point of some axes, each of which varies a field of its inputs, and write one
    table of all points. Points that a directory already holds are not simulated again, so an interrupted
    sweep continues. Exit status 1: no point could be completed.
    """

    spec: Annotated[Path, "YAML file that describes the run and the axes", "SPEC"]
    out: Annotated[Path | None, "directory to write (default: ./NAME.sweep)", "DIR"] = None
    keep: Annotated[str, KEPT.format("best:3, all"), "WHICH"] = "none"
    json: Annotated[bool, "print the sweep as et-sim inspect --json does"] = False
    yes: Annotated[bool, "sweep even more than 10,000 points"] = False


def run(options: Options) -> int:
    """Evaluate all points, write the tables, and print the sweep."""
    return evaluate(options, may_be_large=options.yes)


def evaluate(
    options: EvaluationOptions,
    *,
    may_be_large: bool,
    searches: bool = False,
    described: tuple[Mapping[str, Any], Path] | None = None,
    then: Callable[[Path], Further] | None = None,
) -> int:
    """Evaluate the points, write the tables, and print them.

    `described` is a description in place of the file, and the usual directory; `then` returns what is printed
    after the points that were found.
    """
    from et_sim.cli.styled import show
    from et_sim.machine.readers import check_when_full
    from et_sim.sweeps.journal import check_folder
    from et_sim.sweeps.state import SweepProgress, plan_sweep
    from et_sim.sweeps.sweep import carry_out
    from et_sim.views.sweep.directory import open_sweep
    from et_sim.views.sweep.summary import sweep_json, sweep_text

    if options.dask is not None and options.workers is not None:
        raise UsageError("--dask and --workers cannot be combined", remedy="leave one of them out")
    if options.dask is not None:
        from et_sim.sweeps.cluster import check_cluster

        check_cluster(options.dask)
    model = as_named(options.network_model)
    if model is not None:
        model_named(model)
    if options.when_full is not None:
        check_when_full(options.when_full)
    given: Any = options.spec if described is None else described[0]
    plan = plan_sweep(
        given,
        model=model,
        when_full=options.when_full,
        may_be_large=may_be_large,
        searches=searches,
    )
    folder = options.out or (Path(plan.name) if described is None else described[1])
    check_folder(folder)
    if plan.sweep.search is not None and not searches:
        print("et-sim: all points are evaluated; the section search is for et-sim search", file=sys.stderr)
    with _resumable(folder), SweepProgress() as progress:
        report = carry_out(
            plan, folder, workers=options.workers, dask=options.dask, keep=options.keep, watch=progress
        )
    _report(report, folder)
    is_success = report.complete if report.search is None else report.search.front
    further = then(folder) if then is not None and is_success else Further([], {})
    with printing(0 if is_success else 1):
        if options.json:
            print(sweep_json(open_sweep(folder), more=further.content))
        else:
            show("\n".join([sweep_text(open_sweep(folder)), *further.lines]))
            print(f"\nwritten to {folder}; look closer with: et-sim inspect {in_shell(folder)}")
    return 0 if is_success else 1


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Report where the finished points are if the work is interrupted."""
    from et_sim.sweeps.journal import holds_journal

    try:
        yield
    except KeyboardInterrupt:
        if holds_journal(folder):
            advice = f"what is finished is in {folder}, and the same command goes on from there"
            print(f"et-sim: {advice}", file=sys.stderr)
        raise


def _report(report: SweepReport, folder: Path) -> None:
    """Print to stderr the points that were evaluated before, and warnings."""
    if report.known:
        was = "was" if report.known == 1 else "were"
        known = "all points were" if report.known == report.points else f"{report.known:,} of them {was}"
        print(f"et-sim: {report.points:,} points; {known} evaluated before, in {folder}", file=sys.stderr)
    table = report.table
    counted = Counter(
        text for warnings in table["warnings"].to_pylist() for text in filter(None, warnings.split("; "))
    )
    for text, count in counted.most_common(WARNINGS_SHOWN):
        print(f"et-sim: warning: {text} (at {count:,} of {len(table):,} points)", file=sys.stderr)
    if len(counted) > WARNINGS_SHOWN:
        more = len(counted) - WARNINGS_SHOWN
        print(f"et-sim: warning: and {plural(more, 'other')}: column warnings of the table", file=sys.stderr)
