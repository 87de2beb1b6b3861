"""The step that a job names: given, of a run, or of a recipe; `states` has the machine with faults."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.basics.units import NS_PER_SECOND
from et_sim.documents.keys import Section
from et_sim.goodput.job_file import JobSpec
from et_sim.goodput.setting import JobStep
from et_sim.goodput.sources import Simulator, Source
from et_sim.goodput.states import states_of
from et_sim.machine.presets import Preset, preset
from et_sim.recipes.recipe import for_machine, is_language_model, make, model_and_plan
from et_sim.run.options import RunOptions, repeated
from et_sim.trace import TraceBuilder, Workload, read_workload
from et_sim.views import open_run
from et_sim.workloads.models.model import Model
from et_sim.workloads.training.operations import tokens_of
from et_sim.workloads.training.plan import DATA, Plan

GPUS_OF_NODE = 8  # without a machine by name


def step_of(job: JobSpec, place: Section, simulator: Simulator, source: Source | None = None) -> JobStep:
    """Return the step that a job names; `source`: that of a given one."""
    if job.step is not None:
        source = source or _source_of_given(job, place)
        step = _given(job, source)
    elif job.run is not None:
        step, source = _of_run(job, place)
    else:
        step, source = _of_recipe(job, place, simulator)
    step = replace(step, **states_of(job, step, source, simulator))
    return step if job.price is None else replace(step, price=job.price)


def _given(job: JobSpec, source: Source | None) -> JobStep:
    assert job.step is not None
    assert job.tokens_of_step is not None
    assert job.gpus is not None
    known = preset(job.machine) if job.machine else None
    costs: Mapping[str, Any] = known.system.get("costs", {}) if known else {}
    return JobStep(
        job.step,
        job.tokens_of_step,
        job.gpus,
        job.gpus_of_node or (known.node if known else GPUS_OF_NODE),
        "given",
        price=costs.get("price-per-hour"),
        currency=costs.get("currency", "USD"),
        replicas=1 if source is None else source.replicas,
    )


def _source_of_given(job: JobSpec, place: Section) -> Source | None:
    """Return a source whose ranks compute for the given step; None without a machine."""
    if job.machine is None:
        return None
    assert job.gpus is not None
    assert job.step is not None
    known = _machine_of(job.machine, job.gpus, "the job has {ranks:,} GPUs", place)
    build = TraceBuilder()
    build.compute("step", nanos=round(job.step * NS_PER_SECOND))
    workload = Workload((build.build(),), np.zeros(job.gpus, np.int32), relative_peers=(True,))
    identity = {"machine": job.machine, "step": job.step, "gpus": job.gpus}
    whole = Source(
        lambda: workload, RunOptions(machine=job.machine), known.system, known.network, None, identity
    )
    return replace(whole, has_messages=False)


def _machine_of(name: str, ranks: int, what: str, place: Section) -> Preset:
    """Return a machine by name with so many NPUs; refuse another one."""
    known = preset(name)
    if known.npus != ranks:
        raise UsageError(
            f"the machine {name} has {known.npus:,} NPUs, and {what.format(ranks=ranks)}",
            place=place.at("machine"),
            remedy="correct one of them",
        )
    return known


def _of_run(job: JobSpec, place: Section) -> tuple[JobStep, Source | None]:
    """Return the step of a run's directory, and its source if it was simulated from files."""
    assert job.run is not None
    run = open_run(place.beside(job.run))
    summary, manifest = run.summary, run.manifest
    throughput = summary["throughput"]
    if summary["status"] != "complete" or throughput is None:
        raise place.fault(
            "the run has no complete step with tokens", "make its workload with et-sim make", key="run"
        )
    command = manifest.get("command")
    name = command.get("machine") if command else None
    costs: dict[str, Any] = manifest.get("costs") or {}
    step = JobStep(
        summary["makespan_ns"] / NS_PER_SECOND,
        throughput["tokens"],
        summary["ranks"],
        job.gpus_of_node or (preset(name).node if name else GPUS_OF_NODE),
        f"run {job.run}",
        price=costs.get("price_per_hour"),
        currency=costs.get("currency", "USD"),
    )
    if not command or command.get("alone"):
        return step, None
    workload, options = repeated(manifest, run.path, manifest["model"])
    identity = {"inputs": manifest["inputs"], "model": manifest["model"], "command": command}
    parts = manifest["configuration"]
    return step, Source(
        partial(read_workload, workload, step.gpus),
        options,
        parts["system"],
        parts["network"],
        manifest["model"],
        identity,
    )


