"""The long job of a sweep, whose step each point gives."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from et_sim.basics.errors import InputError
from et_sim.goodput.job_file import content_of, read_spec
from et_sim.sweeps.spec import MonthsSpec, Sweep

STEP, TOKENS, GPUS = "step", "tokens-of-step", "gpus"  # keys of a job that each point sets


class LongJob(Struct, frozen=True):
    """A job without its step, and the months to draw."""

    content: dict[str, Any]
    days: float
    runs: int
    seed: int
    is_elastic: bool  # steps with fewer replicas are needed


def long_job_of(sweep: Sweep) -> LongJob | None:
    """Return the long job of a sweep; refuse one that points cannot have."""
    spec: MonthsSpec | None = sweep.base.goodput
    if spec is None:
        return None
    place = sweep.section.at("base", "goodput")
    content = spec.job if isinstance(spec.job, dict) else content_of(sweep.folder / spec.job)
    given = [name for name in (STEP, TOKENS, GPUS, "run", "workload", "machine") if name in content]
    if given:
        raise InputError(
            f'the job has "{given[0]}", and its step is that of each point',
            place=place,
            remedy="leave it out",
        )
    job, _, _ = read_spec({**content, STEP: 1, TOKENS: 1, GPUS: 1}, place)
    return LongJob(content, spec.days, spec.runs, spec.seed, job.elastic > 0)
