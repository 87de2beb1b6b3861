"""Find the one figure with which a simulated job takes as long as was measured.

It is the time that the host takes to launch a kernel, or a factor on the time of kernels: one of the two,
since one number cannot tell them apart. Whatever else is missing from the machine goes into it, and the job
says nothing any more of how far off the machine is.

Not here: the host (`plan.host`) and factors (`plan.straggler_variants`) in a run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from msgspec import Struct

from et_sim.api import execute
from et_sim.basics.errors import InputError
from et_sim.basics.units import format_ns
from et_sim.machine import Machine
from et_sim.machine.model import TimeFactors, WorkKind
from et_sim.run.options import RunOptions
from et_sim.run.variation import Variations

HOST_TIME, SOFTWARE_FACTOR = "host-time", "software-factor"
NEAR = 0.0005  # of the measured time, where a search ends
MOST_RUNS = 40
LONGEST_HOST_NS, LARGEST_FACTOR = 1e6, 8.0  # beyond which hosts and software do not explain a time
FIRST_HOST_NS = 1000.0
SOFTWARE = TimeFactors(None, None, MappingProxyType({WorkKind.KERNELS: 1.0}), "software factor")


class Step(Struct, frozen=True):
    """What was found, and what is simulated with it and without."""

    figure: str
    value: float  # ns, or a factor
    before_ns: int
    after_ns: int
    runs: int


def find_host_time(job: str, options: RunOptions, measured_ns: float) -> Step:
    """How long the host takes to launch a kernel."""
    simulated = _Simulated(job, options, lambda value: lambda machine: _with_host(machine, value))
    before = simulated(0.0)
    if before > measured_ns * (1 + NEAR):
        raise InputError(
            f"{format_ns(before)} are simulated without a host, more than the {format_ns(int(measured_ns))} "
            "that were measured, and a host's time cannot be less than nothing",
            place=job,
            remedy="kernels or collectives of this machine are slower than what was measured: calibrate them "
            "first (et-sim calibrate kernels, nccl), or look whether job and machine are those that were "
            "measured",
        )
    if before >= measured_ns * (1 - NEAR):
        return Step(HOST_TIME, 0.0, before, before, simulated.runs)
    high = FIRST_HOST_NS
    while simulated(high) < measured_ns:
        if high == FIRST_HOST_NS and simulated(LONGEST_HOST_NS) == before:
            raise InputError(
                "no launch of a host changes what is simulated: traces have a host of their own",
                place=job,
                remedy=f"use --{SOFTWARE_FACTOR}",
            )
        high *= 4
        if high > LONGEST_HOST_NS:
            raise InputError(
                f"{format_ns(simulated(LONGEST_HOST_NS))} are simulated with a host that takes "
                f"{format_ns(int(LONGEST_HOST_NS))} for a kernel, and {format_ns(int(measured_ns))} were "
                "measured",
                place=job,
                remedy="something else is missing: look whether job and machine are those that were measured",
            )
    value = _between(simulated, 0.0, high, measured_ns)
    return Step(HOST_TIME, value, before, simulated(value), simulated.runs)


def find_software_factor(job: str, options: RunOptions, measured_ns: float) -> Step:
    """What the time of kernels is multiplied by; communication keeps its own."""
    simulated = _Simulated(job, options, lambda value: lambda machine: _with_factor(machine, value))
    before = simulated(1.0)
    if abs(before - measured_ns) <= NEAR * measured_ns:
        return Step(SOFTWARE_FACTOR, 1.0, before, before, simulated.runs)
    low, high = (1.0, LARGEST_FACTOR) if before < measured_ns else (1 / LARGEST_FACTOR, 1.0)
    least, most = simulated(low), simulated(high)
    if not least <= measured_ns <= most:
        raise InputError(
            f"{format_ns(least)} to {format_ns(most)} are simulated with kernels that take {low:g} to "
            f"{high:g} times as long, and {format_ns(int(measured_ns))} were measured",
            place=job,
            remedy="kernels do not explain it: calibrate collectives (et-sim calibrate nccl), or look if "
            "job and machine are those that were measured",
        )
    value = _between(simulated, low, high, measured_ns)
    return Step(SOFTWARE_FACTOR, value, before, simulated(value), simulated.runs)


class _Simulated:
    """Makespans by figure, each simulated once."""

    def __init__(
        self, job: str, options: RunOptions, change: Callable[[float], Callable[[Machine], Machine]]
    ) -> None:
        self.runs = 0
        variations = Variations(job, options)

        @cache
        def makespan(value: float) -> int:
            self.runs += 1
            ending = variations.ending(change(value))
            if ending.makespan_ns is None:
                result = execute(job, options, change=change(value))
                raise result.stall.as_error() if result.stall else result.why_stopped()
            return ending.makespan_ns

        self._makespan = makespan

    def __call__(self, value: float) -> int:
        return self._makespan(value)


def _between(simulated: _Simulated, low: float, high: float, measured_ns: float) -> float:
    """The figure that comes nearest, by secants; an end that stays counts less (the Illinois rule)."""
    below, above = simulated(low) - measured_ns, simulated(high) - measured_ns
    best, last = min((abs(below), low), (abs(above), high)), 0
    while best[0] > NEAR * measured_ns and simulated.runs < MOST_RUNS:
        value = float(f"{high - above * (high - low) / (above - below):.5g}")
        if not low < value < high:
            value = float(f"{(low + high) / 2:.5g}")
        if not low < value < high:
            break
        off = simulated(value) - measured_ns
        best = min(best, (abs(off), value))
        if off < 0:
            above = above / 2 if last < 0 else above
            low, below, last = value, off, -1
        else:
            below = below / 2 if last > 0 else below
            high, above, last = value, off, 1
    return best[1]


def _with_host(machine: Machine, value: float) -> Machine:
    return replace(machine, system=replace(machine.system, host_ns=value))


def _with_factor(machine: Machine, value: float) -> Machine:
    entry = replace(SOFTWARE, factors=MappingProxyType({WorkKind.KERNELS: value}))
    return replace(machine, system=replace(machine.system, time_factors=(entry,)))
