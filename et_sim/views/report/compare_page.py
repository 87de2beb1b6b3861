"""Two runs as one HTML page: the cause of their difference, aligned timelines, and the largest changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from et_sim.basics.units import format_ns, plural
from et_sim.views.bands import difference_text
from et_sim.views.compare.changes import (
    Comparison,
    RankChange,
    TimeChange,
    averages,
    main_change,
    scopes,
)
from et_sim.views.compare.text import change_columns, finish_columns
from et_sim.views.drawing.timeline import aligned_picture
from et_sim.views.markup import absent, bar, more, section, tag, text
from et_sim.views.report.origins import FILE
from et_sim.views.report.page import page_of, run_in_brief
from et_sim.views.run.slices import link_table
from et_sim.views.run.topology import tier_uses
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.summary.parts import PARTS
from et_sim.views.text import distinct, share, shortened

MOST_ROWS, MOST_RANKS = 20, 24
Figures = Mapping[str, Any]


def compare_report(comparison: Comparison) -> str:
    """Return the page as text."""
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
    sentence = main_change(comparison) + (
        f"; they part where {comparison.parting.as_text()}" if comparison.parting else ""
    )
    off = "" if comparison.is_identical else difference_text(comparison.a.summary, comparison.b.summary)
    either = [averages(run) for run in (comparison.a, comparison.b)]
    sheet = Sheet(
        (
            SheetColumn("run", 0, "<"),
            SheetColumn("makespan", markup=lambda row: f"{format_ns(row[1])} <small>{row[1]:,} ns</small>"),
            SheetColumn("", side="<", markup=lambda row: _stacked(row[2], longest)),
        )
    )
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
        tag("p", "time of the average rank by activity, on one scale", class_="note"),
        sheet.table([*zip("AB", comparison.makespans_ns, either, strict=True)]),
        tag("ul", legend, class_="legend"),
    )


def _stacked(figures: Figures, longest: int) -> str:
    return bar([(part.short, part.text, figures[part.figure] or 0) for part in PARTS], longest)


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

    def bars(rank: RankChange) -> str:
        either = ({name: times[side] for name, times in rank.figures.items()} for side in (0, 1))
        return "".join(_stacked(figures, longest) for figures in either)

    sheet = Sheet(
        (
            SheetColumn("ranks", lambda rank: shortened(rank.ranks, 28), "<"),
            *finish_columns("finish in A", "in B"),
            SheetColumn("A above B", side="<", markup=bars),
        )
    )
    shown = sheet.table(comparison.ranks[:MOST_RANKS])
    rest = len(comparison.ranks) - MOST_RANKS
    left = (
        tag("p", f"… and {plural(rest, 'line')} of ranks that differ less", class_="note") if rest > 0 else ""
    )
    return section("ranks", "Ranks", shown, left)


def _changed(name: str, title: str, head: Sequence[str], changes: Sequence[TimeChange] | None) -> str:
    """Return a section of changes, the largest first; empty if neither run has any."""
    if not changes:
        return ""
    changed = [change for change in changes if change.differs]
    if not changed:
        note = f"{plural(len(changes), 'line')}, all as long in both"
        return section(name, title, tag("p", note, class_="note"))
    shown = changed[:MOST_ROWS]
    columns = (SheetColumn(name, _short_name(at, shown), "<") for at, name in enumerate(head))
    content = Sheet((*columns, *change_columns("A", "B"))).table(shown)
    rest = [
        f"… and {plural(len(changed) - len(shown), 'smaller change')}" if len(changed) > len(shown) else "",
        f"{plural(len(changes) - len(changed), 'line')} as long in both"
        if len(changed) < len(changes)
        else "",
    ]
    note = "; ".join(["sums over all ranks", *filter(None, rest)])
    return section(name, title, tag("p", text(note), class_="note"), content)


def _short_name(at: int, changes: Sequence[TimeChange]) -> Callable[[TimeChange], str]:
    names = [change.name[at] for change in changes]
    short = dict(zip(names, distinct(names, 40), strict=True))
    return lambda change: short[change.name[at]]


def _links(comparison: Comparison) -> str:
    """Return bytes and use of tiers of links; empty if neither run recorded links."""
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

    def column(head: str, of: int, form: Callable[[Any], str]) -> SheetColumn:
        return SheetColumn(head, lambda tier: form(uses[of][tier]) if tier in uses[of] else "-")

    sheet = Sheet(
        (
            SheetColumn("tier", str, "<"),
            column("bytes in A", 0, lambda tier: f"{tier.bytes:,}"),
            column("in B", 1, lambda tier: f"{tier.bytes:,}"),
            column("bandwidth used in A", 0, lambda tier: share(tier.used, 1)),
            column("in B", 1, lambda tier: share(tier.used, 1)),
        )
    )
    return section("links", "Links", sheet.table(tiers))


def _used(uses: Mapping[str, Any], tier: str) -> float:
    return float(uses[tier].used) if tier in uses else 0.0


def _inputs(comparison: Comparison) -> str:
    if not comparison.inputs:
        note = "no input differs"
        return section("inputs", "Inputs", tag("p", note, class_="note"))
    listed = "".join(tag("li", text(shortened(difference, 400))) for difference in comparison.inputs)
    files = [[*run.manifest["inputs"]] for run in (comparison.a, comparison.b)]
    rows = [
        {"run": name, **file}
        for name, inputs in zip("AB", files, strict=True)
        for file in inputs
        if file not in files[1 - "AB".index(name)]
    ]
    sheet = Sheet((SheetColumn("run", side="<"), *FILE))
    hashes = more("files that differ", sheet.table(rows)) if rows else ""
    return section("inputs", "Inputs that differ", tag("ul", listed), hashes)
