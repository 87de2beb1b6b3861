"""Variations of a run: the same inputs with other figures, in another profile, or in part.

Inputs are read once, and each variation begins from them: with a changed machine, other options, further
corrections, or one of the jobs. Variations share only these inputs, so they run in parallel if this pays
(`in_order`); their results keep the order of the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import PurePath
from typing import Any

from msgspec import Struct, structs
from msgspec.structs import replace

from et_sim.engine.outcome import Outcome
from et_sim.machine.corrections import Correction
from et_sim.machine.model import Machine
from et_sim.machine.scaling import figures
from et_sim.plan.lowering import Lowering
from et_sim.run.options import RunOptions
from et_sim.run.simulation import Change, Given, NoWatcher, Recorder, Task, carry_out, prepare, unchanged
from et_sim.timeline.measurement import Measurement

COMPLETE, STALLED, OUT_OF_MEMORY = "complete", "stalled", "out of memory"
REFUSED, NOT_SIMULATED = "refused", "not simulated"


class Ending(Struct, frozen=True):
    """The result of a run with a change; `made_of` is the composition of its time, if errors are stated."""

    status: str
    makespan_ns: int | None = None
    reason: str = ""
    made_of: dict[str, Any] | None = None


class Variations:
    """A run's inputs, read once; each variation is prepared from them."""

    def __init__(self, given: Given, options: RunOptions, change: Change = unchanged) -> None:
        """Store the inputs; `change` is part of every variation."""
        self._given, self.options, self._change = given, options, change

    def task(
        self,
        change: Change = unchanged,
        *,
        corrections: Collection[Correction] = (),
        profile: str | None = None,
    ) -> Task:
        """Prepare a changed machine, further corrections, or another profile."""
        options = self.options if profile is None else replace(self.options, profile=profile)
        task = prepare(self._given, options, lambda machine: change(self._change(machine)), corrections)
        self._given = task.given
        return task

    def inputs(self) -> set[tuple[str, str]]:
        """Return names and digests of all files that are read."""
        task = self.task()
        named = Lowering(task.workload, task.machine).inputs
        files = (*task.machine.inputs, *named, *task.workload.inputs)
        return {(PurePath(path).name, digest) for path, digest in files}

    def ending(self, change: Change) -> Ending:
        """Return the result with a changed machine."""
        task = self.task(change)
        run = carry_out(task, self.options.fold, NoWatcher(), Recorder())
        if run.is_stopped:
            return Ending(OUT_OF_MEMORY)
        ending = ending_of(run.outcome)
        accuracy = task.machine.system.accuracy
        if accuracy is None or ending.status != COMPLETE:
            return ending
        composition = Measurement(run.outcome, run.lowering.workload, None, accuracy).composition
        return structs.replace(ending, made_of=composition and composition.as_dict())

    def with_figure(self, change: tuple[str, float]) -> Ending:
        """Return the result with a figure of the machine, named as in the critical path, multiplied."""
        figure, factor = change

        def scaled(machine: Machine) -> Machine:
            result = figures(machine)[figure](factor)
            assert result is not None  # callers check the figure first
            return result[0]

        return self.ending(scaled)

    def with_figures(
        self, changes: Sequence[tuple[str, float]], notify: Callable[[str], None]
    ) -> Iterator[Ending]:
        """Yield the results with one figure changed, each, in the order of the changes."""
        from et_sim.run.workers import in_order  # sockets and processes, which a single run does not need

        given = self._given, self.options
        return in_order(_with_figures, given, changes, do=self.with_figure, notify=notify)


def _with_figures(given: tuple[Given, RunOptions]) -> Callable[[tuple[str, float]], Ending]:
    """Return the function by which another process handles changes."""
    return Variations(*given).with_figure


def ending_of(outcome: Outcome) -> Ending:
    """Return the result of a simulation to the end."""
    return Ending(COMPLETE, int(outcome.finish_ns.max())) if outcome.is_complete else Ending(STALLED)
