"""Months of a long job whose step is that of a point: its goodput, with failures, checkpoints and spares."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from et_sim.basics.errors import EtSimError, InputError
from et_sim.basics.units import NS_PER_SECOND
from et_sim.goodput.goodput import goodput
from et_sim.goodput.sources import Source
from et_sim.goodput.step import checkpoint_bytes, source_of_recipe
from et_sim.machine.presets import preset
from et_sim.recipes.recipe import is_language_model, model_and_plan
from et_sim.run.result import Result
from et_sim.sweeps.long_job import GPUS, STEP, TOKENS, LongJob

if TYPE_CHECKING:
    from et_sim.sweeps.space import Inputs
    from et_sim.trace import Workload


def figures_of_months(
    job: LongJob,
    workload: Workload,
    result: Result,
    inputs: Inputs,
    recipe: Mapping[str, Any] | None,
    folder: Path,
) -> dict[str, Any]:
    """Return the figures of the months of a point with this result; `recipe`: of its workload, if made."""
    done = result.throughput
    if done is None:
        raise InputError(
            "the workload has no tokens, so it has no goodput", remedy="make it (make: llm), or leave it out"
        )
    recipe = recipe if recipe is not None and is_language_model(recipe) else None
    content = {
        "price-per-gpu-hour": (result.manifest["costs"] or {}).get("price_per_hour"),
        "gpus-of-node": preset(inputs.machine).node if inputs.machine else None,
        **job.content,
        STEP: result.makespan_ns / NS_PER_SECOND,
        TOKENS: done["tokens"],
        GPUS: result.workload.ranks,
    }
    size = None if recipe is None else checkpoint_bytes(*model_and_plan(recipe, folder))
    checkpoints = {"bytes": size, **job.content.get("checkpoints", {})}
    content["checkpoints"] = {name: value for name, value in checkpoints.items() if value is not None}
    content = {name: value for name, value in content.items() if value is not None}
    parts, model = result.manifest["configuration"], result.manifest["model"]
    identity = {"step": "of the point"}  # nothing is kept for other points
    source = Source(lambda: workload, inputs.options, parts["system"], parts["network"], model, identity)
    if job.is_elastic:
        source = _with_fewer(source, inputs, recipe, folder)
    return _drawn(job, content, source)


def _with_fewer(source: Source, inputs: Inputs, recipe: Mapping[str, Any] | None, folder: Path) -> Source:
    """Return the source of a point with those of fewer replicas; refuse a point without them."""
    if recipe is None or inputs.machine is None or inputs.parts:
        raise InputError(
            'key "elastic" has fewer replicas, whose steps are simulated of recipes (make: llm) on machines'
            " by name alone",
            remedy="leave it out, or give such a workload and machine without other keys of the machine",
        )
    _, plan = model_and_plan(recipe, folder)
    whole = source_of_recipe(recipe, plan, preset(inputs.machine), inputs.options, folder)
    return replace(source, fewer=whole.fewer, lost_with_node=whole.lost_with_node, replicas=whole.replicas)


def _drawn(job: LongJob, content: dict[str, Any], source: Source) -> dict[str, Any]:
    """Return the figures of the months of a job, whose step is that of the point."""
    try:
        drawn = goodput(content, days=job.days, runs=job.runs, seed=job.seed, source=source)
    except EtSimError as error:
        raise InputError(f"its months: {error.cause}", remedy=error.remedy) from None
    months = drawn.summary()
    finish = months["finish_days"]
    return {
        "goodput": months["goodput"]["mean"],
        "kept_tokens": months["tokens"]["mean"],
        "price_per_million_kept_tokens": months["costs"]["price_per_million_tokens"],
        "finish_days": None if finish is None else finish["mean"],
    }
