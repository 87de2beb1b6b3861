"""What the ranks did with their time: one line per entry of `per_rank`, with shares and a bar.

Shares are of the makespan. "exposed" is the time in which communication was under way and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from et_sim.units import format_ns
from et_sim.views.text import aligned, bar, share, shortened

HEAD = ("ranks", "finish", "", "compute", "", "exposed", "", "idle", "", "")
ALIGNMENT = "<>>>>>>>><"
LEGEND = "█ compute   ▒ exposed communication   ░ other work   · idle"
BAR_WIDTH = 24

Entry = dict[str, Any]


def rank_lines(entries: Sequence[Entry], makespan_ns: int) -> list[str]:
    """The table, in the order given."""
    rows = [HEAD, *(_row(entry, makespan_ns) for entry in entries)]
    return [*aligned(rows, ALIGNMENT, gap=" "), LEGEND]


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
    end: int = makespan_ns if entry["finish_ns"] is None else entry["finish_ns"]
    explained: int = entry["compute_ns"] + entry["exposed_comm_true_ns"] + entry["idle_ns"]
    return max(end - explained, 0)


def _row(entry: Entry, makespan_ns: int) -> tuple[str, ...]:
    compute, exposed, idle = entry["compute_ns"], entry["exposed_comm_true_ns"], entry["idle_ns"]
    parts = (("█", compute), ("▒", exposed), ("░", other_ns(entry, makespan_ns)), ("·", idle))
    finish = entry["finish_ns"]
    cells = [shortened(entry["ranks"], 16), "never" if finish is None else format_ns(finish)]
    cells.append("-" if finish is None else share(finish, makespan_ns))
    for figure in (compute, exposed, idle):
        cells += [format_ns(figure), share(figure, makespan_ns)]
    return (*cells, bar(parts, makespan_ns, BAR_WIDTH))
