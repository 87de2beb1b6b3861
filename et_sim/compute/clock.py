"""The clock that a cap on a device's draw leaves to a kernel.

A kernel has the highest clock at which it draws no more than the cap:

    time  = launch + max(arithmetic / clock, traffic)
    draw  = idle + (energy of operations x max(clock, lowest)^voltage + energy of bytes) / time

Draw falls with the clock, so halving finds it. Each kernel is taken as if it went on for long: controllers
take milliseconds, and a step's kernels of one kind follow each other for as long.

Not here: the figures (`et_sim.machine.power`), and the times at the full clock (`device`).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, structs

from et_sim.compute.model import FloatColumn
from et_sim.machine.power import Power
from et_sim.trace.columns import IntColumn

HALVINGS = 20  # a millionth of the full clock; boards set theirs in steps of a hundredth
PER_WATT_NS = 1000.0  # pJ


class Load(Struct, frozen=True, eq=False):
    """Kernels at the full clock: times in ns, and energies in pJ."""

    arithmetic_ns: FloatColumn
    traffic_ns: FloatColumn
    launch_ns: FloatColumn
    operations_pj: FloatColumn
    bytes_pj: FloatColumn

    def energies(self, power: Power, clock: FloatColumn) -> FloatColumn:
        """Return what each kernel takes above the idle draw, in pJ."""
        voltage = np.maximum(clock, power.lowest_voltage) ** power.voltage
        return self.operations_pj * voltage + self.bytes_pj

    def draws(self, power: Power, clock: FloatColumn) -> FloatColumn:
        """Return what each kernel draws in the mean, in watts."""
        times = self.launch_ns + np.maximum(self.arithmetic_ns / clock, self.traffic_ns)
        return power.idle_watts + self.energies(power, clock) / np.maximum(times, 1.0) / PER_WATT_NS

    def take(self, rows: IntColumn) -> Load:
        """Return some of the kernels."""
        return structs.replace(self, **{name: getattr(self, name)[rows] for name in self.__struct_fields__})


def clocks(power: Power, cap_watts: float, load: Load) -> FloatColumn:
    """Return the clock of each kernel, as a part of the full one."""
    clock = np.ones(len(load.arithmetic_ns))
    above = np.flatnonzero(load.draws(power, clock) > cap_watts)
    if not len(above):
        return clock
    load = load.take(above)
    low, high = np.zeros(len(above)), np.ones(len(above))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        fits = load.draws(power, middle) <= cap_watts
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    clock[above] = np.maximum(low, 0.5**HALVINGS)
    return clock
