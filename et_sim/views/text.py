"""Small pieces of plain text: aligned columns, shares, bars. Not here: any figure of a run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence


def aligned(rows: Sequence[Sequence[str]], alignment: str, gap: str = "  ") -> list[str]:
    """Rows as lines with aligned columns; `alignment` has one of < > for each column."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, alignment, widths, strict=True)
        lines.append(gap.join(f"{cell:{side}{width}}" for cell, side, width in cells).rstrip())
    return lines


def fitted(
    rows: Sequence[Sequence[str]],
    alignment: str,
    width: int,
    *,
    shrink: Mapping[int, int],
    drop: Sequence[int] = (),
    gap: str = "  ",
) -> list[str]:
    """Aligned rows of at most `width` characters, if that is possible.

    Where they are wider, texts of the columns in `shrink` are shortened, down to the length given there; if
    that is not enough, the columns in `drop` are left out, one after the other.
    """
    columns = list(range(len(alignment)))
    for without in (None, *drop):
        columns = [column for column in columns if column != without]
        widths = {column: max(len(row[column]) for row in rows) for column in columns}
        excess = sum(widths.values()) + len(gap) * (len(columns) - 1) - width
        slack = sum(max(widths[column] - least, 0) for column, least in shrink.items() if column in widths)
        if excess <= slack:
            break
    for column, least in shrink.items():
        taken = min(max(widths.get(column, 0) - least, 0), max(excess, 0))
        excess -= taken
        if column in widths:
            widths[column] -= taken
    cells = [[shortened(row[column], widths[column]) for column in columns] for row in rows]
    return aligned(cells, "".join(alignment[column] for column in columns), gap)


def terminal_width() -> int:
    """How many columns there are: as the variable COLUMNS says, or the terminal; else 80."""
    return max(shutil.get_terminal_size((80, 24)).columns, 40)


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
