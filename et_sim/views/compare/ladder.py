"""One workload on several network models, from the simplest up: what each step adds, and where it begins.

Not here: simulating (`et_sim.cli.run_models`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from et_sim.basics.units import format_ns
from et_sim.views.compare.changes import Comparison, TimeChange, compare
from et_sim.views.run.directory import RunDirectory
from et_sim.views.summary.sentences import profile_text
from et_sim.views.text import aligned, percent, signed, wrapped

INDENT = 15


class Rung(Struct, frozen=True, eq=False):
    """A run, and what differs from the one below."""

    run: RunDirectory
    change: Comparison | None  # None: there is none below

    @property
    def most(self) -> TimeChange | None:
        """The operation whose time differs most, if any does."""
        first = self.change.operations[0] if self.change and self.change.operations else None
        return first if first is not None and first.difference_ns else None

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        summary, change, most = self.run.summary, self.change, self.most
        below = None if change is None else change.makespans_ns[0]
        parting = None if change is None else change.parting
        return {
            "model": summary["model"],
            "directory": str(self.run.path),
            "status": summary["status"],
            "makespan_ns": summary["makespan_ns"],
            "other_profile": summary["other_profile"],
            "difference_ns": None if below is None else summary["makespan_ns"] - below,
            "most": most and most.as_dict("kind", "name", "group"),
            "first_difference": parting and parting.as_dict(),
        }


def ladder(runs: Sequence[RunDirectory]) -> list[Rung]:
    """Each run compared with the one before."""
    changes = [None, *(compare(below, above) for below, above in pairwise(runs))]
    return [Rung(run, change) for run, change in zip(runs, changes, strict=True)]


def ladder_lines(rungs: Sequence[Rung], width: int) -> list[str]:
    """The makespans, and below them where every step comes from."""
    rows = [("model", "makespan", "", "difference", "", "")]
    for rung in rungs:
        makespan = rung.run.summary["makespan_ns"]
        status = rung.run.summary["status"]
        before = makespan if rung.change is None else rung.change.makespans_ns[0]
        difference = signed(makespan - before) if makespan != before else "none"
        step = (difference, percent(before, makespan)) if rung.change is not None else ("", "")
        exact = f"({makespan:,} ns{'' if status == 'complete' else f', {status}'})"
        rows.append((rung.run.summary["model"], format_ns(makespan), exact, *step, _corrected(rung.run)))
    lines = [line.rstrip() for line in aligned(rows, "<><>><")]
    for rung in rungs:
        if rung.change is not None:
            lines += ["", *_step(rung, rung.change, width)]
    return [*lines, "", f"all in the {profile_text(rungs[0].run.summary)}"]


def _corrected(run: RunDirectory) -> str:
    other = run.summary["other_profile"]
    if other is None or other["makespan_ns"] is None:
        return ""
    return f"{format_ns(other['makespan_ns'])} {other['profile']}"


def _step(rung: Rung, change: Comparison, width: int) -> list[str]:
    head = f"{change.a.summary['model']} to {change.b.summary['model']}"
    if change.is_identical:
        return [f"{head}: every operation, group and rank takes as long"]
    lines = [f"{head}:"]
    if rung.most is not None:
        kind, name, _ = rung.most.name
        description = f"{signed(rung.most.difference_ns)} in {kind} {name}".rstrip()
        lines += wrapped(f"  most of it   {description}, over all ranks", width, INDENT)
    if change.parting is not None:
        lines += wrapped(f"  they part    {change.parting.as_text()}", width, INDENT)
    return lines
