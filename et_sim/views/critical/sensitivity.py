"""Sensitivities: by how much each parameter changes the makespan, and over which range the path stays the
same.

In a fixed order of service, all times of a run are sums and maxima of durations. The durations that a
parameter sets are scaled by a factor f: the parameter itself if it is a time, and 1 / b for a bandwidth that
grows b-fold. The makespan is the longest of many paths, each linear in f, so it is convex. Near the run
itself it follows the critical path, whose slope is the time that the parameter sets there. Where paths part,
the slopes for f above 1 and below 1 differ.

The range ends where another path is longer. To find this factor, the makespan is evaluated far away, then
where the two lines meet, until no other path lies between. All durations were rounded to whole nanoseconds,
so another path may appear longer by the rounding of its durations. A change of the order of service needs a
new simulation (`verification`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct, convert, to_builtins

from et_sim.basics.quantities import Quantity
from et_sim.basics.unique import unique
from et_sim.views.critical.condensed import Condensed, DistinctDurations
from et_sim.views.critical.events import LIBRARY, NONE
from et_sim.views.critical.kernels import ALIKE_NS, times_and_slopes
from et_sim.views.critical.path import CAUSES, CriticalPath

FARTHEST = (0.01, 100.0)  # range in which the factor is followed
MOST_STEPS = 100
MOST_CHANGES = 8  # shown in short lists
ROUNDINGS_OF_A_REDUCTION = 3  # two reads and one write


OF_LINKS = {  # kinds of their events
    Quantity.BANDWIDTH: "serialisation",
    Quantity.LATENCY: "latency",
    Quantity.SWITCH_RATE: "switch_rate",
    Quantity.SWITCH_LATENCY: "switch",
}
RATES = (
    Quantity.BANDWIDTH,
    Quantity.SWITCH_RATE,
    Quantity.PEAK_COMPUTE,
    Quantity.LOCAL_MEMORY_BANDWIDTH,
    Quantity.OF_DEVICE,
)


class Parameter(Struct, frozen=True):
    """A parameter that sets durations."""

    name: str
    quantity: Quantity
    link: int  # code of its class of links or of switches; NONE: it has none
    rows: Any  # durations that it sets, in ascending order; by duration:
    figures: Any  # number of the duration's figures that it sets
    scaled: Any  # the part that follows the factor
    fixed: Any  # the least that this part becomes
    base: Any  # the part before both

    @property
    def is_rate(self) -> bool:
        """Return whether durations fall as the parameter grows."""
        return self.quantity in RATES

    def percent(self, towards: float) -> float:
        """Return the change of the factor if the parameter is one percent better (`towards` -1) or worse."""
        return 1 / (1 - 0.01 * towards) - 1 if self.is_rate else 0.01 * towards


class ParameterEffect(Struct, frozen=True):
    """Effect of a better or worse parameter; ranges are multiples of its value, 0 or infinity without an
    end."""

    slope_ns: float  # time on the path that the parameter sets
    one_percent_ns: float  # change of the makespan
    same_path_until: float


class Sensitivity(Struct, frozen=True):
    """Change of the makespan with a parameter."""

    parameter: str
    is_rate: bool
    better: ParameterEffect
    worse: ParameterEffect

    def as_dict(self) -> dict[str, Any]:
        """Return it for `--json`; a range without end is null."""
        plain: dict[str, Any] = to_builtins(self)
        for side in (plain["better"], plain["worse"]):
            side["same_path_until"] = (
                side["same_path_until"] if 0 < side["same_path_until"] < np.inf else None
            )
        return plain


class MakespanChange(Struct, frozen=True):
    """Change of the makespan by one percent of a parameter."""

    parameter: str
    better_ns: float
    worse_ns: float

    @classmethod
    def of(cls, sensitivity: Sensitivity) -> MakespanChange:
        """Return the change by one percent, without ranges."""
        return cls(sensitivity.parameter, sensitivity.better.one_percent_ns, sensitivity.worse.one_percent_ns)


class Sensitivities:
    """All parameters of a run that completed."""

    def __init__(self, path: CriticalPath) -> None:
        self.path = path

    def all(self) -> list[Sensitivity]:
        """Return the sensitivities of all parameters, the one with the largest effect first."""
        record = self.path.record
        if record.sensitivities is not None:
            return convert(record.sensitivities, list[Sensitivity])
        sensitivities = [self.of(parameter) for parameter in parameters(self.path)]
        sensitivities.sort(key=lambda sensitivity: sensitivity.better.one_percent_ns)
        record.keep([to_builtins(sensitivity) for sensitivity in sensitivities])
        return sensitivities

    def changes(self) -> list[MakespanChange]:
        """Return the changes of the makespan by the first few parameters.

        The time that a parameter sets on all longest paths together bounds its effect, so only few are
        evaluated.
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
        """Return how the makespan follows one parameter."""
        return Sensitivity(
            parameter.name, parameter.is_rate, self._side(parameter, -1.0), self._side(parameter, 1.0)
        )

    def most_saved_ns(self, parameter: Parameter, factor: float) -> float:
        """Return the time that all longest paths together would save: a bound of the makespan's change."""
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
        """Return the events that decide how the makespan begins to change, whatever the parameter."""
        events, (time, slope) = self._events, self._times_and_slopes
        parts = events.first_part, events.part, events.counts
        nothing = np.zeros(len(self._spent))
        times_and_slopes(events.critical, events.other, *parts, self._spent, nothing, 1.0, time, slope)
        return events.deciding(time)

    @cached_property
    def _on_longest(self) -> Any:
        """Return how often all longest paths together contain each duration."""
        return np.bincount(self._deciding.part, self._deciding.counts, len(self._spent))

    def evaluate(
        self, parameter: Parameter, factor: float, towards: float, *, off: float = 0.0
    ) -> tuple[float, float]:
        """Return the makespan with scaled durations of the parameter, and its slope there."""
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
        """Return the makespan, its slope, and its change by one percent."""
        makespan, slope = self._evaluate(self._deciding, parameter, 1.0, towards)
        return makespan, slope, slope * parameter.percent(towards)

    def _side(self, parameter: Parameter, towards: float) -> ParameterEffect:
        makespan, slope, change = self._one_percent_ns(parameter, towards)
        end = self._end_of_path(parameter, towards, makespan, slope)
        return ParameterEffect(slope, change, (1 / end if end else np.inf) if parameter.is_rate else end)

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
        """Return whether two makespans may differ by this much because durations were rounded."""
        figures = float(self._counts[parameter.rows] @ parameter.figures)  # a bound: a single path has fewer
        return above <= 1 + max(factor, 1.0) * figures and above <= self.rounding_ns(parameter, factor)

    @cached_property
    def _counts(self) -> Any:
        """Return how often the run contains each duration."""
        return np.bincount(self._events.part, self._events.counts, len(self._spent))

    def rounding_ns(self, parameter: Parameter, factor: float) -> float:
        """Return how far off the makespan may be, because durations were rounded before they were scaled."""
        most = max(factor, 1.0)
        low, middle, high = (self.evaluate(parameter, factor, 1.0, off=off)[0] for off in (-most, 0.0, most))
        return 1 + max(high - middle, middle - low)


