"""Bounds of points of a sweep without a simulation, for plans of language models.

No unevaluated point is better than its bound. So the best bound of all of them limits by how much any point
of the space may be better than the best one that was found: the gap.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field

from et_sim.basics.errors import EtSimError, InputError
from et_sim.basics.units import format_bytes
from et_sim.compute import compute_model, kernel_times
from et_sim.machine import Machine, read_machine
from et_sim.machine.model import System, WhenFull
from et_sim.machine.presets import Preset, preset
from et_sim.machine.system import peaks_of
from et_sim.recipes.recipe import (
    for_preset,
    is_language_model,
    is_serving,
    model_of,
    plan_of_recipe,
    read_serving,
)
from et_sim.recipes.servings import PLAN, beside, setup_of_recipe
from et_sim.run.options import RunOptions
from et_sim.serving.clients import Traffic, read_traffic
from et_sim.serving.requests import NONE
from et_sim.sweeps.axes import Values
from et_sim.sweeps.space import Inputs, Space
from et_sim.sweeps.wires import wires_of
from et_sim.tables.sweep_tables import OF_STEPS
from et_sim.timeline.recorded import throughput
from et_sim.trace.workload import Step
from et_sim.workloads.models.model import Model
from et_sim.workloads.rank import PROFILE
from et_sim.workloads.training.bounds import Bounds, KernelTimes, bounds_of
from et_sim.workloads.training.operations import datatype_of, model_operations, tokens_of
from et_sim.workloads.training.plan import Plan, naming_fields
from et_sim.workloads.training.plan_bounds import PlanBounder, PlanBounds

Bound = Mapping[str, float]  # by column: no row is better
_ROUNDED = 1 - 1e-11  # costs have twelve digits
_COSTS_ROUNDED, _RATES_ROUNDED = 1 - 1e-8, 0.001  # those of serving have nine, and rates three decimals


class Bounder(Struct):
    """A finder of bounds; points that differ only in their networks share them."""

    space: Space
    parts: dict[int, PlanBounds] = field(default_factory=dict)  # parts of least times, by number of point
    _known: dict[Any, tuple[Bound, PlanBounds | None]] = field(default_factory=dict)
    _machines: dict[Any, Machine] = field(default_factory=dict)
    _bounders: dict[Any, PlanBounder] = field(default_factory=dict)
    _presets: dict[str | None, Preset | None] = field(default_factory=dict)
    _models: dict[str, Model] = field(default_factory=dict)
    _loads: dict[Any, Traffic] = field(default_factory=dict)

    def of(self, values: Values, number: int = 0) -> Bound | None:
        """Return the bounds of a point; None: there are none. Refuse a point that cannot be simulated."""
        inputs = self.space.inputs(values)
        if is_serving(inputs.workload):
            return self._of_serving(inputs)
        if not isinstance(inputs.workload, Mapping) or not is_language_model(inputs.workload):
            return None
        machine = _machine_key(inputs)
        key = (json.dumps(inputs.workload, sort_keys=True), machine)
        if key not in self._known:
            self._known[key] = self._find(inputs, machine)
        bound, parts = self._known[key]
        if parts is not None:
            self.parts[number] = parts
        return bound

    def _find(self, inputs: Inputs, known_as: Any) -> tuple[Bound, PlanBounds | None]:
        model, plan = self._model_and_plan(inputs)
        machine = self._machine(inputs, known_as)
        system = machine.system
        if not PlanBounder.can_bound(plan):
            bounds = bounds_of(model, plan, _kernel_times(system, plan.ranks))
            _refuse_full(system, bounds.memory_bytes)
            return _columns(bounds, model, plan, system), None
        key = (model, known_as)
        if key not in self._bounders:
            kernels = _kernel_times(machine.system, plan.ranks)
            wires = None if _may_differ(machine.system, plan.ranks) else wires_of(machine)
            self._bounders[key] = PlanBounder(model, machine.network.ranks, kernels, wires)
        bounder = self._bounders[key]
        _refuse_full(system, bounder.memory_bytes(plan))
        parts = bounder.of(plan)
        return _columns(parts.bounds, model, plan, system), parts

    def _machine(self, inputs: Inputs, known_as: Any) -> Machine:
        if known_as not in self._machines:
            self._machines[known_as] = _machine(inputs)
        return self._machines[known_as]

    @naming_fields()
    def _of_serving(self, inputs: Inputs) -> Bound:
        """Return the NPUs of replicas, and bounds by the load; refuse those that lack memory.

        It must hold the weights, and the cache of each request.
        """
        from et_sim.serving.cluster import check_requests
        from et_sim.serving.serve import pools_of
        from et_sim.workloads.models.configuration import read_model

        recipe, folder = read_serving(inputs.recipe), self.space.folder
        name, load = beside(recipe.model, folder), beside(recipe.requests, folder)
        if name not in self._models:
            self._models[name] = read_model(name)
        setup = setup_of_recipe(recipe, folder, self._models[name])
        key = load, setup.client
        if key not in self._loads:
            self._loads[key] = read_traffic(*key)
        machine = self._machine(inputs, _machine_key(inputs))
        requests = self._loads[key].requests
        requests = requests if setup.images is None else setup.images.prompts(requests)
        requests = requests if setup.second is None else ()  # those of the first model are not known here
        setup, pools = pools_of(requests, self._models[name], setup, machine, inputs.options)
        check_requests(requests, pools, setup.policy, setup.speculation)
        npus = sum(pool.replicas * pool.ranks for pool in pools)
        if recipe.find_rate or setup.autoscaling is not None or setup.second is not None:
            return {"ranks": npus}
        return {"ranks": npus, **_of_load(self._loads[key], machine.system, npus)}

    @naming_fields()
    def _model_and_plan(self, inputs: Inputs) -> tuple[Model, Plan]:
        """Return the model and the plan of a point; points share models and machines."""
        assert isinstance(inputs.workload, Mapping)
        if inputs.machine not in self._presets:
            self._presets[inputs.machine] = None if inputs.machine is None else preset(inputs.machine)
        recipe = for_preset(inputs.workload, self._presets[inputs.machine])
        key = json.dumps({name: value for name, value in recipe.items() if name != PLAN}, sort_keys=True)
        if key not in self._models:
            self._models[key] = model_of(recipe, self.space.folder)
        return self._models[key], plan_of_recipe(recipe)


def _of_load(traffic: Traffic, system: System, npus: int) -> Bound:
    """Return bounds of a load whose requests arrive at times of their own: it takes as long as they come.

    The time from the first arrival to the last token is at least that to the last arrival.
    """
    counted = traffic.requests[traffic.warm_up :]
    arrivals = [request.arrival_ns for request in counted if request.after == NONE]
    span = max(arrivals) - min(arrivals) if arrivals else 0
    if traffic.concurrency or traffic.batch or not span:
        return {}
    tokens_per_s = sum(request.output for request in counted) * 1e9 / span + _RATES_ROUNDED
    columns, costs = {"output_tokens_per_s_per_rank": tokens_per_s / npus}, system.costs
    if costs is not None and costs.busy_watts is not None and costs.idle_watts is not None:
        watts = min(costs.busy_watts, costs.idle_watts) + costs.network_watts
        columns["joules_per_million_tokens"] = 1e6 / tokens_per_s * npus * watts * _COSTS_ROUNDED
    if costs is not None and costs.price_per_hour is not None:
        hours = 1e6 / tokens_per_s * npus / 3600
        columns["price_per_million_tokens"] = hours * costs.price_per_hour * _COSTS_ROUNDED
    return columns


def _machine_key(inputs: Inputs) -> Any:
    """Return a key of the machine of a run."""
    parts = tuple((name, source.place, source.digest) for name, source in sorted(inputs.parts.items()))
    return parts, inputs.machine, inputs.profile, inputs.when_full


def _columns(bounds: Bounds, model: Model, plan: Plan, system: System) -> Bound:
    """Return the bounds of columns of a row."""
    spills = system.local_memory is not None and system.local_memory.when_full is WhenFull.SPILL
    memory = 0 if spills else bounds.memory_bytes
    columns = {"makespan_ns": bounds.time_ns, "peak_memory_bytes": memory, "ranks": plan.ranks}
    least = _costs(system, bounds.time_ns * plan.ranks)
    step = Step(tokens_of(model, plan), model_operations(model, plan), None, datatype_of(plan))
    costs = {"price": None, "joules": None} | least
    rates: Mapping[str, Any] = throughput(step, peaks_of(system), plan.ranks, bounds.time_ns, costs) or {}
    known = {column.name: rates.get(column.name) for column in OF_STEPS}
    return columns | least | {name: value for name, value in known.items() if value is not None}


def _refuse_full(system: System, memory: int) -> None:
    """Refuse a plan that needs more memory than there is."""
    local = system.local_memory
    if local is None or local.when_full is not WhenFull.STOP or memory <= local.capacity_bytes:
        return
    error = FullError(
        f"a rank needs {format_bytes(memory)} or more, and has {format_bytes(local.capacity_bytes)}",
        remedy="divide the model among more ranks",
    )
    error.needed = memory
    raise error


def _machine(inputs: Inputs) -> Machine:
    """Return the machine in the profile of its simulation."""
    given: dict[str, Any] = dict(inputs.parts)
    parts = RunOptions(machine=inputs.machine, when_full=inputs.when_full, **given).parts
    machine = read_machine(**parts, profile=inputs.profile)
    if inputs.profile is None and not machine.names_profile:
        machine = read_machine(**parts, profile=PROFILE)
    return machine


def _kernel_times(system: System, ranks: int) -> KernelTimes:
    """Return a function for the least times of kernels."""
    if _may_differ(system, ranks):
        return lambda trace, rows, rank: np.zeros(len(rows), np.int64)  # noqa: ARG005
    return kernel_times(compute_model(system))


def _may_differ(system: System, ranks: int) -> bool:
    """Return whether ranks differ, or nodes take other times than their kernels: then there is no bound."""
    differs = system.stragglers or system.time_factors or system.overlap or system.replay_only
    return bool(differs) or compute_model(system).rank_classes(ranks) is not None


def _costs(system: System, all_ns: int) -> dict[str, float]:
    """Return the least costs of all ranks together, for this total of their times."""
    rates, costs = system.costs, {}
    if rates is not None and rates.busy_watts is not None and rates.idle_watts is not None:
        least = min(rates.busy_watts, rates.idle_watts) + rates.network_watts
        costs["joules"] = all_ns * least / 1e9 * _ROUNDED
    if rates is not None and rates.price_per_hour is not None:
        costs["price"] = all_ns * rates.price_per_hour / 3600e9 * _ROUNDED
    return costs


class PointBounds(Struct):
    """The bounds of points by number, with their parts, and the refusals of others."""

    bounds: dict[int, Bound] = field(default_factory=dict)
    parts: dict[int, PlanBounds] = field(default_factory=dict)
    refusals: dict[int, EtSimError] = field(default_factory=dict)


def bounds_of_points(space: Space, points: Any, watch: Any) -> PointBounds:
    """Return the bounds or the refusal of each point; a point may have neither."""
    bounder, found = Bounder(space), PointBounds()
    for point in points:
        try:
            bound = bounder.of(point.values, point.number)
        except EtSimError as error:
            found.refusals[point.number] = error
        else:
            if bound is not None:
                found.bounds[point.number] = bound
        watch.add(1, 0)
    found.parts = bounder.parts
    return found


MEMORY, FORM = "memory", "not possible"
PARTS = {"compute_ns": "compute", "bubble_ns": "bubble", "network_ns": "network"}


class FullError(InputError):
    """The refusal of a plan that needs more memory than a rank has."""

    needed = 0  # bytes of a rank


def gap_of(best: float, bounds: Iterable[float]) -> float:
    """Return the share by which a point with one of these bounds may be better; less is better.

    Figures of which more is better are negative.
    """
    bound = min(bounds, default=best)
    if bound >= best:
        return 0.0
    if best > 0:
        return best / bound - 1 if bound > 0 else math.inf
    return bound / best - 1 if best else math.inf


def reason(parts: PlanBounds, best: PlanBounds) -> str:
    """Return the part of a plan's least time that exceeds that of the best plan by most."""
    return max(PARTS.items(), key=lambda part: getattr(parts, part[0]) - getattr(best, part[0]))[1]


def reasons(
    parts: Mapping[int, PlanBounds], refusals: Mapping[int, EtSimError], full: Iterable[int], best: int | None
) -> tuple[dict[str, int], dict[int, str]]:
    """Return how many points each reason keeps from being the best, and the reason of each bounded point.

    `full` are points whose evaluation ran out of memory.
    """
    why = dict.fromkeys(full, MEMORY)
    if best is not None and best in parts:
        others = (number for number in parts if number != best and number not in why)
        why |= {number: reason(parts[number], parts[best]) for number in others if number not in refusals}
    counts = Counter(why.values())
    for error in refusals.values():
        counts[MEMORY if isinstance(error, FullError) else FORM] += 1
    return dict(counts.most_common()), why
