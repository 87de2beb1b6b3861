"""State of a sweep: its points, rows in a journal, and kept runs; and its progress on stderr.

Progress is silent for the first second, then a line or a bar that is kept up to date.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from et_sim.basics.errors import EtSimError, UsageError
from et_sim.basics.files import exists
from et_sim.basics.terminal import Estimate, Status, StatusLine
from et_sim.basics.units import format_ns, parse_ranks
from et_sim.run.simulation import NoWatcher, Watcher
from et_sim.sweeps.axes import SweepAxis
from et_sim.sweeps.axes import Values as OfAxes
from et_sim.sweeps.digests import digest_of
from et_sim.sweeps.evaluate import COMPLETE, FAILED, REFUSED, Done, Lost, PointTask, Runner, refused
from et_sim.sweeps.goal import Goal, Values, goal_of
from et_sim.sweeps.journal import Finished, Journal, Point, table_of, times_of, write_tables
from et_sim.sweeps.space import Space, open_space
from et_sim.sweeps.spec import NAMELESS, Given, Sweep, read_spec
from et_sim.tables.sweep_tables import BASE, DESCRIPTION, FILES, RUNS, SEARCH, TABLE

MOST_UNCONFIRMED = 10_000  # points
NOTHING, ALL, BEST = "none", "all", "best"
NAME_LETTERS = 12  # letters of a digest in the name of a run's directory


class Keep(Struct, frozen=True):
    """Points whose whole run is written: all, some by their numbers, or the fastest ones."""

    best: int = 0
    every: bool = False
    numbers: frozenset[int] = frozenset()


def parse_keep(text: str, points: int) -> Keep:
    """Parse `none`, `all`, `best:3`, or numbers of points such as 0-3,6."""
    if text in (NOTHING, ALL):
        return Keep(every=text == ALL)
    name, _, count = text.partition(":")
    if name == BEST:
        if not (count.isascii() and count.isdecimal() and 0 < int(count[:10]) <= MOST_UNCONFIRMED):
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


class SweepPlan(Struct, frozen=True):
    """A sweep with its inputs read and its points counted."""

    sweep: Sweep
    space: Space
    points: tuple[Point, ...]
    invalid: dict[str, Finished]  # points whose inputs are invalid
    goal: Goal | None = None  # of a search; None: all points are evaluated

    @property
    def name(self) -> str:
        """Return the default name of its directory."""
        return f"{Path(self.sweep.section.place).stem}.{'sweep' if self.goal is None else 'search'}"

    def named(self, point: Point) -> dict[str, Any]:
        """Return the values of the axes at a point."""
        return dict(zip((axis.name for axis in self.sweep.axes), point.values, strict=True))

    @property
    def about(self) -> dict[str, Any]:
        """Return what the table records of its description: the name of the file, if any, and the base."""
        place = self.sweep.section.place
        named = {} if place == NAMELESS else {DESCRIPTION: Path(place).name}
        base = {name: value for name, value in asdict(self.sweep.base).items() if value is not None}
        return {**named, BASE: json.loads(json.dumps(base, default=str))}

    def on_model(self, model: str | None, points: Iterable[Point]) -> SweepPlan:
        """Return some of its points with another network model; None: that of the sweep."""
        if model is None:
            return self
        numbered = ((point.number, point.values) for point in points)
        return _counted(self.sweep, replace(self.space, model=model), numbered, self.goal)


def plan_sweep(
    given: Given,
    *,
    model: str | None = None,
    when_full: str | None = None,
    may_be_large: bool = False,
    searches: bool = False,
) -> SweepPlan:
    """Read a sweep, or a search; refuse a large sweep unless it may be large.

    `model` and `when_full` override the sweep's own.
    """
    sweep = read_spec(given, model, when_full)
    values = sweep.points()
    if len(values) > MOST_UNCONFIRMED and not may_be_large and not searches:
        raise UsageError(
            f"this sweep has {len(values):,} points",
            place=sweep.section.place,
            remedy=f"more than {MOST_UNCONFIRMED:,} are evaluated only with --yes",
        )
    space = open_space(sweep)
    goal = goal_of(sweep) if searches else None
    if goal is not None and goal.ladder[0] is not None:
        space = replace(space, model=goal.ladder[0])
    return _counted(sweep, space, enumerate(values), goal)


def _counted(
    sweep: Sweep, space: Space, numbered: Iterable[tuple[int, OfAxes]], goal: Goal | None
) -> SweepPlan:
    files = space.files()
    points, invalid = [], {}
    for number, point_values in numbered:
        try:
            digest = space.digest(space.inputs(point_values), files)
        except EtSimError as error:
            digest = digest_of([list(point_values), str(error)])
            invalid[digest] = Finished(digest, refused(error), 0.0)
        points.append(Point(number, point_values, digest))
    return SweepPlan(sweep, space, tuple(points), invalid, goal)


class State(Struct):
    """The points of a sweep with all results so far."""

    plan: SweepPlan
    journal: Journal
    folder: Path
    model: str | None = None  # replaces that of the sweep
    lost: dict[str, Finished] = field(default_factory=dict)

    def known(self) -> dict[str, Finished]:
        """Return rows by digest; those of lost points are not in the journal."""
        return {**self.plan.invalid, **self.lost, **self.journal.finished}

    def unknown(self) -> list[Point]:
        """Return points without a row, each digest once."""
        known = self.known()
        return _distinct(point for point in self.plan.points if point.digest not in known)

    def values(self, goal: Goal, points: Iterable[Point]) -> dict[int, Values]:
        """Return the objectives of those of these evaluated points that meet the goal, by number."""
        known = self.known()
        values_of = {
            point.number: goal.values(self.plan.named(point), known[point.digest].row) for point in points
        }
        return {number: values for number, values in values_of.items() if values is not None}

    def fastest(self) -> list[Point]:
        """Return complete points, the one with the least makespan first."""
        known = self.known()
        rows = [(point, known[point.digest].row) for point in self.plan.points if point.digest in known]
        done = [(row["makespan_ns"], point.number, point) for point, row in rows if row["status"] == COMPLETE]
        return [point for _, _, point in sorted(done, key=lambda entry: entry[:2])]

    def of_numbers(self, numbers: Iterable[int]) -> list[Point]:
        """Return points by their numbers."""
        points = {point.number: point for point in self.plan.points}
        return [points[number] for number in numbers]

    def to_keep(self, keep: Keep, best: Sequence[Point]) -> list[Point]:
        """Return points whose whole runs are requested and missing; `best`: points, the best one first."""
        known = self.known()
        points = [point for point in self.plan.points if point.digest in known]
        if missing := keep.numbers - {point.number for point in points}:
            raise UsageError(
                f"--keep names point {min(missing)}, which the search did not evaluate",
                remedy=f"it evaluated those of {FILES[TABLE]}",
            )
        chosen = [point for point in points if keep.every or point.number in keep.numbers]
        able = [
            point
            for point in _distinct([*chosen, *_distinct(best)[: keep.best]])
            if known[point.digest].row["status"] not in (REFUSED, FAILED)
        ]
        return [point for point in able if not exists(self._run_folder(point))]

    def tasks(self, points: Sequence[Point], *, saves: bool) -> list[PointTask]:
        """Return tasks for points; those that share a workload follow each other, so that it is made once."""
        return [
            PointTask(point.digest, point.values, self.model, str(self._run_folder(point)) if saves else None)
            for point in _by_workload(points, self.plan.sweep.axes)
        ]

    def _run_folder(self, point: Point) -> Path:
        return self.folder.absolute() / RUNS / point.digest[:NAME_LETTERS]

    def evaluate(self, runner: Runner, tasks: Sequence[PointTask], stage: str, watch: SweepWatcher) -> None:
        """Evaluate tasks as a new stage, and record the results."""
        if not tasks:
            return
        watch.begin(stage, len(tasks))
        self.work(runner, tasks, watch)

    def work(self, runner: Runner, tasks: Sequence[PointTask], watch: SweepWatcher) -> None:
        """Evaluate tasks within the current stage, and record the results."""
        for done in runner.run(tasks):
            self._take(done)
            watch.add(len(done), sum(_is_incomplete(result) for result in done))

    def _take(self, done: Sequence[Done]) -> None:
        self.lost |= {result.digest: result.finished() for result in done if isinstance(result, Lost)}
        new = [
            result
            for result in done
            if isinstance(result, Finished) and result.digest not in self.journal.finished
        ]
        if new:
            self.journal.add(new)

    @contextmanager
    def written_at_worst(self, search: Callable[[], dict[str, Any] | None] = lambda: None) -> Iterator[None]:
        """Write the tables even if the body ends early."""
        try:
            yield
        except BaseException:
            with suppress(EtSimError):  # only the original error is reported
                self.write(search())
            raise

    def write(self, search: Mapping[str, Any] | None = None) -> Any:
        """Write the tables; `search` is the result of a search."""
        self.journal.sync()
        about = {**self.plan.about, **({} if search is None else {SEARCH: search})}
        table = table_of(self.plan.sweep.axes, self.plan.points, self.known(), about)
        write_tables(self.folder, table, times_of(self.journal.finished))
        return table


def _is_incomplete(result: Done) -> bool:
    return isinstance(result, Lost) or result.row["status"] != COMPLETE


def _by_workload(points: Sequence[Point], axes: Sequence[SweepAxis]) -> Iterator[Point]:
    """Yield points by workload, in the order of the first point of each; a machine may change its plan."""
    decide = [at for at, axis in enumerate(axes) if axis.field.root in ("workload", "machine")]
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(repr([point.values[at] for at in decide]), []).append(point)
    return itertools.chain.from_iterable(groups.values())


def _distinct(points: Iterable[Point]) -> list[Point]:
    """Return the first point of each digest."""
    return list({point.digest: point for point in reversed(list(points))}.values())[::-1]


SILENT_SECONDS = 1.0
SECONDS_BETWEEN_UPDATES = 0.5
SECONDS_BETWEEN_LINES = 10.0


class SweepWatcher(Watcher, Protocol):
    """Receives the progress of a sweep, and of a point that runs in this process."""

    def begin(self, stage: str, total: int) -> None:
        """Begin a stage with so many points."""

    def add(self, done: int, failed: int) -> None:
        """Count finished points, of which some are not complete."""

    def expect(self, total: int, text: str) -> None:
        """Correct the number of points of the stage, and show a text about the results so far."""


class NoSweepWatcher(NoWatcher):
    """A watcher that ignores progress."""

    def begin(self, stage: str, total: int) -> None: ...
    def add(self, done: int, failed: int) -> None: ...
    def expect(self, total: int, text: str) -> None: ...


class SweepProgress:
    """A display of progress; a context manager."""

    def __init__(self) -> None:
        self._stage, self._total, self._done, self._failed, self._text = "", 0, 0, 0, ""
        self._within, self._at = 0.0, ""  # of the point that runs in this process
        self._begin = time.monotonic()
        self._estimate = Estimate()
        self._line = StatusLine()
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._keep_showing, daemon=True)

    def begin(self, stage: str, total: int) -> None:
        """Begin another stage."""
        self._stage, self._total, self._done, self._failed, self._text = stage, total, 0, 0, ""
        self._begin, self._estimate = time.monotonic(), Estimate()

    def add(self, done: int, failed: int) -> None:
        """Count more points."""
        self._done += done
        self._failed += failed
        self._within, self._at = 0.0, ""
        self._estimate.add(self._done / max(self._total, 1), time.monotonic())

    def expect(self, total: int, text: str) -> None:
        """Correct the number of points, and show a text about the results so far."""
        if total != self._total:
            self._estimate.scale(self._total / max(total, 1))
        self._total, self._text = total, text

    def stage(self, name: str) -> None:
        """Begin a stage of a point."""
        self._within, self._at = 0.0, name

    def report(self, now_ns: int, done: int, expected: int, nodes: int, all_nodes: int, noun: str, /) -> None:  # noqa: ARG002
        """Show how much of a point is simulated."""
        self._within = min((done + nodes) / max(expected + all_nodes, 1), 1.0)
        self._at = f"simulated {format_ns(now_ns)}"

    def _keep_showing(self) -> None:
        pause = SILENT_SECONDS
        while not self._finished.wait(pause):
            self._line.show(self._status(time.monotonic()))
            pause = SECONDS_BETWEEN_UPDATES if self._line.is_live else SECONDS_BETWEEN_LINES

    def _status(self, now: float) -> Status:
        share = (self._done + self._within) / max(self._total, 1)
        left, elapsed = self._estimate.left(now), now - self._begin
        failed = f", {self._failed:,} of them not complete" if self._failed else ""
        detail = f"{self._done:,} of {self._total:,} points{failed}"
        detail += f", now {self._within:.0%} of the next: {self._at}" if self._at else ""
        detail += f"; {self._text}" if self._text else ""
        ending = "" if left is None else f", about {left:.0f} s left"
        plain = f"et-sim: {elapsed:.0f} s · {self._stage} · {share:.0%} · {detail}{ending}"
        return Status(plain, self._stage, share, elapsed, left, detail)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finished.set()
        self._thread.join()
        self._line.clear()
