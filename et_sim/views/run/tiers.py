"""How loaded the tiers of the network are, over all of the time and in slices of it: from links.arrow.

A tier is as loaded as its links on average, those that carry nothing included: by the bytes that they carry,
of those that they could carry. Where there are no links, it is as loaded as ranks on average keep one busy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.intervals import filled
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.run.slices import NONE, LinkTable


class TierUse(Struct, frozen=True):
    """The links of a tier."""

    tier: str
    links: int | None  # None: it is not known which there are
    bytes: int
    used: float  # of the bandwidth of all its links; where these are not known: of the time, by a rank
    most_used: float  # of the most loaded link's
    used_shares: tuple[float, ...]  # of slices of the time, one after the other
    wait_ns: int | None  # by messages, summed over links; None here and below: messages wait for no links
    most_at_once: int | None  # messages on a link or waiting for it


def tier_uses(
    run: RunDirectory, table: LinkTable, slices: int, part: Selection = EVERYTHING
) -> list[TierUse]:
    """All tiers with links that carried anything, the most loaded first."""
    if not run.holds("resources") or not len(table.actor):
        return []
    begin, length = part.window[0] if part.window else 0, max(part.length_ns(run.summary["makespan_ns"]), 1)
    (rate, alike), counts = _rates(run, table), _counts(run)
    names, of_link = np.unique(np.array(table.tier), return_inverse=True)
    links = np.array([counts.get(str(name), (0, 0)) for name in names], np.int64).reshape(-1, 2)
    weight = alike / np.maximum(links[of_link, 0], 1)
    row, figures = table.of_row, table.figures
    start, end = (np.clip(figures[name] - begin, 0, length) for name in ("start_ns", "end_ns"))
    whole = np.maximum(figures["end_ns"] - figures["start_ns"], 1)
    needed = np.where(
        rate[row] > 0, figures["bytes"] / np.where(rate[row] > 0, rate[row], 1), figures["busy_ns"]
    )
    density, within = needed / whole, (end - start) / whole
    of_each = np.bincount(row, needed * within, len(table.actor)) / length
    tracks = filled(of_link[row], start, end, density * weight[row], (len(names), slices), length)
    most = np.zeros(len(names))
    named = table.has_links | (table.actor != NONE) | (rate > 0)  # otherwise, several links together
    np.maximum.at(most, of_link, of_each * named)
    used = np.bincount(of_link, of_each * weight, len(names))
    size, waited = (
        np.bincount(of_link[row], np.maximum(figures[name], 0) * within * alike[row], len(names))
        for name in ("bytes", "wait_ns")
    )
    at_once = np.zeros(len(names), np.int64)
    np.maximum.at(at_once, of_link[row], np.where(within > 0, figures["most_at_once"], 0))
    uses = []
    for at in np.flatnonzero(used > 0).tolist():
        waits = (int(waited[at]), int(at_once[at])) if table.has_links else (None, None)
        uses.append(
            TierUse(
                str(names[at]),
                int(links[at, 0]) if links[at, 1] else None,
                int(size[at]),
                round(float(used[at]), 9),
                round(float(most[at]), 9),
                tuple(round(share, 9) for share in tracks[at].tolist()),
                *waits,
            )
        )
    return sorted(uses, key=lambda use: (-use.used, use.tier))


def _rates(run: RunDirectory, table: LinkTable) -> tuple[Any, Any]:
    """(bytes per ns of every link in the table, 0: it has no bandwidth; how many links are like it)."""
    names = ("actor", "dimension", "link", "bytes_per_ns", "links")
    actor, dimension, link, rate, links = run.arrays("resources", names).values()
    keys = zip(actor.tolist(), dimension.tolist(), link.of_rows(), strict=True)
    row_of = {key: row for row, key in enumerate(keys)}
    wanted = zip(table.actor.tolist(), table.dimension.tolist(), table.name, strict=True)
    rows = np.array([row_of[key] for key in wanted], np.int64)
    return np.nan_to_num(rate)[rows], links[rows]


def _counts(run: RunDirectory) -> dict[str, tuple[int, bool]]:
    """Of each tier, how many links there are, and whether they are links."""
    actor, tier, rate, alike = run.arrays("resources", ("actor", "tier", "bytes_per_ns", "links")).values()
    # Beside a memory pool, some may not be links.
    are_links = np.bincount(tier.codes, np.nan_to_num(rate) > 0, len(tier.texts)) > 0
    counted = np.where(are_links[tier.codes], np.nan_to_num(rate) > 0, actor != NONE)
    counts = np.bincount(tier.codes, alike * counted, len(tier.texts))
    return {
        text: (int(count), bool(are))
        for text, count, are in zip(tier.texts, counts.tolist(), are_links.tolist(), strict=True)
        if text is not None
    }
