"""Ranks x time as a picture: in each column of a row, the parts of time stand on each other by their shares.

So what lies between kernels is seen wherever it adds up, however short it is. Parts lower than a pixel are
drawn in some of the columns, as many as it takes. A row is as high as it has ranks, as far as there is room.

Not here: the shares (`summary.activity`).
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from et_sim.views.drawing.colours import PART_COLOURS
from et_sim.views.drawing.scene import LEFT, PIXELS, TOP, Scene, label_of_ranks
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.summary.activity import activity_of
from et_sim.views.summary.parts import PARTS

MOST_ROWS = 256
FULL_HEIGHT, LEAST_HEIGHT, ROW_HEIGHT = 512, 2, 18
LABEL_DISTANCE = 13
RGB = np.array(
    [[int(PART_COLOURS[part.figure][at : at + 2], 16) for at in (1, 3, 5)] for part in PARTS], np.uint8
)
GOLDEN = 0.6180339887498949  # multiples of it, without their whole part, are spread evenly over 0 to 1
DUST = 1e-9  # of shares
MEANING = "a column of a row is filled from below, by the shares of its time"


def activity_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """The SVG text."""
    activity, scene = activity_of(run, part, PIXELS, min(part.top or MOST_ROWS, MOST_ROWS)), Scene()
    heights = _heights(activity.counts)
    tops = np.append(0, np.cumsum(heights)).tolist()
    bottom = TOP + max(tops[-1], 1)
    scene.axis(activity.window, bottom + 4)
    if heights:
        content = base64.b64encode(_png(RGB[parts_of_pixels(activity.shares, heights)])).decode()
        style = {"preserveAspectRatio": "none", "image_rendering": "optimizeSpeed"}
        data = f"data:image/png;base64,{content}"
        scene.add("image", x=LEFT, y=TOP, width=PIXELS, height=tops[-1], **style, href=data)
    reached = -1.0 * LABEL_DISTANCE
    for row, ranks in enumerate(activity.ranks):  # as many as there is room for
        middle = (tops[row] + tops[row + 1]) / 2
        if middle - reached >= LABEL_DISTANCE:
            scene.label(label_of_ranks(ranks), TOP + middle + 4)
            reached = middle
    used = [part for row, part in enumerate(PARTS) if activity.shares[row].any()]
    scene.legend([(PART_COLOURS[part.figure], part.text) for part in used], bottom + 24)
    return scene.finish([MEANING, *activity.notes], bottom + 42)


def parts_of_pixels(shares: Any, heights: Sequence[int]) -> Any:
    """The part, as a place in `PARTS`, of every pixel from the top."""
    row_of = np.repeat(np.arange(len(heights)), heights)
    from_below = np.concatenate([np.arange(height)[::-1] for height in heights])
    shift = np.arange(shares.shape[2]) * GOLDEN % 1
    level = (from_below[:, None] + shift) / np.array(heights)[row_of][:, None]
    ends = np.cumsum(shares, axis=0)
    ends[ends > 1 - DUST] = 1
    return (ends[:-1, row_of] <= level).sum(axis=0)


def _heights(counts: tuple[int, ...]) -> list[int]:
    """In pixels: in proportion to the ranks of rows, but none too small to see."""
    whole, total = min(ROW_HEIGHT * len(counts), FULL_HEIGHT), max(sum(counts), 1)
    return [max(round(whole * count / total), LEAST_HEIGHT) for count in counts]


def _png(pixels: Any) -> bytes:
    """Rows of red, green and blue as a PNG file."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)

    height, width, _ = pixels.shape
    lines = np.concatenate((np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)), axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(lines.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
