"""Two runs as one HTML page: why they differ, their timelines on one axis, and what changed most.

Not here: finding the differences (`views.compare`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from et_sim.basics.units import format_ns, plural
from et_sim.views.compare.changes import Change, Comparison, averages, scopes, why
from et_sim.views.drawing.timeline import aligned_picture
from et_sim.views.report.markup import absent, bar, more, section, table, tag, text
from et_sim.views.report.page import page_of, run_in_brief
from et_sim.views.run.slices import link_table
from et_sim.views.run.tiers import tier_uses
from et_sim.views.summary.parts import PARTS
from et_sim.views.summary.sentences import difference_text
from et_sim.views.text import distinct, percent, share, shortened, signed

MOST_ROWS, MOST_RANKS = 20, 24
Figures = Mapping[str, Any]


def compare_report(found: Comparison) -> str:
    """The page as text."""
    names = [run.path.resolve().name for run in (found.a, found.b)]
    sections = (
        _headline(found),
        _timelines(found),
        _ranks(found),
        _changed("operations", "Operations", ("kind", "operation", "group"), found.operations),
        _changed("groups", "Groups", ("group",), found.groups),
        _changed("dimensions", "Phases by dimension", ("dimension",), found.dimensions),
        _links(found),
        _inputs(found),
    )
    return page_of(
        sections,
        heading=f"A: {names[0]}, B: {names[1]}",
        subtitle=f"two runs. A: {run_in_brief(found.a)}. B: {run_in_brief(found.b)}",
        version=found.b.manifest["et_sim"],
        title=f"{names[0]} and {names[1]}",
    )


def _headline(found: Comparison) -> str:
    longest = max(*found.makespans_ns, 1)
    sentence = why(found) + (f"; they part where {found.parting.as_text()}" if found.parting else "")
    off = "" if found.is_identical else difference_text(found.a.summary, found.b.summary)
    rows = []
    for name, run in (("A", found.a), ("B", found.b)):
        parts, makespan = averages(run), run.summary["makespan_ns"]
        stacked = bar([(part.short, part.text, parts[part.figure]) for part in PARTS], longest)
        rows.append((name, f"{format_ns(makespan)} <small>{makespan:,} ns</small>", stacked))
    either = [averages(run) for run in (found.a, found.b)]
    legend = "".join(
        tag("li", f'<i class="{part.short}"></i>{text(part.text)} <b>{_both(either, part.figure)}</b>')
        for part in PARTS
        if any(one[part.figure] for one in either)
    )
    return section(
        "headline",
        "Overview",
        tag("p", f"{text(sentence[0].upper() + sentence[1:])}.", class_="short"),
        tag("p", f"the difference, {text(off)}", class_="note") if off else "",
        *(tag("p", f"{name} {text(said)}", class_="note") for name, said in scopes(found)),
        tag("p", "what the average rank spends its time on, on one scale", class_="note"),
        table("", ("run", "makespan", ""), rows, "<><"),
        tag("ul", legend, class_="legend"),
    )


def _both(either: Sequence[Figures], figure: str) -> str:
    before, after = (one[figure] for one in either)
    return format_ns(before) if before == after else f"{format_ns(before)} → {format_ns(after)}"


def _timelines(found: Comparison) -> str:
    picture = tag("div", aligned_picture(found), class_="picture")
    note = "the ranks whose finish differs most, on one axis of time"
    return section("timeline", "Aligned timelines", tag("p", note, class_="note"), picture)


def _ranks(found: Comparison) -> str:
    if found.ranks is None:
        counts = " and ".join(f"{run.summary['ranks']:,}" for run in (found.a, found.b))
        reason = absent("Ranks are not compared one by one", f"the runs have {counts} of them")
        return section("ranks", "Ranks", reason)
    longest = max(*found.makespans_ns, 1)
    rows = []
    for one in found.ranks[:MOST_RANKS]:
        bars = [
            bar([(part.short, part.text, one.figures[part.figure][side] or 0) for part in PARTS], longest)
            for side in (0, 1)
        ]
        finish = ("never" if time is None else format_ns(time) for time in one.figures["finish_ns"])
        known = None not in one.figures["finish_ns"]
        difference = signed(one.difference_ns) if known else "-"
        rows.append((text(shortened(one.ranks, 28)), *finish, difference, "".join(bars)))
    shown = table("", ("ranks", "finish in A", "in B", "difference", "A above B"), rows, "<>>><")
    rest = len(found.ranks) - len(rows)
    left = tag("p", f"… and {plural(rest, 'line')} of ranks that differ less", class_="note") if rest else ""
    return section("ranks", "Ranks", shown, left)


def _changed(name: str, title: str, head: Sequence[str], changes: Sequence[Change] | None) -> str:
    """What changed, the most first; nothing of what neither run has."""
    if not changes:
        return ""
    changed = [one for one in changes if one.a_ns != one.b_ns or one.a_count != one.b_count]
    if not changed:
        note = f"{plural(len(changes), 'line')}, all as long in both"
        return section(name, title, tag("p", note, class_="note"))
    shown = changed[:MOST_ROWS]
    cells = [distinct([one.name[at] for one in shown], 40) for at in range(len(head))]
    rows = [
        (
            *(text(column[row]) for column in cells),
            f"{one.a_count:,}" if one.a_count == one.b_count else f"{one.a_count:,} → {one.b_count:,}",
            "-" if one.a_ns is None else format_ns(one.a_ns),
            "-" if one.b_ns is None else format_ns(one.b_ns),
            signed(one.difference_ns),
            percent(one.a_ns or 0, one.b_ns or 0),
        )
        for row, one in enumerate(shown)
    ]
    found = table("", (*head, "count", "A", "B", "difference", ""), rows, "<" * len(head) + ">>>>>")
    rest = [
        f"… and {plural(len(changed) - len(shown), 'smaller change')}" if len(changed) > len(shown) else "",
        f"{plural(len(changes) - len(changed), 'line')} as long in both"
        if len(changed) < len(changes)
        else "",
    ]
    note = "; ".join(["sums over all ranks", *filter(None, rest)])
    return section(name, title, tag("p", text(note), class_="note"), found)


def _links(found: Comparison) -> str:
    """What tiers of links carry, and how much of them is used; nothing if neither run recorded links."""
    either = [link_table(run) for run in (found.a, found.b)]
    if either == [None, None]:
        return ""
    if lacking := [name for name, one in zip("AB", either, strict=True) if one is None]:
        reason = absent(
            f"{' and '.join(lacking)} did not record links", "simulate with --detail links to compare them"
        )
        return section("links", "Links", reason)
    uses = [
        {one.tier: one for one in tier_uses(run, links, 1)}
        for run, links in zip((found.a, found.b), either, strict=True)
        if links is not None
    ]
    tiers = sorted(
        uses[0].keys() | uses[1].keys(),
        key=lambda tier: (-abs(_used(uses[1], tier) - _used(uses[0], tier)), tier),
    )
    rows = [
        (
            text(tier),
            *(f"{use[tier].bytes:,}" if tier in use else "-" for use in uses),
            *(share(use[tier].used, 1) if tier in use else "-" for use in uses),
        )
        for tier in tiers
    ]
    head = ("tier", "bytes in A", "in B", "bandwidth used in A", "in B")
    return section("links", "Links", table("", head, rows, "<>>>>"))


def _used(uses: Mapping[str, Any], tier: str) -> float:
    return float(uses[tier].used) if tier in uses else 0.0


def _inputs(found: Comparison) -> str:
    if not found.inputs:
        note = "nothing that went in differs"
        return section("inputs", "Inputs", tag("p", note, class_="note"))
    listed = "".join(tag("li", text(shortened(one, 400))) for one in found.inputs)
    files = [[*run.manifest["inputs"]] for run in (found.a, found.b)]
    rows = [
        (name, text(one["file"]), tag("code", text(one["sha256"])))
        for name, some in zip("AB", files, strict=True)
        for one in some
        if one not in files[1 - "AB".index(name)]
    ]
    hashes = more("files that differ", table("", ("run", "file", "SHA-256"), rows, "<<<")) if rows else ""
    return section("inputs", "Inputs that differ", tag("ul", listed), hashes)
