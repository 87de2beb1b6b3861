"""`goodput`: the months of a job from its description."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from et_sim.basics.errors import UsageError
from et_sim.documents.keys import Remarks, Section
from et_sim.goodput.figures import evaluate
from et_sim.goodput.job_file import JobSpec, read_job, read_spec
from et_sim.goodput.resolving import resolve
from et_sim.goodput.results import Goodput
from et_sim.goodput.setting import Setting
from et_sim.goodput.sources import Simulator, Source
from et_sim.goodput.step import step_of

MOST_MONTHS = 1_000_000
MOST_RESTARTS = 20.0  # a restart succeeds by a chance of exp(-20)
MOST_EVENTS = 200_000_000  # of all months together


def goodput(
    given: Path | dict[str, Any],
    *,
    days: float,
    runs: int,
    seed: int = 0,
    known: dict[str, int] | None = None,
    source: Source | None = None,
) -> Goodput:
    """Return the months of a job: a file, or a dict with its keys; `known` are steps simulated before, and
    `source` is that of a step whose length is given.
    """
    job, place, remarks = read_spec(given) if isinstance(given, dict) else read_job(given)
    return _months(job, place, remarks, days, runs, seed, dict(known or {}), source)


def _check(setting: Setting, place: Section) -> None:
    """Refuse parts with more nodes than the job, and interruptions that leave no time for steps."""
    recovery = setting.recovery
    for part in setting.parts:
        if part.nodes > setting.nodes:
            raise place.fault(
                f'a failure of the part "{part.name}" takes {part.nodes:,} nodes, and the job has'
                f" {setting.nodes:,}",
                'give it at most these "nodes"',
                key="failures",
            )
    restart = recovery.schedule + recovery.start + recovery.load + recovery.warm_up
    if setting.rate * (recovery.drain + restart) > MOST_RESTARTS:
        raise place.fault(
            f"a failure every {1 / setting.rate:.3g} s leaves no time for steps: a restart takes"
            f" {recovery.drain + restart:.4g} s",
            'give lower rates ("per-1000-node-days"), or shorter times in "recovery"',
            key="failures",
        )
    planned = recovery.write + setting.maintenance + restart + setting.step
    if 0 < setting.every <= planned:
        raise place.fault(
            f"planned interruptions every {setting.every:g} s leave no time for steps: a checkpoint, the"
            f" interruption, the restart and a step take {planned:.4g} s",
            'give a longer "every", with its unit, such as "7d"',
            key="maintenance",
        )


def _months(
    job: JobSpec,
    place: Section,
    remarks: Remarks,
    days: float,
    runs: int,
    seed: int,
    known: dict[str, int],
    source: Source | None,
) -> Goodput:
    if not 0 < days <= 3660:
        raise UsageError(f"--days is {days:g}", remedy="give a number of days > 0, at most 3660")
    if not 1 <= runs <= MOST_MONTHS:
        raise UsageError(f"--runs is {runs}", remedy=f"give a number from 1 to {MOST_MONTHS:,}")
    if seed < 0:
        raise UsageError(f"--seed is {seed}", remedy="give a whole number that is not negative")
    simulator = Simulator(known)
    step = step_of(job, place, simulator, source)
    resolved = resolve(job, step, place)
    _check(resolved.setting, place)
    events = resolved.setting.rate * days * 86400 * runs * max(resolved.setting.early_factor, 1.0)
    if events > MOST_EVENTS:
        raise UsageError(
            f"{runs:,} runs of {days:g} days have about {events:,.0f} failures",
            remedy=f"the limit is {MOST_EVENTS:,}: give fewer runs or days, or lower rates",
        )
    goal = 0.0 if job.tokens is None else job.tokens / step.tokens
    outcome = evaluate(resolved, resolved.checkpoints, days, runs, seed, goal)
    return Goodput(job, step, outcome, remarks, simulator.known)
