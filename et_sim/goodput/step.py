"""The step of a job, and the steps of its degraded states: each is simulated once, and its time is kept."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from et_sim import api
from et_sim.basics.errors import UsageError
from et_sim.basics.units import NS_PER_SECOND
from et_sim.documents.keys import Section
from et_sim.goodput.copies import with_copies
from et_sim.goodput.job_file import ASYNCHRONOUS, HALVES, SLOWS, JobSpec
from et_sim.goodput.storage import ends_of_step_and_writes, port_bytes_per_s, with_storage, with_writes
from et_sim.machine.failure_effects import LEAST_SHARE
from et_sim.machine.presets import Preset, preset
from et_sim.recipes.recipe import for_machine, is_language_model, make, model_and_plan
from et_sim.run.options import RunOptions
from et_sim.trace import Workload, read_workload
from et_sim.version import __version__
from et_sim.views import open_run
from et_sim.workloads.models.model import Model
from et_sim.workloads.training.operations import tokens_of
from et_sim.workloads.training.plan import Plan

GPUS_OF_NODE = 8  # without a machine by name
HALF_LINK_AT_MOST = 2.0  # times a step, if each message on the link takes twice as long
MOST_APART = 1024  # GPUs of a step in which one link is slow; of larger ones, it is that of all GPUs like it
Known = dict[str, int]  # simulated steps by the digest of their inputs, in ns


class Beside(Struct, frozen=True):
    """Messages of a checkpoint beside a step: copies in memory, or writes to storage."""

    size: int  # bytes of each rank
    copies: int = 0  # into the memory of other nodes; 0: it is written to storage
    distance: int = 0  # of the next node, in ranks

    @property
    def ends(self) -> tuple[str, ...]:
        """Return the ends of the keys of its times."""
        return ("",) if self.copies else ("", ":writes")

    def added(self, workload: Workload) -> Workload:
        """Return the workload with these messages."""
        if self.copies:
            return with_copies(workload, self.size, self.copies, self.distance)
        return with_writes(workload, self.size)


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
    write_stall: float | None = None  # by which writing a checkpoint lengthens steps; None: not simulated
    write: float = 0.0  # time of writing it beside steps
    port: float = math.inf  # bytes per second of a GPU's port to the storage
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
        beside: Beside | None = None,
    ) -> tuple[int, ...]:
        """Return the time of a step with these inputs, and that of writes beside it."""
        text = json.dumps({**inputs, "et_sim": __version__}, sort_keys=True, default=str)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        keys = [f"{key}{end}" for end in (beside.ends if beside else ("",))]
        if keys[0] not in self.known:
            made = make(workload, folder) if isinstance(workload, Mapping) else workload
            if beside is not None:
                made = beside.added(made)
            result = api.execute(made, options)
            if not result.is_complete:
                stall = result.stall
                raise stall.as_error() if stall else result.why_stopped()
            found = ends_of_step_and_writes(result) if len(keys) > 1 else (result.makespan_ns,)
            self.known.update(zip(keys, found, strict=True))
            self.simulated += 1
        return tuple(self.known[each] for each in keys)


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
        return simulator.nanoseconds(workload, options, inputs, run.path)[0] / NS_PER_SECOND

    whole = partial(read_workload, str(run.path / command["files"]["workload"]))
    simulated = _simulated(job, step, whole, configuration["system"], configuration["network"], seconds)
    return replace(step, **_unsimulated(job, step, simulated))


def _simulated(
    job: JobSpec,
    step: JobStep,
    workload: Callable[[], Workload],
    system: Mapping[str, Any],
    network: Mapping[str, Any],
    seconds: Callable[[Mapping[str, Any], Mapping[str, Any]], float],
) -> dict[str, Any]:
    """Return the degraded states that a job needs and that can be simulated."""
    found: dict[str, Any] = {}
    slows, halves = _has(SLOWS, job), _has(HALVES, job) and len(network.get("topology", ())) > 1
    node, alike = step.gpus_of_node, [0]
    if (slows or halves) and step.gpus > MOST_APART:
        alike = like_the_first(workload(), node)
        found["notes"] = (
            f"a part of a node is slow in {len(alike):,} nodes that are alike, in place of one: in so large a"
            " step, ranks must stay alike",
        )
    if slows:
        found["slow"] = seconds(_with_slow_nodes(system, node, alike, job.failures.slower), network)
    if halves:
        found["half_link"] = seconds(system, _with_half_links(network, alike))
    return found


def like_the_first(workload: Workload, node: int) -> list[int]:
    """Return the first ranks of the nodes that run the trace of the first one.

    If all of them are slow, ranks stay alike. The step then takes about as long as with one of them slow, as
    each waits for the slowest.
    """
    alike = workload.template_of_rank == workload.template_of_rank[0]
    return [rank for rank in np.flatnonzero(alike).tolist() if rank % node == 0]


def _with_half_links(network: Mapping[str, Any], ranks: list[int]) -> dict[str, Any]:
    """Return a network in which some GPUs have half of their bandwidth in the outermost dimension."""
    half = {"dimension": len(network["topology"]) - 1, "at": "0s", "slower": 0.5}
    halves = [{"port": rank, **half} for rank in ranks]
    return {**network, "failures": [*network.get("failures", ()), *halves]}


def _with_slow_nodes(system: Mapping[str, Any], gpus: int, ranks: list[int], factor: float) -> dict[str, Any]:
    """Return a system in which the nodes that begin with some ranks compute more slowly."""
    nodes = ",".join(f"{rank}-{rank + gpus - 1}" for rank in ranks)
    return {**system, "stragglers": [*system.get("stragglers", ()), {"ranks": nodes, "compute": factor}]}


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
        seconds(recipe, plan.ranks)[0],
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
        return seconds(recipe, plan.ranks, **changed)[0]

    whole = partial(make, recipe, folder)
    simulated: dict[str, Any] = {**_simulated(job, step, whole, known.system, known.network, degraded)}
    fewer = [
        seconds(_with_fewer(recipe, plan, missing), plan.ranks // plan.data * (plan.data - missing))[0]
        for missing in range(1, min(job.elastic, plan.data - 1) + 1)
    ]
    simulated["fewer"] = _shares(fewer, plan.data)
    if copies := _copies(job, step, size):
        simulated["copy_stall"] = max(seconds(recipe, plan.ranks, copies)[0] - step.seconds, 0.0)
    simulated |= _written(job, step, size, known, partial(seconds, recipe, plan.ranks))
    return replace(step, **_unsimulated(job, step, simulated))


def _seconds_of_recipe(
    job: JobSpec,
    known: Preset,
    simulator: Simulator,
    folder: Path,
    recipe: Mapping[str, Any],
    ranks: int,
    beside: Beside | None = None,
    **changed: Any,
) -> list[float]:
    name = f"{known.name}:{ranks}{known.options}"
    options = RunOptions(machine=name, when_full=job.when_full, **changed)
    messages = None if beside is None else to_builtins(beside)
    inputs = {"workload": recipe, "machine": name, "when_full": job.when_full, "beside": messages, **changed}
    found = simulator.nanoseconds(recipe, options, inputs, folder, beside)
    return [nanoseconds / NS_PER_SECOND for nanoseconds in found]


def _written(
    job: JobSpec, step: JobStep, size: int, known: Preset, seconds: Callable[..., list[float]]
) -> dict[str, float]:
    """Return by how much a checkpoint that is written beside steps lengthens them, and the time to write it.

    If that is longer than a step, as much is written beside one step as its time allows, and so on. Without a
    collective library, sends of a rank take turns, so that others would wait for the write.
    """
    port = port_bytes_per_s(known.network)
    if port is None or "library" not in known.system:
        return {}
    found = {"port": port}
    if job.checkpoints.how != ASYNCHRONOUS or job.checkpoints.stall is not None:
        return found
    part = _bytes_of_rank(job, step, size)
    share = job.checkpoints.storage * 1e9 / step.gpus / port
    of_step = min(part, int(min(share, 1.0) * port * step.seconds))
    if not part:
        return {**found, "write_stall": 0.0}
    if not of_step or share < LEAST_SHARE:  # too little traffic to be simulated
        return found
    beside, written = seconds(beside=Beside(of_step), network=with_storage(known.network, step.gpus, share))
    write = written * part / of_step
    steps = 1.0 if of_step == part else write / beside
    return {**found, "write_stall": steps * max(beside - step.seconds, 0.0), "write": write}


def _copies(job: JobSpec, step: JobStep, size: int) -> Beside | None:
    """Return the messages of copies in memory, if their time is to be simulated and there are other nodes."""
    memory = job.checkpoints.memory
    others = step.nodes - 1
    part = _bytes_of_rank(job, step, size)
    if memory is None or memory.stall is not None or not others or memory.copies == 1 or not part:
        return None
    return Beside(part, min(memory.copies - 1, others), step.gpus_of_node)


def _bytes_of_rank(job: JobSpec, step: JobStep, size: int) -> int:
    """Return the bytes that each rank saves of a checkpoint."""
    return -(-(job.checkpoints.size(size) or 0) // step.gpus)


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
