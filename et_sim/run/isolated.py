"""The jobs of a run, and their durations without the other jobs.

An isolated job has the NPUs and the start that it has in the run; no other job sends anything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.unique import unique
from et_sim.basics.units import rank_mask
from et_sim.engine.outcome import Outcome
from et_sim.jobs.job_file import npus_text
from et_sim.jobs.merging import only
from et_sim.machine import Machine
from et_sim.machine.model import Straggler
from et_sim.run.options import RunOptions
from et_sim.run.planning import plan_of
from et_sim.run.simulation import (
    Carried,
    Given,
    NoWatcher,
    Recorder,
    Task,
    Watcher,
    prepare,
    simulated_in_memory,
)
from et_sim.trace import Workload
from et_sim.trace.workload import Job


def isolated_times(
    given: Given, options: RunOptions, task: Task, together: Carried, watch: Watcher
) -> list[int | None]:
    """Return the duration of each job by itself; None: it cannot finish."""
    jobs = task.workload.jobs
    if len(jobs) == 1:
        return [duration_ns(together.outcome, jobs[0])]
    from et_sim.run.workers import in_order

    here = partial(_isolated_time, task, options.fold, watch)
    seconds = together.seconds / len(jobs)
    numbers = range(len(jobs))
    return list(in_order(_others, (given, options), numbers, do=here, seconds=seconds, notify=watch.stage))


def _others(inputs: tuple[Given, RunOptions]) -> Callable[[int], int | None]:
    """Return the function by which another process handles indices of jobs."""
    return partial(_isolated_time, prepare(*inputs), inputs[1].fold, NoWatcher())


def _isolated_time(task: Task, may_fold: bool, watch: Watcher, number: int) -> int | None:
    job = task.workload.jobs[number]
    watch.stage(f"simulating job {job.name} alone")
    workload = only(task.workload, job)
    machine, model = _machine_of(task.machine, workload, job), task.network_model()
    plan = replace(plan_of(workload, machine, model, may_fold=may_fold), ties_alike=task.ties_alike)
    _, outcome, _ = simulated_in_memory(plan, model, may_fold, watch, Recorder())
    return duration_ns(outcome, job)


def duration_ns(outcome: Outcome, job: Job) -> int | None:
    """Return the time from a job's start to its last rank's finish; None if a rank never finished."""
    finish = outcome.finish_ns[outcome.plan.actor_of_rank[job.npus]]
    return None if (finish < 0).any() else max(int(finish.max()) - job.start_ns, 0)


def jobs_as_dicts(
    given: Given, options: RunOptions, task: Task, together: Carried, watch: Watcher
) -> list[dict[str, Any]]:
    """Return the result of every job and, if requested, its duration by itself."""
    outcome = together.outcome
    isolated_ns = isolated_times(given, options, task, together, watch) if options.isolated else []
    entries = []
    for place, job in enumerate(task.workload.jobs):
        duration, by_itself = duration_ns(outcome, job), isolated_ns[place] if isolated_ns else None
        entries.append(
            {
                "name": job.name,
                "workload": job.workload,
                "ranks": len(job.npus),
                "npus": npus_text(job.npus),
                "placed": job.placed,
                "seed": job.seed,
                "start_ns": job.start_ns,
                "finish_ns": None if duration is None else job.start_ns + duration,
                "duration_ns": duration,
                "alone_ns": by_itself,
                "slowdown": _slowdown(duration, by_itself),
            }
        )
    return entries


def _slowdown(duration: int | None, isolated: int | None) -> float | None:
    if duration is None or isolated is None:
        return None
    if duration == isolated:
        return 1.0
    return duration / isolated if isolated else None


def _machine_of(machine: Machine, workload: Workload, job: Job) -> Machine:
    """Return the machine without stragglers that concern nodes of other jobs."""
    stragglers = tuple(
        straggler for straggler in machine.system.stragglers if _concerns(straggler, workload, job)
    )
    return replace(machine, system=replace(machine.system, stragglers=stragglers))


def _concerns(straggler: Straggler, workload: Workload, job: Job) -> bool:
    if straggler.node is None:
        return True
    npus = job.npus[rank_mask(straggler.ranks, workload.ranks)[job.npus]]
    templates = unique(workload.template_of_rank[npus]).tolist()
    node = np.uint64(straggler.node)
    return any(bool((workload.templates[template].node_id == node).any()) for template in templates)
