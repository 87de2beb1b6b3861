"""Which views of a run can be drawn, and writing a picture into a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from et_sim.basics.errors import UsageError
from et_sim.basics.files import new_file
from et_sim.views.drawing.activity import activity_picture
from et_sim.views.drawing.bandwidth import bandwidth_picture
from et_sim.views.drawing.critical import critical_path_picture
from et_sim.views.drawing.idle import idle_picture
from et_sim.views.drawing.memory import memory_picture
from et_sim.views.drawing.network import links_picture, phases_picture, queues_picture
from et_sim.views.drawing.picture import picture
from et_sim.views.drawing.ranks import ranks_picture
from et_sim.views.drawing.roofline import roofline_picture
from et_sim.views.drawing.schedule import schedule_picture
from et_sim.views.drawing.spread import spread_picture
from et_sim.views.drawing.svg import nothing_to_draw
from et_sim.views.drawing.topology import topology_picture
from et_sim.views.drawing.waits import waits_picture
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Selection
from et_sim.views.schedule.schedule import schedule_of
from et_sim.views.schedule.text import NO_PASSES


def _schedule_picture(run: RunDirectory, part: Selection) -> str:
    found = schedule_of(run)
    if found is None:
        raise nothing_to_draw(NO_PASSES, run, part)
    return schedule_picture(found)


PICTURES: Mapping[str, Callable[[RunDirectory, Selection], str]] = MappingProxyType(
    {
        "picture": picture,
        "ranks": ranks_picture,
        "activity": activity_picture,
        "waits": waits_picture,
        "bandwidth": bandwidth_picture,
        "critical-path": critical_path_picture,
        "topology": topology_picture,
        "links": links_picture,
        "queues": queues_picture,
        "phases": phases_picture,
        "schedule": _schedule_picture,
        "spread": spread_picture,
        "idle": idle_picture,
        "memory": memory_picture,
        "roofline": roofline_picture,
    }
)


def write_pictures(run: RunDirectory, view: str, part: Selection, svg: Path | None, png: Path | None) -> None:
    """Draw a view into the files that are named."""
    write_picture(PICTURES[view](run, part), svg, png)


def write_picture(drawn: str, svg: Path | None, png: Path | None) -> None:
    """Write a picture into the files that are named: both, or none if the PNG is refused."""
    if png is not None and png == svg:
        raise UsageError("--svg and --png name one file", place=str(png), remedy="name two")
    if png is not None:
        from et_sim.views.drawing.png import png_of

        _write(png, png_of(drawn))
    if svg is not None:
        _write(svg, drawn.encode("utf-8", "replace"))


def _write(target: Path, content: bytes) -> None:
    with new_file(target) as sink:
        sink.write(content)
