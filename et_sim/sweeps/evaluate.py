"""Evaluation of points: from the design space and the values of axes to the figures of a row.

All sweeps and searches call `evaluate`, on this machine or on others; the same values give the same row. A
runner, in this process (`InProcess`), in others (`OtherProcesses`) or on a cluster (`cluster`), returns every
task once, finished or lost, in any order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import Struct

from et_sim.basics.errors import EtSimError, InputError, UsageError
from et_sim.execution import execute
from et_sim.recipes.recipe import is_serving, read_serving
from et_sim.recipes.servings import serve_point, serving_figures
from et_sim.run.options import RunOptions
from et_sim.run.planning import KeptPlans, Planner
from et_sim.run.result import Result
from et_sim.run.simulation import Watcher
from et_sim.run.workers import WorkerEndedError, WorkerPool, pickled
from et_sim.sweeps.axes import Values
from et_sim.sweeps.journal import Finished
from et_sim.sweeps.months import figures_of_months
from et_sim.sweeps.space import GivenWorkload, Inputs, Space, Workshop
from et_sim.tables.summary import Notice
from et_sim.tables.sweep_tables import MADE_OF, OF_SAMPLES, OF_STEPS
from et_sim.timeline.network_load import busiest

COMPLETE, REFUSED, OUT_OF_MEMORY = "complete", "refused", "out of memory"
# Parts of a rank's time, by the names in a row.
PARTS: Mapping[str, str] = MappingProxyType(
    {
        "compute_ns": "compute",
        "exposed_comm_ns": "communication",
        "exposed_memory_ns": "remote memory",
        "waiting_ns": "waiting for ranks",
        "host_ns": "host",
        "idle_ns": "idle",
        "early_ns": "finished early",
    }
)


class PointTask(Struct, frozen=True):
    """A point to evaluate; `digest` is that of its inputs."""

    digest: str
    values: Values
    model: str | None = None  # replaces that of the sweep
    save: str | None = None  # directory for the whole run


class Evaluator:
    """An evaluator of points of one design space; it keeps inputs that neighbours share."""

    def __init__(self, space: Space, watch: Watcher | None = None) -> None:
        self._space, self._watch = space, watch
        self._workshop = Workshop(space.folder)
        self._files = space.files()
        self.planner = KeptPlans()

    def row(self, task: PointTask) -> dict[str, Any]:
        """Return the figures of a task's row; refuse a task whose inputs have changed."""
        try:
            inputs = self._space.inputs(task.values, task.model)
        except EtSimError as error:
            return refused(error)
        if self._space.digest(inputs, self._files) != task.digest:
            raise InputError(
                "files of a point changed after the sweep began",
                remedy="sweep again; on a cluster, every worker needs them under the same paths",
            )
        return self.planner.guarded(
            lambda planner: evaluate(inputs, self._workshop, task.save, planner=planner, watch=self._watch)
        )


def evaluate(
    inputs: Inputs,
    workshop: Workshop,
    save: str | None = None,
    *,
    planner: Planner | None = None,
    watch: Watcher | None = None,
) -> dict[str, Any]:
    """Return the figures of a row as JSON values; a point that cannot be simulated has a row with the reason.

    `save`: the directory for the whole run.
    """
    try:
        options = inputs.options
        if is_serving(inputs.workload):
            if options.samples is not None or inputs.long_job is not None:
                raise UsageError(
                    '"samples" and "goodput" are of a step, and requests are served', remedy="leave them out"
                )
            return _evaluate_serving(inputs, workshop, options, save)
        workload = workshop.workload(inputs)
        result = execute(workload, options, watch=watch, planner=planner)
        row = figures(result)
        if inputs.long_job is not None and result.is_complete:
            recipe = None if isinstance(inputs.workload, GivenWorkload) else inputs.recipe
            given = result.workload if isinstance(workload, str) else workload
            row |= figures_of_months(inputs.long_job, given, result, inputs, recipe, workshop.folder)
    except EtSimError as error:
        return refused(error)
    if save is not None:
        Path(save).parent.mkdir(parents=True, exist_ok=True)
        result.save(save)
    return row


def _evaluate_serving(
    inputs: Inputs, workshop: Workshop, options: RunOptions, save: str | None
) -> dict[str, Any]:
    recipe = read_serving(inputs.recipe)
    serving = serve_point(recipe, workshop.folder, options, workshop.served_on(inputs))
    if save is not None:
        Path(save).parent.mkdir(parents=True, exist_ok=True)
        serving.write(Path(save))
    return serving_figures(serving)


def refused(error: EtSimError) -> dict[str, Any]:
    """Return the row of a point that cannot be simulated."""
    return {"status": REFUSED, "error": str(error), "warnings": []}