def parameters(path: CriticalPath) -> Iterator[Parameter]:
    """Yield all parameters that set durations in a run: of links, memories, kernels and operations."""
    durations = path.record.condensed.durations
    spent = durations.spent_ns.astype(np.float64)

    def times(quantity: Quantity, rows: Any, name: str = "", link: int = NONE) -> Iterator[Parameter]:
        return times_of(durations, name or quantity.value, rows, quantity, link)

    for code, link in enumerate(durations.link.texts):
        if link is not None:
            on = durations.link.codes == code
            for quantity, kind in OF_LINKS.items():
                yield from times(quantity, on & durations.is_kind(kind), quantity.of(link), code)
    yield from times(Quantity.ENDPOINT_DELAY, durations.is_kind("endpoint"))
    yield from times(Quantity.SHARED_BUS, durations.is_kind("bus"))
    yield from times(Quantity.LIBRARY, durations.is_kind(LIBRARY))
    yield from times(Quantity.LATE_STARTS, durations.is_kind("late_start"))
    yield from _of_nodes(path, durations, spent, times)


def times_of(
    durations: DistinctDurations,
    name: str,
    rows: Any,
    quantity: Quantity = Quantity.OPERATION,
    link: int = NONE,
) -> Iterator[Parameter]:
    """Yield a parameter that sets all of these durations, if they take any time."""
    rows = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    spent = durations.spent_ns[rows].astype(np.float64)
    if (spent > 0).any():
        nothing, figures = np.zeros(len(rows)), np.ones(len(rows), np.int8)
        yield Parameter(name, quantity, link, rows, figures, spent, nothing, nothing)


def _of_nodes(
    path: CriticalPath, durations: DistinctDurations, spent: Any, times: Any
) -> Iterator[Parameter]:
    """Yield parameters of nodes: limits of kernels, and times of operations."""
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
    shape = (len(nodes.kind.texts), len(nodes.stem.texts))  # an operation may have several kinds
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
    durations: DistinctDurations, spent: Any, rows: Any, of: Any, parts: Mapping[str, Any]
) -> Iterator[Parameter]:
    """Yield parameters of kernels that take their launch, and then the longer of arithmetic and traffic."""
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
    quantity: Quantity, durations: DistinctDurations, spent: Any, kernels: Any, own: Any, other: Any
) -> Iterator[Parameter]:
    """Yield a parameter of kernels that take the longer of arithmetic and traffic; reductions are traffic."""
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
    """Return a parameter of kernels (rows, scaled part, fixed part, part before both), and of reductions,
    which it scales as a whole."""
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
