"""The clock that a cap on a device's draw leaves, from the mix of kernels that a program runs.

The controller of a board follows the mean of its draw over tens of milliseconds, in which a training step
runs kernels of all kinds; no kernel alone is as long. So a program has one clock: the highest at which its
kernels, one after the other, draw no more than the cap in the mean.

    time  = sum of launch + max(arithmetic / clock, traffic)
    draw  = idle + (energy of operations x max(clock, lowest)^voltage + energy of bytes) / time

Draw falls with the clock, so halving finds it. Sums are those of a program alone, whatever stands beside it.

Not here: the figures (`et_sim.machine.power`), and the times at the full clock (`device`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct, structs

from et_sim.compute.model import FloatColumn
from et_sim.machine.power import Power
from et_sim.trace.columns import IntColumn

HALVINGS = 20  # a millionth of the full clock; boards set theirs in steps of a hundredth
PER_WATT_NS = 1000.0  # pJ


class Load(Struct, frozen=True, eq=False):
    """Kernels at the full clock: times in ns, energies in pJ, and the program that each is of."""

    arithmetic_ns: FloatColumn
    traffic_ns: FloatColumn
    launch_ns: FloatColumn
    operations_pj: FloatColumn
    bytes_pj: FloatColumn
    program: IntColumn
    programs: int

    def energies(self, power: Power, clock: FloatColumn) -> FloatColumn:
        """Return what each kernel takes above the idle draw, in pJ, at a clock of its own."""
        voltage = np.maximum(clock, power.lowest_voltage) ** power.voltage
        return self.operations_pj * voltage + self.bytes_pj

    def draws(self, power: Power, clocks: FloatColumn) -> FloatColumn:
        """Return the mean draw of each program's kernels in watts, at a clock of each program."""
        clock = clocks[self.program]
        times = self.launch_ns + np.maximum(self.arithmetic_ns / clock, self.traffic_ns)
        time, energy = self._sums(np.maximum(times, 1.0)), self._sums(self.energies(power, clock))
        return power.idle_watts + energy / np.maximum(time, 1.0) / PER_WATT_NS

    def where(self, is_wanted: Any) -> Load:
        """Return those kernels that are of some programs, which keep their numbers."""
        rows = np.flatnonzero(is_wanted[self.program])
        columns = {name: getattr(self, name)[rows] for name in self.__struct_fields__ if name != "programs"}
        return structs.replace(self, **columns)

    def _sums(self, values: FloatColumn) -> FloatColumn:
        """Add up row after row, so that the sum of a program does not depend on others."""
        sums: Any = np.bincount(self.program, weights=values, minlength=self.programs)
        return np.asarray(sums, np.float64)


def clocks(power: Power, cap_watts: float, load: Load) -> FloatColumn:
    """Return the clock of each program, as a part of the full one."""
    full = np.ones(load.programs)
    is_above = load.draws(power, full) > cap_watts
    if not is_above.any():
        return full
    load = load.where(is_above)
    low, high = np.zeros(load.programs), full
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        fits = load.draws(power, middle) <= cap_watts
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.where(is_above, np.maximum(low, 0.5**HALVINGS), 1.0)
