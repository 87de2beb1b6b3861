"""The threads of the host as nodes: every nanosecond of a thread belongs to one node, in one chain.

A call's node lasts until the call makes another one or ends. The time of a call after an inner call is a node
of its own (`REST`), and time outside of operators is a `GAP`; annotations are marks without duration, and
their time belongs to their content. So no time counts twice, and a replayed thread takes as long as the
recorded one.

A call that starts work of a device is split where that work could begin, if that was before its return, so
that the work can follow the first part; the other part is a `LAUNCH_REST`. A call that waits for a device
begins at the end of the awaited work: the rest is its own time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from converters.pytorch.calls import Calls, DeviceWork, Flags, running_most
from converters.pytorch.columns import NONE
from converters.pytorch.graph import Column, Draft, Link, Rows, RunPart
from et_sim.basics.unique import unique

STEP = 5  # positions for each call: its node, its own rest, its caller's, the gap after it, the gap before it


class Threads(Struct, frozen=True, eq=False):
    """Nodes of the draft, thread by thread in the order of time."""

    node: Rows  # in chains
    lane: Rows
    is_gap: Flags
    position: Rows
    start_of: Column  # by node
    end_of: Column

    @property
    def start_ns(self) -> Column:
        """Return the starts in the order of `node`; they are not stored, to save memory."""
        return self.start_of[self.node]

    @property
    def end_ns(self) -> Column:
        """Return the ends in the order of `node`; they are not stored, to save memory."""
        return self.end_of[self.node]

    def before(self, node: Rows) -> Rows:
        """Return the node before each one on its thread, or NONE."""
        return self._beside(node, -1)

    def after(self, node: Rows) -> Rows:
        """Return the node after each one on its thread, or NONE."""
        return self._beside(node, 1)

    def _beside(self, node: Rows, step: int) -> Rows:
        place = np.empty(int(self.node.max(initial=0)) + 1, np.int64)
        place[self.node] = np.arange(len(self.node))
        at = place[node]
        other = np.clip(at + step, 0, len(self.node) - 1)
        same = (other != at) & (self.lane[other] == self.lane[at])
        nodes: Rows = np.where(same, self.node[other], NONE)
        return nodes

    def last_before(self, lane: Column, moment: Column) -> Column:
        """Return the last node of a lane that has ended at a moment, except gaps; NONE if there is none."""
        nodes = np.full(len(moment), NONE, np.int64)
        ends = self.end_ns
        for thread in unique(lane).tolist():
            rows = np.flatnonzero((self.lane == thread) & ~self.is_gap)
            wanted = np.flatnonzero(lane == thread)
            if len(rows):
                at = np.searchsorted(ends[rows], moment[wanted], "right") - 1
                nodes[wanted] = np.where(at >= 0, self.node[rows[np.maximum(at, 0)]], NONE)
        return nodes


def add_threads(
    draft: Draft, calls: Calls, work: DeviceWork, arrival_ns: Column, waited_until: Column
) -> Threads:
    """Add the nodes of all threads with their chains; node i of the draft is call i.

    `arrival_ns` is the time at which the launch of each piece of work permitted its start, `waited_until` the
    end of the awaited work of a waiting call, else NONE.
    """
    is_mark = calls.is_annotation
    covered = running_most(calls.lane, np.where(is_mark, calls.start_ns, calls.end_ns))
    is_last = np.append(calls.lane[1:] != calls.lane[:-1], True)
    ends = np.append(calls.start_ns[1:], 0)
    until = np.where(is_last, running_most(calls.lane, calls.end_ns), ends)
    start, end = _own_time(calls, work, arrival_ns, until, waited_until, is_mark)
    role = np.full(len(calls), RunPart.LAUNCH, np.uint8)
    role[calls.is_operator] = RunPart.OPERATOR
    role[is_mark] = RunPart.MARKER
    role[waited_until != NONE] = RunPart.WAIT
    nodes = draft.add(role, start, end, call=np.arange(len(calls)))
    worked = np.maximum(np.minimum(covered, until), end)
    own_position = nodes * STEP
    lane = calls.lane
    parts = [(nodes, lane, np.zeros(len(nodes), bool), own_position)]
    returned = np.where(role == RunPart.LAUNCH, np.maximum(np.minimum(calls.end_ns, until), end), end)
    outlasting = np.flatnonzero(returned > end)
    parts.append(
        _part(
            draft,
            RunPart.LAUNCH_REST,
            lane[outlasting],
            end[outlasting],
            returned[outlasting],
            own_position[outlasting] + 1,
        )
    )
    outlasting = np.flatnonzero(worked > returned)
    parts.append(
        _part(
            draft,
            RunPart.REST,
            lane[outlasting],
            returned[outlasting],
            worked[outlasting],
            own_position[outlasting] + 2,
        )
    )
    outlasting = np.flatnonzero(until > worked)
    parts.append(
        _part(
            draft,
            RunPart.GAP,
            lane[outlasting],
            worked[outlasting],
            until[outlasting],
            own_position[outlasting] + 3,
        )
    )
    first = np.flatnonzero(np.insert(is_last[:-1], 0, True) & (start > 0)) if len(calls) else outlasting[:0]
    parts.append(
        _part(draft, RunPart.GAP, lane[first], start[first] * 0, start[first], own_position[first] - 1)
    )
    columns = list(zip(*parts, strict=True))
    del parts, covered, until, worked, returned, start, end
    order = np.lexsort((np.concatenate(columns[3]), np.concatenate(columns[1]))).astype(np.int32)
    node, lane, is_gap, position = (np.concatenate(column)[order] for column in columns)
    threads = Threads(node, lane, is_gap, position, *draft.times())
    same = threads.lane[1:] == threads.lane[:-1]
    draft.link(Link.THREAD_ORDER, threads.node[:-1][same], threads.node[1:][same])
    draft.link(Link.CALL_TREE, calls.parent, nodes)
    return threads


def _part(draft: Draft, role: RunPart, lane: Rows, start: Column, end: Column, position: Rows) -> Any:
    node = draft.add(role, start, end)
    return node, lane, np.full(len(node), role == RunPart.GAP), position


def _own_time(
    calls: Calls, work: DeviceWork, arrival_ns: Column, until: Column, waited_until: Column, is_mark: Flags
) -> tuple[Column, Column]:
    """Return the start and the end of each call's node."""
    start = calls.start_ns.copy()
    end = np.minimum(calls.end_ns, until)
    first_work = np.full(len(calls), np.iinfo(np.int64).max)
    launched = work.call != NONE
    np.minimum.at(first_work, work.call[launched], arrival_ns[launched])
    end = np.clip(first_work, start, end)
    end[is_mark] = start[is_mark]
    own_end = np.minimum(calls.end_ns, until)
    waits = (waited_until != NONE) & (
        waited_until <= own_end
    )  # a call that makes further calls has not waited
    end[waits] = own_end[waits]
    start[waits] = np.maximum(waited_until[waits], start[waits])
    return start, end
