"""This run with a change: what is simulated again with other figures, in another profile, or in part.

What a run was given is read once, and each variation begins from it: with a changed machine, with other
options, with corrections that are switched on, or with one of its jobs. Several of them share nothing but
what was read, so they run beside each other where that pays (`in_order`); their endings stand in the order in
which they were asked for. Not here: how figures are changed (`machine.scaling`), and what is told of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from msgspec import Struct, structs

from et_sim.engine.outcome import Outcome
from et_sim.machine.corrections import Correction
from et_sim.machine.model import Machine
from et_sim.machine.scaling import figures
from et_sim.plan.lowering import Lowering
from et_sim.run.options import RunOptions
from et_sim.run.simulation import Change, Given, Nobody, Recorder, Task, carry_out, prepare, unchanged
from et_sim.run.workers import in_order
from et_sim.timeline.measurement import Measurement

COMPLETE, STALLED, OUT_OF_MEMORY = "complete", "stalled", "out of memory"
REFUSED, NOT_SIMULATED = "refused", "not simulated"


class Ending(Struct, frozen=True):
    """What became of a run with a change; `made_of`: what its time consists of, where the machine states how
    far each part may be off."""

    status: str
    makespan_ns: int | None = None
    reason: str = ""
    made_of: dict[str, Any] | None = None


class Variations:
    """A run's inputs, read once; each variation of them is prepared anew."""

    def __init__(self, given: Given, options: RunOptions, change: Change = unchanged) -> None:
        """`change` is part of every variation."""
        self._given, self.options, self._change = given, options, change

    def task(
        self,
        change: Change = unchanged,
        *,
        corrections: Collection[Correction] = (),
        profile: str | None = None,
    ) -> Task:
        """What is simulated with a changed machine, corrections switched on besides, or another profile."""
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
        """What becomes of the run with a changed machine."""
        task = self.task(change)
        run = carry_out(task, self.options.fold, Nobody(), Recorder())
        if run.is_stopped:
            return Ending(OUT_OF_MEMORY)
        ending = ending_of(run.outcome)
        accuracy = task.machine.system.accuracy
        if accuracy is None or ending.status != COMPLETE:
            return ending
        composition = Measurement(run.outcome, run.lowering.workload, None, accuracy).composition
        return structs.replace(ending, made_of=composition and composition.as_dict())

    def with_figure(self, change: tuple[str, float]) -> Ending:
        """What becomes of it with a figure of the machine multiplied, by the name of the critical path."""
        figure, factor = change

        def scaled(machine: Machine) -> Machine:
            result = figures(machine)[figure](factor)
            assert result is not None  # whoever asks has looked
            return result[0]

        return self.ending(scaled)

    def with_figures(
        self, changes: Sequence[tuple[str, float]], tell: Callable[[str], None]
    ) -> Iterator[Ending]:
        """Endings with one figure changed, each, in the order of the changes."""
        given = self._given, self.options
        return in_order(_with_figures, given, changes, do=self.with_figure, tell=tell)


def _with_figures(given: tuple[Given, RunOptions]) -> Callable[[tuple[str, float]], Ending]:
    """What another process does with changes."""
    return Variations(*given).with_figure


def ending_of(outcome: Outcome) -> Ending:
    """Of a run that went on to its end."""
    return Ending(COMPLETE, int(outcome.finish_ns.max())) if outcome.is_complete else Ending(STALLED)
