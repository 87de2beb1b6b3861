"""The entries of a layer's windows: which word of the image each is, a block of them at a time.

Not here: the order in which an array asks for them (`overlapping`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from et_sim.compute.systolic.layer import SystolicLayer

Entries = npt.NDArray[np.int32]
BEYOND = -1  # where a window reaches beyond the image
Some = slice


@dataclass(frozen=True)
class Windows:
    """An entry is the sum of where its window begins and of how far within the window it is."""

    has_holes: bool
    height: int
    width: int
    pixels: Entries
    values: Entries
    pixel_row: Entries
    pixel_column: Entries
    value_row: Entries
    value_column: Entries

    @classmethod
    def of(cls, layer: SystolicLayer) -> Windows:
        """Those of a layer."""
        size = layer.dimensions
        row, column = layer.corners()
        down, along, channel = layer.offsets()
        parts = (
            (row * size.ifmap_width + column) * size.channels,
            (down * size.ifmap_width + along) * size.channels + channel,
            *(row, column, down, along),
        )
        figures = (part.astype(np.int32) for part in parts)
        return cls(layer.has_holes, size.ifmap_height, size.ifmap_width, *figures)

    def block(self, pixels: Some, values: Some) -> Entries:
        """[pixel, value]: the words of some entries; BEYOND where there are none."""
        words: Entries = self.pixels[pixels, None] + self.values[None, values]
        if self.has_holes:
            words[~self.inside(pixels, values)] = BEYOND
        return words

    def inside(self, pixels: Some, values: Some) -> npt.NDArray[np.bool_]:
        """[pixel, value]: which entries lie within the image."""
        row = self.pixel_row[pixels, None] + self.value_row[None, values]
        column = self.pixel_column[pixels, None] + self.value_column[None, values]
        found: npt.NDArray[np.bool_] = (row < self.height) & (column < self.width)
        return found
