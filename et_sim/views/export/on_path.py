"""The critical path as a track of an exported timeline.

Not here: how it is found (`et_sim.views.critical`).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from et_sim.basics.units import plural
from et_sim.views.critical.path import CriticalPath, PathHop
from et_sim.views.critical.record import PathRecord
from et_sim.views.critical.text import ranks_of
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.recorded_part import recorded_part
from et_sim.views.run.selection import Window

ON_PATH = "critical path"


class Step(Struct, frozen=True):
    """One slice of the track; times are whole nanoseconds, and it takes some."""

    start_ns: int
    end_ns: int
    name: str
    notes: Mapping[str, int | str]


def critical_path(run: RunDirectory, window: Window, limit: int) -> tuple[list[Step], str]:
    """The critical path's steps, and what is left out of them; nothing if the run did not record it."""
    if not run.holds("path") or recorded_part(run):
        return [], ""
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


def _begin(hop: PathHop) -> int:
    return hop.start_ns


def _step(hop: PathHop, names: list[str]) -> Step:
    notes: dict[str, int | str] = {"kind": hop.kind, "ranks": ranks_of(hop, names), "after": hop.after}
    notes |= {f"{cause}_ns": ns for cause, ns in hop.causes.items()}
    return Step(hop.start_ns, hop.end_ns, hop.name, {name: value for name, value in notes.items() if value})
