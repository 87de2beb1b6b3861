"""How much of the bandwidth of the network's links is used, tier by tier, as a table.

Not here: each link over time (`links`), and the picture (`drawing.topology`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np

from et_sim.basics.units import format_bytes, plural
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.recorded_part import recorded_part
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.run.slices import link_table
from et_sim.views.run.tiers import TierUse, tier_uses
from et_sim.views.run.topology import Topology, topology_of
from et_sim.views.text import fitted, not_shown, prose, share
from et_sim.views.view import Forms

SCALE = (0.0, 0.01, 0.03, 0.1, 0.3, 0.6, 0.9)  # of use: up to each of them, and more
SHOWN = 10
NOTHING_CARRIED = "no link carried a message"
NOT_ONE_BY_ONE = (
    "links are not known one by one, so that there are only tiers: ranks are folded, the model has no links, "
    "or there are too many"
)

DEMAND = "on the analytical model, messages wait for no links: more than 100 % is what they ask for"
TIER_HEAD = ("tier", "links", "used", "most")


def level_of(used: float) -> int:
    """Its step of the scale."""
    return bisect_left(SCALE, round(used, 9))


def level_names() -> list[str]:
    """The steps of the scale."""
    return ["nothing", *(f"up to {100 * most:g} %" for most in SCALE[1:]), f"over {100 * SCALE[-1]:g} %"]


def tier_totals(run: RunDirectory, part: Selection) -> list[TierUse]:
    """Tiers that carried anything."""
    table = link_table(run)
    return [] if table is None else tier_uses(run, table, 1, part)


def topology_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Devices, tiers, and the links that are used most."""
    tiers, found = tier_totals(run, part), topology_of(run, part)
    if not tiers:
        return prose([NOTHING_CARRIED], width)
    lines = [] if found is None else [_devices(found), ""]
    rows: list[tuple[str, ...]] = [TIER_HEAD]
    rows += [
        (one.tier, "" if one.links is None else f"{one.links:,}", share(one.used, 1), share(one.most_used, 1))
        for one in tiers
    ]
    lines += fitted(rows, "<>>>", width, shrink={0: 12})
    if found is not None:
        lines += ["", *_steps(found, width), "", *_most_used(found, part, width)]
    return prose([*lines, "", *topology_notes(run, found)], width)


def _devices(found: Topology) -> str:
    npus = int((found.rows == 0).sum())
    others = len(found.names) - npus
    devices = plural(npus, "NPU") + (f", {plural(others, 'other device')}" if others else "")
    return f"{devices}, {plural(len(found.source), 'link')}, each in one direction"


def _steps(found: Topology, width: int) -> list[str]:
    """How many links of each tier are used how much."""
    counts = level_counts(found)
    rows: list[tuple[str, ...]] = [
        ("links used", *(name.replace("up to ", "≤ ").replace("over ", "> ") for name in level_names()))
    ]
    rows += [(tier, *(f"{count:,}" if count else "" for count in of)) for tier, of in counts.items()]
    return fitted(rows, "<" + ">" * (len(SCALE) + 1), width, shrink={0: 12})


def level_counts(found: Topology) -> dict[str, list[int]]:
    """By tier, how many links are at each step of the scale."""
    levels = np.array([level_of(used) for used in found.used.tolist()], np.int64)
    tiers = np.array(found.tier)
    steps = len(SCALE) + 1
    return {
        str(tier): np.bincount(levels[tiers == tier], minlength=steps).tolist()
        for tier in dict.fromkeys(found.tier)
    }


def _most_used(found: Topology, part: Selection, width: int) -> list[str]:
    order = _order(found)
    shown: Sequence[int] = part.cut(order, SHOWN)
    rows: list[tuple[str, ...]] = [("from", "to", "tier", "bytes", "used")]
    for at in shown:
        ends = (found.names[found.source[at]], found.names[found.target[at]])
        rows.append(
            (*ends, found.tier[at], format_bytes(float(found.bytes[at])), share(float(found.used[at]), 1))
        )
    lines = fitted(rows, "<<<>>", width, shrink={0: 8, 1: 8, 2: 8})
    lines += not_shown(len(order) - len(shown), "less used link", ": --top, or --json")
    return lines


def _order(found: Topology) -> list[int]:
    """Links that carried anything, the most used first."""
    order = np.argsort(-found.used, kind="stable")
    return [int(at) for at in order[found.bytes[order] > 0].tolist()]


def most_used_text(found: Topology) -> str:
    """The link that is used most, as a sentence."""
    order = _order(found)
    if not order:
        return NOTHING_CARRIED
    at = order[0]
    alike = int(np.isclose(found.used, found.used[at], rtol=0.01).sum())
    others = f", and {plural(alike - 1, 'other')} like it" if alike > 1 else ""
    ends = f"{found.names[found.source[at]]} to {found.names[found.target[at]]}"
    return f"used most: {ends}, {share(float(found.used[at]), 1)}{others}"


def topology_notes(run: RunDirectory, found: Topology | None) -> list[str]:
    """What figures mean, and what is not known."""
    notes = ["used: the bytes carried, of those that a link could carry in the time"]
    if found is None:
        notes.append(NOT_ONE_BY_ONE)
    elif not found.has_links:
        notes.append(DEMAND)
    if found is not None and run.summary["folded"]["actors"] < run.summary["ranks"]:
        notes.append(
            "ranks are folded: in exchanges in pairs, others than the first may use the opposite link"
        )
    kept = recorded_part(run)
    return [*notes, *([f"of what was written: {kept}"] if kept else [])]


def topology_data(run: RunDirectory, part: Selection = EVERYTHING) -> Any:
    """For `--json`."""
    found = topology_of(run, part)
    tiers = [
        {
            "tier": one.tier,
            "links": one.links,
            "bytes": one.bytes,
            "used": one.used,
            "most_used": one.most_used,
        }
        for one in tier_totals(run, part)
    ]
    if found is None:
        return {"devices": None, "tiers": tiers, "links": None}
    devices = [{"name": name, "row": row} for name, row in zip(found.names, found.rows.tolist(), strict=True)]
    links = [
        {
            "source": found.names[found.source[at]],
            "target": found.names[found.target[at]],
            "tier": found.tier[at],
            "bytes_per_ns": float(found.bytes_per_ns[at]),
            "bytes": round(float(found.bytes[at])),
            "used": round(float(found.used[at]), 9),
        }
        for at in part.cut(_order(found))
    ]
    return {"devices": devices, "tiers": tiers, "links": links}


TOPOLOGY = Forms(topology_lines, topology_data)
