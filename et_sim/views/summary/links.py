"""Use of links, over the whole time and in slices of it, from links.arrow.

A link is busy while it serialises a message. The links of an actor stand for those of each of its ranks.
Slices at the edge of a window count in proportion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins

from et_sim.basics.intervals import filled
from et_sim.tables.declaration import SHARED_LINKS
from et_sim.tables.registry import table_named
from et_sim.views.run.columns import alike
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection, recorded_part
from et_sim.views.run.slices import NONE, LinkTable, link_table
from et_sim.views.run.topology import tier_uses
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.summary.failures import failure_lines
from et_sim.views.summary.ways import imbalance_notes
from et_sim.views.text import prose, share
from et_sim.views.view import Forms

SLICES = 20
SHOWN = 20
LEVELS = " ▁▂▃▄▅▆▇█"
NOT_RECORDED = table_named("links").not_recorded


class LinkUse(Struct, frozen=True):
    """One link of each of these ranks."""

    dimension: int
    ranks: str | None  # None: it connects devices that are no NPUs
    tier: str
    link: str
    messages: int
    busy_ns: int
    busy_shares: tuple[float, ...]  # by slice of time
    bytes: int
    wait_ns: int | None  # sum over messages; None here and below: messages do not wait for links
    longest_wait_ns: int | None
    most_waiting: int | None
    mean_at_once: float  # mean number of messages on the link or waiting for it
    most_at_once: int | None


def link_uses(run: RunDirectory, part: Selection = EVERYTHING) -> list[LinkUse] | None:
    """Return links that carried anything, the busiest first; None if the run did not record them."""
    part.check_ranks(run)
    table = link_table(run)
    return None if table is None else _from_table(run, table, part)


def _from_table(run: RunDirectory, table: LinkTable, part: Selection) -> list[LinkUse]:
    begin, length = part.window[0] if part.window else 0, part.length_ns(run.summary["makespan_ns"])
    start, end = table.figures["start_ns"], table.figures["end_ns"]
    table = table.where(part.touches(start, end))
    start, end = (np.clip(table.figures[name] - begin, 0, max(length, 1)) for name in ("start_ns", "end_ns"))
    whole = np.maximum(table.figures["end_ns"] - table.figures["start_ns"], 1)
    density = table.figures["busy_ns"] / whole
    busy, messages, has_links = np.zeros(len(table.actor), np.int64), table.total("messages"), table.has_links
    within = np.where(end - start == whole, table.figures["busy_ns"], density * (end - start))
    np.add.at(busy, table.of_row, within.astype(np.int64))
    shares = filled(table.of_row, start, end, density, (len(busy), SLICES), max(length, 1))
    sizes, waits = table.total("bytes"), table.total("wait_ns")
    longest, waiting, at_once = (
        table.most(name) for name in ("longest_wait_ns", "most_waiting", "most_at_once")
    )
    there = np.zeros(len(busy))  # messages, times their duration
    np.add.at(there, table.of_row, density * (end - start))
    np.add.at(there, table.of_row, np.maximum(table.figures["wait_ns"], 0) / whole * (end - start))
    mean = np.round(there / max(length, 1), 9).tolist()
    owned: list[tuple[str, tuple[Any, ...]]] = []
    others: list[tuple[str, tuple[Any, ...]]] = []
    for at in np.flatnonzero((messages > 0) | (busy > 0)).tolist():
        has_no_owner = table.actor[at] == NONE
        ranks = "" if has_no_owner else part.names(table.ranks[at])
        if ranks or (has_no_owner and not part.ranks):
            waited = (int(waits[at]), int(longest[at]), int(waiting[at])) if has_links else (None, None, None)
            of_link = tuple(round(share, 9) for share in shares[at].tolist())
            most = int(at_once[at]) if has_links else None
            figures = (int(messages[at]), int(busy[at]), of_link, int(sizes[at]), *waited, mean[at], most)
            figures_of_link = (int(table.dimension[at]), table.tier[at], table.name[at], *figures)
            (others if has_no_owner else owned).append((ranks, figures_of_link))
    uses = [LinkUse(dimension, ranks_of_link, *rest) for ranks_of_link, (dimension, *rest) in alike(owned)]
    uses += [LinkUse(dimension, None, *rest) for _, (dimension, *rest) in others]
    return sorted(uses, key=lambda use: (-use.busy_ns, use.dimension, use.link))


def track(shares: Sequence[float]) -> str:
    """Return a bar of how full slices of time are."""
    return f"|{''.join(LEVELS[round(min(used, 1) * (len(LEVELS) - 1))] for used in shares)}|"


def _tier_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return the tiers; none if only some ranks are selected."""
    table = link_table(run)
    if part.ranks or table is None or recorded_part(run):
        return []
    tiers = tier_uses(run, table, SLICES, part)
    columns = (
        SheetColumn("tier", side="<"),
        SheetColumn("links"),
        SheetColumn("used", lambda tier: share(tier.used, 1)),
        SheetColumn("most", lambda tier: share(tier.most_used, 1)),
        SheetColumn("at once", "most_at_once", is_optional=True),
        SheetColumn("waiting", "wait_ns", is_optional=True),
        SheetColumn("over time", lambda tier: track(tier.used_shares), "<"),
    )
    lines = Sheet(columns, {"tier": 12}, ("over time", "at once")).lines(tiers, width)
    if any(tier.links is not None for tier in tiers):
        meaning = "used: the bytes carried, of those that the tier's links could carry; most: on one of them"
    else:
        meaning = "used: of one link's time, by what a rank sends on average; most: by what one of them does"
    return ["", *lines, meaning, *imbalance_notes(run.summary, tiers)]


