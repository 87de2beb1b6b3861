"""The step of a job, and the steps of its degraded states: each is simulated once, and its time is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from et_sim import api
from et_sim.basics.errors import UsageError
from et_sim.basics.units import NS_PER_SECOND
from et_sim.documents.keys import Section
from et_sim.goodput.copies import with_copies
from et_sim.goodput.job_file import HALVES, SLOWS, JobSpec
from et_sim.machine.presets import Preset, preset
from et_sim.recipes.recipe import for_machine, is_language_model, make, model_and_plan
from et_sim.run.options import RunOptions
from et_sim.version import __version__
from et_sim.views import open_run
from et_sim.workloads.models.model import Model
from et_sim.workloads.training.operations import tokens_of
from et_sim.workloads.training.plan import Plan

GPUS_OF_NODE = 8  # without a machine by name
HALF_LINK_AT_MOST = 2.0  # times a step, if each message on the link takes twice as long
Copies = tuple[int, int, int]  # bytes, copies and distance of `with_copies`
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
    half_link: float = 0.0  # where a GPU has half of its bandwidth between nodes
    copy_stall: float = 0.0  # by which copies of a checkpoint into the memory of other nodes lengthen a step
    notes: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        """Return the nodes of the job."""
        return -(-self.gpus // self.gpus_of_node)


class Simulator(Struct):
    """Simulates steps that are not known yet."""

    known: Known = field(default_factory=dict)
    simulated: int = 0

    def nanoseconds(
        self,
        workload: Any,
        options: RunOptions,
        inputs: Mapping[str, Any],
        folder: Path,
        copies: Copies | None = None,
    ) -> int:
        """Return the time of a step with these inputs."""
        text = json.dumps({**inputs, "et_sim": __version__}, sort_keys=True, default=str)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        if key not in self.known:
            made = make(workload, folder) if isinstance(workload, Mapping) else workload
            if copies is not None:
                made = with_copies(made, *copies)
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


def _has(effect: str, job: JobSpec) -> bool:
    return any(part.effect == effect and part.rate != 0 for part in job.failures.parts)


def _unsimulated(
    job: JobSpec, step: JobStep, simulated: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return degraded states, as far as they were not simulated: the slow node sets the pace; each replica is
    a node.
    """
    found: dict[str, Any] = {"notes": (), "half_link": HALF_LINK_AT_MOST * step.seconds, **simulated}
    memory = job.checkpoints.memory
    if memory is not None and memory.stall is None and "copy_stall" not in simulated:
        found["notes"] += ("copies in memory were not simulated: they do not lengthen a step",)
    if _has(HALVES, job) and "half_link" not in simulated:
        found["notes"] += ("a link was not simulated with half of its bandwidth: steps take twice as long",)
    if _has(SLOWS, job) and "slow" not in simulated:
        found["slow"] = step.seconds * job.failures.slower
        found["notes"] += ("a slow node was not simulated: steps take `slower` times as long",)
    if job.elastic and "fewer" not in simulated:
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
    if not command:
        return replace(step, **_unsimulated(job, step))
    configuration = manifest["configuration"]

    def seconds(system: Mapping[str, Any], network: Mapping[str, Any]) -> float:
        options = RunOptions(
            system=system,
            network=network,
            model=manifest["model"],
            profile=command["profile"],
            when_full=command.get("when_full"),
        )
        workload = str(run.path / command["files"]["workload"])
        inputs = {"inputs": manifest["inputs"], "system": system, "network": network}
        return simulator.nanoseconds(workload, options, inputs, run.path) / NS_PER_SECOND

    simulated = _simulated(job, step.gpus_of_node, configuration["system"], configuration["network"], seconds)
    return replace(step, **_unsimulated(job, step, simulated))


def _simulated(
    job: JobSpec,
    node: int,
    system: Mapping[str, Any],
    network: Mapping[str, Any],
    seconds: Callable[[Mapping[str, Any], Mapping[str, Any]], float],
) -> dict[str, float]:
    """Return the degraded states that a job needs and that can be simulated."""
    found = {}
    if _has(SLOWS, job):
        found["slow"] = seconds(_with_slow_node(system, node, job.failures.slower), network)
    if _has(HALVES, job) and len(network.get("topology", ())) > 1:
        found["half_link"] = seconds(system, _with_half_link(network))
    return found


def _with_half_link(network: Mapping[str, Any]) -> dict[str, Any]:
    """Return a network in which the first GPU has half of its bandwidth in the outermost dimension."""
    half = {"port": 0, "dimension": len(network["topology"]) - 1, "at": "0s", "slower": 0.5}
    return {**network, "failures": [*network.get("failures", ()), half]}


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
    seconds = partial(_seconds_of_recipe, job, known, simulator, folder)
    costs, size = known.system.get("costs", {}), checkpoint_bytes(model, plan)
    step = JobStep(
        seconds(recipe, plan.ranks),
        tokens_of(model, plan),
        plan.ranks,
        known.node,
        f"{model.name} on {known.text}",
        bytes=size,
        price=costs.get("price-per-hour"),
        currency=costs.get("currency", "USD"),
        replicas=plan.data,
    )

    def degraded(system: Mapping[str, Any], network: Mapping[str, Any]) -> float:
        parts = (("system", system, known.system), ("network", network, known.network))
        changed: dict[str, Any] = {name: now for name, now, usual in parts if now is not usual}
        return seconds(recipe, plan.ranks, **changed)

    simulated: dict[str, Any] = {**_simulated(job, known.node, known.system, known.network, degraded)}
    fewer = [
        seconds(_with_fewer(recipe, plan, missing), plan.ranks // plan.data * (plan.data - missing))
        for missing in range(1, min(job.elastic, plan.data - 1) + 1)
    ]
    simulated["fewer"] = _shares(fewer, plan.data)
    if copies := _copies(job, step, size):
        simulated["copy_stall"] = max(seconds(recipe, plan.ranks, copies) - step.seconds, 0.0)
    return replace(step, **_unsimulated(job, step, simulated))


def _seconds_of_recipe(
    job: JobSpec,
    known: Preset,
    simulator: Simulator,
    folder: Path,
    recipe: Mapping[str, Any],
    ranks: int,
    copies: Copies | None = None,
    **changed: Any,
) -> float:
    name = f"{known.name}:{ranks}{known.options}"
    options = RunOptions(machine=name, when_full=job.when_full, **changed)
    inputs = {"workload": recipe, "machine": name, "when_full": job.when_full, "copies": copies, **changed}
    return simulator.nanoseconds(recipe, options, inputs, folder, copies) / NS_PER_SECOND


def _copies(job: JobSpec, step: JobStep, size: int) -> Copies | None:
    """Return the messages of copies in memory, if their time is to be simulated and there are other nodes."""
    memory = job.checkpoints.memory
    others = step.nodes - 1
    if memory is None or memory.stall is not None or not others or memory.copies == 1:
        return None
    part = -(-(job.checkpoints.bytes or size) // step.gpus)
    return part, min(memory.copies - 1, others), step.gpus_of_node


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
