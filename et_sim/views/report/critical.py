"""The page's section on the critical path: causes of the makespan, sensitivities, and steps."""

from __future__ import annotations

from et_sim.basics.units import format_ns, plural
from et_sim.views.critical.path import CriticalPath, PathHop
from et_sim.views.critical.sensitivity import Sensitivities
from et_sim.views.critical.text import ranks_of
from et_sim.views.drawing.critical import path_picture
from et_sim.views.markup import absent, cut_text, more, section, tag
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import recorded_part
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.summary.rank_table import called
from et_sim.views.text import cut, signed

MOST_HOPS, LONGEST_HOPS = 400, 12


def critical_section(run: RunDirectory, path: CriticalPath | None) -> str:
    """Return causes, sensitivities and the longest steps; empty if the path was not recorded."""
    if path is None and run.holds("path"):
        part = recorded_part(run)
        reason = f"Only the nodes of {part} were recorded, and a critical path leads through all of them"
        return section("critical", "Critical path", absent(reason, "simulate without --ranks and --window"))
    if path is None:
        return ""
    note = "the chain of events that decided the makespan; the causes add up to it"
    return section(
        "critical",
        "Critical path",
        tag("p", note, class_="note"),
        tag("div", path_picture(path), class_="picture"),
        _changes(path),
        _steps(run, path),
    )


def _changes(path: CriticalPath) -> str:
    """Return the table of parameters that change the makespan."""
    if not path.record.is_complete:
        return ""
    heading = "changes of the makespan" + (
        "" if path.record.is_exact else " (estimates: resources are shared)"
    )
    changes = Sensitivities(path).changes()
    sheet = Sheet(
        (
            SheetColumn(heading, "parameter", "<"),
            SheetColumn("if 1 % better", lambda change: _signed(change.better_ns)),
            SheetColumn("if 1 % worse", lambda change: _signed(change.worse_ns)),
        )
    )
    return sheet.table(changes) if changes else ""


def _signed(change: float) -> str:
    return signed(change).replace("-", "−")  # noqa: RUF001 (a minus)


def _steps(run: RunDirectory, path: CriticalPath) -> str:
    ranks, hops = run.actors()["ranks"].to_pylist(), path.hops()
    longest = sorted(range(len(hops)), key=lambda at: (hops[at].start_ns - hops[at].end_ns, at))
    shown = sorted(longest[:LONGEST_HOPS])
    sheet = _hop_sheet(ranks)
    few = sheet.table([hops[at] for at in shown], _caption(len(shown)))
    if len(hops) <= len(shown):
        return few
    cut = "" if len(hops) <= MOST_HOPS else f", of which the first {MOST_HOPS}"
    every = sheet.table(hops[:MOST_HOPS])
    return few + more(f"all {plural(len(hops), 'step')}{cut}", every)


def _caption(count: int) -> str:
    """Return the caption of the table of the longest steps."""
    return f"the longest {plural(count, 'step')}, in order" if count > 1 else ""


def _hop_sheet(ranks: list[str]) -> Sheet:
    def on(hop: PathHop) -> str:
        passed = ranks_of(hop, ranks)
        return cut_text(called(passed, 16), called(passed, len(passed))) if passed else ""

    return Sheet(
        (
            SheetColumn("from", "start_ns"),
            SheetColumn("takes", lambda hop: format_ns(hop.end_ns - hop.start_ns)),
            SheetColumn("kind", lambda hop: hop.kind.replace("_", " "), "<"),
            SheetColumn("operation", side="<", markup=lambda hop: cut_text(cut(hop.name, 40), hop.name)),
            SheetColumn("on", side="<", markup=on),
            SheetColumn("began after", "after", "<"),
        )
    )
