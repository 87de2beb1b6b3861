"""Use of the bandwidth of the network's links, by tier, as a table."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from et_sim.basics.units import format_bytes, plural
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection, recorded_part
from et_sim.views.run.slices import link_table
from et_sim.views.run.topology import TierUse, Topology, tier_uses, topology_of
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.text import prose, share
from et_sim.views.view import Forms

SCALE = (0.0, 0.01, 0.03, 0.1, 0.3, 0.6, 0.9)  # bounds of the steps of use
SHOWN = 10
NOTHING_CARRIED = "no link carried a message"
NOT_ONE_BY_ONE = "only tiers are known, not single links: the model has no links, or there are too many"

DEMAND = "on the analytical model, messages do not wait for links: their demand may exceed 100 %"
TIERS = Sheet(
    (
        SheetColumn("tier", side="<"),
        SheetColumn("links"),
        SheetColumn("used", lambda tier: share(tier.used, 1)),
        SheetColumn("most", lambda tier: share(tier.most_used, 1)),
    ),
    cut={"tier": 12},
)


def level_of(used: float) -> int:
    """Return the step of the scale for a use."""
    return bisect_left(SCALE, round(used, 9))


def level_names() -> list[str]:
    """Return the names of the steps of the scale."""
    return ["nothing", *(f"up to {100 * most:g} %" for most in SCALE[1:]), f"over {100 * SCALE[-1]:g} %"]


def tier_totals(run: RunDirectory, part: Selection) -> list[TierUse]:
    """Return tiers that carried anything."""
    table = link_table(run)
    return [] if table is None else tier_uses(run, table, 1, part)


def topology_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return devices, tiers, and the most used links."""
    tiers, topology = tier_totals(run, part), topology_of(run, part)
    if not tiers:
        return prose([NOTHING_CARRIED], width)
    lines = [] if topology is None else [_devices(topology), ""]
    lines += TIERS.lines(tiers, width)
    if topology is not None:
        lines += ["", *_steps(topology, width), "", *_most_used(topology, part, width)]
    return prose([*lines, "", *topology_notes(run, topology)], width)


def _devices(topology: Topology) -> str:
    npus = int((topology.rows == 0).sum())
    others = len(topology.names) - npus
    devices = plural(npus, "NPU") + (f", {plural(others, 'other device')}" if others else "")
    return f"{devices}, {plural(len(topology.source), 'link')}, each in one direction"


def _steps(topology: Topology, width: int) -> list[str]:
    """Return the number of links of each tier by step of use."""
    steps = enumerate(name.replace("up to ", "≤ ").replace("over ", "> ") for name in level_names())
    sheet = Sheet(
        (
            SheetColumn("links used", 0, "<"),
            *(SheetColumn(name, partial(_links_at, at)) for at, name in steps),
        ),
        cut={"links used": 12},
    )
    return sheet.lines(list(level_counts(topology).items()), width)


def _links_at(step: int, tier: tuple[str, Sequence[int]]) -> str:
    return f"{tier[1][step]:,}" if tier[1][step] else ""


def level_counts(topology: Topology) -> dict[str, list[int]]:
    """Return, by tier, the number of links at each step of the scale."""
    levels = np.array([level_of(used) for used in topology.used.tolist()], np.int64)
    tiers = np.array(topology.tier)
    steps = len(SCALE) + 1
    return {
        str(tier): np.bincount(levels[tiers == tier], minlength=steps).tolist()
        for tier in dict.fromkeys(topology.tier)
    }


def _most_used(topology: Topology, part: Selection, width: int) -> list[str]:
    order = _order(topology)
    sheet = Sheet(
        (
            SheetColumn("from", lambda at: topology.names[topology.source[at]], "<"),
            SheetColumn("to", lambda at: topology.names[topology.target[at]], "<"),
            SheetColumn("tier", lambda at: topology.tier[at], "<"),
            SheetColumn("bytes", lambda at: format_bytes(float(topology.bytes[at]))),
            SheetColumn("used", lambda at: share(float(topology.used[at]), 1)),
        ),
        cut={"from": 8, "to": 8, "tier": 8},
        rows=SHOWN,
        more="less used link",
        hint=": --top, or --json",
    )
    return sheet.shown(order, part, width)


def _order(topology: Topology) -> list[int]:
    """Return links that carried anything, the most used first."""
    order = np.argsort(-topology.used, kind="stable")
    return [int(at) for at in order[topology.bytes[order] > 0].tolist()]


def most_used_text(topology: Topology) -> str:
    """Return the most used link as a sentence."""
    order = _order(topology)
    if not order:
        return NOTHING_CARRIED
    at = order[0]
    alike = int(np.isclose(topology.used, topology.used[at], rtol=0.01).sum())
    others = f", and {plural(alike - 1, 'other')} like it" if alike > 1 else ""
    ends = f"{topology.names[topology.source[at]]} to {topology.names[topology.target[at]]}"
    return f"used most: {ends}, {share(float(topology.used[at]), 1)}{others}"


def topology_notes(run: RunDirectory, topology: Topology | None) -> list[str]:
    """Return notes on the meaning of figures, and on missing ones."""
    notes = ["used: the bytes carried, of those that a link could carry in the time"]
    if topology is None:
        notes.append(NOT_ONE_BY_ONE)
    elif not topology.has_links:
        notes.append(DEMAND)
    kept = recorded_part(run)
    return [*notes, *([f"only of the recorded part: {kept}"] if kept else [])]


def topology_data(run: RunDirectory, part: Selection = EVERYTHING) -> Any:
    """Return the use for `--json`."""
    topology = topology_of(run, part)
    tiers = [
        {
            "tier": tier.tier,
            "links": tier.links,
            "bytes": tier.bytes,
            "used": tier.used,
            "most_used": tier.most_used,
        }
        for tier in tier_totals(run, part)
    ]
    if topology is None:
        return {"devices": None, "tiers": tiers, "links": None}
    devices = [
        {"name": name, "row": row} for name, row in zip(topology.names, topology.rows.tolist(), strict=True)
    ]
    links = [
        {
            "source": topology.names[topology.source[at]],
            "target": topology.names[topology.target[at]],
            "tier": topology.tier[at],
            "bytes_per_ns": float(topology.bytes_per_ns[at]),
            "bytes": round(float(topology.bytes[at])),
            "used": round(float(topology.used[at]), 9),
        }
        for at in part.cut(_order(topology))
    ]
    return {"devices": devices, "tiers": tiers, "links": links}


TOPOLOGY = Forms(topology_lines, topology_data)
