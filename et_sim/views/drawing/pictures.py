"""Writing a picture into a file. Not here: which views can be drawn (`views.view`)."""

from __future__ import annotations

from pathlib import Path

from et_sim.basics.errors import UsageError
from et_sim.basics.files import new_file


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
