"""A factor on the times of kernels, and one on the limit of power, with which two jobs take their times.

Software slows all kernels alike, and a lower limit of power only those that draw more than it. Two jobs whose
kernels draw different power therefore separate them. For each limit of power, the factor of software follows
from the first job; the limit is the one with which the second job takes its time, too.
"""

from __future__ import annotations

import math
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
    """The times of two jobs by both figures, each simulated once."""

    def __init__(self, jobs: tuple[str, str], options: RunOptions, measured_ns: tuple[float, float]) -> None:
        self.jobs, self.measured_ns = jobs, measured_ns
        self._times: list[Simulated] = []

        def of_job(at: int, slower_power: float) -> Simulated:
            self._times.append(_times(jobs[at], options, slower_power))
            return self._times[-1]

        self.times = cache(of_job)
        self.software = cache(self._software)

    @property
    def runs(self) -> int:
        """Return the number of simulations so far."""
        return sum(times.runs for times in self._times)

    def _software(self, slower_power: float) -> float:
        """Return the factor of software with which the first job takes its time."""
        times, measured_ns = self.times(0, slower_power), self.measured_ns[0]
        low, high = 1 / LARGEST_FACTOR, LARGEST_FACTOR
        factor = between(times, low, high, measured_ns)
        if abs(times(factor) - measured_ns) > ENOUGH * measured_ns:
            least, most = format_ns(times(low)), format_ns(times(high))
            raise InputError(
                f"{least} to {most} are simulated with {SOFTWARE_FACTOR} from {low:g} to {high:g} and"
                f" {POWER_RATE} {1 / slower_power:g}, and {format_ns(int(measured_ns))} were measured",
                place=self.jobs[0],
                remedy="check that job and machine are those of the measurement",
            )
        return factor

    def off(self, slower_power: float) -> float:
        """Return the logarithm of the second job's simulated by its measured time."""
        return math.log(self.times(1, slower_power)(self.software(slower_power)) / self.measured_ns[1])

    def ends(self, slower_power: float, software: float) -> tuple[int, int]:
        """Return the times of both jobs."""
        return self.times(0, slower_power)(software), self.times(1, slower_power)(software)


def _times(job: str, options: RunOptions, slower_power: float) -> Simulated:
    """Return the times of a job by the factor of software, with a lower limit of power."""
    power, software = FIGURES[POWER_RATE], FIGURES[SOFTWARE_FACTOR]

    def changed(machine: Machine, factor: float) -> Machine:
        return software.change(power.change(machine, slower_power), factor)

    return Simulated(job, options, lambda factor: lambda machine: changed(machine, factor))


def find_both(jobs: tuple[str, str], options: RunOptions, measured_ns: tuple[float, float]) -> FittedPair:
    """Return both figures; refuse times that no limit of power near the machine's explains."""
    both = _Jobs(jobs, options, measured_ns)
    before = both.ends(1.0, 1.0)
    for job, time in zip(jobs, before, strict=True):
        if not time:
            raise InputError(
                "nothing in it takes time, so that no figure changes it",
                place=job,
                remedy="give jobs with kernels",
            )
    slowdown = _slowdown(both)
    factor = both.software(slowdown)
    after = both.ends(slowdown, factor)
    return FittedPair(float(f"{factor:.5g}"), float(f"{1 / slowdown:.5g}"), before, after, both.runs)


def predicted(pair: FittedPair, job: str, options: RunOptions) -> int:
    """Return the time of another job with both figures."""
    return _times(job, options, 1 / pair.power)(pair.software)


def _slowdown(both: _Jobs) -> float:
    """Return the slowdown of the limit of power at which the second job is not off, by halves."""
    off = both.off
    extremes, here = (1 / MOST_SLOWDOWN, MOST_SLOWDOWN), off(1.0)
    if all(abs(off(power) - here) <= ENOUGH for power in extremes):
        if all(both.ends(power, 1.0) == both.ends(1.0, 1.0) for power in extremes):
            raise InputError(
                f"{POWER_RATE} changes neither time",
                place=both.jobs[1],
                remedy="fit another figure: the machine states no limit of power, or no kernel reaches it",
            )
        raise InputError(
            f"limits of power from {1 / MOST_SLOWDOWN:g} to {MOST_SLOWDOWN:g} of the machine's change both"
            " times alike, so that these do not separate power from software",
            place=both.jobs[1],
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
            place=both.jobs[1],
            remedy="fit one figure (--software-factor, or another), or take jobs whose kernels draw more"
            " power",
        )
    for _ in range(MOST_STEPS):
        middle = math.sqrt(low * high)
        if abs(off(middle)) <= ENOUGH:
            break
        low, high = (middle, high) if (off(middle) < 0) == (off(low) < 0) else (low, middle)
    return middle
