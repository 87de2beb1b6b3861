"""Writing a picture into a file. Not here: which views can be drawn (`views.view`)."""

from __future__ import annotations

from pathlib import Path

from et_sim.basics.errors import UsageError
from et_sim.basics.files import write_file
from et_sim.views.drawing.scene import png_of


def write_picture(drawn: str, svg: Path | None, png: Path | None) -> None:
    """Write a picture into the files that are named: both, or none if the PNG is refused."""
    if png is not None and png == svg:
        raise UsageError("--svg and --png name one file", place=str(png), remedy="name two")
    if png is not None:
        write_file(png, png_of(drawn))
    if svg is not None:
        write_file(svg, drawn.encode("utf-8", "replace"))
