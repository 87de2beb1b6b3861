"""What would make a run shorter or longer, by how much, and how far the same path goes.

As long as everything is served in the same order, all times of a run are sums and maxima of durations. The
durations that one parameter sets are stretched by one factor f: that is the parameter itself if it is a time,
and 1 / b for a bandwidth that grows b-fold. The makespan is then the longest of many paths, each a straight
line in f, so it is convex; around the run itself it is the line along the critical path, whose slope is the
time that the parameter sets there. Where the path parts, the slope is another one for f above 1 than below.

The line ends where another path is longer: that is found by evaluating the makespan far away and going back
to where the lines meet, until nothing lies between. All durations were rounded to whole nanoseconds, so
another path may be longer by as much as the path's durations were rounded. Whether things are served in
another order, and whether that matters, a new simulation says (`verification`).

Not here: how long the path is and what it is made of (`path`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.basics.unique import unique
from et_sim.views.critical.condensed import Condensed, Durations
from et_sim.views.critical.events import LIBRARY, NONE
from et_sim.views.critical.kernels import ALIKE_NS, times_and_slopes
from et_sim.views.critical.path import CAUSES, CriticalPath

FARTHEST = (0.01, 100.0)  # how far the factor is followed: nobody asks for more
MOST_STEPS = 100
MOST_CHANGES = 8  # that are shown where little room is
ROUNDINGS_OF_A_REDUCTION = 3  # it reads twice and writes once


class Quantity(StrEnum):
    """What parameters are figures of."""

    BANDWIDTH = "bandwidth"  # of a class of links
    LATENCY = "latency"
    SWITCH_RATE = "rate"  # of a sort of switches that reduce
    SWITCH_LATENCY = "latency of switches"
    ENDPOINT_DELAY = "endpoint delay"
    SHARED_BUS = "time of the shared bus"
    LIBRARY = "time of the collective library"  # beside the wires
    LATE_STARTS = "late starts"
    PEAK_COMPUTE = "peak compute"
    LOCAL_MEMORY_BANDWIDTH = "local memory bandwidth"
    OF_DEVICE = "rate of a device"  # a peak, a level of memory, an efficiency: of the key "compute"
    LAUNCH = "launch overhead"
    REMOTE_MEMORY = "time of remote memory"
    KERNELS = "time of all kernels"
    OPERATION = "time of an operation"


OF_LINKS = (  # (what, of which events, what it is called)
    (Quantity.BANDWIDTH, "serialisation", "bandwidth"),
    (Quantity.LATENCY, "latency", "latency"),
    (Quantity.SWITCH_RATE, "switch_rate", "rate"),
    (Quantity.SWITCH_LATENCY, "switch", "latency"),
)
RATES = (
    Quantity.BANDWIDTH,
    Quantity.SWITCH_RATE,
    Quantity.PEAK_COMPUTE,
    Quantity.LOCAL_MEMORY_BANDWIDTH,
    Quantity.OF_DEVICE,
)


class Parameter(Struct, frozen=True):
    """Something that sets durations."""

    name: str
    quantity: Quantity
    link: int  # row of the class of links, and then sort of switches, whose figure it is; NONE: not of these
    rows: Any  # the durations that it sets, in ascending order; of each of them:
    figures: Any  # how many of the duration's figures it sets
    scaled: Any  # the part of its duration that follows the factor
    fixed: Any  # and below what it does not fall
    base: Any  # and what comes before both

    @property
    def is_rate(self) -> bool:
        """Return whether durations fall as it grows."""
        return self.quantity in RATES

    def percent(self, towards: float) -> float:
        """By how much the factor changes if the parameter is one percent better (`towards` -1) or worse."""
        return 1 / (1 - 0.01 * towards) - 1 if self.is_rate else 0.01 * towards


class Side(Struct, frozen=True):
    """What happens if a parameter gets better, or worse. Ranges are multiples of what it is, 0 or infinity
    where they do not end."""

    slope_ns: float  # the time on the path that it sets
    one_percent_ns: float  # change of the makespan
    same_path_until: float


@quick_dataclass(frozen=True)
class Sensitivity:
    """How the makespan follows a parameter."""

    parameter: str
    is_rate: bool
    better: Side
    worse: Side

    def as_dict(self) -> dict[str, Any]:
        """For `--json`; a range without end is null."""
        plain: dict[str, Any] = to_builtins(self)
        for side in (plain["better"], plain["worse"]):
            side["same_path_until"] = (
                side["same_path_until"] if 0 < side["same_path_until"] < np.inf else None
            )
        return plain


@quick_dataclass(frozen=True)
class MakespanChange:
    """How one percent of a parameter changes the makespan."""

    parameter: str
    better_ns: float
    worse_ns: float

    @classmethod
    def of(cls, sensitivity: Sensitivity) -> MakespanChange:
        """Of what is known of it, only that."""
        return cls(sensitivity.parameter, sensitivity.better.one_percent_ns, sensitivity.worse.one_percent_ns)


class Sensitivities:
    """All parameters of a run that completed."""

    def __init__(self, path: CriticalPath) -> None:
        self.path = path

    def all(self) -> list[Sensitivity]:
        """Those that set anything, the one with the most effect first."""
        record = self.path.record
        if record.sensitivities is not None:
            return [_from_dict(sensitivity) for sensitivity in record.sensitivities]
        sensitivities = [self.of(parameter) for parameter in parameters(self.path)]
        sensitivities.sort(key=lambda sensitivity: sensitivity.better.one_percent_ns)
        record.keep([to_builtins(sensitivity) for sensitivity in sensitivities])
        return sensitivities

    def changes(self) -> list[MakespanChange]:
        """Return the first of all, as many as a page has room for, but only how they change the makespan.

        The time that a parameter sets on all longest paths together bounds its effect, so only few are asked.
        """
        record = self.path.record
        if record.sensitivities is not None:
            return [MakespanChange.of(sensitivity) for sensitivity in self.all()[:MOST_CHANGES]]
        if record.changes is None:
            changes = self._changes()
            record.keep_changes([to_builtins(change) for change in changes])
            return changes
        return [MakespanChange(**change) for change in record.changes]

    def _changes(self) -> list[MakespanChange]:
        every = list(parameters(self.path))
        if not every:
            return []
        counts = self._on_longest
        most = [
            parameter.percent(-1.0) * float(counts[parameter.rows] @ parameter.scaled) for parameter in every
        ]
        best: list[tuple[float, int]] = []
        for at in sorted(range(len(every)), key=lambda at: (most[at], at)):
            if len(best) == MOST_CHANGES and most[at] * (1 - 1e-9) > best[-1][0]:
                break
            best = sorted((*best, (self._one_percent_ns(every[at], -1.0)[2], at)))[:MOST_CHANGES]
        return [
            MakespanChange(every[at].name, better, self._one_percent_ns(every[at], 1.0)[2])
            for better, at in best
        ]

    def of(self, parameter: Parameter) -> Sensitivity:
        """How the makespan follows one parameter."""
        return Sensitivity(
            parameter.name, parameter.is_rate, self._side(parameter, -1.0), self._side(parameter, 1.0)
        )

    def most_saved_ns(self, parameter: Parameter, factor: float) -> float:
        """What all longest paths together would save: no less than the makespan does."""
        counts = self._on_longest
        return (1 - factor) * float(counts[parameter.rows] @ parameter.scaled)

    @cached_property
    def _events(self) -> Condensed:
        return self.path.record.condensed

    @cached_property
    def _spent(self) -> Any:
        return self._events.durations.spent_ns.astype(np.float64)

    @cached_property
    def _times_and_slopes(self) -> Any:
        return np.zeros((2, len(self._events)))

    @cached_property
    def _deciding(self) -> Condensed:
        """Those that say how the makespan begins to change, whatever the parameter."""
        events, (time, slope) = self._events, self._times_and_slopes
        parts = events.first_part, events.part, events.counts
        nothing = np.zeros(len(self._spent))
        times_and_slopes(events.critical, events.other, *parts, self._spent, nothing, 1.0, time, slope)
        return events.deciding(time)

    @cached_property
    def _on_longest(self) -> Any:
        """How often the longest paths, all together, have each duration."""
        return np.bincount(self._deciding.part, self._deciding.counts, len(self._spent))

    def evaluate(
        self, parameter: Parameter, factor: float, towards: float, *, off: float = 0.0
    ) -> tuple[float, float]:
        """Return the makespan if the parameter's durations are stretched, and how it goes on."""
        return self._evaluate(self._events, parameter, factor, towards, off)

    def _evaluate(
        self, events: Condensed, parameter: Parameter, factor: float, towards: float, off: float = 0.0
    ) -> tuple[float, float]:
        takes, rates = self._spent.copy(), np.zeros(len(self._spent))
        rows, fixed = parameter.rows, parameter.fixed
        stretched = factor * parameter.scaled
        if off:
            stretched = np.maximum(stretched + off * parameter.figures, 0.0)
        takes[rows] = parameter.base + np.maximum(stretched, fixed)
        least = ALIKE_NS if towards < 0 else -ALIKE_NS
        rates[rows] = np.where(stretched > fixed + least, parameter.scaled, 0.0)
        parts = events.first_part, events.part, events.counts
        time, slope = self._times_and_slopes[:, : len(events)]
        times_and_slopes(events.critical, events.other, *parts, takes, rates, towards, time, slope)
        times = time[events.ends]
        slopes = slope[events.ends[times > times.max() - ALIKE_NS]]
        return float(times.max()), float(slopes.max() if towards > 0 else slopes.min())

    def _one_percent_ns(self, parameter: Parameter, towards: float) -> tuple[float, float, float]:
        """Return the makespan, its slope, and how one percent changes it."""
        makespan, slope = self._evaluate(self._deciding, parameter, 1.0, towards)
        return makespan, slope, slope * parameter.percent(towards)

    def _side(self, parameter: Parameter, towards: float) -> Side:
        makespan, slope, change = self._one_percent_ns(parameter, towards)
        end = self._end_of_path(parameter, towards, makespan, slope)
        return Side(slope, change, (1 / end if end else np.inf) if parameter.is_rate else end)

    def _end_of_path(self, parameter: Parameter, towards: float, makespan: float, slope: float) -> float:
        """Return the factor from which another path is longer."""
        far, nowhere = (FARTHEST[0], 0.0) if towards < 0 else (FARTHEST[1], np.inf)
        for step in range(MOST_STEPS):
            there, slope_there = self.evaluate(parameter, far, -towards)
            above = there - (makespan + slope * (far - 1))
            if slope_there == slope or above <= 1 or self._may_be_rounding(above, parameter, far):
                return far if step else nowhere
            near = far - above / (slope_there - slope)
            if (near - 1) * towards <= 0 or (far - near) * towards <= 0:
                return 1.0
            far = near
        return far

    def _may_be_rounding(self, above: float, parameter: Parameter, factor: float) -> bool:
        """Return whether two makespans may differ by so much as durations were rounded."""
        figures = float(self._counts[parameter.rows] @ parameter.figures)  # on all paths: one has fewer
        return above <= 1 + max(factor, 1.0) * figures and above <= self.rounding_ns(parameter, factor)

    @cached_property
    def _counts(self) -> Any:
        """How often the run has each duration."""
        return np.bincount(self._events.part, self._events.counts, len(self._spent))

    def rounding_ns(self, parameter: Parameter, factor: float) -> float:
        """How much the makespan may be off, as all durations were rounded before they were stretched."""
        most = max(factor, 1.0)
        low, middle, high = (self.evaluate(parameter, factor, 1.0, off=off)[0] for off in (-most, 0.0, most))
        return 1 + max(high - middle, middle - low)


