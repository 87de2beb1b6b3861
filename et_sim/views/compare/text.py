"""A comparison of two runs as text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from msgspec import Struct, structs

from et_sim.basics.units import format_ns, plural
from et_sim.views.bands import BAND, Band, band_of_runs, band_text, difference_text, notes, percent_text
from et_sim.views.compare.changes import Comparison, RankChange, TimeChange, compare, main_change, scopes
from et_sim.views.compare.samples import sampled_text
from et_sim.views.run.directory import RunDirectory
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.summary.parts import PARTS
from et_sim.views.summary.sentences import profile_text
from et_sim.views.text import FACT_INDENT, fact, fact_lines, not_shown, percent, shortened, signed, wrapped


def comparison_lines(comparison: Comparison, width: int, top: int) -> list[str]:
    """Return the changes, the largest first; each table has at most `top` lines."""
    lines = [_makespan(comparison)]
    off = "" if comparison.is_identical else difference_text(comparison.a.summary, comparison.b.summary)
    facts = [("uncertainty", off)] if off else []
    facts += [
        *([] if comparison.is_identical else [("in short", main_change(comparison))]),
        *scopes(comparison),
        ("samples", sampled_text(comparison.a, comparison.b)),
    ]
    lines += fact_lines(facts, width)
    lines += [fact("status", f"{comparison.a.summary['status']}, then {comparison.b.summary['status']}")] * (
        comparison.a.summary["status"] != comparison.b.summary["status"]
    )
    lines += [
        fact("input" if number == 0 else "", shortened(text, width - FACT_INDENT))
        for number, text in enumerate(comparison.inputs)
    ]
    if comparison.is_identical:
        same = "identical: every operation, group and rank took as long as before"
        return [*lines, same if comparison.dimensions is None else f"{same}, in every dimension"]
    if comparison.parting is not None:
        lines += fact_lines([("they part", comparison.parting.as_text())], width)
    lines += [
        "",
        *_table(
            comparison.operations,
            ("kind", "operation", "group"),
            {"operation": 12, "group": 6, "kind": 8},
            width,
            top,
        ),
    ]
    if any(change.name != ("all",) for change in comparison.groups):
        lines += ["", *_table(comparison.groups, ("group",), {"group": 8}, width, top)]
    if comparison.dimensions is not None:
        lines += ["", *_table(comparison.dimensions, ("dimension",), {}, width, top)]
    lines += ["", *_ranks(comparison.ranks, width, top)]
    lines += ["", "before and after are sums over all ranks; of ranks, their own times"]
    return lines


def _makespan(comparison: Comparison) -> str:
    before, after = comparison.makespans_ns
    text = f"{format_ns(before)}, then {format_ns(after)}"
    if before == after:
        return fact("makespan", f"{format_ns(before)} ({before:,} ns) in both")
    return fact("makespan", f"{text}: {signed(after - before)} ({percent(before, after)})")


def _table(
    changes: Sequence[TimeChange], names: Sequence[str], cut: dict[str, int], width: int, top: int
) -> list[str]:
    changed = [change for change in changes if change.differs]
    noun = names[-2] if len(names) > 1 else names[0]
    if not changed:
        return [f"every {noun} took as long as before"]
    has_groups = len(names) == 1 or any(change.name[-1] not in ("", "all") for change in changed)
    sheet = Sheet(
        (
            *(
                SheetColumn(name, partial(_name, at), "<", is_optional=at > 0)
                for at, name in enumerate(names)
                if name != "group" or has_groups
            ),
            *change_columns("before", "after"),
        ),
        cut=cut,
        drop=("count", "share of difference", "before"),
        names=("operation", "group"),
    )
    lines = sheet.lines(changed[:top], width)
    lines += not_shown(len(changed) - top, "smaller change", ": --top, or --json")
    if len(changed) < len(changes):
        lines.append(f"the other {plural(len(changes) - len(changed), noun)} took as long as before")
    return lines


def _ranks(changes: Sequence[RankChange] | None, width: int, top: int) -> list[str]:
    if changes is None:
        return ["ranks cannot be compared: the runs have different numbers of them"]
    changed = [change for change in changes if any(a != b for a, b in change.figures.values())]
    if not changed:
        return ["every rank did as before"]
    parts = [
        part for part in PARTS if any(a != b for a, b in (change.figures[part.figure] for change in changed))
    ]
    sheet = Sheet(
        (
            SheetColumn("ranks", side="<"),
            *finish_columns("finish before", "after"),
            SheetColumn(
                "",
                lambda change: percent(*change.figures["finish_ns"]) if _is_known(change) else "",
                key="share of difference",
            ),
            *(SheetColumn(f"in {part.short}", partial(_more, part.figure)) for part in parts),
        ),
        cut={"ranks": 8},
        drop=("share of difference", "finish before", *(f"in {part.short}" for part in reversed(parts))),
    )
    lines = sheet.lines(changed[:top], width)
    return [*lines, *not_shown(len(changed) - top, "line", " of ranks more: --top, or --json")]


def change_columns(before: str, after: str) -> tuple[SheetColumn, ...]:
    """Return columns for changes of operations, groups and dimensions, with these heads."""
    return (
        SheetColumn("count", _counts),
        SheetColumn(before, "a_ns", missing="-"),
        SheetColumn(after, "b_ns", missing="-"),
        SheetColumn("difference", lambda change: signed(change.difference_ns)),
        SheetColumn("", _share, key="share of difference"),
    )


def finish_columns(before: str, after: str) -> tuple[SheetColumn, ...]:
    """Return columns for finish times of ranks, with these heads."""
    return (
        SheetColumn(before, lambda change: _finish(change, 0)),
        SheetColumn(after, lambda change: _finish(change, 1)),
        SheetColumn("difference", lambda change: signed(change.difference_ns) if _is_known(change) else "-"),
    )


def _finish(change: RankChange, which: int) -> str:
    time = change.figures["finish_ns"][which]
    return "never" if time is None else format_ns(time)


def _is_known(change: RankChange) -> bool:
    return None not in change.figures["finish_ns"]


def _more(figure: str, change: RankChange) -> str:
    before, after = change.figures[figure]
    return signed((after or 0) - (before or 0))


def _name(at: int, change: TimeChange) -> str:
    return change.name[at]


def _counts(change: TimeChange) -> str:
    return (
        f"{change.a_count:,}"
        if change.a_count == change.b_count
        else f"{change.a_count:,}→{change.b_count:,}"
    )


def _share(change: TimeChange) -> str:
    return "" if change.a_ns is None or change.b_ns is None else percent(change.a_ns, change.b_ns)


INDENT = 15


class Rung(Struct, frozen=True, eq=False):
    """A run, and its difference from the one below."""

    run: RunDirectory
    change: Comparison | None  # None: there is no run below

    @property
    def most(self) -> TimeChange | None:
        """Return the operation whose time differs most, if any does."""
        first = self.change.operations[0] if self.change and self.change.operations else None
        return first if first is not None and first.difference_ns else None

    def as_dict(self) -> dict[str, Any]:
        """Return it for `--json`."""
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
            "first_difference": parting and structs.asdict(parting),
        }


def ladder(runs: Sequence[RunDirectory]) -> list[Rung]:
    """Compare each run with the one before."""
    changes = [None, *(compare(below, above) for below, above in pairwise(runs))]
    return [Rung(run, change) for run, change in zip(runs, changes, strict=True)]


def ladder_lines(rungs: Sequence[Rung], width: int) -> list[str]:
    """Return the makespans, and below them the cause of every step."""
    lines = [*LADDER.lines(rungs), *notes(map(_band, rungs))]
    for rung in rungs:
        if rung.change is not None:
            lines += ["", *_step(rung, rung.change, width)]
    return [*lines, "", f"all in the {profile_text(rungs[0].run.summary)}"]


def _exact(rung: Rung) -> str:
    makespan, status = rung.run.summary["makespan_ns"], rung.run.summary["status"]
    return f"({makespan:,} ns{'' if status == 'complete' else f', {status}'})"


def _difference(rung: Rung) -> str:
    if rung.change is None:
        return ""
    difference = rung.run.summary["makespan_ns"] - rung.change.makespans_ns[0]
    return signed(difference) if difference else "none"


def _percent(rung: Rung) -> str:
    if rung.change is None:
        return ""
    return percent_text(rung.change.makespans_ns[0], rung.run.summary["makespan_ns"], _band(rung))


def _band(rung: Rung) -> Band | None:
    return None if rung.change is None else band_of_runs(rung.change.a.summary, rung.run.summary)


def _corrected(rung: Rung) -> str:
    other = rung.run.summary["other_profile"]
    if other is None or other["makespan_ns"] is None:
        return ""
    return f"{format_ns(other['makespan_ns'])} {other['profile']}"


LADDER = Sheet(
    (
        SheetColumn("model", lambda rung: rung.run.summary["model"], "<"),
        SheetColumn("makespan", lambda rung: format_ns(rung.run.summary["makespan_ns"])),
        SheetColumn("", _exact, "<"),
        SheetColumn("difference", _difference),
        SheetColumn("", _percent),
        SheetColumn(BAND, lambda rung: band_text(_band(rung)), is_optional=True),
        SheetColumn("", _corrected, "<"),
    )
)


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
