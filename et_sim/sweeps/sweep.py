"""A sweep from its description to its table: missing points are evaluated, and all results are kept.

A search is a sweep that evaluates only the points that may be best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct, to_builtins

from et_sim.basics.errors import UsageError
from et_sim.run.workers import usual_workers
from et_sim.sweeps.evaluate import COMPLETE, InProcess, OtherProcesses, Runner
from et_sim.sweeps.goal import Goal, SearchResult, front_of, goal_of
from et_sim.sweeps.journal import Journal, check_folder
from et_sim.sweeps.search import search
from et_sim.sweeps.space import Space
from et_sim.sweeps.spec import NAMELESS, Given
from et_sim.sweeps.state import (
    NOTHING,
    NoSweepWatcher,
    State,
    SweepPlan,
    SweepProgress,
    SweepWatcher,
    parse_keep,
    plan_sweep,
)
from et_sim.tables.sweep_tables import BASE
from et_sim.views.sweep.directory import open_sweep


class SweepReport(Struct, frozen=True):
    """The result of a sweep or a search, with its table."""

    table: Any
    points: int
    known: int  # points that were evaluated before
    complete: int
    search: SearchResult | None = None  # result of a search


def carry_out(
    plan: SweepPlan,
    folder: Path,
    *,
    workers: int | None = None,
    dask: str | None = None,
    keep: str = NOTHING,
    watch: SweepWatcher | None = None,
) -> SweepReport:
    """Evaluate missing points (in a search, those that may be best); write the tables even after an early
    end.

    Whole runs are written of the points in `keep`.
    """
    watch = watch or NoSweepWatcher()
    kept = parse_keep(keep, len(plan.points))
    if plan.goal is not None:
        _refuse_other_base(plan, folder)
    goal = None if plan.goal else _goal_of_folder(plan, folder)
    with runners(plan.space, workers, dask, watch) as (runner, local), Journal(folder) as journal:
        before = set(journal.finished)
        if plan.goal is None:
            state, findings = State(plan, journal, folder), None
            with state.written_at_worst(lambda: _found(state, goal)):
                saves = kept.every and dask is None
                state.evaluate(runner, state.tasks(state.unknown(), saves=saves), "sweeping", watch)
            table = state.write(_found(state, goal))
            best = state.fastest()
        else:
            state, findings, table = search(plan, plan.goal, journal, folder, runner, watch)
            best = state.of_numbers(findings.front)
        state.evaluate(local, state.tasks(state.to_keep(kept, best), saves=True), "keeping runs", watch)
    known = sum(point.digest in before for point in plan.points)
    return SweepReport(table, len(plan.points), known, table["status"].to_pylist().count(COMPLETE), findings)


def _refuse_other_base(plan: SweepPlan, folder: Path) -> None:
    """Refuse a directory that holds points of another run than that of a search."""
    try:
        there = open_sweep(folder).base
    except UsageError:  # there is no table yet, or none that can be read
        return
    if there is None:
        return
    before, now = dict(_leaves(there)), dict(_leaves(plan.about[BASE]))
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if not names:
        return
    first, others = names[0], names[1:]
    more = f"; and so {'differs' if len(others) == 1 else 'differ'} {', '.join(others)}" if others else ""
    values = (str(run.get(first, "not given")) for run in (before, now))
    differs = f"{first} is {next(values)} there, and {next(values)} here{more}"
    raise UsageError(
        f"{folder} holds points of another run: {differs}",
        remedy="choose another directory with --out; nothing was overwritten",
    )


def _leaves(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values in an object, with the keys that lead to each."""
    left = [("", content)]
    while left:
        name, value = left.pop(0)
        if isinstance(value, Mapping):
            left += [(f"{name}.{key}".lstrip("."), entry) for key, entry in value.items()]
        else:
            yield name, value


def _goal_of_folder(plan: SweepPlan, folder: Path) -> Goal | None:
    """Return the goal of the search that wrote the directory; None if none did."""
    try:
        if open_sweep(folder).search is None:
            return None
    except UsageError:  # there is no table yet, or none that can be read
        return None
    goal = None if plan.sweep.search is None else goal_of(plan.sweep)
    if goal is None or len(goal.ladder) > 1:
        why = "this sweep has no section `search`" if goal is None else "a sweep does not support a ladder"
        raise UsageError(
            f"{folder} holds the results of a search, and {why}",
            remedy="choose another directory with --out; nothing was overwritten",
        )
    return goal


