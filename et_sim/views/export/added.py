"""Slices of an exported timeline that are no nodes: what comes from another rank, and the critical path.

Viewers let an arrow lead from the slice that begins first to the other, whatever the file says. A receive
that waits begins before the send that it waits for, and so does a member of a collective before those that
come later. Within it therefore lies a slice that begins when the other does, and the arrow leads to that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from et_sim.units import format_ranks, plural
from et_sim.views.critical.path import CriticalPath, Hop
from et_sim.views.critical.record import PathRecord
from et_sim.views.critical.text import ranks_of
from et_sim.views.drawing.nodes import NONE
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.recorded_part import recorded_part
from et_sim.views.run.selection import Window

FROM_ANOTHER, ON_PATH = "from another rank", "critical path"
MOST_EVENTS = 2_000_000


@dataclass(frozen=True, slots=True)
class Added:
    """One slice; times are whole nanoseconds, and it takes some."""

    parent: int  # the slice within which it lies; NONE: it lies in the track of the critical path
    start_ns: int
    end_ns: int
    name: str
    category: str
    notes: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Message:
    """An arrow from a slice to another, or to what is added within that."""

    send: int
    receive: int
    arrival: int  # in the slices added; NONE: the receive itself


def arrivals_of(pairs: Any, start_ns: Any, end_ns: Any, ranks: Any) -> tuple[list[Added], list[Message]]:
    """What is added within the later slice of each pair, and the arrows; none whose message takes no time."""
    send, receive = (pairs[:, at] for at in range(2))
    takes_time = start_ns[send] < end_ns[receive]
    send, receive = send[takes_time], receive[takes_time]
    is_late = start_ns[send] > start_ns[receive]
    spans, of_late = np.unique(
        np.stack((receive[is_late], start_ns[send[is_late]]), axis=1), axis=0, return_inverse=True
    )
    of_late = of_late.reshape(-1)
    arrival = np.full(len(send), NONE)
    arrival[is_late] = of_late
    senders: list[set[int]] = [set() for _ in spans]
    for at, rank in zip(of_late.tolist(), ranks[send[is_late]].tolist(), strict=True):
        senders[at].add(rank)
    inside, begins = spans[:, 0], spans[:, 1]
    ends = end_ns[inside]
    has_next = inside[1:] == inside[:-1]
    ends[:-1][has_next] = begins[1:][has_next]
    added = [
        Added(parent, begin, end, f"from {called(of)}", FROM_ANOTHER)
        for parent, begin, end, of in zip(
            inside.tolist(), begins.tolist(), ends.tolist(), senders, strict=True
        )
    ]
    rows = zip(send.tolist(), receive.tolist(), arrival.tolist(), strict=True)
    return added, [Message(*row) for row in rows]


def called(ranks: set[int]) -> str:
    """Ranks by their numbers, or how many they are."""
    if len(ranks) > 8:
        return plural(len(ranks), "rank")
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(sorted(ranks))}"


def critical_path(run: RunDirectory, window: Window, limit: int) -> tuple[list[Added], str]:
    """The critical path's steps, and what is left out of them; nothing if the run did not record it."""
    if not run.holds("path") or recorded_part(run):
        return [], ""
    events = sum(len(batch) for batch in run.batches("path", ("end_ns",)))
    if events > MOST_EVENTS:
        return [], f"does not show the critical path, whose record has {events:,} events"
    names = run.actors()["ranks"].to_pylist()
    hops = [
        hop
        for hop in CriticalPath(PathRecord(run)).hops()
        if hop.start_ns < window[1] and hop.end_ns > window[0]
    ]
    shown = sorted(
        sorted(hops, key=lambda hop: (hop.start_ns - hop.end_ns, hop.start_ns))[:limit], key=_begin
    )
    steps = plural(len(hops), "step")
    left_out = f"shows the longest {limit:,} of {steps} of the critical path" if len(hops) > limit else ""
    return [_step(hop, names) for hop in shown], left_out


def _begin(hop: Hop) -> int:
    return hop.start_ns


def _step(hop: Hop, names: list[str]) -> Added:
    notes: dict[str, int | str] = {"kind": hop.kind, "ranks": ranks_of(hop, names), "after": hop.after}
    notes |= {f"{cause}_ns": ns for cause, ns in hop.causes.items()}
    noted = {name: value for name, value in notes.items() if value}
    return Added(NONE, hop.start_ns, hop.end_ns, hop.name, ON_PATH, noted)