def _from_dict(plain: Mapping[str, Any]) -> Sensitivity:
    sides = {name: Side(**plain[name]) for name in ("better", "worse")}
    return Sensitivity(**{**plain, **sides})


def parameters(path: CriticalPath) -> Iterator[Parameter]:
    """Yield everything that sets durations in a run: of links, memories, kernels, and of operations."""
    durations = path.record.condensed.durations
    spent = durations.spent_ns.astype(np.float64)

    def times(quantity: Quantity, rows: Any, name: str = "", link: int = NONE) -> Iterator[Parameter]:
        return times_of(durations, name or quantity.value, rows, quantity, link)

    for code, link in enumerate(durations.link.texts):
        if link is not None:
            on = durations.link.codes == code
            for quantity, kind, called in OF_LINKS:
                yield from times(quantity, on & durations.is_kind(kind), f"{called} of {link}", code)
    yield from times(Quantity.ENDPOINT_DELAY, durations.is_kind("endpoint"))
    yield from times(Quantity.SHARED_BUS, durations.is_kind("bus"))
    yield from times(Quantity.LIBRARY, durations.is_kind(LIBRARY))
    yield from times(Quantity.LATE_STARTS, durations.is_kind("late_start"))
    yield from _of_nodes(path, durations, spent, times)


