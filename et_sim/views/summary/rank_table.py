"""What the ranks did with their time: one line per entry of `per_rank`, with shares and a bar.

Shares are of the makespan, or of a window of time. "exposed" is the time in which communication was under way
and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from et_sim.units import format_ns
from et_sim.views.text import aligned, bar, fitted, share, shortened

HEAD = ("ranks", "finish", "", "compute", "", "exposed", "", "idle", "")
ALIGNMENT = "<>>>>>>>>"
LEGEND = "█ compute   ▒ exposed communication   ░ other work   · idle"
BAR_WIDTH = 24
LEAST_BAR = 8

Entry = dict[str, Any]


def rank_lines(
    entries: Sequence[Entry], makespan_ns: int, width: int, whole_ns: int | None = None
) -> list[str]:
    """The table, in the order given; shares are of `whole_ns`, or the makespan. Bars take the room left."""
    whole_ns = makespan_ns if whole_ns is None else whole_ns
    rows = [HEAD, *(_row(entry, makespan_ns, whole_ns) for entry in entries)]
    used = max(len(line) for line in aligned(rows, ALIGNMENT, gap=" ")) + 1
    length = min(BAR_WIDTH, width - used)
    if length < LEAST_BAR:
        return fitted(rows, ALIGNMENT, width, shrink={0: 6}, drop=(8, 2, 6, 4), gap=" ")
    bars = ["", *(bar(_parts(entry, makespan_ns), whole_ns, length) for entry in entries)]
    with_bars = [(*row, drawn) for row, drawn in zip(rows, bars, strict=True)]
    return [*aligned(with_bars, ALIGNMENT + "<", gap=" "), LEGEND]


def slowest_first(entries: Sequence[Entry]) -> list[Entry]:
    """Entries that never finished, then by finish time; ties stay in rank order."""
    return sorted(
        entries, key=lambda entry: float("-inf") if entry["finish_ns"] is None else -entry["finish_ns"]
    )


def rank_count(ranks: str) -> int:
    """How many ranks a text such as "0-3,6" names."""
    total = 0
    for run in ranks.split(","):
        first, _, last = run.partition("-")
        total += int(last or first) - int(first) + 1
    return total


def ranks_named(text: str) -> Any:
    """The ranks that a text such as "0-3,6" names."""
    spans = (run.partition("-") for run in text.split(","))
    return np.concatenate([np.arange(int(first), int(last or first) + 1) for first, _, last in spans])


def called(ranks: str, width: int) -> str:
    """`rank 3`, `ranks 0-3,6`, in a sentence."""
    return f"rank {ranks}" if ranks.isdecimal() else f"ranks {shortened(ranks, width)}"


def other_ns(entry: Entry, makespan_ns: int) -> int:
    """Time with neither kernels nor exposed communication nor idleness: CPU and memory alone."""
    if "other_ns" in entry:  # measured in a window
        return int(entry["other_ns"])
    end: int = makespan_ns if entry["finish_ns"] is None else entry["finish_ns"]
    explained: int = entry["compute_ns"] + entry["exposed_comm_true_ns"] + entry["idle_ns"]
    return max(end - explained, 0)


def _row(entry: Entry, makespan_ns: int, whole_ns: int) -> tuple[str, ...]:
    finish = entry["finish_ns"]
    cells = [shortened(entry["ranks"], 16), "never" if finish is None else format_ns(finish)]
    cells.append("-" if finish is None else share(finish, makespan_ns))
    for name in ("compute_ns", "exposed_comm_true_ns", "idle_ns"):
        cells += [format_ns(entry[name]), share(entry[name], whole_ns)]
    return tuple(cells)


def _parts(entry: Entry, makespan_ns: int) -> tuple[tuple[str, int], ...]:
    compute, exposed, idle = entry["compute_ns"], entry["exposed_comm_true_ns"], entry["idle_ns"]
    return ("█", compute), ("▒", exposed), ("░", other_ns(entry, makespan_ns)), ("·", idle)
