"""Who paused whom: from the congested queues to the ports that had to wait for them, and on from there.

A pause is caused by the queue in which most of what came over the paused link waited. If the port of that
queue was paused itself when the pause was asked for, that pause is its cause; otherwise the queue is a root.

Not here: how deep queues were over time (`queues`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct, field

from et_sim.basics.units import format_bytes, format_ns, plural
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.text import cut, not_shown, prose
from et_sim.views.view import Forms

SHOWN, NEVER = 30, np.iinfo(np.int64).max
NONE = -1
COLUMNS = ("link", "egress", "asked_ns", "begin_ns", "end_ns", "egress_depth")
UNKNOWN = "a queue that is not known"


class PauseSpread(Struct):
    """A port, and the ports that were paused because of it."""

    link: str
    depth: int  # below the root
    pauses: int = 0  # of a root: none of its own
    paused_ns: int = 0  # summed, those that never ended until the end of the run
    endless: int = 0  # of them
    first_ns: int = NEVER
    deepest_bytes: int = 0  # that waited for it when it asked others to pause
    caused: dict[str, PauseSpread] = field(default_factory=dict)


def pause_roots(run: RunDirectory, part: Selection = EVERYTHING) -> list[PauseSpread] | None:
    """The queues that pauses began at, those that cost others most time first; None: not recorded."""
    if not run.holds("pauses"):
        return None
    names, egress, asked, begin, end, depth = run.arrays("pauses", COLUMNS).values()
    is_endless = end == NONE
    end = np.where(is_endless, max(run.summary["makespan_ns"], int(begin.max(initial=0))), end)
    roots: dict[str, PauseSpread] = {}
    last: dict[
        str, tuple[int, PauseSpread]
    ] = {}  # the pause of a port that was asked for last: its end, its place
    for row in np.argsort(asked, kind="stable").tolist():
        link = str(names.texts[names.codes[row]])
        cause = egress.texts[egress.codes[row]] or UNKNOWN
        until, above = last.get(cause, (NONE, None))
        if above is None or until < asked[row]:
            above = roots.setdefault(cause, PauseSpread(cause, 0))
        place = above.caused.setdefault(link, PauseSpread(link, above.depth + 1))
        last[link] = (int(end[row]), place)
        if not part.touches(begin[row : row + 1], end[row : row + 1])[0]:
            continue
        start, stop = (int(time) for time in part.clipped(begin[row], end[row]))
        place.pauses += 1
        place.paused_ns += stop - start
        place.endless += int(is_endless[row])
        place.first_ns = min(place.first_ns, int(begin[row]))
        above.deepest_bytes = max(above.deepest_bytes, int(depth[row]))
    pausing = [root for root in roots.values() if any(link.pauses for link in spread(root))]
    return sorted(pausing, key=lambda root: (-sum(link.paused_ns for link in spread(root)), root.link))


def spread(root: PauseSpread) -> Iterator[PauseSpread]:
    """It, and all below it, each before those that it caused: the longest pauses first."""
    waiting = [root]
    while waiting:
        link = waiting.pop()
        yield link
        waiting += sorted(link.caused.values(), key=lambda child: (child.paused_ns, child.link))


def pauses_data(run: RunDirectory, part: Selection = EVERYTHING) -> list[dict[str, Any]] | None:
    """For `--json`: each root with what it caused, inside one another."""
    roots = pause_roots(run, part)
    return None if roots is None else [_as_dict(root) for root in part.cut(roots)]


def _as_dict(root: PauseSpread) -> dict[str, Any]:
    made: dict[int, dict[str, Any]] = {}
    for link in spread(root):
        entry = {"link": link.link, "deepest_bytes": link.deepest_bytes, "caused": []}
        if link is not root:
            times = {
                "paused_ns": link.paused_ns,
                "first_ns": None if link.first_ns == NEVER else link.first_ns,
            }
            entry |= {"pauses": link.pauses, **times, "never_ended": link.endless}
        made[id(link)] = entry
    for link in spread(root):
        below = sorted(link.caused.values(), key=lambda child: (-child.paused_ns, child.link))
        made[id(link)]["caused"] = [made[id(child)] for child in below]
    return made[id(root)]


def pause_view(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """As text."""
    return prose(pause_lines(pause_roots(run, part) or [], part, width), width)


PAUSES = Forms(pause_view, pauses_data)


def pause_lines(roots: list[PauseSpread], part: Selection, width: int) -> list[str]:
    """A line for each root, and below it one for each port that had to wait because of it."""
    if not roots:
        return ["no port was paused"]
    lines = []
    for root in roots:
        every = [link for link in spread(root) if link.pauses]
        total = sum(link.paused_ns for link in every)
        counted = plural(sum(link.pauses for link in every), "pause")
        depth = format_bytes(root.deepest_bytes)
        lines.append(cut(f"{root.link}, {depth} waiting: {counted} of {format_ns(total)} in all", width))
        lines += [_line(link, width) for link in every]
    shown = part.cut(lines, SHOWN)
    notes = not_shown(len(lines) - len(shown), "more line", ": --top, or --json")
    notes += ["each was paused because of what waited for the one above it; the topmost was not paused"]
    return [*shown, *notes]


def _line(link: PauseSpread, width: int) -> str:
    first = format_ns(link.first_ns)
    text = f"{plural(link.pauses, 'pause')} of {format_ns(link.paused_ns)}, the first at {first}"
    if link.endless:
        text += f"; {plural(link.endless, 'of them never ends', 'of them never end')}"
    indent = "  " * min(link.depth, 10)
    return cut(f"{indent}{link.link}: {text}", width)