def _of_recipe(job: JobSpec, place: Section, simulator: Simulator) -> tuple[JobStep, Source]:
    """Return the step of a recipe on a machine by name."""
    assert job.machine is not None
    folder, recipe = Path(place.place).parent, _recipe(job, place)
    model, plan = model_and_plan(recipe, folder)
    known = _machine_of(job.machine, plan.ranks, "the plan has {ranks:,} ranks", place)
    source = source_of_recipe(recipe, plan, known, RunOptions(when_full=job.when_full), folder)
    costs: Mapping[str, Any] = known.system.get("costs", {})
    step = JobStep(
        simulator.seconds(source)[0],
        tokens_of(model, plan),
        plan.ranks,
        job.gpus_of_node or known.node,
        f"{model.name} on {known.text}",
        bytes=checkpoint_bytes(model, plan),
        price=costs.get("price-per-hour"),
        currency=costs.get("currency", "USD"),
        replicas=plan.data,
    )
    return step, source


def source_of_recipe(
    recipe: Mapping[str, Any], plan: Plan, known: Preset, options: RunOptions, folder: Path
) -> Source:
    """Return the source of a recipe's step on a machine by name."""

    def on(recipe: Mapping[str, Any], replicas: int) -> Source:
        name = f"{known.name}:{plan.ranks // plan.data * replicas}{known.options}"
        identity = {"workload": recipe, "machine": name, "when_full": options.when_full}
        identity |= {"model": options.model, "profile": options.profile}
        there, of_machine = replace(options, machine=name), preset(name)
        workload = partial(make, recipe, folder)
        return Source(workload, there, of_machine.system, of_machine.network, options.model, identity)

    def fewer(missing: int) -> Source:
        return on(_with_fewer(recipe, plan, missing), plan.data - missing)

    lost = partial(_replicas_of_node, plan)
    return replace(on(recipe, plan.data), fewer=fewer, lost_with_node=lost, replicas=plan.data)


def _replicas_of_node(plan: Plan, gpus: int) -> int:
    """Return the most replicas that a node has a part of."""
    ranks = np.arange(plan.ranks)
    parts = np.unique(ranks // gpus * plan.data + plan.axes.place(DATA, ranks))  # of a node and a replica
    return int(np.bincount(parts // plan.data).max())


def checkpoint_bytes(model: Model, plan: Plan) -> int:
    """Return the size of weights and optimizer states."""
    return model.weights * (plan.value_bytes + plan.master_bytes)


def _recipe(job: JobSpec, place: Section) -> Mapping[str, Any]:
    """Return the recipe of a language model that a job names."""
    assert job.workload is not None
    recipe = for_machine(job.workload, job.machine)
    if not is_language_model(recipe):
        raise place.fault(
            "only language models have tokens and checkpoints here",
            'give "make: llm", or a "run"',
            key="workload",
        )
    return recipe


def _with_fewer(recipe: Mapping[str, Any], plan: Plan, missing: int) -> dict[str, Any]:
    """Return a recipe without some replicas; the others have as many micro-batches as before."""
    given = {key: value for key, value in recipe["plan"].items() if key != "global-batch"}
    changed = {"dp": plan.data - missing, "micro-batches": plan.micro_batches}
    return {**recipe, "plan": {**given, **changed}}
