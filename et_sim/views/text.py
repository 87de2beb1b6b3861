"""Small pieces of plain text: names cut short, shares, bars."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

from et_sim.basics.terminal import columns_of_terminal
from et_sim.basics.units import format_ns, plural

NO_BREAK = "\N{NO-BREAK SPACE}"
FACT_INDENT = 13
UNIT = r"(?<=\d) (?=%|(?:ns|µs|ms|s|[KMGTP]?i?B)\b)"  # the space between a number and its unit


def no_room(columns: Sequence[str], width: int) -> list[str]:
    """Return a sentence about columns that are left out, if any are."""
    text = f"no room for {', '.join(columns)}: a wider terminal and --json show more"
    return textwrap.wrap(text, width) if columns else []


def not_shown(hidden: int, noun: str, rest: str = "") -> list[str]:
    """Return a line with the number of things left out, if any are, and a hint."""
    return [f"… and {plural(hidden, noun)}{rest}"] if hidden > 0 else []


def terminal_width(otherwise: int = 80) -> int:
    """Return the width of the terminal, and 40 characters if it is narrower."""
    return max(columns_of_terminal(otherwise), 40)


def share(part: int | float, whole: int | float) -> str:
    """Return a part of a whole in percent; small parts are `<1 %`, and nearly all is `>99 %`."""
    text = increase(part, whole)
    return ">99 %" if text == "100 %" and part < whole else text


def increase(more: int | float, than: int | float) -> str:
    """Return an increase in percent; unlike a part of a whole, it may exceed 100 %."""
    if not than:
        return "-"
    percent = round(100 * more / than)
    return "<1 %" if percent == 0 and more else f"{percent} %"


def by_byte(intensity: float) -> str:
    """Return operations per byte as text."""
    return f"{intensity:,.0f}" if intensity >= 100 else f"{intensity:.3g}"


def bar(parts: Sequence[tuple[str, int]], whole: int, width: int) -> str:
    """Return parts of a whole as runs of characters, at most `width` of them."""
    drawn, reached = "", 0
    for character, amount in parts:
        reached += amount
        drawn += character * (round(width * reached / max(whole, 1)) - len(drawn))
    return drawn[:width]


def cut(name: str, width: int) -> str:
    """Return a name of at most `width` characters, with an ellipsis for a cut in its middle."""
    kept = max(width - 1, 1)
    return name if len(name) <= width else f"{name[: kept - kept // 2]}…{name[len(name) - kept // 2 :]}"


def distinct(names: Sequence[str], width: int) -> list[str]:
    """Return names cut in the middle, or at the place where otherwise equal ones begin to differ."""
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
    """Return sorted names, each cut where it begins to differ from its neighbours."""
    shared = [0, *(_shared(name, next_) for name, next_ in pairwise(names)), 0]
    return {name: _cut_at(name, width, max(shared[at : at + 2])) for at, name in enumerate(names)}


def _shared(first: str, second: str) -> int:
    """Return the length of the common beginning of two names."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))


def _cut_at(name: str, width: int, place: int) -> str:
    """Return a name's beginning, and the text at a place of it."""
    head = width // 4
    begin = min(max(place - head // 2, head), len(name) - (width - head - 1))
    return shortened(f"{name[:head]}…{name[begin:]}", width)


def shortened(text: str, width: int) -> str:
    """Return text of at most `width` characters, with an ellipsis for a cut at its end."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def fact(name: str, text: str) -> str:
    """Return a line of a list of facts; continued lines are indented by `FACT_INDENT`."""
    return f"{name:<{FACT_INDENT - 1}} {text}"


def fact_lines(facts: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Return facts as lines of at most `width` characters, without empty facts."""
    lines = (wrapped(fact(name, text), width, FACT_INDENT) for name, text in facts if text)
    return [*chain.from_iterable(lines)]


def signed(time_ns: int | float) -> str:
    """Return a difference with its sign, in whole nanoseconds."""
    whole = round(time_ns)
    return f"+{format_ns(whole)}" if whole > 0 else format_ns(whole)


def percent(before: int, after: int) -> str:
    """Return the change in percent; two digits, so that a small change is not shown as none."""
    if not before or before == after:
        return ""
    percent = 100 * (after - before) / before
    return f"{percent:+.1f} %" if abs(percent) >= 0.05 else f"{percent:+.1g} %"


def prose(lines: Sequence[str], width: int, indent: int = 0) -> list[str]:
    """Return lines of at most `width` characters, wrapped if they are longer; commands stay whole."""
    cut = []
    for line in lines:
        is_whole = len(line) <= width or "et-sim inspect " in line
        cut += [line] if is_whole else wrapped(line, width, indent)
    return cut


def wrapped(line: str, width: int, indent: int) -> list[str]:
    """Return a line as several of at most `width` characters; a unit stays with its number."""
    several = textwrap.wrap(
        re.sub(UNIT, NO_BREAK, line),
        width,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [line.replace(NO_BREAK, " ") for line in several]
