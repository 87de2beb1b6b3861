"""Small pieces of plain text: aligned columns, shares, bars. Not here: any figure of a run."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from et_sim.basics.units import format_ns, plural

NO_BREAK = "\N{NO-BREAK SPACE}"
UNIT = re.compile(r"(?<=\d) (?=%|(?:ns|µs|ms|s|[KMGTP]?i?B)\b)")  # the space between a number and its unit


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
    names: Collection[int] = (),
    gap: str = "  ",
) -> list[str]:
    """Aligned rows of at most `width` characters, if that is possible; the first row is the head.

    Where they are wider, texts of the columns in `shrink` are cut, down to the length given there, those in
    `names` so that they still differ; if that is not enough, the columns in `drop` are left out, one after
    the other, and a last line says which.
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
    cut = [_cut_to([row[column] for row in rows], widths[column], column in names) for column in columns]
    cells = list(zip(*cut, strict=True))
    lines = aligned(cells, "".join(alignment[column] for column in columns), gap)
    return lines + _left_out(rows[0], [column for column in drop if column not in columns], width)


def _cut_to(cells: Sequence[str], width: int, are_names: bool) -> list[str]:
    return distinct(cells, width) if are_names else [shortened(cell, width) for cell in cells]


def _left_out(head: Sequence[str], columns: Sequence[int], width: int) -> list[str]:
    """Which columns are missing; one without a heading has shares of the column before."""
    return no_room([head[column] or f"share of {head[column - 1]}" for column in sorted(columns)], width)


def no_room(columns: Sequence[str], width: int) -> list[str]:
    """A sentence about columns that are left out, if any are."""
    text = f"no room for {', '.join(columns)}: a wider terminal and --json show more"
    return textwrap.wrap(text, width) if columns else []


def not_shown(hidden: int, noun: str, rest: str = "") -> list[str]:
    """A line that says how many are left out, if any are, and how to see them."""
    return [f"… and {plural(hidden, noun)}{rest}"] if hidden > 0 else []


def terminal_width(otherwise: int = 80) -> int:
    """How many columns there are: as the variable COLUMNS says, or the terminal, if there is one."""
    return max(shutil.get_terminal_size((otherwise, 24)).columns, 40)


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


def cut(name: str, width: int) -> str:
    """A name of at most `width` characters: what is cut out of its middle shows as an ellipsis."""
    kept = max(width - 1, 1)
    return name if len(name) <= width else f"{name[: kept - kept // 2]}…{name[len(name) - kept // 2 :]}"


def distinct(names: Sequence[str], width: int) -> list[str]:
    """Names cut in the middle, or where those that would look the same begin to differ."""
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        alike.setdefault(cut(name, width), []).append(name)
    short: dict[str, str] = {}
    for text, several in alike.items():
        short[several[0]] = text
        if len(several) > 1:
            short |= _cut_apart(sorted(several), width)
    return [short[name] for name in names]


def _cut_apart(names: Sequence[str], width: int) -> dict[str, str]:
    """Names in order, each cut where it is no more like the one before or behind it."""
    shared = [0, *(_shared(name, next_) for name, next_ in pairwise(names)), 0]
    return {name: _cut_at(name, width, max(shared[at : at + 2])) for at, name in enumerate(names)}


def _shared(first: str, second: str) -> int:
    """How many characters two names begin with alike."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))


def _cut_at(name: str, width: int, place: int) -> str:
    """A name's beginning, and what stands at a place of it."""
    head = width // 4
    begin = min(max(place - head // 2, head), len(name) - (width - head - 1))
    return shortened(f"{name[:head]}…{name[begin:]}", width)


def shortened(text: str, width: int) -> str:
    """Text of at most `width` characters; what is cut shows as an ellipsis."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def signed(time_ns: int | float) -> str:
    """A difference with its sign, in whole nanoseconds."""
    whole = round(time_ns)
    return f"+{format_ns(whole)}" if whole > 0 else format_ns(whole)


def percent(before: int, after: int) -> str:
    """How much more or less; two digits, so that a small change is not shown as none."""
    if not before or before == after:
        return ""
    percent = 100 * (after - before) / before
    return f"{percent:+.1f} %" if abs(percent) >= 0.05 else f"{percent:+.1g} %"


def prose(lines: Sequence[str], width: int, indent: int = 0) -> list[str]:
    """Lines of at most `width` characters; what is cut off goes on below. Commands stay whole."""
    cut = []
    for line in lines:
        is_whole = len(line) <= width or "et-sim inspect " in line
        cut += [line] if is_whole else wrapped(line, width, indent)
    return cut


def wrapped(line: str, width: int, indent: int) -> list[str]:
    """A line as several of at most `width` characters; a unit stays with its number."""
    several = textwrap.wrap(
        UNIT.sub(NO_BREAK, line),
        width,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [line.replace(NO_BREAK, " ") for line in several]