def figures(result: Result) -> dict[str, Any]:
    """Return the figures of a run; an incomplete one has no times."""
    warnings = sorted({_sentence(notice) for notice in result.manifest["warnings"]})
    row: dict[str, Any] = {"status": result.status, "ranks": result.workload.ranks, "warnings": warnings}
    if not result.is_complete:
        stall = result.stall
        row["error"] = str(stall.as_error() if stall else result.why_stopped())
        return row
    made_of = result.measurement.composition
    if made_of is not None:
        row["low_ns"], row["high_ns"] = made_of.band(result.makespan_ns)
        row[MADE_OF] = json.dumps(made_of.as_dict(), separators=(",", ":"))
    links = busiest(result.outcome.load, result.measurement.actor_of_rank, result.makespan_ns)
    peak = int(result.statistics.peak_memory_bytes.max())
    row |= {
        "makespan_ns": result.makespan_ns,
        "exposed_comm_ns": int(result.statistics.exposed_comm_ns.max()),
        **_longest_part(result),
        "busiest_links": links and links[0],
        "busiest_links_used": links and links[1],
        "peak_memory_bytes": None if peak < 0 else peak,
    }
    taken = result.costs
    done: Mapping[str, Any] | None = result.throughput
    if taken:
        currency = None if taken["price"] is None else taken["currency"]
        row |= {"joules": taken["joules"], "price": taken["price"], "currency": currency}
    if result.samples is not None:
        found = result.samples.summary()["step"]
        row |= {column.name: found[column.name.removesuffix("_ns")]["value_ns"] for column in OF_SAMPLES}
    return row | ({figure.name: done[figure.name] for figure in OF_STEPS} if done else {})


def _longest_part(result: Result) -> dict[str, Any]:
    """Return the activity with the most time of all ranks, and its share."""
    weights = result.measurement.ranks_per_actor
    spent = {part: int(getattr(result.statistics, name) @ weights) for name, part in PARTS.items()}
    most = max(spent, key=lambda part: spent[part])
    total = sum(spent.values())
    return {"bottleneck": most, "bottleneck_share": round(spent[most] / total, 6) if total else None}


def _sentence(notice: Notice) -> str:
    key = f"key {notice['key']!r}: " if notice["key"] else ""
    return f"{notice['place']}: {key}{notice['text']}" if notice["place"] else f"{key}{notice['text']}"


FAILED = (
    "failed"  # the status of a point that was lost: it is no result, and is tried again by the next sweep
)
MOST_ATTEMPTS = 2  # of a point whose worker ended


class Lost(Struct, frozen=True):
    """A task without a result, because of the machine or of an error in this program."""

    digest: str
    reason: str

    def finished(self) -> Finished:
        """Return it as a row."""
        return Finished(self.digest, {"status": FAILED, "error": self.reason, "warnings": []}, 0.0)


Done = Finished | Lost


class Runner(Protocol):
    """A runner evaluates tasks; closing the iterator ends tasks that are under way."""

    def run(self, tasks: Sequence[PointTask]) -> Iterator[Sequence[Done]]:
        """Yield groups of results as they finish."""

    def close(self) -> None:
        """Release workers; no more tasks follow."""


def attempt(evaluator: Evaluator, task: PointTask) -> Done:
    """Evaluate one task; raise errors that every task would meet."""
    begin = time.perf_counter()
    try:
        row = evaluator.row(task)
    except EtSimError:
        raise
    except MemoryError:
        return Lost(task.digest, "this needs more memory than there is")
    except Exception as error:  # one point must not stop the others
        return Lost(task.digest, f"et-sim failed: {type(error).__name__}: {error}")
    return Finished(task.digest, row, round(time.perf_counter() - begin, 6))


def begin(space: Space, watch: Watcher | None = None) -> Callable[[PointTask], Done]:
    """Return the function by which a worker process evaluates tasks; `watch` receives their progress."""
    return partial(attempt, Evaluator(space, watch))


class OtherProcesses(Struct, frozen=True):
    """Other processes on this machine."""

    pool: WorkerPool

    @staticmethod
    def of(space: Space, workers: int) -> OtherProcesses:
        """Start a pool of so many workers."""
        return OtherProcesses(WorkerPool(pickled((begin, space)), workers, MOST_ATTEMPTS))

    def run(self, tasks: Sequence[PointTask]) -> Iterator[Sequence[Done]]:
        """Yield results as they finish."""
        with closing(self.pool.run(tasks)) as running:
            for done in running:
                yield [_done(tasks[number], result) for number, result in done]

    def close(self) -> None:
        """End the processes."""
        self.pool.close()


def _done(task: PointTask, result: Done | EtSimError) -> Done:
    if isinstance(result, WorkerEndedError):
        return Lost(task.digest, result.cause)
    if isinstance(result, EtSimError):
        raise result
    return result


class InProcess(Struct, frozen=True):
    """A runner in this process: one point after the other, with the progress of each."""

    space: Space
    watch: Watcher | None = None

    def run(self, tasks: Sequence[PointTask]) -> Iterator[Sequence[Done]]:
        """Yield each result by itself."""
        do = begin(self.space, self.watch)
        for task in tasks:
            yield [do(task)]

    def close(self) -> None:
        """Release nothing: there are no workers."""
