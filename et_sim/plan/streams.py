"""Streams of the machine -> lanes of nodes, and the nodes that take longer beside communication.

Receives take no turns, nor do gaps and nodes that no model times.

Nodes are slowed in one of two ways. Either the machine gives a factor, or its collective library takes
processors from kernels: a kernel whose arithmetic sets its time, and that is spread over P processors, does
(P - c) / P of its work while collectives hold c of them. Kernels whose memory traffic sets their time lose
nothing: fewer processors than all use the memory fully. Kernels always keep half of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import MachineError, did_you_mean
from et_sim.basics.group_names import shown_group
from et_sim.basics.unique import unique
from et_sim.basics.units import format_ns
from et_sim.compute import Treatment
from et_sim.machine.model import LimitedWork, Notice, SlowedWork, StreamWork
from et_sim.plan import records
from et_sim.plan.records import FIRST_FACTOR, LANES, Action, lane_limits
from et_sim.trace.columns import BoolColumn, NodeKind, Trace


def is_named(trace: Trace, pattern: str | None) -> BoolColumn:
    """Return which nodes have a name that fits a pattern with stars; all nodes without a pattern."""
    from et_sim.basics.patterns import fits_stars

    if pattern is None:
        return np.ones(len(trace), np.bool_)
    fits = np.fromiter(map(fits_stars(pattern), trace.names), np.bool_, len(trace.names))
    is_named_so: BoolColumn = fits[trace.name]
    return is_named_so


_SUGGESTED = 1000  # names that are searched for a similar one
_KINDS = {
    StreamWork.SENDS: NodeKind.SEND,
    StreamWork.COLLECTIVES: NodeKind.COLL,
    StreamWork.LOADS: NodeKind.MEM_LOAD,
    StreamWork.STORES: NodeKind.MEM_STORE,
}


class StreamLanes:
    """The lanes of streams, which follow the other lanes."""

    def __init__(self, streams: tuple[LimitedWork, ...]) -> None:
        self._streams = streams
        self._fitting = [0] * len(streams)  # nodes, including those that an earlier stream takes
        self._taken = [0] * len(streams)
        self._names: list[set[str]] = [set() for _ in streams]  # of nodes that a stream might have meant
        self._groups: list[set[str]] = [set() for _ in streams]
        self._recorded: list[set[int]] = [set() for _ in streams]
        self.limits = lane_limits(tuple(stream.at_a_time for stream in streams))
        self.names = tuple(stream.name for stream in streams)

    def assign(self, nodes: Any, trace: Trace) -> None:
        """Put the nodes of a template on the first stream that takes them."""
        is_free = np.ones(len(trace), np.bool_)
        for number, stream in enumerate(self._streams):
            works = np.logical_or.reduce([of_work(trace, work) for work in stream.takes])
            takes = works.copy()
            if stream.nodes is not None:
                self._names[number].update(trace.names[name] for name in unique(trace.name[works]).tolist())
                takes &= is_named(trace, stream.nodes)
            if stream.group is not None:
                groups = [shown_group(name) for name in trace.group_names]
                is_collective = works & (trace.kind == NodeKind.COLL)
                used = unique(trace.group[is_collective]).tolist()
                self._groups[number].update(groups[group] for group in used)
                fits = np.array([group == stream.group for group in groups], np.bool_)
                takes &= is_collective & fits[trace.group]
            if stream.recorded is not None:
                is_recorded = trace.has("stream")
                self._recorded[number].update(unique(trace.stream[works & is_recorded]).tolist())
                takes &= is_recorded & (trace.stream == stream.recorded)
            self._fitting[number] += int(takes.sum())
            self._taken[number] += int((takes & is_free).sum())
            nodes["lane"][takes & is_free] = LANES + number
            is_free &= ~takes

    def check_all_met(self) -> list[Notice]:
        """Refuse names, groups and numbers that no node has; return notices of streams without nodes."""
        notices = []
        for number, stream in enumerate(self._streams):
            if self._taken[number]:
                continue
            if self._fitting[number]:
                text = "no effect: earlier entries take all its nodes"
                notices.append(Notice(stream.place, "takes", text))
                continue
            if not (stream.nodes is None and stream.group is None and stream.recorded is None):
                raise self._nothing_such(number, stream)
            works = " or ".join(work for work in StreamWork if work in stream.takes)
            notices.append(Notice(stream.place, "takes", f"no effect: there are no {works}"))
        return notices

    def _nothing_such(self, number: int, stream: LimitedWork) -> MachineError:
        works = " or ".join(work for work in StreamWork if work in stream.takes)
        for key, wanted, known in (
            ("nodes", stream.nodes, self._names[number]),
            ("group", stream.group, self._groups[number]),
        ):
            if wanted is not None and (wanted not in known or stream.recorded is None):
                names = sorted(known)[:_SUGGESTED]
                examples = ", ".join(f'"{name[:60]}"' for name in names[:3])
                remedy = did_you_mean(wanted.strip("*"), names)
                return MachineError(
                    f'key "{key}" is "{wanted}", but none of the {works} has it',
                    place=stream.place,
                    remedy=remedy or (f"there are {examples}" if names else f"there are no {works}"),
                )
        numbers = ", ".join(str(recorded) for recorded in sorted(self._recorded[number])[:8])
        return MachineError(
            f'key "stream" is {stream.recorded}, but none of the {works} was recorded there',
            place=stream.place,
            remedy=f"recorded: {numbers}" if numbers else "their traces record no streams",
        )


def of_work(trace: Trace, work: StreamWork) -> BoolColumn:
    """Return which nodes are of a kind of work; each is of one at most."""
    if work is StreamWork.HOST:
        does_work: BoolColumn = trace.is_cpu & ~trace.is_gap & ~trace.is_opaque
        return does_work
    on_device = ~trace.is_cpu & ~trace.is_gap
    if work in _KINDS:
        does_work = on_device & (trace.kind == _KINDS[work])
    else:
        is_copy = trace.is_copy if work is StreamWork.COPIES else ~trace.is_copy
        does_work = on_device & (trace.kind == NodeKind.COMP) & is_copy
    return does_work


MOST_UNITS = 1 << 62
SLOWS = (StreamWork.SENDS, StreamWork.COLLECTIVES)


class TemplatePart(Struct, frozen=True):
    """The nodes of a template in the plan."""

    trace: Trace
    nodes: Any  # rows of the plan's table
    first: int  # where they begin in it

    @property
    def rows(self) -> slice:
        """Return the slice of the plan's table."""
        return slice(self.first, self.first + len(self.trace))


