"""The clock that a cap on a device's power leaves to a kernel.

A kernel has the highest clock at which it draws no more than the cap:

    time  = launch + max(arithmetic / clock, traffic)
    draw  = idle + (energy of operations x clock^voltage + energy of bytes) / time

Power falls with the clock, so bisection finds it. If a kernel exceeds the cap at the lowest clock, too, the
device pauses: the kernel takes its energy / (cap - idle). Each kernel is treated as if it ran for long.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, structs

from et_sim.compute.model import FloatColumn
from et_sim.machine.power import Power
from et_sim.trace.columns import IntColumn

HALVINGS = 20  # a millionth of the full clock; boards set theirs in steps of a hundredth
PER_WATT_NS = 1000.0  # pJ


class ClockLoad(Struct, frozen=True, eq=False):
    """Kernels at the full clock: times in ns, and energies in pJ."""

    arithmetic_ns: FloatColumn
    traffic_ns: FloatColumn
    launch_ns: FloatColumn
    operations_pj: FloatColumn
    bytes_pj: FloatColumn

    def times(self, clock: FloatColumn) -> FloatColumn:
        """Return the time of each kernel."""
        return self.launch_ns + np.maximum(self.arithmetic_ns / clock, self.traffic_ns)

    def energies(self, power: Power, clock: FloatColumn) -> FloatColumn:
        """Return the energy of each kernel above the idle power, in pJ."""
        return self.operations_pj * clock**power.voltage + self.bytes_pj

    def take(self, rows: IntColumn) -> ClockLoad:
        """Return some of the kernels."""
        return structs.replace(self, **{name: getattr(self, name)[rows] for name in self.__struct_fields__})


class Limited(Struct, frozen=True, eq=False):
    """The clocks of kernels under a cap, as parts of the full one, and the factors of pauses."""

    clock: FloatColumn
    stretch: FloatColumn


def limited(power: Power, cap_watts: float, load: ClockLoad) -> Limited:
    """Return the clock and stretch of each kernel under a cap."""
    clock, stretch = np.ones((2, len(load.arithmetic_ns)))
    most = (cap_watts - power.idle_watts) * PER_WATT_NS  # pJ in a ns
    above = np.flatnonzero(load.energies(power, clock) > most * load.times(clock))
    if not len(above):
        return Limited(clock, stretch)
    load = load.take(above)
    low, high = np.full(len(above), power.lowest_clock), np.ones(len(above))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        fits = load.energies(power, middle) <= most * load.times(middle)
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    clock[above] = low
    # An empty kernel has no energy.
    stretch[above] = np.maximum(load.energies(power, low) / (most * np.maximum(load.times(low), 1e-9)), 1.0)
    return Limited(clock, stretch)
