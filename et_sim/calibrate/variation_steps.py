"""Steps that were left out of a fit, compared with samples of the job with the fitted variation.

The job has typical times with the described part of each rank; steps and events are drawn.
Messages take no time beside their recorded work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.calibrate.variation_families import distance
from et_sim.calibrate.variation_fit import ELEMENT, FittedWork
from et_sim.run.options import RunOptions
from et_sim.run.simulation import prepare
from et_sim.samples.plans import SampledPlan
from et_sim.trace import Workload
from et_sim.trace.recorded_steps.program import program_of
from et_sim.trace.recorded_steps.table import StepRecording
from et_sim.trace.recorded_steps.work import Work, recorded_work

SAMPLES = 200
BAND = 1.36  # of the distance of n equal draws times the root of n, in 95 of 100 cases


class StepTimes(Struct, frozen=True):
    """Recorded times of steps that were left out, and sampled ones, in nanoseconds."""

    recorded: tuple[int, ...]
    sampled: tuple[int, ...]

    @property
    def ks(self) -> float:
        """Return the distance of the two."""
        return distance(np.array(self.recorded), np.array(self.sampled))

    @property
    def band(self) -> float:
        """Return the distance that chance allows."""
        return BAND / float(np.sqrt(len(self.recorded)))


def step_times(
    recording: StepRecording, works: Sequence[FittedWork], fit_steps: Sequence[int], others: Sequence[int]
) -> StepTimes:
    """Simulate steps as they were recorded, and samples of a typical step."""
    work = recorded_work(recording)
    one = recording.chosen(np.array([fit_steps[0]]))
    typical = {kind: values[[fit_steps[0]]] for kind, values in work.items()}
    typical |= {fitted.name: _typical(fitted, fit_steps) for fitted in works}
    entries = [
        dict(level.entry) for work in works for level in work.levels if level.entry["level"] != ELEMENT
    ]
    sampled = _samples(one, typical, entries)
    recorded = []
    for step in others:
        of_step = {kind: values[[step]] for kind, values in work.items()}
        recorded.append(_plan(recording.chosen(np.array([step])), of_step, []).outcome(None))
    return StepTimes(tuple(int(outcome.finish_ns.max()) for outcome in recorded), sampled)


def _typical(work: FittedWork, steps: Sequence[int]) -> Any:
    """Return the typical times of an operation on each rank, with the described part of the rank."""
    times = [np.repeat(one.typical(steps), one.times.shape[1], axis=1) for one in work.series]
    for level in work.levels:
        if level.level == ELEMENT:
            times = [
                of_series * np.exp(of_rank)[:, None]
                for of_series, of_rank in zip(times, level.values, strict=True)
            ]
    return np.rint(np.stack(times, axis=2)).astype(np.int64)


def _samples(recording: StepRecording, work: Work, entries: list[dict[str, Any]]) -> tuple[int, ...]:
    plan = _plan(recording, work, entries)
    return tuple(int(plan.outcome(step).finish_ns.max()) for step in range(SAMPLES))


def _plan(recording: StepRecording, work: Work, entries: Sequence[Mapping[str, Any]]) -> SampledPlan:
    traces = tuple(program_of(recording).traces(work))
    workload = Workload(traces, np.arange(len(traces), dtype=np.int32))
    machine = machine_without_messages(recording.replicas, recording.stages, entries)
    task = prepare(workload, RunOptions(**machine))
    return SampledPlan(task.workload, task.machine, task.network_model(), seed=0, may_fold=True)


def machine_without_messages(
    replicas: int, stages: int, entries: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return a machine whose messages take no time, as their work is recorded; the stages of a replica are a
    node of it.
    """
    system = {"profile": "corrected", "endpoint-delay": 0}
    sizes = [size for size in (stages, replicas) if size > 1] or [1]
    network = {
        "topology": ["FullyConnected"] * len(sizes),
        "npus_count": sizes,
        "bandwidth": [1e6] * len(sizes),
        "latency": [0] * len(sizes),
    }
    return {"network": network, "system": {**system, **({"variation": list(entries)} if entries else {})}}