def times_of(
    durations: Durations, name: str, rows: Any, quantity: Quantity = Quantity.OPERATION, link: int = NONE
) -> Iterator[Parameter]:
    """What sets some durations altogether, if these take any time."""
    rows = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    spent = durations.spent_ns[rows].astype(np.float64)
    if (spent > 0).any():
        nothing, figures = np.zeros(len(rows)), np.ones(len(rows), np.int8)
        yield Parameter(name, quantity, link, rows, figures, spent, nothing, nothing)


def _of_nodes(path: CriticalPath, durations: Durations, spent: Any, times: Any) -> Iterator[Parameter]:
    """What nodes take: by what limits kernels, and by operation."""
    nodes, of = path.record.nodes, durations.node
    rows = np.flatnonzero(durations.is_kind("node"))
    rows, of = rows[of != NONE], of[of != NONE]
    if nodes.parts is None:
        arithmetic, traffic = nodes.compute_utilisation[of], nodes.memory_utilisation[of]
        kernels = np.flatnonzero(~np.isnan(arithmetic))
        used = rows[kernels], arithmetic[kernels], traffic[kernels]
        yield from _of_roofline(Quantity.PEAK_COMPUTE, durations, spent, *used)
        yield from _of_roofline(Quantity.LOCAL_MEMORY_BANDWIDTH, durations, spent, used[0], used[2], used[1])
    else:
        yield from _of_device(durations, spent, rows, of, nodes.parts)
    cause = path.causes_of_nodes()[of]
    yield from times(Quantity.REMOTE_MEMORY, rows[cause == CAUSES.index("memory")])
    shape = (len(nodes.kind.texts), len(nodes.stem.texts))  # an operation may be of several kinds
    code = np.ravel_multi_index((nodes.kind.codes[of], nodes.stem.codes[of]), shape)
    on_device = np.array([text == "compute" for text in nodes.lane.texts])[nodes.lane.codes[of]]
    is_kernel = on_device & (cause == CAUSES.index("compute"))
    if len(unique(code[is_kernel])) > 1:
        yield from times(Quantity.KERNELS, rows[is_kernel])
    for number in unique(code).tolist():
        kind, stem = (int(part) for part in np.unravel_index(number, shape))
        called = nodes.stem.texts[stem] or nodes.kind.texts[kind]
        yield from times(Quantity.OPERATION, rows[code == number], f"time of {called}")


