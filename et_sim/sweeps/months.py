"""Months of a long job whose step is that of a point: its goodput, with failures, checkpoints and spares."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from et_sim.basics.errors import EtSimError, InputError
from et_sim.basics.units import NS_PER_SECOND
from et_sim.goodput.goodput import goodput
from et_sim.goodput.job_file import HALVES, SLOWS, content_of, read_spec
from et_sim.goodput.step import checkpoint_bytes
from et_sim.machine.presets import preset
from et_sim.recipes.recipe import is_language_model, model_and_plan
from et_sim.sweeps.spec import MonthsSpec, Sweep

if TYPE_CHECKING:
    from et_sim.run.result import Result

STEP, TOKENS, GPUS = "step", "tokens-of-step", "gpus"  # keys of a job that each point sets


class LongJob(Struct, frozen=True):
    """A job without its step, and the months to draw."""

    content: dict[str, Any]
    days: float
    runs: int
    seed: int


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
    degraded = [part.name for part in job.failures.parts if part.effect in (SLOWS, HALVES)]
    memory = job.checkpoints.memory
    refused = [f'the part "{name}" slows steps' for name in degraded]
    if job.elastic:
        refused.append('key "elastic" has fewer replicas')
    if memory is not None and memory.stall is None:
        refused.append('key "memory" without "stall" has copies beside a step')
    if refused:
        raise InputError(
            f"{refused[0]}, which is not simulated for points",
            place=place,
            remedy="leave it out, and give it to et-sim goodput for the best point",
        )
    return LongJob(content, spec.days, spec.runs, spec.seed)


def figures_of_months(
    job: LongJob, result: Result, machine: str | None, recipe: Mapping[str, Any] | None, folder: Path
) -> dict[str, Any]:
    """Return the figures of a point's months; `recipe`: of its workload, if it is made."""
    done = result.throughput
    if done is None:
        raise InputError(
            "the workload has no tokens, so it has no goodput", remedy="make it (make: llm), or leave it out"
        )
    content = {
        "price-per-gpu-hour": (result.manifest["costs"] or {}).get("price_per_hour"),
        "gpus-of-node": preset(machine).node if machine else None,
        **job.content,
        STEP: result.makespan_ns / NS_PER_SECOND,
        TOKENS: done["tokens"],
        GPUS: result.workload.ranks,
    }
    checkpoints = {"bytes": _bytes(recipe, folder), **job.content.get("checkpoints", {})}
    content["checkpoints"] = {name: value for name, value in checkpoints.items() if value is not None}
    content = {name: value for name, value in content.items() if value is not None}
    try:
        months = goodput(content, days=job.days, runs=job.runs, seed=job.seed).summary()
    except EtSimError as error:
        raise InputError(f"its months: {error.cause}", remedy=error.remedy) from None
    finish = months["finish_days"]
    return {
        "goodput": months["goodput"]["mean"],
        "kept_tokens": months["tokens"]["mean"],
        "price_per_million_kept_tokens": months["costs"]["price_per_million_tokens"],
        "finish_days": None if finish is None else finish["mean"],
    }


def _bytes(recipe: Mapping[str, Any] | None, folder: Path) -> int | None:
    """Return the size of a checkpoint; None if the workload does not state it."""
    if recipe is None or not is_language_model(recipe):
        return None
    return checkpoint_bytes(*model_and_plan(recipe, folder))
