"""The parts of the page that are a picture: ranks over time, waiting against transfer, and the roofline."""

from __future__ import annotations

from et_sim.views.drawing.activity import activity_picture
from et_sim.views.drawing.bars import idle_picture, spread_picture, waits_picture
from et_sim.views.drawing.planes import roofline_picture
from et_sim.views.drawing.scene import NothingToDrawError
from et_sim.views.drawing.schedule import schedule_picture
from et_sim.views.report.markup import section, tag
from et_sim.views.run.directory import RunDirectory
from et_sim.views.schedule.schedule import schedule_of
from et_sim.views.summary.spread import spreads

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


ACTIVITY = (
    "What ranks spend their time on; where several things are under way, the first of these counts. A row is "
    "as high as it has ranks, and each column of it is filled from below by the shares of its time."
)
WAITS = (
    "Waiting ends when the last of those that are needed has begun; in the rest of the time bytes move, or "
    "queue for a link. A faster network shortens only that."
)
ROOFLINE = "What kernels achieve of their machine: none gets above the roofs of its peak and its memory."

SPREAD = (
    "How far ranks are from the average one: a box is half of them, a line all of them. What costs most "
    "stands above: of computation the slowest rank, of communication those that begin late."
)

IDLE = (
    "Streams and threads of the recording. What is idle waits for what let its next node begin: every "
    "nanosecond counts as what was under way then."
)


def activity_section(run: RunDirectory) -> str:
    """Ranks over time; nothing of a run that takes none."""
    if not run.summary["makespan_ns"]:
        return ""
    picture = tag("div", activity_picture(run), class_="picture")
    return section("activity", "Ranks over time", tag("p", ACTIVITY, class_="note"), picture)


def waits_section(run: RunDirectory) -> str:
    """Waiting and transfer; nothing of a run without communication."""
    try:
        picture = tag("div", waits_picture(run), class_="picture")
    except NothingToDrawError:
        return ""
    return section("waits", "Waiting and transfer", tag("p", WAITS, class_="note"), picture)


def spread_section(run: RunDirectory) -> str:
    """How far ranks differ; nothing if they do not."""
    found = spreads(run)
    if not any(one.duration_ns.deviation or one.begin_ns.deviation for one in found):
        return ""
    picture = tag("div", spread_picture(run, found=found), class_="picture")
    return section("spread", "Ranks compared", tag("p", SPREAD, class_="note"), picture)


def roofline_section(run: RunDirectory) -> str:
    """Kernels below the roofs; nothing where a model of their arithmetic timed none."""
    if not any(entry["compute_utilisation"] for entry in run.summary["per_rank"]):
        return ""
    try:
        picture = tag("div", roofline_picture(run), class_="picture")
    except NothingToDrawError:
        return ""
    return section("roofline", "Roofline", tag("p", ROOFLINE, class_="note"), picture)


def idle_section(run: RunDirectory) -> str:
    """What devices wait for, of runs of recordings: others have few rows, which ranks over time tell."""
    if "recorded_on" not in run.columns("timeline") or not run.summary["makespan_ns"]:
        return ""
    picture = tag("div", idle_picture(run), class_="picture")
    return section("idle", "Idle devices", tag("p", IDLE, class_="note"), picture)
