"""A factor on the times of kernels, and one on the limit of power, with which two jobs take their times.

Software slows all kernels alike, and a lower limit of power only those that draw more than it. Two jobs whose
kernels draw different power therefore separate them. For each limit of power, the factor of software follows
from the first job; the limit is the one with which the second job takes its time, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from msgspec import Struct

from et_sim.basics.errors import InputError
from et_sim.basics.units import format_ns
from et_sim.calibrate.step import FIGURES, LARGEST_FACTOR, POWER_RATE, SOFTWARE_FACTOR, Simulated, between
from et_sim.machine import Machine
from et_sim.run.options import RunOptions

MOST_SLOWDOWN = 2.0  # of the limit of power, and its inverse
ENOUGH = 0.002  # of a time: a search ends at this difference
MOST_STEPS = 12


class FittedPair(Struct, frozen=True):
    """Both figures, and the times of the first two jobs without and with them."""

    software: float
    power: float
    before_ns: tuple[int, int]
    after_ns: tuple[int, int]
    runs: int


class _Jobs:
    """The times of jobs by both figures."""

    def __init__(self, jobs: tuple[str, str], options: RunOptions, measured_ns: tuple[float, float]) -> None:
        self.jobs, self.options, self.measured_ns, self.runs = jobs, options, measured_ns, 0

    def simulated(self, at: int, slower_power: float) -> Simulated:
        """Return the times of a job by the factor of software, with a lower limit of power."""
        power, software = FIGURES[POWER_RATE], FIGURES[SOFTWARE_FACTOR]

        def changed(machine: Machine, factor: float) -> Machine:
            return software.change(power.change(machine, slower_power), factor)

        return Simulated(self.jobs[at], self.options, lambda factor: lambda machine: changed(machine, factor))

    def software(self, slower_power: float) -> float:
        """Return the factor of software with which the first job takes its time."""
        simulated, measured_ns = self.simulated(0, slower_power), self.measured_ns[0]
        low, high = 1 / LARGEST_FACTOR, LARGEST_FACTOR
        factor = between(simulated, low, high, measured_ns)
        self.runs += simulated.runs
        if abs(simulated(factor) - measured_ns) > ENOUGH * measured_ns:
            least, most = format_ns(simulated(low)), format_ns(simulated(high))
            raise InputError(
                f"{least} to {most} are simulated with {SOFTWARE_FACTOR} from {low:g} to {high:g} and"
                f" {POWER_RATE} {1 / slower_power:g}, and {format_ns(int(measured_ns))} were measured",
                place=self.jobs[0],
                remedy="check that job and machine are those of the measurement",
            )
        return factor

    def off(self, slower_power: float) -> float:
        """Return the logarithm of the second job's simulated by its measured time."""
        simulated = self.simulated(1, slower_power)
        found = math.log(simulated(self.software(slower_power)) / self.measured_ns[1])
        self.runs += simulated.runs
        return found


def find_both(jobs: tuple[str, str], options: RunOptions, measured_ns: tuple[float, float]) -> FittedPair:
    """Return both figures; refuse times that no limit of power near the machine's explains."""
    both = _Jobs(jobs, options, measured_ns)
    off = cache(both.off)
    slowdown = _slowdown(jobs, off)
    factor = both.software(slowdown)
    before, after = (
        tuple(both.simulated(at, power)(software) for at in (0, 1))
        for power, software in ((1.0, 1.0), (slowdown, factor))
    )
    return FittedPair(
        float(f"{factor:.5g}"),
        float(f"{1 / slowdown:.5g}"),
        (before[0], before[1]),
        (after[0], after[1]),
        both.runs,
    )


def predicted(pair: FittedPair, job: str, options: RunOptions) -> int:
    """Return the time of another job with both figures."""
    return _Jobs((job, job), options, (0.0, 0.0)).simulated(0, 1 / pair.power)(pair.software)


def _slowdown(jobs: tuple[str, str], off: Callable[[float], float]) -> float:
    """Return the slowdown of the limit of power at which the second job is not off, by halves."""
    here = off(1.0)
    if all(abs(off(power) - here) <= ENOUGH for power in (MOST_SLOWDOWN, 1 / MOST_SLOWDOWN)):
        raise InputError(
            f"limits of power from {1 / MOST_SLOWDOWN:g} to {MOST_SLOWDOWN:g} of the machine's change both"
            " times alike, so that these do not separate power from software",
            place=jobs[1],
            remedy="take a second job whose kernels draw another power, or fit one figure"
            " (--software-factor)",
        )
    if abs(here) <= ENOUGH:
        return 1.0
    ends = [(1.0, MOST_SLOWDOWN), (1 / MOST_SLOWDOWN, 1.0)]
    low = high = middle = 1.0
    for low, high in ends:
        if (off(low) < 0) != (off(high) < 0):
            break
    else:
        errors = ", ".join(f"{100 * math.expm1(off(power)):+.1f} %" for power in (2.0, 1.0, 0.5))
        raise InputError(
            f"limits of power from {1 / MOST_SLOWDOWN:g} to {MOST_SLOWDOWN:g} of the machine's do not"
            f" explain both times: with those of a half, 1 and 2, it takes {errors} more than measured",
            place=jobs[1],
            remedy="fit one figure (--software-factor, or another), or take jobs whose kernels draw more"
            " power",
        )
    for _ in range(MOST_STEPS):
        middle = math.sqrt(low * high)
        if abs(off(middle)) <= ENOUGH:
            break
        low, high = (middle, high) if (off(middle) < 0) == (off(low) < 0) else (low, middle)
    return middle
