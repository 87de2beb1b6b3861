"""Idle time of devices, streams and threads as text and as data."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

from msgspec import to_builtins

from et_sim.basics.units import format_ns
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Selection, recorded_part
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.summary.idle import FIGURES, MEANINGS, ORDER, SHORT, Idle, IdleRow, idle_of
from et_sim.views.summary.rank_table import called
from et_sim.views.text import bar, distinct, not_shown, prose, share, shortened
from et_sim.views.view import Forms

ROWS, CAUSES, PAUSES, BAR = 16, 8, 5, 24
MARKS = "█▓░-·=? "


def idle_data(run: RunDirectory, part: Selection) -> dict[str, Any]:
    """Return the idle time for `--json`."""
    idle = idle_of(run, part)
    causes = part.cut(idle.causes.most_common())
    return {
        "rows": [row.as_dict() for row in part.cut(idle.rows)],
        "devices_wait_for": [
            {"what": figure, "kind": kind, "name": name, "ns": ns} for (figure, kind, name), ns in causes
        ],
        "longest_pauses": [to_builtins(pause) for pause in part.cut(idle.pauses)],
    }


def idle_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return three tables: rows, causes, and the longest pauses."""
    idle = idle_of(run, part)
    if not idle.rows:
        return prose(["no rank of these was written"], width)
    lines = _row_lines(idle, part, width)
    for table in (_cause_lines(idle, part, width), _pause_lines(idle, part, width)):
        lines += ["", *table] if table else []
    kept = recorded_part(run)
    return prose([*lines, *([f"only of the recorded part: {kept}"] if kept else [])], width)


def _row_lines(idle: Idle, part: Selection, width: int) -> list[str]:
    shown = part.cut(idle.rows, ROWS)
    used = [at for at in range(len(FIGURES)) if any(row.figures[at] for row in shown)]
    ranks = [row.ranks for row in shown]
    first = [True, *(ranks_before != ranks_here for ranks_before, ranks_here in pairwise(ranks))]
    firsts = {id(row) for row, is_first in zip(shown, first, strict=True) if is_first}
    sheet = Sheet(
        (
            SheetColumn("ranks", lambda row: shortened(row.ranks, 16) if id(row) in firsts else "", "<"),
            SheetColumn("row", side="<"),
            *(SheetColumn(FIGURES[at], partial(_share_of, at)) for at in used),
            SheetColumn(
                "share of the time",
                lambda row: bar([(MARKS[at], row.figures[at]) for at in used], sum(row.figures), BAR),
                "<",
            ),
        ),
        cut={"ranks": 5, "row": 10},
        drop=("share of the time",),
    )
    lines = sheet.lines(shown, width)
    lines += not_shown(len(idle.rows) - len(shown), "more row", ": --top")
    legend = "   ".join(f"{MARKS[at].strip() or '(blank)'} {MEANINGS[at]}" for at in used)
    return [*lines, legend, *([ORDER] if len(set(ranks)) > 1 else [])]


def _share_of(at: int, row: IdleRow) -> str:
    return share(row.figures[at], sum(row.figures))


def _cause_lines(idle: Idle, part: Selection, width: int) -> list[str]:
    whole = sum(idle.causes.values())
    if not whole:
        return []
    shown = part.cut(idle.causes.most_common(), CAUSES)
    sheet = Sheet(
        (
            SheetColumn("idle devices wait for", lambda cause: SHORT[cause[0][0]], "<"),
            SheetColumn("operation", lambda cause: _operation(*cause[0]), "<"),
            SheetColumn("per rank", lambda cause: format_ns(cause[1] / idle.ranks)),
            SheetColumn("", lambda cause: share(cause[1], whole)),
        ),
        cut={"operation": 20},
        names=("operation",),
    )
    lines = sheet.lines(shown, width)
    return [*lines, *not_shown(len(idle.causes) - len(shown), "line", " with less of it: --top")]


def _operation(_: str, kind: str, name: str) -> str:
    return f"{name}, {kind}" if kind != "gap" else name


def _pause_lines(idle: Idle, part: Selection, width: int) -> list[str]:
    shown = part.cut(idle.pauses, PAUSES)
    names = dict(
        zip((pause.name for pause in shown), distinct([pause.name for pause in shown], 40), strict=True)
    )
    sheet = Sheet(
        (
            SheetColumn("longest pauses", "length_ns", "<"),
            SheetColumn("from", "start_ns"),
            SheetColumn("of", lambda pause: called(pause.ranks, 12), "<"),
            SheetColumn(
                "mostly for",
                lambda pause: ": ".join(filter(None, (SHORT[pause.waits_for], names[pause.name]))),
                "<",
            ),
            SheetColumn("", lambda pause: share(pause.waits_ns, pause.length_ns)),
        ),
        cut={"mostly for": 20},
    )
    return sheet.lines(shown, width) if shown else []


IDLE = Forms(idle_lines, idle_data)
