"""A comparison of two runs as text. Not here: finding the differences (`compare`)."""

from __future__ import annotations

from collections.abc import Sequence

from et_sim.basics.units import format_ns, plural
from et_sim.views.compare.changes import Change, Comparison, RankChange, scopes, why
from et_sim.views.summary.parts import PARTS
from et_sim.views.summary.sentences import difference_text
from et_sim.views.text import fitted, not_shown, percent, shortened, signed, wrapped

MARGIN = 12


def comparison_lines(found: Comparison, width: int, top: int) -> list[str]:
    """What changed, the largest changes first; each table has at most `top` lines."""
    lines = [_makespan(found)]
    off = "" if found.is_identical else difference_text(found.a.summary, found.b.summary)
    said = [("uncertainty", off)] if off else []
    said += [*([] if found.is_identical else [("in short", why(found))]), *scopes(found)]
    for name, text in said:
        lines += wrapped(_fact(name, text), width, MARGIN + 1)
    lines += [_fact("status", f"{found.a.summary['status']}, then {found.b.summary['status']}")] * (
        found.a.summary["status"] != found.b.summary["status"]
    )
    lines += [
        _fact("input" if number == 0 else "", shortened(text, width - MARGIN - 1))
        for number, text in enumerate(found.inputs)
    ]
    if found.is_identical:
        same = "identical: every operation, group and rank took as long as before"
        return [*lines, same if found.dimensions is None else f"{same}, in every dimension"]
    if found.parting is not None:
        lines += wrapped(_fact("they part", found.parting.as_text()), width, MARGIN + 1)
    lines += ["", *_table(found.operations, ("kind", "operation", "group"), {1: 12, 2: 6, 0: 8}, width, top)]
    if any(one.name != ("all",) for one in found.groups):
        lines += ["", *_table(found.groups, ("group",), {0: 8}, width, top)]
    if found.dimensions is not None:
        lines += ["", *_table(found.dimensions, ("dimension",), {}, width, top)]
    lines += ["", *_ranks(found.ranks, width, top)]
    lines += ["", "before and after are sums over all ranks; of ranks, their own times"]
    return lines


def _makespan(found: Comparison) -> str:
    before, after = found.makespans_ns
    text = f"{format_ns(before)}, then {format_ns(after)}"
    if before == after:
        return _fact("makespan", f"{format_ns(before)} ({before:,} ns) in both")
    return _fact("makespan", f"{text}: {signed(after - before)} ({percent(before, after)})")


def _table(
    changes: Sequence[Change], names: Sequence[str], shrink: dict[int, int], width: int, top: int
) -> list[str]:
    changed = [one for one in changes if one.a_ns != one.b_ns or one.a_count != one.b_count]
    what = names[-2] if len(names) > 1 else names[0]
    if not changed:
        return [f"every {what} took as long as before"]
    used = [place for place in range(len(names)) if place == 0 or any(one.name[place] for one in changed)]
    used = [
        place
        for place in used
        if names[place] != "group" or {one.name[place] for one in changed} - {"", "all"} or len(names) == 1
    ]
    rows = [(*(names[place] for place in used), "count", "before", "after", "difference", "")]
    rows += [(*(one.name[place] for place in used), _counts(one), *_times(one)) for one in changed[:top]]
    shrinks = {used.index(place): least for place, least in shrink.items() if place in used}
    cut = [at for at, place in enumerate(used) if names[place] in ("operation", "group")]
    count, before, share = len(used), len(used) + 1, len(used) + 4
    lines = fitted(
        rows, "<" * len(used) + ">>>>>", width, shrink=shrinks, drop=(count, share, before), names=cut
    )
    lines += not_shown(len(changed) - top, "smaller change", ": --top, or --json")
    if len(changed) < len(changes):
        lines.append(f"the other {plural(len(changes) - len(changed), what)} took as long as before")
    return lines


def _ranks(changes: Sequence[RankChange] | None, width: int, top: int) -> list[str]:
    if changes is None:
        return ["ranks cannot be compared: the runs have different numbers of them"]
    changed = [one for one in changes if any(a != b for a, b in one.figures.values())]
    if not changed:
        return ["every rank did as before"]
    parts = [part for part in PARTS if any(a != b for a, b in (one.figures[part.figure] for one in changed))]
    rows: list[tuple[str, ...]] = [
        ("ranks", "finish before", "after", "difference", "", *(f"in {part.short}" for part in parts))
    ]
    for one in changed[:top]:
        before, after = one.figures["finish_ns"]
        others = [signed((b or 0) - (a or 0)) for a, b in (one.figures[part.figure] for part in parts)]
        finish = ("never" if time is None else format_ns(time) for time in (before, after))
        known = before is not None and after is not None
        difference = signed(one.difference_ns) if known else "-"
        rows.append(
            (one.ranks, *finish, difference, percent(before or 0, after or 0) if known else "", *others)
        )
    parts_from_last = range(4 + len(parts), 4, -1)
    lines = fitted(rows, "<>>>>" + ">" * len(parts), width, shrink={0: 8}, drop=(4, 1, *parts_from_last))
    return [*lines, *not_shown(len(changed) - top, "line", " of ranks more: --top, or --json")]


def _counts(one: Change) -> str:
    return f"{one.a_count:,}" if one.a_count == one.b_count else f"{one.a_count:,}→{one.b_count:,}"


def _times(one: Change) -> tuple[str, str, str, str]:
    before, after = ("-" if time is None else format_ns(time) for time in (one.a_ns, one.b_ns))
    share = "" if one.a_ns is None or one.b_ns is None else percent(one.a_ns, one.b_ns)
    return before, after, signed(one.difference_ns), share


def _fact(name: str, text: str) -> str:
    return f"{name:<{MARGIN}} {text}"
