"""The part of the page about a stall: who waits for what, near misses, and what to do."""

from __future__ import annotations

from et_sim.units import plural
from et_sim.views.report.markup import section, tag, text
from et_sim.views.run.directory import RunDirectory
from et_sim.views.summary.stalls import stall_remarks, stall_sections

MOST_ENTRIES = 200  # of each list


def stall_section(run: RunDirectory) -> str:
    """What `et-sim inspect RUN stalls` says; nothing of a run that nothing held up."""
    if run.stall is None:
        return ""
    parts = [tag("p", text(" ".join(stall_remarks(run.stall))))]
    for title, entries in stall_sections(run.stall):
        shown = "".join(tag("li", text(entry)) for entry in entries[:MOST_ENTRIES])
        parts += [tag("h3", text(title)), tag("ul", shown)]
        if len(entries) > MOST_ENTRIES:
            rest = f"… and {plural(len(entries) - MOST_ENTRIES, 'more line')}: et-sim inspect RUN stalls"
            parts.append(tag("p", text(rest), class_="note"))
    return section("stall", "Why it stalled", *parts)
