"""The parts of the page about the network: its links by how much they are used, and all of it over time.

Not here: the pictures (`drawing.topology`, `drawing.network`).
"""

from __future__ import annotations

from et_sim.views.drawing.network import dimensions, heats_picture, links, tiers
from et_sim.views.drawing.topology import topology_picture
from et_sim.views.report.markup import section, tag
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING
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
