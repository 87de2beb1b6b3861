"""Months of a long job whose step is that of a point: its goodput, with failures, checkpoints and spares."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from et_sim.basics.errors import EtSimError, InputError
from et_sim.basics.units import NS_PER_SECOND
from et_sim.goodput.goodput import goodput
from et_sim.goodput.job_file import ASYNCHRONOUS, HALVES, SLOWS, JobSpec, content_of, read_spec
from et_sim.goodput.step import checkpoint_bytes
from et_sim.machine.presets import preset
from et_sim.recipes.recipe import is_language_model, model_and_plan
from et_sim.recipes.servings import beside
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
    needs: str  # what needs steps other than those of points; empty: nothing
    writes_beside: bool  # checkpoints have traffic, as far as it can be simulated


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
    checkpoints = job.checkpoints
    writes_beside = checkpoints.how == ASYNCHRONOUS and checkpoints.stall is None
    return LongJob(content, spec.days, spec.runs, spec.seed, _needs_other_steps(job), writes_beside)


def _needs_other_steps(job: JobSpec) -> str:
    """Return what needs the step of a point in another state; empty: nothing."""
    memory = job.checkpoints.memory
    degraded = [part.name for part in job.failures.parts if part.effect in (SLOWS, HALVES)]
    needs = [f'the part "{name}" slows steps' for name in degraded]
    if job.elastic:
        needs.append('key "elastic" has fewer replicas')
    if memory is not None and memory.stall is None:
        needs.append('key "memory" without "stall" has copies beside a step')
    return needs[0] if needs else ""


def figures_of_months(
    job: LongJob,
    result: Result,
    machine: str | None,
    recipe: Mapping[str, Any] | None,
    when_full: str | None,
    folder: Path,
) -> dict[str, Any]:
    """Return the figures of a point's months; `recipe`: of its workload, if it is made."""
    done = result.throughput
    if done is None:
        raise InputError(
            "the workload has no tokens, so it has no goodput", remedy="make it (make: llm), or leave it out"
        )
    content = _with_recipe(job, result, machine, recipe, when_full, folder)
    if content and (job.needs or job.writes_beside):
        return _drawn(job, content, result)
    if job.needs:
        raise InputError(
            f"{job.needs}, and other steps are simulated of recipes (make: llm) on machines by name",
            remedy="leave it out, or give such a workload and machine",
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
    return _drawn(job, {name: value for name, value in content.items() if value is not None}, result)


def _with_recipe(
    job: LongJob,
    result: Result,
    machine: str | None,
    recipe: Mapping[str, Any] | None,
    when_full: str | None,
    folder: Path,
) -> dict[str, Any]:
    """Return the job with the recipe and machine of a point, so that its other steps are simulated; empty if
    these are unknown.
    """
    if machine is None or recipe is None or not is_language_model(recipe):
        return {}
    price = (result.manifest["costs"] or {}).get("price_per_hour")
    content = {"price-per-gpu-hour": price, **job.content, "machine": machine, "when-full": when_full}
    content["workload"] = {**recipe, "model": beside(recipe["model"], folder)}
    return {name: value for name, value in content.items() if value is not None}


def _drawn(job: LongJob, content: dict[str, Any], result: Result) -> dict[str, Any]:
    """Return the figures of the months of a job, whose step is that of the point."""
    try:
        months = goodput(content, days=job.days, runs=job.runs, seed=job.seed).summary()
    except EtSimError as error:
        raise InputError(f"its months: {error.cause}", remedy=error.remedy) from None
    if round(months["step"]["seconds"] * NS_PER_SECOND) != result.makespan_ns:
        raise InputError(
            "other steps of its months are simulated on the machine by its name alone, whose step takes"
            f" {months['step']['seconds']:.6g} s; that of the point takes"
            f" {result.makespan_ns / NS_PER_SECOND:.6g} s",
            remedy="leave other keys of the machine and of the run out, give them to et-sim goodput, or give"
            " the checkpoints a stall",
        )
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
