"""The schedule of passes, where the names of kernels tell them."""

from __future__ import annotations

from et_sim.views.drawing.schedule import schedule_picture
from et_sim.views.report.markup import section, tag
from et_sim.views.run.directory import RunDirectory
from et_sim.views.schedule.schedule import schedule_of

NOTE = (
    "Passes of micro-batches, by the names of kernels; ranks that compute the same at the same times are one"
    " row, and below it is their communication. The bubble is the share of time with neither a kernel nor a"
    " collective: what waits for other stages."
)


def schedule_section(run: RunDirectory) -> str:
    """The picture; nothing if the run has no passes."""
    found = schedule_of(run)
    if found is None:
        return ""
    picture = tag("div", schedule_picture(found), class_="picture")
    return section("schedule", "Schedule", tag("p", NOTE, class_="note"), picture)