def _of_device(
    durations: Durations, spent: Any, rows: Any, of: Any, parts: Mapping[str, Any]
) -> Iterator[Parameter]:
    """A kernel takes its launch, and then the longer of its arithmetic and its traffic."""
    launch, arithmetic, traffic = (parts[name][of] for name in ("launch_ns", "arithmetic_ns", "traffic_ns"))
    known = np.flatnonzero(~np.isnan(arithmetic))
    total = launch[known] + np.maximum(arithmetic[known], traffic[known])
    share = spent[rows[known]] / np.where(total > 0, total, 1.0)
    launch, arithmetic, traffic = (times[known] * share for times in (launch, arithmetic, traffic))
    kernels, longer = rows[known], np.maximum(arithmetic, traffic)
    reductions = np.flatnonzero(durations.is_kind("reduction"))

    def parameter(name: str, quantity: Quantity, which: Any, own: Any, other: Any, first: Any) -> Parameter:
        own_reductions = reductions if quantity is Quantity.LOCAL_MEMORY_BANDWIDTH else reductions[:0]
        of_kernels = kernels[which], own[which], other[which], first[which]
        return _with_reductions(name, quantity, of_kernels, own_reductions, spent)

    memory = Quantity.LOCAL_MEMORY_BANDWIDTH
    names = [memory.value] if len(reductions) else []
    for column, own, other in (
        ("peak", arithmetic, traffic),
        ("efficiency", arithmetic, traffic),
        ("level", traffic, arithmetic),
        ("memory_efficiency", traffic, arithmetic),
    ):
        words = parts[column]
        codes = words.codes[of][known]
        named = {text: code for code, text in enumerate(words.texts) if text is not None}
        for name in dict.fromkeys((*(names if column == "level" else ()), *named)):
            which = np.flatnonzero(codes == named.get(name, NONE))
            of_system = [quantity for quantity in (Quantity.PEAK_COMPUTE, memory) if quantity.value == name]
            scalable = parameter(name, (*of_system, Quantity.OF_DEVICE)[0], which, own, other, launch)
            if (scalable.scaled > 0).any():
                yield scalable
    if (launch > 0).any():
        every, nothing = np.arange(len(kernels)), np.zeros(len(kernels))
        yield parameter(Quantity.LAUNCH.value, Quantity.LAUNCH, every, launch, nothing, longer)


