"""Aligned columns of text, as wide as their contents."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], alignment: str, gap: str = "  ") -> list[str]:
    """Return rows as lines with aligned columns; `alignment` has one of < > for each column."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, alignment, widths, strict=True)
        lines.append(gap.join(f"{cell:{side}{width}}" for cell, side, width in cells).rstrip())
    return lines
