"""Two runs as one HTML page: why they differ, their timelines on one axis, and what changed most.

Not here: finding the differences (`views.compare`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from et_sim.basics.units import format_ns, plural
from et_sim.views.compare.changes import Comparison, TimeChange, averages, scopes, why
from et_sim.views.drawing.timeline import aligned_picture
from et_sim.views.markup import absent, bar, more, section, table, tag, text
from et_sim.views.report.page import page_of, run_in_brief
from et_sim.views.run.slices import link_table
from et_sim.views.run.topology import tier_uses
from et_sim.views.summary.parts import PARTS
from et_sim.views.summary.sentences import difference_text
from et_sim.views.text import distinct, percent, share, shortened, signed

MOST_ROWS, MOST_RANKS = 20, 24
Figures = Mapping[str, Any]


def compare_report(comparison: Comparison) -> str:
    """The page as text."""
    names = [run.path.resolve().name for run in (comparison.a, comparison.b)]
    sections = (
        _headline(comparison),
        _timelines(comparison),
        _ranks(comparison),
        _changed("operations", "Operations", ("kind", "operation", "group"), comparison.operations),
        _changed("groups", "Groups", ("group",), comparison.groups),
        _changed("dimensions", "Phases by dimension", ("dimension",), comparison.dimensions),
        _links(comparison),
        _inputs(comparison),
    )
    return page_of(
        sections,
        heading=f"A: {names[0]}, B: {names[1]}",
        subtitle=f"two runs. A: {run_in_brief(comparison.a)}. B: {run_in_brief(comparison.b)}",
        version=comparison.b.manifest["et_sim"],
        title=f"{names[0]} and {names[1]}",
    )


def _headline(comparison: Comparison) -> str:
    longest = max(*comparison.makespans_ns, 1)
    sentence = why(comparison) + (
        f"; they part where {comparison.parting.as_text()}" if comparison.parting else ""
    )
    off = "" if comparison.is_identical else difference_text(comparison.a.summary, comparison.b.summary)
    rows = []
    for name, run in (("A", comparison.a), ("B", comparison.b)):
        parts, makespan = averages(run), run.summary["makespan_ns"]
        stacked = bar([(part.short, part.text, parts[part.figure]) for part in PARTS], longest)
        rows.append((name, f"{format_ns(makespan)} <small>{makespan:,} ns</small>", stacked))
    either = [averages(run) for run in (comparison.a, comparison.b)]
    legend = "".join(
        tag("li", f'<i class="{part.short}"></i>{text(part.text)} <b>{_both(either, part.figure)}</b>')
        for part in PARTS
        if any(figures[part.figure] for figures in either)
    )
    return section(
        "headline",
        "Overview",
        tag("p", f"{text(sentence[0].upper() + sentence[1:])}.", class_="short"),
        tag("p", f"the difference, {text(off)}", class_="note") if off else "",
        *(tag("p", f"{name} {text(scope)}", class_="note") for name, scope in scopes(comparison)),
        tag("p", "what the average rank spends its time on, on one scale", class_="note"),
        table("", ("run", "makespan", ""), rows, "<><"),
        tag("ul", legend, class_="legend"),
    )


def _both(either: Sequence[Figures], figure: str) -> str:
    before, after = (figures[figure] for figures in either)
    return format_ns(before) if before == after else f"{format_ns(before)} → {format_ns(after)}"


def _timelines(comparison: Comparison) -> str:
    picture = tag("div", aligned_picture(comparison), class_="picture")
    note = "the ranks whose finish differs most, on one axis of time"
    return section("timeline", "Aligned timelines", tag("p", note, class_="note"), picture)


def _ranks(comparison: Comparison) -> str:
    if comparison.ranks is None:
        counts = " and ".join(f"{run.summary['ranks']:,}" for run in (comparison.a, comparison.b))
        reason = absent("Ranks are not compared one by one", f"the runs have {counts} of them")
        return section("ranks", "Ranks", reason)
    longest = max(*comparison.makespans_ns, 1)
    rows = []
    for rank in comparison.ranks[:MOST_RANKS]:
        bars = [
            bar([(part.short, part.text, rank.figures[part.figure][side] or 0) for part in PARTS], longest)
            for side in (0, 1)
        ]
        finish = ("never" if time is None else format_ns(time) for time in rank.figures["finish_ns"])
        known = None not in rank.figures["finish_ns"]
        difference = signed(rank.difference_ns) if known else "-"
        rows.append((text(shortened(rank.ranks, 28)), *finish, difference, "".join(bars)))
    shown = table("", ("ranks", "finish in A", "in B", "difference", "A above B"), rows, "<>>><")
    rest = len(comparison.ranks) - len(rows)
    left = tag("p", f"… and {plural(rest, 'line')} of ranks that differ less", class_="note") if rest else ""
    return section("ranks", "Ranks", shown, left)


def _changed(name: str, title: str, head: Sequence[str], changes: Sequence[TimeChange] | None) -> str:
    """What changed, the most first; nothing of what neither run has."""
    if not changes:
        return ""
    changed = [change for change in changes if change.a_ns != change.b_ns or change.a_count != change.b_count]
    if not changed:
        note = f"{plural(len(changes), 'line')}, all as long in both"
        return section(name, title, tag("p", note, class_="note"))
    shown = changed[:MOST_ROWS]
    cells = [distinct([change.name[at] for change in shown], 40) for at in range(len(head))]
    rows = [
        (
            *(text(column[row]) for column in cells),
            f"{change.a_count:,}"
            if change.a_count == change.b_count
            else f"{change.a_count:,} → {change.b_count:,}",
            "-" if change.a_ns is None else format_ns(change.a_ns),
            "-" if change.b_ns is None else format_ns(change.b_ns),
            signed(change.difference_ns),
            percent(change.a_ns or 0, change.b_ns or 0),
        )
        for row, change in enumerate(shown)
    ]
    content = table("", (*head, "count", "A", "B", "difference", ""), rows, "<" * len(head) + ">>>>>")
    rest = [
        f"… and {plural(len(changed) - len(shown), 'smaller change')}" if len(changed) > len(shown) else "",
        f"{plural(len(changes) - len(changed), 'line')} as long in both"
        if len(changed) < len(changes)
        else "",
    ]
    note = "; ".join(["sums over all ranks", *filter(None, rest)])
    return section(name, title, tag("p", text(note), class_="note"), content)


def _links(comparison: Comparison) -> str:
    """What tiers of links carry, and how much of them is used; nothing if neither run recorded links."""
    either = [link_table(run) for run in (comparison.a, comparison.b)]
    if either == [None, None]:
        return ""
    if lacking := [name for name, links in zip("AB", either, strict=True) if links is None]:
        reason = absent(
            f"{' and '.join(lacking)} did not record links", "simulate with --detail links to compare them"
        )
        return section("links", "Links", reason)
    uses = [
        {tier.tier: tier for tier in tier_uses(run, links, 1)}
        for run, links in zip((comparison.a, comparison.b), either, strict=True)
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


def _inputs(comparison: Comparison) -> str:
    if not comparison.inputs:
        note = "nothing that went in differs"
        return section("inputs", "Inputs", tag("p", note, class_="note"))
    listed = "".join(tag("li", text(shortened(difference, 400))) for difference in comparison.inputs)
    files = [[*run.manifest["inputs"]] for run in (comparison.a, comparison.b)]
    rows = [
        (name, text(file["file"]), tag("code", text(file["sha256"])))
        for name, inputs in zip("AB", files, strict=True)
        for file in inputs
        if file not in files[1 - "AB".index(name)]
    ]
    hashes = more("files that differ", table("", ("run", "file", "SHA-256"), rows, "<<<")) if rows else ""
    return section("inputs", "Inputs that differ", tag("ul", listed), hashes)
