"""Power of kernels, and their clock under a cap: sums over the rows of the timeline.

A kernel takes the energy that its device states for its operations and bytes, plus idle power for its
duration. Work that is not timed by such a device (a recorded kernel, a copy) takes the power of the cap. Sums
are made actor by actor and are exact, so that folding changes no digit.

`et_sim.machine.power` computes the power of a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from et_sim.basics.intervals import COMPUTE, COPY
from et_sim.basics.units import NS_PER_SECOND
from et_sim.timeline.rows import Rows

if TYPE_CHECKING:
    from fractions import Fraction

PER_JOULE = 10**12  # pJ
DIGITS = 9
MOST_RATES = 64  # that are kept


class PowerUse(Struct):
    """Sums of each actor."""

    actors: int
    known_ns: Any  # time of kernels with known power
    lowered_ns: Any  # part of it below the full clock
    other_ns: Any  # time of all other work of the device
    clock_ns: Any  # clock times duration
    energy_pj: Any  # above idle power

    @staticmethod
    def of(actors: int) -> PowerUse:
        """Return empty sums."""
        return PowerUse(actors, *np.zeros((3, actors), np.int64), *np.zeros((2, actors)))

    def add(self, rows: Rows) -> None:
        """Count a block; nodes without an end are left out."""
        is_work = ((rows.activity == COMPUTE) | (rows.activity == COPY)) & (rows.end_ns >= 0)
        clock = np.full(len(rows.actor), np.nan) if rows.utilisation is None else rows.utilisation.clock
        is_known = is_work & ~np.isnan(clock)
        known, other = np.flatnonzero(is_known), np.flatnonzero(is_work & ~is_known)
        duration = rows.end_ns - rows.start_ns
        np.add.at(self.other_ns, rows.actor[other], duration[other])
        if rows.utilisation is None or not len(known):
            return
        actor, duration, clock = rows.actor[known].astype(np.intp), duration[known], clock[known]
        np.add.at(self.known_ns, actor, duration)
        np.add.at(self.lowered_ns, actor, np.where(clock < 1, duration, 0))
        self.clock_ns += np.bincount(actor, weights=clock * duration, minlength=self.actors)
        energy = rows.utilisation.energy_pj[known]
        self.energy_pj += np.bincount(actor, weights=energy, minlength=self.actors)

    def computing_joules(self, ranks: Any, computing_ns: int, rates: dict[str, Any]) -> Fraction:
        """Return the energy of all ranks while they compute; each actor stands for several ranks."""
        idle, busy = as_written(rates["idle_watts"]), as_written(rates["busy_watts"])
        of_time = idle * computing_ns + (busy - idle) * int(self._of_ranks(self.other_ns, ranks))
        return of_time / NS_PER_SECOND + self._of_ranks(self.energy_pj, ranks) / PER_JOULE

    def summary(self, ranks: Any, caps: Sequence[float]) -> dict[str, Any]:
        """Return the caps, and the clocks of kernels; null where no kernel has one."""
        known = self._of_ranks(self.known_ns, ranks)
        lowered, clock = (self._of_ranks(column, ranks) for column in (self.lowered_ns, self.clock_ns))
        return {
            "caps_watts": list(caps),
            "lowered_share": _share(lowered, known),
            "mean_clock": _share(clock, known),
        }

    @staticmethod
    def _of_ranks(column: Any, ranks: Any) -> Fraction:
        from fractions import Fraction

        each = zip(column.tolist(), ranks.tolist(), strict=True)
        return sum((Fraction(value) * count for value, count in each), Fraction())


@lru_cache(MOST_RATES)
def as_written(rate: float) -> Fraction:
    """Return a rate as its shortest decimal number."""
    from fractions import Fraction

    return Fraction(str(rate))


def _share(part: Fraction, whole: Fraction) -> float | None:
    return float(f"{float(part / whole):.{DIGITS}g}") if whole else None
