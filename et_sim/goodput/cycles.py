"""Progress through cycles of checkpoints without an interruption, of many months at once.

A cycle is `copies` times some steps and a copy in memory, and then a checkpoint in storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from et_sim.goodput.setting import Recovery, Setting


class Cycles(NamedTuple):
    """The cycle of each month, in columns with the names of `Cycle`."""

    steps: Any
    copies: Any
    memory_stall: Any
    storage_stall: Any
    lag: Any
    survives: Any

    def of(self, rows: Any) -> Cycles:
        """Return the cycles of some months."""
        return Cycles(*(column[rows] for column in self))

    @property
    def stalls(self) -> Any:
        """Return the time of all checkpoints of a cycle."""
        return self.copies * self.memory_stall + self.storage_stall


class Recoveries(NamedTuple):
    """The times of a restart of each month, in columns with the names of `Recovery`."""

    drain: Any
    schedule: Any
    cold: Any
    start: Any
    load: Any
    memory_load: Any
    warm_up: Any
    write: Any


def columns_of(settings: Sequence[Setting], months: int) -> tuple[Cycles, Recoveries]:
    """Return the cycles and restarts of as many months of each setting."""

    def column(values: list[float]) -> Any:
        return np.repeat(np.array(values), months)

    cycles = (column([getattr(each.cycle, name) for each in settings]) for name in Cycles._fields)
    names = Recovery.__struct_fields__
    times = (column([getattr(each.recovery, name) for each in settings]) for name in names)
    return Cycles(*cycles), Recoveries(*times)


class Progress(Struct, frozen=True):
    """The state after some time of training; steps are counted from the beginning of the first cycle."""

    copied: Any  # steps that a copy in memory holds
    stored: Any  # steps that storage holds
    open_steps: Any  # further steps, with a fraction
    step_seconds: Any  # time in steps
    stall_seconds: Any  # time in checkpoints


def progress(cycle: Cycles, step: Any, elapsed: Any) -> Progress:
    """Return the progress after some time with steps of a length."""
    work = cycle.steps * step
    inner = work + cycle.memory_stall
    whole = cycle.copies * work + cycle.stalls
    cycles = np.floor(elapsed / whole)
    rest = elapsed - cycles * whole
    inners = np.minimum(np.floor(rest / inner), cycle.copies)
    rest = rest - inners * inner
    is_storing = inners == cycle.copies
    open_seconds = np.where(is_storing, 0.0, np.minimum(rest, work))
    stall = np.where(is_storing, rest, np.maximum(rest - work, 0.0))
    stored = np.clip(np.floor((elapsed - cycle.lag) / whole), 0, cycles)
    copied = cycles * cycle.copies + inners
    return Progress(
        copied=copied * cycle.steps,
        stored=stored * cycle.copies * cycle.steps,
        open_steps=open_seconds / step,
        step_seconds=copied * work + open_seconds,
        stall_seconds=cycles * cycle.stalls + inners * cycle.memory_stall + stall,
    )


def place_at_other_speed(cycle: Cycles, step: Any, other: Any, elapsed: Any) -> Any:
    """Return the time after which steps of another length have reached the same place in a cycle."""
    state = progress(cycle, step, elapsed)
    return state.stall_seconds + (state.step_seconds / step) * other


def time_for(cycle: Cycles, step: Any, steps: Any) -> Any:
    """Return the time until some steps are done and stored."""
    segments = np.maximum(np.ceil(steps / cycle.steps) - 1, 0)
    stalls = segments * cycle.memory_stall + np.floor(segments / cycle.copies) * cycle.storage_stall
    return steps * step + stalls + cycle.storage_stall + cycle.lag
