"""The jobs of a run: times, NPUs, and how much other jobs slowed each down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.units import format_ns, format_ranks, parse_ranks, plural, rank_mask
from et_sim.views.run.directory import RunDirectory
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.summary.rank_table import rank_count, ranks_named
from et_sim.views.text import shortened

if TYPE_CHECKING:
    from et_sim.tables.summary import Job


_NPUS_WIDTH = 16
_NONE, _SLOWER, _FASTER = "none", ">1.00x", "<1.00x"


def jobs_of(run: RunDirectory) -> list[Job]:
    """Return the jobs in the summary; runs of one workload have none."""
    return run.summary["jobs"]


def ranks_of_job(run: RunDirectory, name: str) -> str:
    """Return the NPUs of a job, in ascending order."""
    jobs = {str(job["name"]): str(job["npus"]) for job in jobs_of(run)}
    if name not in jobs:
        cause = f"the run has no job {name!r}" if jobs else "this is not the run of a job file"
        remedy = did_you_mean(name, list(jobs)) or (f"jobs: {', '.join(jobs)}" if jobs else "leave out --job")
        raise UsageError(cause, place=str(run.path), remedy=remedy)
    return format_ranks(np.flatnonzero(_mask(jobs[name], run)))


def counts_with_jobs(run: RunDirectory, entries: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the number of ranks of each entry that belong to jobs; without jobs, all."""
    if not jobs_of(run):
        return [rank_count(entry["ranks"]) for entry in entries]
    busy = _mask(",".join(str(job["npus"]) for job in jobs_of(run)), run)
    return [int(busy[ranks_named(entry["ranks"])].sum()) for entry in entries]


def _mask(npus: str, run: RunDirectory) -> Any:
    return rank_mask(parse_ranks(npus), run.summary["ranks"])


def jobs_text(run: RunDirectory) -> str:
    """Return the number of jobs and of their NPUs as text."""
    jobs = jobs_of(run)
    if not jobs:
        return ""
    ranks, npus = sum(job["ranks"] for job in jobs), run.summary["ranks"]
    idle = f"; {npus - ranks:,} idle" if ranks < npus else ""
    return f"{len(jobs):,} on {ranks:,} of {plural(npus, 'NPU')}{idle}"


def job_sheet(jobs: Sequence[Job]) -> Sheet:
    """Return the table of jobs; columns about isolated jobs only if these were simulated."""
    is_isolated = any(job["alone_ns"] is not None for job in jobs)
    return JOBS if is_isolated else JOBS.without("alone", "slow-down")


def job_lines(run: RunDirectory, width: int) -> list[str]:
    """Return the jobs in the order of the job file; nothing if there are none."""
    jobs = jobs_of(run)
    sheet = job_sheet(jobs)
    return [*sheet.lines(jobs, width), *slowdown_note(sheet)] if jobs else []


def slowdown_note(sheet: Sheet) -> list[str]:
    """Return the definition of the slow-down, if the sheet has it."""
    note = "slow-down: duration beside the other jobs by that alone on the same NPUs"
    return [note] if sheet.columns[-1].head == "slow-down" else []


def _time(span: int | None) -> str:
    return "never" if span is None else format_ns(span)


def _slowdown(job: Job) -> str:
    factor = job["slowdown"]
    if factor is None:
        return "-"
    if factor == 1:
        return _NONE
    text = f"{factor:.2f}x"
    return text if text != "1.00x" else _SLOWER if factor > 1 else _FASTER


JOBS = Sheet(
    (
        SheetColumn("job", "name", "<"),
        SheetColumn("NPUs", lambda job: shortened(job["npus"], _NPUS_WIDTH), "<"),
        SheetColumn("start", "start_ns"),
        SheetColumn("finish", lambda job: _time(job["finish_ns"])),
        SheetColumn("duration", lambda job: _time(job["duration_ns"])),
        SheetColumn("alone", lambda job: _time(job["alone_ns"])),
        SheetColumn("slow-down", lambda job: _slowdown(job)),
    ),
    cut={"job": 8, "NPUs": 6},
    drop=("finish", "start"),
    names=("job",),
)
