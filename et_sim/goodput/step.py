"""The step of a job, and the steps of its degraded states: each is simulated once, and its time is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from et_sim import api
from et_sim.basics.errors import UsageError
from et_sim.basics.units import NS_PER_SECOND
from et_sim.documents.keys import Section
from et_sim.goodput.job_file import JobSpec
from et_sim.machine.presets import preset
from et_sim.run.options import RunOptions
from et_sim.sweeps.recipes import for_machine, is_language_model, make, model_and_plan
from et_sim.version import __version__
from et_sim.views import open_run
from et_sim.workloads.training.operations import tokens_of
from et_sim.workloads.training.plan import Plan

GPUS_OF_NODE = 8  # without a machine by name
Known = dict[str, int]  # simulated steps by the digest of their inputs, in ns


class JobStep(Struct, frozen=True):
    """A step of the healthy machine, and of the machine with faults."""

    seconds: float
    tokens: int
    gpus: int
    gpus_of_node: int
    source: str
    bytes: int | None = None  # weights and optimizer states
    price: float | None = None  # of a GPU for an hour
    currency: str = "USD"
    replicas: int = 1
    fewer: tuple[tuple[float, float], ...] = ()  # step and share of tokens with 1, 2, … replicas less
    slow: float = 0.0  # with a slow node; 0: not needed
    notes: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        """Return the nodes of the job."""
        return -(-self.gpus // self.gpus_of_node)


class Simulator(Struct):
    """Simulates steps that are not known yet."""

    known: Known = field(default_factory=dict)
    simulated: int = 0

    def nanoseconds(self, workload: Any, options: RunOptions, inputs: Mapping[str, Any], folder: Path) -> int:
        """Return the time of a step with these inputs."""
        text = json.dumps({**inputs, "et_sim": __version__}, sort_keys=True, default=str)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        if key not in self.known:
            made = make(workload, folder) if isinstance(workload, Mapping) else workload
            result = api.execute(made, options)
            if not result.is_complete:
                stall = result.stall
                raise stall.as_error() if stall else result.why_stopped()
            self.known[key] = result.makespan_ns
            self.simulated += 1
        return self.known[key]


def step_of(job: JobSpec, place: Section, simulator: Simulator) -> JobStep:
    """Return the step that a job names."""
    if job.step is not None:
        assert job.tokens_of_step is not None
        assert job.gpus is not None
        step = JobStep(job.step, job.tokens_of_step, job.gpus, GPUS_OF_NODE, "given")
        step = replace(step, **_unsimulated(job, step))
    elif job.run is not None:
        step = _of_run(job, place, simulator)
    else:
        step = _of_recipe(job, place, simulator)
    if job.gpus_of_node is not None:
        step = replace(step, gpus_of_node=job.gpus_of_node)
    return step if job.price is None else replace(step, price=job.price)


def _is_slowed(job: JobSpec) -> bool:
    return any(part.effect == "slows" and part.rate != 0 for part in job.failures.parts)


def _unsimulated(job: JobSpec, step: JobStep) -> dict[str, Any]:
    """Return degraded states without a simulation: the slow node sets the pace; each replica is a node."""
    found: dict[str, Any] = {"notes": ()}
    if _is_slowed(job):
        found["slow"] = step.seconds * job.failures.slower
        found["notes"] += ("a slow node was not simulated: steps take `slower` times as long",)
    if job.elastic:
        replicas = max(step.replicas, step.nodes if step.replicas == 1 else 1)
        found["fewer"] = _shares([step.seconds] * job.elastic, replicas)
        found["notes"] += ("fewer replicas were not simulated: steps take as long, and a replica is a node",)
    return found


def _shares(seconds: list[float], replicas: int) -> tuple[tuple[float, float], ...]:
    """Return steps with the share of tokens that they process."""
    return tuple((step, 1 - number / replicas) for number, step in enumerate(seconds, 1) if number < replicas)


def _of_run(job: JobSpec, place: Section, simulator: Simulator) -> JobStep:
    """Return the step of a run's directory."""
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
        preset(name).node if name else GPUS_OF_NODE,
        f"run {job.run}",
        price=costs.get("price_per_hour"),
        currency=costs.get("currency", "USD"),
    )
    unsimulated = _unsimulated(job, step)
    if _is_slowed(job) and command:
        configuration = manifest["configuration"]
        system = _with_slow_node(configuration["system"], step.gpus_of_node, job.failures.slower)
        options = RunOptions(
            system=system,
            network=configuration["network"],
            model=manifest["model"],
            profile=command["profile"],
            when_full=command.get("when_full"),
        )
        workload = str(run.path / command["files"]["workload"])
        inputs = {"inputs": manifest["inputs"], "system": system, "network": configuration["network"]}
        nanoseconds = simulator.nanoseconds(workload, options, inputs, run.path)
        unsimulated["slow"] = nanoseconds / NS_PER_SECOND
        unsimulated["notes"] = unsimulated["notes"][1:]
    return replace(step, **unsimulated)


def _with_slow_node(system: Mapping[str, Any], gpus: int, factor: float) -> dict[str, Any]:
    """Return a system whose first node computes more slowly."""
    slow = {"ranks": f"0-{gpus - 1}", "compute": factor}
    return {**system, "stragglers": [*system.get("stragglers", ()), slow]}


def _of_recipe(job: JobSpec, place: Section, simulator: Simulator) -> JobStep:
    """Return the step of a recipe on a machine by name."""
    assert job.machine is not None
    folder, known = Path(place.place).parent, preset(job.machine)
    recipe = _recipe(job, place)
    model, plan = model_and_plan(recipe, folder)
    if known.npus != plan.ranks:
        raise UsageError(
            f"the machine {job.machine} has {known.npus:,} NPUs, and the plan has {plan.ranks:,} ranks",
            place=place.at("machine"),
            remedy="correct one of them",
        )

    def seconds(of: Mapping[str, Any], ranks: int, system: dict[str, Any] | None = None) -> float:
        name = f"{known.name}:{ranks}{known.options}"
        options = RunOptions(machine=name, system=system, when_full=job.when_full)
        inputs = {"workload": of, "machine": name, "system": system, "when_full": job.when_full}
        return simulator.nanoseconds(of, options, inputs, folder) / NS_PER_SECOND

    fewer = [
        seconds(_with_fewer(recipe, plan, missing), plan.ranks // plan.data * (plan.data - missing))
        for missing in range(1, min(job.elastic, plan.data - 1) + 1)
    ]
    slowed = _with_slow_node(known.system, known.node, job.failures.slower)
    costs = known.system.get("costs", {})
    return JobStep(
        seconds(recipe, plan.ranks),
        tokens_of(model, plan),
        plan.ranks,
        known.node,
        f"{model.name} on {known.text}",
        bytes=model.weights * (plan.value_bytes + plan.master_bytes),
        price=costs.get("price-per-hour"),
        currency=costs.get("currency", "USD"),
        replicas=plan.data,
        fewer=_shares(fewer, plan.data),
        slow=seconds(recipe, plan.ranks, slowed) if _is_slowed(job) else 0.0,
    )


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
