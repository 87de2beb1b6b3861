"""Bounds of points of a sweep without a simulation, for plans of language models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field

from et_sim.basics.errors import EtSimError, InputError
from et_sim.basics.units import format_bytes
from et_sim.compute import compute_model, kernel_times
from et_sim.machine import read_machine
from et_sim.machine.model import System, WhenFull
from et_sim.machine.system import peaks_of
from et_sim.run.options import RunOptions
from et_sim.sweeps.axes import Values
from et_sim.sweeps.recipes import is_language_model, model_and_plan
from et_sim.sweeps.space import Inputs, Space
from et_sim.tables.sweep_tables import OF_STEPS
from et_sim.timeline.recorded import throughput
from et_sim.trace.workload import Step
from et_sim.workloads.rank import PROFILE
from et_sim.workloads.training.bounds import KernelTimes, bounds_of
from et_sim.workloads.training.operations import datatype_of, model_operations, tokens_of

Bound = Mapping[str, float]  # by column: no row is better
_ROUNDED = 1 - 1e-11  # costs have twelve digits


class Bounder(Struct):
    """A finder of bounds; points that differ only in their networks share them."""

    space: Space
    _known: dict[Any, Bound] = field(default_factory=dict)

    def of(self, values: Values) -> Bound | None:
        """Return the bounds of a point; None: there are none. Refuse a point that cannot be simulated."""
        inputs = self.space.inputs(values)
        if not isinstance(inputs.workload, Mapping) or not is_language_model(inputs.workload):
            return None
        system = inputs.parts.get("system")
        key = (
            json.dumps(inputs.workload, sort_keys=True),
            None if system is None else (system.place, system.digest),
            inputs.machine,
            inputs.profile,
            inputs.when_full,
        )
        if key not in self._known:
            self._known[key] = self._find(inputs)
        return self._known[key]

    def _find(self, inputs: Inputs) -> Bound:
        model, plan = model_and_plan(inputs.recipe, self.space.folder)
        system = _system(inputs)
        step_bounds = bounds_of(model, plan, _kernel_times(system, plan.ranks))
        memory = step_bounds.memory_bytes
        if system.local_memory is not None:
            when_full = system.local_memory.when_full
            if when_full is WhenFull.STOP and memory > system.local_memory.capacity_bytes:
                raise InputError(
                    f"a rank needs {format_bytes(memory)} or more, and has"
                    f" {format_bytes(system.local_memory.capacity_bytes)}",
                    remedy="divide the model among more ranks",
                )
            memory = 0 if when_full is WhenFull.SPILL else memory
        columns = {"makespan_ns": step_bounds.time_ns, "peak_memory_bytes": memory, "ranks": plan.ranks}
        least = _costs(system, step_bounds.time_ns * plan.ranks)
        step = Step(tokens_of(model, plan), model_operations(model, plan), None, datatype_of(plan))
        costs = {"price": None, "joules": None} | least
        rates: Mapping[str, Any] = (
            throughput(step, peaks_of(system), plan.ranks, step_bounds.time_ns, costs) or {}
        )
        known = {column.name: rates.get(column.name) for column in OF_STEPS}
        return columns | least | {name: value for name, value in known.items() if value is not None}


def _system(inputs: Inputs) -> System:
    """Return the system in the profile of its simulation."""
    given: dict[str, Any] = dict(inputs.parts)
    parts = RunOptions(machine=inputs.machine, when_full=inputs.when_full, **given).parts
    machine = read_machine(**parts, profile=inputs.profile)
    if inputs.profile is None and not machine.names_profile:
        machine = read_machine(**parts, profile=PROFILE)
    return machine.system


def _kernel_times(system: System, ranks: int) -> KernelTimes:
    """Return a function for the least times of kernels."""
    model = compute_model(system)
    # There is no bound if ranks differ, or if nodes take other times than their kernels.
    differs = system.stragglers or system.time_factors or system.overlap or system.replay_only
    if differs or model.rank_classes(ranks) is not None:
        return lambda trace, rows, rank: np.zeros(len(rows), np.int64)  # noqa: ARG005
    return kernel_times(model)


def _costs(system: System, all_ns: int) -> dict[str, float]:
    """Return the least costs of all ranks together, for this total of their times."""
    rates, costs = system.costs, {}
    if rates is not None and rates.busy_watts is not None and rates.idle_watts is not None:
        least = min(rates.busy_watts, rates.idle_watts) + rates.network_watts
        costs["joules"] = all_ns * least / 1e9 * _ROUNDED
    if rates is not None and rates.price_per_hour is not None:
        costs["price"] = all_ns * rates.price_per_hour / 3600e9 * _ROUNDED
    return costs


def bounds_of_points(space: Space, points: Any, watch: Any) -> tuple[dict[int, Bound], dict[int, EtSimError]]:
    """Return, by number of point, its bounds, or its refusal; a point may have neither."""
    bounder = Bounder(space)
    bounds: dict[int, Bound] = {}
    refusals: dict[int, EtSimError] = {}
    for point in points:
        try:
            point_bounds = bounder.of(point.values)
        except EtSimError as error:
            refusals[point.number] = error
        else:
            if point_bounds is not None:
                bounds[point.number] = point_bounds
        watch.add(1, 0)
    return bounds, refusals
