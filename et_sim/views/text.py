"""Small pieces of plain text: aligned columns, shares, bars. Not here: any figure of a run."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], alignment: str, gap: str = "  ") -> list[str]:
    """Rows as lines with aligned columns; `alignment` has one of < > for each column."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, alignment, widths, strict=True)
        lines.append(gap.join(f"{cell:{side}{width}}" for cell, side, width in cells).rstrip())
    return lines


def share(part: int | float, whole: int | float) -> str:
    """A percentage; what only rounds to nothing, or to everything, says so."""
    if not whole:
        return "-"
    percent = round(100 * part / whole)
    if percent == 0 and part:
        return "<1 %"
    return ">99 %" if percent == 100 and part < whole else f"{percent} %"


def bar(parts: Sequence[tuple[str, int]], whole: int, width: int) -> str:
    """Parts of a whole as runs of characters, at most `width` of them."""
    drawn, reached = "", 0
    for character, amount in parts:
        reached += amount
        drawn += character * (round(width * reached / max(whole, 1)) - len(drawn))
    return drawn[:width]


def shortened(text: str, width: int) -> str:
    """Text of at most `width` characters; what is cut shows as an ellipsis."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def plural(count: int, one: str, many: str = "") -> str:
    """`1 rank`, `2 ranks`, `1,024 ranks`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
