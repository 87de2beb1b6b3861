"""A comparison of two runs as text. Not here: finding the differences (`compare`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from et_sim.basics.units import format_ns, plural
from et_sim.views.compare.changes import Comparison, RankChange, TimeChange, compare, scopes, why
from et_sim.views.run.directory import RunDirectory
from et_sim.views.summary.parts import PARTS
from et_sim.views.summary.sentences import difference_text, profile_text
from et_sim.views.text import aligned, fitted, not_shown, percent, shortened, signed, wrapped

MARGIN = 12


def comparison_lines(comparison: Comparison, width: int, top: int) -> list[str]:
    """What changed, the largest changes first; each table has at most `top` lines."""
    lines = [_makespan(comparison)]
    off = "" if comparison.is_identical else difference_text(comparison.a.summary, comparison.b.summary)
    facts = [("uncertainty", off)] if off else []
    facts += [*([] if comparison.is_identical else [("in short", why(comparison))]), *scopes(comparison)]
    for name, text in facts:
        lines += wrapped(_fact(name, text), width, MARGIN + 1)
    lines += [_fact("status", f"{comparison.a.summary['status']}, then {comparison.b.summary['status']}")] * (
        comparison.a.summary["status"] != comparison.b.summary["status"]
    )
    lines += [
        _fact("input" if number == 0 else "", shortened(text, width - MARGIN - 1))
        for number, text in enumerate(comparison.inputs)
    ]
    if comparison.is_identical:
        same = "identical: every operation, group and rank took as long as before"
        return [*lines, same if comparison.dimensions is None else f"{same}, in every dimension"]
    if comparison.parting is not None:
        lines += wrapped(_fact("they part", comparison.parting.as_text()), width, MARGIN + 1)
    lines += [
        "",
        *_table(comparison.operations, ("kind", "operation", "group"), {1: 12, 2: 6, 0: 8}, width, top),
    ]
    if any(change.name != ("all",) for change in comparison.groups):
        lines += ["", *_table(comparison.groups, ("group",), {0: 8}, width, top)]
    if comparison.dimensions is not None:
        lines += ["", *_table(comparison.dimensions, ("dimension",), {}, width, top)]
    lines += ["", *_ranks(comparison.ranks, width, top)]
    lines += ["", "before and after are sums over all ranks; of ranks, their own times"]
    return lines


def _makespan(comparison: Comparison) -> str:
    before, after = comparison.makespans_ns
    text = f"{format_ns(before)}, then {format_ns(after)}"
    if before == after:
        return _fact("makespan", f"{format_ns(before)} ({before:,} ns) in both")
    return _fact("makespan", f"{text}: {signed(after - before)} ({percent(before, after)})")


def _table(
    changes: Sequence[TimeChange], names: Sequence[str], shrink: dict[int, int], width: int, top: int
) -> list[str]:
    changed = [change for change in changes if change.a_ns != change.b_ns or change.a_count != change.b_count]
    noun = names[-2] if len(names) > 1 else names[0]
    if not changed:
        return [f"every {noun} took as long as before"]
    used = [
        place for place in range(len(names)) if place == 0 or any(change.name[place] for change in changed)
    ]
    used = [
        place
        for place in used
        if names[place] != "group"
        or {change.name[place] for change in changed} - {"", "all"}
        or len(names) == 1
    ]
    rows = [(*(names[place] for place in used), "count", "before", "after", "difference", "")]
    rows += [
        (*(change.name[place] for place in used), _counts(change), *_times(change))
        for change in changed[:top]
    ]
    shrinks = {used.index(place): least for place, least in shrink.items() if place in used}
    cut = [at for at, place in enumerate(used) if names[place] in ("operation", "group")]
    count, before, share = len(used), len(used) + 1, len(used) + 4
    lines = fitted(
        rows, "<" * len(used) + ">>>>>", width, shrink=shrinks, drop=(count, share, before), names=cut
    )
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
    rows: list[tuple[str, ...]] = [
        ("ranks", "finish before", "after", "difference", "", *(f"in {part.short}" for part in parts))
    ]
    for change in changed[:top]:
        before, after = change.figures["finish_ns"]
        others = [signed((b or 0) - (a or 0)) for a, b in (change.figures[part.figure] for part in parts)]
        finish = ("never" if time is None else format_ns(time) for time in (before, after))
        known = before is not None and after is not None
        difference = signed(change.difference_ns) if known else "-"
        rows.append(
            (change.ranks, *finish, difference, percent(before or 0, after or 0) if known else "", *others)
        )
    parts_from_last = range(4 + len(parts), 4, -1)
    lines = fitted(rows, "<>>>>" + ">" * len(parts), width, shrink={0: 8}, drop=(4, 1, *parts_from_last))
    return [*lines, *not_shown(len(changed) - top, "line", " of ranks more: --top, or --json")]


def _counts(change: TimeChange) -> str:
    return (
        f"{change.a_count:,}"
        if change.a_count == change.b_count
        else f"{change.a_count:,}→{change.b_count:,}"
    )


def _times(change: TimeChange) -> tuple[str, str, str, str]:
    before, after = ("-" if time is None else format_ns(time) for time in (change.a_ns, change.b_ns))
    share = "" if change.a_ns is None or change.b_ns is None else percent(change.a_ns, change.b_ns)
    return before, after, signed(change.difference_ns), share


def _fact(name: str, text: str) -> str:
    return f"{name:<{MARGIN}} {text}"


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
