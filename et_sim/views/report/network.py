"""The parts of the page about the network: how busy links are, queues over time, and who paused whom.

Only runs that recorded ports have the last two. Not here: the pictures (`drawing.network`).
"""

from __future__ import annotations

from et_sim.basics.units import format_bytes, format_ns
from et_sim.views.drawing.network import dimensions, heats_picture, links, queues, tiers
from et_sim.views.drawing.topology import topology_picture
from et_sim.views.report.markup import section, table, tag, text
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING
from et_sim.views.summary.pauses import pause_lines, pause_roots
from et_sim.views.summary.queues import incasts
from et_sim.views.summary.topology import tier_totals


def network_section(run: RunDirectory) -> str:
    """A heat map for each thing that was recorded; nothing if none was."""
    maps = [heat for heat in (tiers(run), links(run), dimensions(run)) if heat is not None]
    if not maps:
        return ""
    return section("network", "Network over time", tag("div", heats_picture(run, maps), class_="picture"))


def topology_section(run: RunDirectory) -> str:
    """The network with its links; nothing if they were not recorded, or carried nothing."""
    if not run.holds("links") or not tier_totals(run, EVERYTHING):
        return ""
    picture = tag("div", topology_picture(run), class_="picture")
    return section("topology", "Use of links", picture)


MOST_INCASTS, LONGEST_LINE = 20, 160
HEAD = ("link", "from", "for", "deepest", "messages", "ranks that send")


def ports_section(run: RunDirectory) -> str:
    """What there is of queues, incasts and pauses; nothing if nothing waited, or it was not recorded."""
    parts = [part for part in (_queues(run), _incasts(run), _pauses(run)) if part]
    return section("ports", "Queues and pauses", *parts) if parts else ""


def _queues(run: RunDirectory) -> str:
    found = queues(run)
    return "" if found is None else tag("div", heats_picture(run, [found]), class_="picture")


def _incasts(run: RunDirectory) -> str:
    found = incasts(run)
    if not found:
        return ""
    rows = [
        (
            text(one.link),
            format_ns(one.begin_ns),
            format_ns(one.end_ns - one.begin_ns),
            format_bytes(one.deepest_bytes),
            f"{one.messages:,}",
            text(one.ranks),
        )
        for one in found[:MOST_INCASTS]
    ]
    more = f", {len(rows)} of {len(found)}" if len(rows) < len(found) else ""
    return table(text(f"Where messages of several ranks met{more}"), HEAD, rows, "<>>>><")


def _pauses(run: RunDirectory) -> str:
    found = pause_roots(run)
    if not found:
        return ""
    lines = pause_lines(found, EVERYTHING, LONGEST_LINE)
    return tag("h3", "Who paused whom") + tag("pre", text("\n".join(lines)))