def _of_roofline(
    quantity: Quantity, durations: Durations, spent: Any, kernels: Any, own: Any, other: Any
) -> Iterator[Parameter]:
    """A kernel takes the longer of its arithmetic and its memory traffic; reductions are traffic alone."""
    longer = np.maximum(own, other)
    longer[longer == 0] = 1
    scaled, fixed = spent[kernels] * own / longer, spent[kernels] * other / longer
    is_memory = quantity is Quantity.LOCAL_MEMORY_BANDWIDTH
    reductions = np.flatnonzero(durations.is_kind("reduction")) if is_memory else kernels[:0]
    of_kernels = kernels, scaled, fixed, np.zeros(len(kernels))
    parameter = _with_reductions(quantity.value, quantity, of_kernels, reductions, spent)
    if (parameter.scaled > 0).any():
        yield parameter


def _with_reductions(name: str, quantity: Quantity, kernels: Any, reductions: Any, spent: Any) -> Parameter:
    """Return a parameter of kernels (their rows, what follows the factor, what does not, and what comes
    before), and of reductions, which follow it altogether."""
    rows, scaled, fixed, base = kernels
    figures = np.ones(len(rows), np.int8)
    if len(reductions):
        nothing = np.zeros(len(reductions))
        figures = np.concatenate((figures, np.full(len(reductions), ROUNDINGS_OF_A_REDUCTION, np.int8)))
        rows, scaled = np.concatenate((rows, reductions)), np.concatenate((scaled, spent[reductions]))
        fixed, base = np.concatenate((fixed, nothing)), np.concatenate((base, nothing))
        order = np.argsort(rows, kind="stable")
        rows, figures, scaled, fixed, base = (
            column[order] for column in (rows, figures, scaled, fixed, base)
        )
    return Parameter(name, quantity, NONE, rows, figures, scaled, fixed, base)
