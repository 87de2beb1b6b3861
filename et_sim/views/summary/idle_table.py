"""What devices, streams and threads do, and what they wait for while idle, as text and as data.

Not here: the figures (`idle`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from msgspec import to_builtins

from et_sim.basics.units import format_ns
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.recorded_part import recorded_part
from et_sim.views.run.selection import Selection
from et_sim.views.summary.idle import FIGURES, MEANINGS, ORDER, SHORT, Idle, idle_of
from et_sim.views.summary.rank_table import called
from et_sim.views.text import bar, distinct, fitted, not_shown, prose, share, shortened
from et_sim.views.view import Forms

ROWS, CAUSES, PAUSES, BAR = 16, 8, 5, 24
MARKS = "█▓░-·=? "


def idle_data(run: RunDirectory, part: Selection) -> dict[str, Any]:
    """For `--json`."""
    found = idle_of(run, part)
    causes = part.cut(found.causes.most_common())
    return {
        "rows": [one.as_dict() for one in part.cut(found.rows)],
        "devices_wait_for": [
            {"what": what, "kind": kind, "name": name, "ns": ns} for (what, kind, name), ns in causes
        ],
        "longest_pauses": [to_builtins(one) for one in part.cut(found.pauses)],
    }


def idle_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Three tables: rows, causes, and the longest pauses."""
    found = idle_of(run, part)
    if not found.rows:
        return prose(["no rank of these was written"], width)
    lines = _row_lines(found, part, width)
    for table in (_cause_lines(found, part, width), _pause_lines(found, part, width)):
        lines += ["", *table] if table else []
    kept = recorded_part(run)
    return prose([*lines, *([f"of what was written: {kept}"] if kept else [])], width)


def _row_lines(found: Idle, part: Selection, width: int) -> list[str]:
    shown = part.cut(found.rows, ROWS)
    used = [at for at in range(len(FIGURES)) if any(one.figures[at] for one in shown)]
    ranks = [one.ranks for one in shown]
    first = [True, *(one != other for one, other in pairwise(ranks))]
    rows = [
        (
            shortened(one.ranks, 16) if is_first else "",
            one.row,
            *(share(one.figures[at], sum(one.figures)) for at in used),
            bar([(MARKS[at], one.figures[at]) for at in used], sum(one.figures), BAR),
        )
        for one, is_first in zip(shown, first, strict=True)
    ]
    head = ("ranks", "row", *(FIGURES[at] for at in used), "share of the time")
    lines = fitted(
        [head, *rows], "<<" + ">" * len(used) + "<", width, shrink={0: 5, 1: 10}, drop=(len(head) - 1,)
    )
    lines += not_shown(len(found.rows) - len(shown), "more row", ": --top")
    legend = "   ".join(f"{MARKS[at].strip() or '(blank)'} {MEANINGS[at]}" for at in used)
    return [*lines, legend, *([ORDER] if len(set(ranks)) > 1 else [])]


def _cause_lines(found: Idle, part: Selection, width: int) -> list[str]:
    whole = sum(found.causes.values())
    if not whole:
        return []
    shown = part.cut(found.causes.most_common(), CAUSES)
    rows = [
        (
            SHORT[what],
            f"{name}, {kind}" if kind != "gap" else name,
            format_ns(ns / found.ranks),
            share(ns, whole),
        )
        for (what, kind, name), ns in shown
    ]
    head = ("idle devices wait for", "operation", "per rank", "")
    lines = fitted([head, *rows], "<<>>", width, shrink={1: 20}, names=(1,))
    return [*lines, *not_shown(len(found.causes) - len(shown), "line", " with less of it: --top")]


def _pause_lines(found: Idle, part: Selection, width: int) -> list[str]:
    shown = part.cut(found.pauses, PAUSES)
    names = distinct([one.name for one in shown], 40)
    rows = [
        (
            format_ns(one.length_ns),
            format_ns(one.start_ns),
            called(one.ranks, 12),
            SHORT[one.waits_for] + (f": {name}" if name else ""),
            share(one.waits_ns, one.length_ns),
        )
        for one, name in zip(shown, names, strict=True)
    ]
    head = ("longest pauses", "from", "of", "mostly for", "")
    return fitted([head, *rows], "<><<>", width, shrink={3: 20}) if rows else []


IDLE = Forms(idle_lines, idle_data)
