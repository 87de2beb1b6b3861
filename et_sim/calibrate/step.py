"""A search for the one figure with which a simulated job takes the measured time.

Each figure of the table belongs to the machine: the time that the host takes to launch a kernel, a factor on
the time of kernels, the rate of the device or of its memory, or its power cap. One time cannot separate them:
any other deviation of the machine goes into the figure. The times of other jobs, such as one of another
model, can: the figure is fitted to the first job, and a figure that describes the machine predicts the
others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import InputError
from et_sim.basics.units import format_ns, parse_watts
from et_sim.execution import execute
from et_sim.machine import Machine
from et_sim.machine.model import TimeFactors, WorkKind
from et_sim.machine.power import CAP, POWER
from et_sim.machine.roofline import RooflineDevice
from et_sim.machine.scaling import figures
from et_sim.run.options import RunOptions
from et_sim.run.variation import Variations

HOST_TIME, SOFTWARE_FACTOR, DEVICE_RATE, MEMORY_RATE, POWER_RATE = (
    "host-time",
    "software-factor",
    "device-rate",
    "memory-rate",
    "power-rate",
)
NEAR = 0.0005  # of the measured time: a search ends at this difference
MOST_RUNS = 40
LONGEST_HOST_NS, LARGEST_FACTOR = 1e6, 8.0  # limits of the search
FIRST_HOST_NS = 1000.0
SOFTWARE = TimeFactors(None, None, MappingProxyType({WorkKind.KERNELS: 1.0}), "software factor")
PEAKS = "peaks"
ABOVE_IDLE = 1.1  # of the idle power: the lowest cap


class FittedFigure(Struct, frozen=True):
    """A figure of a machine that may be fitted; the search varies it as a slowdown, with which time rises."""

    change: Callable[[Machine, float], Machine]  # the machine with a slowdown, or with a host's time
    keys: Callable[[Mapping[str, Any], float], dict[str, Any]]  # keys of a machine's file with the figure
    is_rate: bool = False  # the slowdown divides the figure

    def value(self, slowdown: float) -> float:
        """Return the figure for a slowdown, or the slowdown for a figure."""
        return 1 / slowdown if self.is_rate else slowdown


def _with_host(machine: Machine, value: float) -> Machine:
    return replace(machine, system=replace(machine.system, host_ns=value))


def _with_factor(machine: Machine, value: float) -> Machine:
    entry = replace(SOFTWARE, factors=MappingProxyType({WorkKind.KERNELS: value}))
    return replace(machine, system=replace(machine.system, time_factors=(entry,)))


def _with_rates(machine: Machine, slowdown: float, beginning: str) -> Machine:
    """Divide the figures of devices whose names have this beginning."""
    names = {name for rule in machine.system.compute for name in rule.settings.figures}
    for name in sorted(name for name in names if name.startswith(beginning)):
        scaled = figures(machine)[name](1 / slowdown)
        machine = machine if scaled is None else scaled[0]
    return machine


def _peaks(file: Mapping[str, Any], rate: float) -> dict[str, Any]:
    """Return slower peaks, at which the device draws the same power."""
    compute = file["device"]["compute"]
    keys: dict[str, Any] = {PEAKS: {datatype: rate * peak for datatype, peak in compute[PEAKS].items()}}
    if "operation" in compute.get(POWER, {}):
        energies = {datatype: energy / rate for datatype, energy in compute[POWER]["operation"].items()}
        keys[POWER] = {"operation": energies}
    return {"device": {"compute": keys}}


def _memory(file: Mapping[str, Any], rate: float) -> dict[str, Any]:
    levels = file["device"]["compute"]["memory"]
    slower = [{**level, "bandwidth": rate * level["bandwidth"]} for level in levels]
    return {"device": {"compute": {"memory": slower}}}


def _with_power(machine: Machine, slowdown: float) -> Machine:
    """Divide the power caps of devices with a power model."""
    rules = []
    for rule in machine.system.compute:
        settings = rule.settings
        if isinstance(settings, RooflineDevice) and settings.power and settings.power_cap:
            least = ABOVE_IDLE * settings.power.idle_watts
            settings = replace(settings, power_cap=max(settings.power_cap / slowdown, least))
        rules.append(replace(rule, settings=settings))
    return replace(machine, system=replace(machine.system, compute=tuple(rules)))


def _cap(file: Mapping[str, Any], rate: float) -> dict[str, Any]:
    compute = file["device"]["compute"]
    watts = max(rate * parse_watts(compute[CAP]), ABOVE_IDLE * parse_watts(compute[POWER]["idle"]))
    return {"device": {"compute": {CAP: f"{watts:.6g}W"}}}


FIGURES: Mapping[str, FittedFigure] = MappingProxyType(
    {
        HOST_TIME: FittedFigure(_with_host, lambda _, value: {"host-time": f"{value:g}ns"}),
        SOFTWARE_FACTOR: FittedFigure(_with_factor, lambda _, value: {"time-factors": [{"kernels": value}]}),
        DEVICE_RATE: FittedFigure(lambda machine, slow: _with_rates(machine, slow, "peak of "), _peaks, True),
        MEMORY_RATE: FittedFigure(
            lambda machine, slow: _with_rates(machine, slow, "bandwidth of "), _memory, True
        ),
        POWER_RATE: FittedFigure(_with_power, _cap, True),
    }
)


class FittedStep(Struct, frozen=True):
    """The figure that was found, and the simulated times with and without it."""

    figure: str
    value: float  # ns, or a factor
    before_ns: int
    after_ns: int
    runs: int


def find(name: str, job: str, options: RunOptions, measured_ns: float) -> FittedStep:
    """Return the figure of this name with which a job takes the measured time."""
    if name == HOST_TIME:
        return _find_host_time(job, options, measured_ns)
    return _find_slowdown(name, job, options, measured_ns)


def with_figure(machine: Machine, name: str, value: float) -> Machine:
    """Return the machine with a figure that was found."""
    return FIGURES[name].change(machine, FIGURES[name].value(value))


def simulated_with(step: FittedStep, job: str, options: RunOptions) -> int:
    """Return the time of another job with a figure that was found."""
    return Simulated(job, options, lambda value: lambda machine: with_figure(machine, step.figure, value))(
        step.value
    )


def error_of(pairs: Sequence[tuple[float, float]]) -> float:
    """Return E in percent, for simulated and measured times."""
    return 100 * (math.exp(sum(abs(math.log(one / other)) for one, other in pairs) / len(pairs)) - 1)


def _find_host_time(job: str, options: RunOptions, measured_ns: float) -> FittedStep:
    simulated = Simulated(job, options, lambda value: lambda machine: _with_host(machine, value))
    before = simulated(0.0)
    if before > measured_ns * (1 + NEAR):
        raise InputError(
            f"{format_ns(before)} are simulated without a host, more than the {format_ns(int(measured_ns))} "
            "that were measured, and a host's time cannot be negative",
            place=job,
            remedy="kernels or collectives of this machine are slower than the measured ones: calibrate them "
            "first (et-sim calibrate kernels, nccl), or check that job and machine are those of the "
            "measurement",
        )
    if before >= measured_ns * (1 - NEAR):
        return FittedStep(HOST_TIME, 0.0, before, before, simulated.runs)
    high = FIRST_HOST_NS
    while simulated(high) < measured_ns:
        if high == FIRST_HOST_NS and simulated(LONGEST_HOST_NS) == before:
            raise InputError(
                "the host's time has no effect: traces have a host of their own",
                place=job,
                remedy=f"use --{SOFTWARE_FACTOR}",
            )
        if high >= LONGEST_HOST_NS:
            raise InputError(
                f"{format_ns(simulated(LONGEST_HOST_NS))} are simulated with a host that takes "
                f"{format_ns(int(LONGEST_HOST_NS))} for a kernel, and {format_ns(int(measured_ns))} were "
                "measured",
                place=job,
                remedy="check that job and machine are those of the measurement",
            )
        high = min(4 * high, LONGEST_HOST_NS)
    value = between(simulated, 0.0, high, measured_ns)
    return FittedStep(HOST_TIME, value, before, simulated(value), simulated.runs)


def _find_slowdown(name: str, job: str, options: RunOptions, measured_ns: float) -> FittedStep:
    """Return a factor with which the job takes the measured time; communication keeps its own time."""
    figure = FIGURES[name]
    simulated = Simulated(job, options, lambda value: lambda machine: figure.change(machine, value))
    before = simulated(1.0)
    if abs(before - measured_ns) <= NEAR * measured_ns:
        return FittedStep(name, 1.0, before, before, simulated.runs)
    low, high = (1.0, LARGEST_FACTOR) if before < measured_ns else (1 / LARGEST_FACTOR, 1.0)
    least, most = simulated(low), simulated(high)
    if least == most:
        raise InputError(
            f"{name} changes nothing: {format_ns(least)} are simulated with {figure.value(low):g} and "
            f"{figure.value(high):g}, and {format_ns(int(measured_ns))} were measured",
            place=job,
            remedy="fit another figure: the machine does not state this one, or no kernel is timed by it",
        )
    if not least <= measured_ns <= most:
        raise InputError(
            f"{format_ns(least)} to {format_ns(most)} are simulated with {name} from {figure.value(low):g} "
            f"to {figure.value(high):g}, and {format_ns(int(measured_ns))} were measured",
            place=job,
            remedy=f"{name} does not explain it: fit another figure, calibrate collectives (et-sim calibrate "
            "nccl), or check that job and machine are those of the measurement",
        )
    slowdown = between(simulated, low, high, measured_ns)
    value = float(f"{figure.value(slowdown):.5g}")
    return FittedStep(name, value, before, simulated(slowdown), simulated.runs)


class Simulated:
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


def between(simulated: Simulated, low: float, high: float, measured_ns: float) -> float:
    """Return the nearest figure, by secants; an end that stays has less weight (the Illinois rule)."""
    below, above = simulated(low) - measured_ns, simulated(high) - measured_ns
    best, last = min((abs(below), low), (abs(above), high)), 0
    while best[0] > NEAR * measured_ns and above != below and simulated.runs < MOST_RUNS:
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