def link_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return one line for each link, with its use over time."""
    uses, kept = link_uses(run, part) or [], recorded_part(run)
    heading = [f"only of the recorded part: {kept}", ""] if kept else []
    failed = failure_lines(run.summary)
    heading += [*failed, ""] if failed else []
    if not uses:
        none = "no link carried a message" + (f" in the recorded part: {kept}" if kept else "")
        return prose([*heading, none], width)
    length = part.length_ns(run.summary["makespan_ns"])
    shown = part.cut(uses, SHOWN)
    columns = (
        SheetColumn("dimension", side="<"),
        SheetColumn("ranks", side="<"),
        SheetColumn("link", side="<"),
        SheetColumn("messages"),
        SheetColumn("busy", "busy_ns"),
        SheetColumn("", lambda use: share(use.busy_ns, length)),
        SheetColumn("waiting", "wait_ns", is_optional=True),
        SheetColumn("over time", lambda use: track(use.busy_shares), "<"),
    )
    drop = ("messages", "over time")
    sheet = Sheet(columns, {"ranks": 6, "link": 8}, drop, (), SHOWN, "less busy link", ": --top, or --json")
    lines = sheet.shown(uses, part, width)
    lines += _tier_lines(run, part, width)
    whole = "the window" if part.window else "the makespan"
    notes = [f"shares are of {whole}, which is cut into {SLICES} slices; a full bar is busy throughout"]
    if any(use.wait_ns is not None for use in shown):
        is_shared = SHARED_LINKS.encode() in run.metadata("links")
        shares = "of messages that share a link, all but one count as waiting"
        notes.append(f"waiting: {shares if is_shared else 'how long messages waited for the link'}, summed")
    else:
        notes.append("on the analytical model, messages overlap: more than 100 % is possible")
    if run.summary["folded"]["actors"] < run.summary["ranks"]:
        notes.append("links are named as the first rank has them: in pairs, others may have the opposite one")
    return prose([*heading, *lines, *notes], width)


def link_data(run: RunDirectory, part: Selection) -> Any:
    """Return the links for `--json`."""
    return [to_builtins(use) for use in part.cut(link_uses(run, part) or [])]


LINKS = Forms(link_lines, link_data)
