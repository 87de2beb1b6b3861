"""A study: many samples of a step, and the samples without each cause of their variation.

Every task is one step, which this process or another one simulates. Its result depends on nothing but the
inputs, the seed and the number of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, structs

from et_sim.basics.errors import StallError, UsageError
from et_sim.basics.estimates import estimates, mean_of
from et_sim.engine.outcome import Outcome
from et_sim.engine.stall import explain_stall
from et_sim.machine.variation import Variation
from et_sim.run.options import RunOptions
from et_sim.run.simulation import Given, Task, Watcher, prepare
from et_sim.run.workers import in_order
from et_sim.samples.blame import PathReader, PathTimes, blame
from et_sim.samples.plans import SampledPlan
from et_sim.timeline.recorded import RecordedRun


class Sample(Struct, frozen=True):
    """One step: its time and path, and its times without each entry of the variation."""

    path: PathTimes
    without_ns: tuple[int, ...]  # empty if there is one cause: without it, nothing varies
    actors: int
    meets_at_barriers: bool  # one actor takes the times of the last rank to arrive
    limits: tuple[tuple[str, str], ...]  # reasons for as many actors, and remedies


class Study(Struct, frozen=True):
    """The samples of a run."""

    seed: int
    nominal_ns: int
    causes: tuple[str, ...]
    samples: tuple[Sample, ...]
    stages: tuple[Any, ...]  # ranks of each program
    ranks: int

    @property
    def step_ns(self) -> Any:
        """Return the time of the step in each sample (int64)."""
        return np.array([sample.path.step_ns for sample in self.samples], np.int64)

    def columns(self) -> dict[str, Any]:
        """Return the columns of samples.arrow."""
        each = 1 + len(self.causes)
        step_ns = [(sample.path.step_ns, *self._without_ns(sample)) for sample in self.samples]
        return {
            "sample": np.repeat(np.arange(len(self.samples)), each),
            "without": ["nothing", *self.causes] * len(self.samples),
            "step_ns": np.array(step_ns, np.int64).reshape(-1),
        }

    def summary(self) -> dict[str, Any]:
        """Return the figures of the samples, as in summary.json."""
        steps, last = self.step_ns, self.samples[-1]
        return {
            "samples": len(self.samples),
            "seed": self.seed,
            "actors": max(sample.actors for sample in self.samples),
            "ranks": self.ranks,
            "last_at_barriers": last.meets_at_barriers,
            "limits": [{"reason": reason, "remedy": remedy} for reason, remedy in last.limits],
            "nominal_ns": self.nominal_ns,
            "step": {name: structs.asdict(value) for name, value in estimates(steps).items()},
            "without": [self._without(number, steps) for number in range(len(self.causes))],
            "blame": blame([sample.path for sample in self.samples], self.stages),
        }

    def _without_ns(self, sample: Sample) -> tuple[int, ...]:
        return sample.without_ns or (self.nominal_ns,)

    def _without(self, number: int, steps: Any) -> dict[str, Any]:
        without = np.array([self._without_ns(sample)[number] for sample in self.samples])
        saved = mean_of(steps - without)
        return {
            "cause": self.causes[number],
            **{name: value.value_ns for name, value in estimates(without).items()},
            "saved": structs.asdict(saved),
        }


class Sampler:
    """Samples of one run, which other processes may share."""

    def __init__(self, given: Given, options: RunOptions, task: Task) -> None:
        """Plan the samples; refuse a system without variation, and variation without effect."""
        self._given, self._options, self._seed = given, options, options.seed or 0
        if not task.machine.system.variation:
            raise UsageError(
                '--samples has no effect: the system has no "variation"',
                remedy='describe the variation of kernels in the system file, as the key "variation"',
            )
        self._given_workload = task.workload
        self.plan = SampledPlan(
            task.workload, task.machine, task.network_model(), seed=self._seed, may_fold=options.fold
        )
        self._reader = PathReader(self.plan)

    def study(self, result: RecordedRun, watch: Watcher) -> Study:
        """Return samples of a run that was simulated without variation."""
        samples = self._options.samples
        assert samples is not None
        if result.moved is not None and result.moved.is_any:
            raise UsageError(
                "--samples has no effect on a run whose tensors move to remote memory",
                remedy="give NPUs more memory, or leave --samples out",
            )
        inputs, done = (self._given, self._options), list[Sample]()
        for sample in in_order(sampler, inputs, range(samples), do=self.sample, notify=watch.stage):
            done.append(sample)
            watch.stage(f"sample {len(done):,} of {samples:,}")
        workload = self._given_workload
        programs = range(len(workload.templates))
        return Study(
            self._seed,
            result.makespan_ns,
            tuple(causes_of(self.plan.entries)),
            tuple(done),
            tuple(np.flatnonzero(workload.template_of_rank == number) for number in programs),
            workload.ranks,
        )

    def sample(self, step: int) -> Sample:
        """Simulate a step with all entries, and without those of each cause."""
        outcome = self._finished(step)
        path, actors = self._reader.of(outcome), len(outcome.plan.actors)
        limits = tuple((limit.reason, limit.remedy) for limit in outcome.plan.limits)
        causes = causes_of(self.plan.entries)
        without = tuple(self._without(step, left) for left in causes.values()) if len(causes) > 1 else ()
        return Sample(path, without, actors, self.plan.meets_at_barriers, limits)

    def _without(self, step: int, left: tuple[int, ...]) -> int:
        """Return the time of a step without some entries."""
        return int(self._finished(step, left).finish_ns.max())

    def _finished(self, step: int, without: tuple[int, ...] = ()) -> Outcome:
        """Return the outcome of a step; refuse one in which some rank does not finish."""
        outcome = self.plan.outcome(step, without)
        if outcome.is_complete:
            return outcome
        stall = explain_stall(outcome, self._given_workload)
        raise StallError(
            f"sample {step} has no time, though the run without variation completes: {stall.cause}",
            remedy="leave --samples out, or have the failure come later",
        )


def sampler(inputs: tuple[Given, RunOptions]) -> Callable[[int], Sample]:
    """Return the function by which another process simulates steps."""
    return Sampler(*inputs, prepare(*inputs)).sample


def causes_of(entries: Sequence[Variation]) -> dict[str, tuple[int, ...]]:
    """Return the entries of each cause by its name; an entry that names none is one by itself.

    Its name is its kind and level, and its number if others have the same.
    """
    named = [entry.cause or f"{entry.kind}, by {entry.level}" for entry in entries]
    causes: dict[str, tuple[int, ...]] = {}
    for number, (entry, name) in enumerate(zip(entries, _numbered(named), strict=True)):
        cause = entry.cause or name
        causes[cause] = (*causes.get(cause, ()), number)
    return causes


def _numbered(names: Sequence[str]) -> Iterator[str]:
    before: dict[str, int] = {}
    for name in names:
        before[name] = before.get(name, 0) + 1
        yield name if names.count(name) == 1 else f"{name} ({before[name]})"
