"""Streams of the machine -> lanes of nodes: which node runs on which stream.

Receives take no turns, nor do gaps and nodes that nobody models. Not here: how streams are described
(`et_sim.machine.system`).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from et_sim.basics.errors import MachineError, did_you_mean
from et_sim.basics.group_names import shown_group
from et_sim.machine.model import Notice, Stream, StreamWork
from et_sim.plan.tables import LANES, lane_limits
from et_sim.trace.columns import BoolColumn, NodeKind, Trace


def is_named(trace: Trace, pattern: str | None) -> BoolColumn:
    """Which nodes have a name that the pattern fits; None: all."""
    if pattern is None:
        return np.ones(len(trace), np.bool_)
    matches = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL).fullmatch
    fits = np.array([matches(name) is not None for name in trace.names], np.bool_)
    found: BoolColumn = fits[trace.name]
    return found


_SUGGESTED = 1000  # names that are looked at for one that was meant
_KINDS = {
    StreamWork.SENDS: NodeKind.SEND,
    StreamWork.COLLECTIVES: NodeKind.COLL,
    StreamWork.LOADS: NodeKind.MEM_LOAD,
    StreamWork.STORES: NodeKind.MEM_STORE,
}


class StreamLanes:
    """The lanes that streams are, behind the others."""

    def __init__(self, streams: tuple[Stream, ...]) -> None:
        self._streams = streams
        self._fitting = [0] * len(streams)  # nodes, whether or not a stream before has them
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
            found = works.copy()
            if stream.nodes is not None:
                self._names[number].update(
                    trace.names[name] for name in np.unique(trace.name[works]).tolist()
                )
                found &= is_named(trace, stream.nodes)
            if stream.group is not None:
                groups = [shown_group(name) for name in trace.group_names]
                is_collective = works & (trace.kind == NodeKind.COLL)
                used = np.unique(trace.group[is_collective]).tolist()
                self._groups[number].update(groups[group] for group in used)
                fits = np.array([group == stream.group for group in groups], np.bool_)
                found &= is_collective & fits[trace.group]
            if stream.recorded is not None:
                is_recorded = trace.has("stream")
                self._recorded[number].update(np.unique(trace.stream[works & is_recorded]).tolist())
                found &= is_recorded & (trace.stream == stream.recorded)
            self._fitting[number] += int(found.sum())
            self._taken[number] += int((found & is_free).sum())
            nodes["lane"][found & is_free] = LANES + number
            is_free &= ~found

    def check_all_met(self) -> list[Notice]:
        """Refuse names, groups and numbers that no node has; say which streams have nothing to do."""
        notices = []
        for number, stream in enumerate(self._streams):
            if self._taken[number]:
                continue
            if self._fitting[number]:
                text = "no effect: entries before it take all nodes that fit it"
                notices.append(Notice(stream.place, "takes", text))
                continue
            if not (stream.nodes is None and stream.group is None and stream.recorded is None):
                raise self._nothing_such(number, stream)
            what = " or ".join(work for work in StreamWork if work in stream.takes)
            notices.append(Notice(stream.place, "takes", f"no effect: there are no {what}"))
        return notices

    def _nothing_such(self, number: int, stream: Stream) -> MachineError:
        what = " or ".join(work for work in StreamWork if work in stream.takes)
        for key, wanted, known in (
            ("nodes", stream.nodes, self._names[number]),
            ("group", stream.group, self._groups[number]),
        ):
            if wanted is not None and (wanted not in known or stream.recorded is None):
                names = sorted(known)[:_SUGGESTED]
                examples = ", ".join(f'"{name[:60]}"' for name in names[:3])
                remedy = did_you_mean(wanted.strip("*"), names)
                return MachineError(
                    f'key "{key}" is "{wanted}", and none of the {what} is of that',
                    place=stream.place,
                    remedy=remedy or (f"there are {examples}" if names else f"there are no {what}"),
                )
        numbers = ", ".join(str(one) for one in sorted(self._recorded[number])[:8])
        return MachineError(
            f'key "stream" is {stream.recorded}, and none of the {what} was recorded there',
            place=stream.place,
            remedy=f"recorded: {numbers}" if numbers else "their traces record no streams",
        )


def of_work(trace: Trace, work: StreamWork) -> BoolColumn:
    """Which nodes are of a kind of work; each is of one at most."""
    if work is StreamWork.HOST:
        found: BoolColumn = trace.is_cpu & ~trace.is_gap & ~trace.is_opaque
        return found
    on_device = ~trace.is_cpu & ~trace.is_gap
    if work in _KINDS:
        found = on_device & (trace.kind == _KINDS[work])
    else:
        is_copy = trace.is_copy if work is StreamWork.COPIES else ~trace.is_copy
        found = on_device & (trace.kind == NodeKind.COMP) & is_copy
    return found
