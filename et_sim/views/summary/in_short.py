"""A run in one sentence: its main activity, the ranks concerned, and what could save most.

If the run recorded its critical path, the sentence is about that path (`path_in_short`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from et_sim.basics.units import format_ns
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import recorded_part
from et_sim.views.summary.jobs import counts_with_jobs
from et_sim.views.summary.parts import PARTS
from et_sim.views.summary.rank_table import called
from et_sim.views.summary.sentences import slow_link
from et_sim.views.summary.waiting import LONGEST_RANKS, WaitingParts, waiting_clause
from et_sim.views.text import share

if TYPE_CHECKING:
    from et_sim.views.critical.path import CriticalPath


SMALL_BYTES = 16 << 20  # size of a record that is read for a sentence


def in_short(run: RunDirectory, path: CriticalPath | None, parts: WaitingParts | None = None) -> str:
    """Return the sentence without a full stop; empty if the run did not complete or takes no time.

    `parts`: why the ranks of a pipeline wait.
    """
    if run.summary["status"] != "complete" or not run.summary["makespan_ns"]:
        return ""
    if path is None:
        return _of_parts(run, parts)
    from et_sim.views.summary.path_in_short import of_path

    return of_path(run, path)


def small_path(run: RunDirectory) -> CriticalPath | None:
    """Return the critical path, if it is recorded and its record is small."""
    if not run.holds("path") or recorded_part(run) or run.table_path("path").stat().st_size > SMALL_BYTES:
        return None
    from et_sim.views.critical.path import CriticalPath
    from et_sim.views.critical.record import PathRecord

    return CriticalPath(PathRecord(run))


def _of_parts(run: RunDirectory, parts: WaitingParts | None) -> str:
    summary = run.summary
    entries, slowest = summary["per_rank"], summary["slowest"]
    counts = counts_with_jobs(run, entries)
    sums = {
        part.text: sum(count * entry[part.figure] for count, entry in zip(counts, entries, strict=True))
        for part in PARTS
    }
    main = max(sums, key=lambda name: sums[name])
    whole = summary["makespan_ns"]
    text = f"{main} is {share(sums[main], whole * sum(counts))} of the average rank's time"
    if parts is not None:
        return f"{text}; {waiting_clause(parts, whole)}"
    link = slow_link(summary)
    if link is not None and (slowest is None or link.takes_longer_ns >= slowest["cost_ns"]):
        return f"{text}; {link.text}: its bytes take {format_ns(link.takes_longer_ns)} longer"
    if slowest is not None:
        cost = slowest["cost_ns"]
        waits = f"the others wait for {called(slowest['ranks'], LONGEST_RANKS)}"
        text += f"; {waits}, {format_ns(cost)} on average ({share(cost, whole)})"
    return text