def _found(state: State, goal: Goal | None) -> dict[str, Any] | None:
    """Return the result of all known points for a search's goal."""
    if goal is None:
        return None
    known = state.known()
    done = [point for point in state.plan.points if point.digest in known]
    findings = SearchResult.of(goal, "sweep", evaluated=len(done))
    findings.left, findings.front = len(state.plan.points) - len(done), front_of(state.values(goal, done))
    content: dict[str, Any] = to_builtins(findings)
    return content


@contextmanager
def runners(
    space: Space, workers: int | None, dask: str | None, watch: SweepWatcher | None = None
) -> Iterator[tuple[Runner, Runner]]:
    """Yield the runner of points, and a runner on this machine."""
    local = _local(space, usual_workers() if workers is None else workers, watch)
    chosen = local if dask is None else _cluster(space, dask)
    try:
        yield chosen, local
    finally:
        chosen.close()
        local.close()


def _local(space: Space, workers: int, watch: SweepWatcher | None) -> Runner:
    if workers < 1:
        raise UsageError(f"--workers is {workers}", remedy="give 1 or more")
    return InProcess(space, watch) if workers == 1 else OtherProcesses.of(space, workers)


def _cluster(space: Space, where: str) -> Runner:
    from et_sim.sweeps.cluster import Scheduler

    return Scheduler(space, where)


class SweepResult:
    """The result of `et_sim.sweep`: its points; they are evaluated when the table is read."""

    def __init__(
        self,
        plan: SweepPlan,
        out: Path | None,
        *,
        workers: int | None,
        dask: str | None,
        keep: str,
        progress: bool,
    ) -> None:
        self._plan, self._out = plan, out
        self._options: dict[str, Any] = {"workers": workers, "dask": dask, "keep": keep}
        self._shows = progress

    @property
    def points(self) -> list[dict[str, Any]]:
        """Return the values of the axes at every point."""
        return [self._plan.named(point) for point in self._plan.points]

    @cached_property
    def table(self) -> Any:
        """Return a row for every point, as a pyarrow.Table; missing points are evaluated now."""
        if self._out is not None:
            return self._carry_out(self._out)
        with TemporaryDirectory() as folder:
            return self._carry_out(Path(folder))

    def _carry_out(self, folder: Path) -> Any:
        if not self._shows:
            return carry_out(self._plan, folder, **self._options).table
        with SweepProgress() as watch:
            return carry_out(self._plan, folder, **self._options, watch=watch).table

    def to_pandas(self) -> Any:
        """Return the table as a pandas.DataFrame; whole numbers stay whole where some are missing."""
        from et_sim.run.screens import as_frame

        return as_frame(self.table)

    def __len__(self) -> int:
        return len(self._plan.points)

    def __repr__(self) -> str:
        state = "evaluated" if "table" in self.__dict__ else "not evaluated yet"
        return f"<sweep of {len(self):,} points over {', '.join(self.points[0])}, {state}>"


def sweep(
    spec: Given,
    out: str | Path | None = None,
    *,
    workers: int | None = None,
    dask: str | None = None,
    keep: str = NOTHING,
    progress: bool = True,
) -> SweepResult:
    """Vary a run: `spec` is a file, or a dict with its keys, that describes the run and the axes.

    `out` is the directory for the results, by default NAME.sweep for a file NAME.yml; results of a dict are
    not kept. `workers` is the number of processes, `dask` a scheduler's address or file, and `keep` selects
    points whose whole run is written ("best:3", "all"). Nothing is evaluated before `table` is read.
    """
    plan = plan_sweep(spec, may_be_large=True)
    folder = (
        Path(out) if out is not None else None if plan.sweep.section.place == NAMELESS else Path(plan.name)
    )
    if folder is None and keep != NOTHING:
        raise UsageError("`keep` requires a directory", remedy="give out, a directory")
    if folder is not None:
        check_folder(folder)
    parse_keep(keep, len(plan.points))
    return SweepResult(plan, folder, workers=workers, dask=dask, keep=keep, progress=progress)