def slowing_of(
    parts: Sequence[TemplatePart],
    nodes: int,
    overlap: tuple[SlowedWork, ...],
    longest_of: Callable[[int, Any], Any],
) -> tuple[Any, Any]:
    """Return how each node of the plan slows others or is slowed, and a row for each factor.

    Work is done in units, a whole number of them in a nanosecond. `longest_of` returns the longest durations
    of the nodes of a template on any rank, from its own.
    """
    factors = np.zeros(nodes, np.int16)
    for template, part in enumerate(parts):
        durations = longest_of(template, part.nodes["duration_ns"])
        takes_time = part.nodes["action"] == Action.DELAY
        for work in SLOWS:
            factors[part.rows][of_work(part.trace, work)] = -1
        for number, slowed in enumerate(overlap):
            concerned = of_work(part.trace, slowed.work) & takes_time
            longest = int(durations[concerned].max(initial=0))
            if longest * slowed.factor.numerator > MOST_UNITS:
                subject = (
                    f"{slowed.work} of {format_ns(longest)} cannot be slowed by {float(slowed.factor):g}"
                )
                raise MachineError(
                    f"{subject}: they are too long to be counted exactly",
                    place=slowed.place,
                    remedy="give a factor with fewer decimals, or correct the durations in the traces",
                )
            factors[part.rows][concerned] = FIRST_FACTOR + number
    slowdowns = records.table(records.SLOWDOWN, len(overlap))
    for row, slowed in zip(slowdowns, overlap, strict=True):
        row.alone, row.beside = slowed.factor.numerator, slowed.factor.denominator
    return factors, slowdowns


def occupation_of(parts: Sequence[TemplatePart], of_kernels: Any, held: Any) -> tuple[Any, Any]:
    """Return the same tables for what collectives hold, in the order of the plan's collectives.

    `of_kernels` has all that each node has of it, processors or thousandths of memory; 0: it does not set the
    node's time. The tables are empty if no collective holds any, or no kernel is slowed.
    """
    nothing = np.zeros(0, np.int16), records.table(records.SLOWDOWN, 0)
    if not held.any() or of_kernels is None:
        return nothing
    occupation, units = np.zeros(len(of_kernels), np.int16), list[int]()
    for part in parts:
        simulated = np.flatnonzero(part.nodes["action"] == Action.COLLECTIVE)
        of_node = part.nodes["detail"][simulated]
        occupation[part.rows][simulated] = np.where(of_node >= 0, -held[of_node], 0)
        if occupation[part.rows].any():
            timed = np.flatnonzero(
                (part.nodes["treatment"] == Treatment.MODELLED) & (part.nodes["busy"] == 1)
            )
            of_kernel = of_kernels[part.rows][timed]
            for number in unique(of_kernel[of_kernel > 0]).astype(int).tolist():
                if number not in units:
                    units.append(number)
                row = FIRST_FACTOR + units.index(number)
                occupation[part.rows][timed[of_kernel == number]] = row
    if not units:
        return nothing
    slowdowns = records.table(records.SLOWDOWN, len(units))
    for row, number in zip(slowdowns, units, strict=True):
        row.alone, row.beside, row.each = number, number - number // 2, 1
    return occupation, slowdowns
