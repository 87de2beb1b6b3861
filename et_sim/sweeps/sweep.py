"""A sweep from its description to its table: what is not yet known is evaluated, and everything is kept.

Not here: who evaluates points (`runners`), and what one evaluation is (`evaluate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from et_sim.basics.errors import EtSimError, UsageError
from et_sim.basics.files import exists
from et_sim.basics.units import parse_ranks
from et_sim.sweeps.digests import digest_of
from et_sim.sweeps.evaluate import COMPLETE, REFUSED, Task, refused
from et_sim.sweeps.goal import Found, Goal, front_of, goal_of
from et_sim.sweeps.journal import Finished, Journal, check_folder
from et_sim.sweeps.pool import WorkerPool, usual_workers
from et_sim.sweeps.progress import Nobody, Progress, Watcher
from et_sim.sweeps.runners import FAILED, Alone, Done, Lost, Runner
from et_sim.sweeps.sampling import Values
from et_sim.sweeps.space import Space, open_space
from et_sim.sweeps.spec import NAMELESS, Given, Sweep, read_spec
from et_sim.sweeps.table import Point, table_of, times_of, write_tables
from et_sim.tables.of_sweeps import RUNS
from et_sim.views.sweep.directory import open_sweep

MOST_UNASKED = 10_000  # points
NOTHING, ALL, BEST = "none", "all", "best"
NAME_LETTERS = 12  # of a digest, that name the directory of a run


@dataclass(frozen=True, slots=True)
class Keep:
    """Of which points the whole run is written: all, some by their numbers, or the fastest ones."""

    best: int = 0
    every: bool = False
    numbers: frozenset[int] = frozenset()


def parse_keep(text: str, points: int) -> Keep:
    """`none`, `all`, `best:3`, or numbers of points such as 0-3,6."""
    if text in (NOTHING, ALL):
        return Keep(every=text == ALL)
    name, _, count = text.partition(":")
    if name == BEST:
        if not (count.isascii() and count.isdecimal() and 0 < int(count[:10]) <= MOST_UNASKED):
            raise UsageError(f"--keep is {text!r}", remedy=f"give a number, as in {BEST}:3")
        return Keep(best=int(count))
    try:
        spans = parse_ranks(text)
    except EtSimError:
        remedy = f"allowed: {NOTHING}, {ALL}, {BEST}:3, or numbers of points such as 0-3,6"
        raise UsageError(f"--keep is {text!r}", remedy=remedy) from None
    last = max(span[-1] for span in spans)
    if last >= points:
        raise UsageError(f"--keep names point {last}", remedy=f"points are numbered from 0 to {points - 1}")
    return Keep(numbers=frozenset(number for span in spans for number in span))


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A sweep with its inputs read and its points counted."""

    sweep: Sweep
    space: Space
    points: tuple[Point, ...]
    invalid: dict[str, Finished]  # points whose inputs cannot be put together

    @property
    def name(self) -> str:
        """What its directory is called if nobody says it."""
        return f"{Path(self.sweep.text.place).stem}.sweep"

    def named(self, point: Point) -> dict[str, Any]:
        """The values of the axes at a point."""
        return dict(zip((axis.name for axis in self.sweep.axes), point.values, strict=True))

    @property
    def description(self) -> str | None:
        """The name of its file, if it has one."""
        place = self.sweep.text.place
        return None if place == NAMELESS else Path(place).name


def plan_sweep(given: Given, *, may_be_large: bool = False) -> SweepPlan:
    """Read a sweep; one that is large is refused unless that is said to be right."""
    sweep = read_spec(given)
    values = sweep.points()
    if len(values) > MOST_UNASKED and not may_be_large:
        raise UsageError(
            f"this sweep has {len(values):,} points",
            place=sweep.text.place,
            remedy=f"more than {MOST_UNASKED:,} are evaluated only with --yes",
        )
    return _counted(sweep, open_space(sweep), enumerate(values))


def on_model(plan: SweepPlan, model: str, points: Iterable[Point]) -> SweepPlan:
    """Some points of a plan, simulated on another network model."""
    numbered = ((one.number, one.values) for one in points)
    return _counted(plan.sweep, replace(plan.space, model=model), numbered)


def _counted(sweep: Sweep, space: Space, numbered: Iterable[tuple[int, Values]]) -> SweepPlan:
    files = space.files()
    points, invalid = [], {}
    for number, some in numbered:
        try:
            digest = space.digest(space.inputs(some), files)
        except EtSimError as error:
            digest = digest_of([list(some), str(error)])
            invalid[digest] = Finished(digest, refused(error), 0.0)
        points.append(Point(number, some, digest))
    return SweepPlan(sweep, space, tuple(points), invalid)


@dataclass(frozen=True, slots=True)
class Report:
    """What a sweep did, and its table."""

    table: Any
    points: int
    known: int  # of them, those that were evaluated before
    complete: int


def carry_out(
    plan: SweepPlan,
    folder: Path,
    *,
    workers: int | None = None,
    dask: str | None = None,
    keep: str = NOTHING,
    watch: Watcher | None = None,
) -> Report:
    """Evaluate what is not yet in the directory's journal, and write the tables; they are written, too, when
    something ends the sweep early."""
    watch = watch or Nobody()
    kept = parse_keep(keep, len(plan.points))
    goal = _goal_of_folder(plan, folder)
    with runners(plan.space, workers, dask) as (runner, local), Journal(folder) as journal:
        before = set(journal.finished)
        state = State(plan, journal, folder)
        try:
            saves = kept.every and dask is None
            state.evaluate(runner, state.tasks(state.unknown(), saves=saves), "sweeping", watch)
            state.evaluate(local, state.tasks(state.to_keep(kept), saves=True), "keeping runs", watch)
        except BaseException:
            with suppress(EtSimError):  # what ended the sweep is said, not what it brings about
                state.write(state.found(goal))
            raise
        table = state.write(state.found(goal))
    known = sum(point.digest in before for point in plan.points)
    complete = table["status"].to_pylist().count(COMPLETE)
    return Report(table, len(plan.points), known, complete)


def _goal_of_folder(plan: SweepPlan, folder: Path) -> Goal | None:
    """What the search looks for whose directory this is; None: no search has written it."""
    try:
        if open_sweep(folder).search is None:
            return None
    except UsageError:  # there is no table yet, or none that can be read
        return None
    goal = None if plan.sweep.search is None else goal_of(plan.sweep)
    if goal is None or len(goal.ladder) > 1:
        why = "this sweep searches for nothing" if goal is None else "a sweep climbs no ladder"
        raise UsageError(
            f"{folder} holds what a search found, and {why}",
            remedy="choose another directory with --out; nothing was overwritten",
        )
    return goal


@contextmanager
def runners(space: Space, workers: int | None, dask: str | None) -> Iterator[tuple[Runner, Runner]]:
    """Who evaluates points, and who does it on this machine."""
    local = _local(space, usual_workers() if workers is None else workers)
    chosen = local if dask is None else _cluster(space, dask)
    try:
        yield chosen, local
    finally:
        chosen.close()
        local.close()


def _local(space: Space, workers: int) -> Runner:
    if workers < 1:
        raise UsageError(f"--workers is {workers}", remedy="give 1 or more")
    return Alone(space) if workers == 1 else WorkerPool(space, workers)


def _cluster(space: Space, where: str) -> Runner:
    from et_sim.sweeps.cluster import Cluster

    return Cluster(space, where)


@dataclass(slots=True)
class State:
    """What is known so far."""

    plan: SweepPlan
    journal: Journal
    folder: Path
    model: str | None = None  # in place of the sweep's
    lost: dict[str, Finished] | None = None

    def known(self) -> dict[str, Finished]:
        """Rows by digest; those of lost points are not in the journal."""
        return {**self.plan.invalid, **(self.lost or {}), **self.journal.finished}

    def unknown(self) -> list[Point]:
        """Points without a row, each digest once."""
        known = self.known()
        return _distinct(point for point in self.plan.points if point.digest not in known)

    def to_keep(self, keep: Keep) -> list[Point]:
        """Points whose whole runs are wanted and not there."""
        known = self.known()
        points = [one for one in self.plan.points if one.digest in known]
        able = [one for one in points if known[one.digest].row["status"] not in (REFUSED, FAILED)]
        chosen = [one for one in able if keep.every or one.number in keep.numbers]
        if keep.best:
            done = [one for one in able if known[one.digest].row["status"] == COMPLETE]
            done.sort(key=lambda one: (known[one.digest].row["makespan_ns"], one.number))
            chosen += _distinct(done)[: keep.best]
        return [one for one in _distinct(chosen) if not exists(self._run_folder(one))]

    def tasks(self, points: Sequence[Point], *, saves: bool) -> list[Task]:
        """To evaluate them."""
        return [
            Task(one.digest, one.values, self.model, str(self._run_folder(one)) if saves else None)
            for one in points
        ]

    def _run_folder(self, point: Point) -> Path:
        return self.folder.absolute() / RUNS / point.digest[:NAME_LETTERS]

    def evaluate(self, runner: Runner, tasks: Sequence[Task], what: str, watch: Watcher) -> None:
        """Have tasks done, and write down what comes back."""
        if not tasks:
            return
        watch.begin(what, len(tasks))
        self.work(runner, tasks, watch)

    def work(self, runner: Runner, tasks: Sequence[Task], watch: Watcher) -> None:
        """The same as a part of what was begun."""
        for done in runner.run(tasks):
            self._take(done)
            watch.add(len(done), sum(_is_incomplete(one) for one in done))

    def _take(self, done: Sequence[Done]) -> None:
        lost = {one.digest: one.finished() for one in done if isinstance(one, Lost)}
        self.lost = {**(self.lost or {}), **lost}
        new = [one for one in done if isinstance(one, Finished) and one.digest not in self.journal.finished]
        if new:
            self.journal.add(new)

    def found(self, goal: Goal | None) -> dict[str, Any] | None:
        """What all that is known says to who looks for something."""
        if goal is None:
            return None
        known, values = self.known(), {}
        rows = [(one, known[one.digest].row) for one in self.plan.points if one.digest in known]
        for one, row in rows:
            figures = goal.values(self.plan.named(one), row)
            if figures is not None:
                values[one.number] = figures
        found = Found.of(goal, "sweep", evaluated=len(rows))
        found.left, found.front = len(self.plan.points) - len(rows), front_of(values)
        return asdict(found)

    def write(self, search: Mapping[str, Any] | None = None) -> Any:
        """Write the tables; `search` is what one found."""
        self.journal.sync()
        table = table_of(self.plan.sweep.axes, self.plan.points, self.known(), search, self.plan.description)
        write_tables(self.folder, table, times_of(self.journal.finished))
        return table


def _is_incomplete(one: Done) -> bool:
    return isinstance(one, Lost) or one.row["status"] != COMPLETE


def _distinct(points: Iterable[Point]) -> list[Point]:
    """The first of each digest."""
    return list({point.digest: point for point in reversed(list(points))}.values())[::-1]


class SweepResult:
    """What `et_sim.sweep` returns: its points, known at once, are evaluated when the table is asked for."""

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
        """The values of the axes at every point."""
        return [self._plan.named(point) for point in self._plan.points]

    @cached_property
    def table(self) -> Any:
        """A row for every point, as a pyarrow.Table; what is not known yet is evaluated now."""
        if self._out is not None:
            return self._carry_out(self._out)
        with TemporaryDirectory() as folder:
            return self._carry_out(Path(folder))

    def _carry_out(self, folder: Path) -> Any:
        if not self._shows:
            return carry_out(self._plan, folder, **self._options).table
        with Progress() as watch:
            return carry_out(self._plan, folder, **self._options, watch=watch).table

    def to_pandas(self) -> Any:
        """The table as a pandas.DataFrame; whole numbers stay whole where some are missing."""
        from et_sim.run.result.frames import as_frame

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

    `out` is the directory that keeps the results, by default NAME.sweep for a file NAME.yml; of a dict,
    nothing is kept. `workers` is the number of processes, `dask` a scheduler's address or file, `keep` says
    of which points the whole run is written ("best:3", "all"). Nothing is evaluated before `table` is read.
    """
    plan = plan_sweep(spec, may_be_large=True)
    folder = Path(out) if out is not None else None if plan.sweep.text.place == NAMELESS else Path(plan.name)
    if folder is None and keep != NOTHING:
        raise UsageError("runs are kept in the directory of a sweep", remedy="give out, a directory")
    if folder is not None:
        check_folder(folder)
    parse_keep(keep, len(plan.points))
    return SweepResult(plan, folder, workers=workers, dask=dask, keep=keep, progress=progress)
