"""A folder of recordings: which files belong to which rank, and all ranks converted side by side.

Files are told by their content, and ranks by their content or else by their names. Two recordings belong
together if they are of one rank; or of one process, if one does not say its rank. Ranks are converted by
processes of their own; when all are done, their files get their names.

Not here: converting one rank (`converting`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from converters.pytorch.alike import missing_ranks, refuse_unlike
from converters.pytorch.columns import ABSENT
from converters.pytorch.converting import Done, Job, convert
from converters.pytorch.graph import Link
from converters.pytorch.reading import Identity, identify
from converters.pytorch.settling import settle_files
from et_sim.basics.errors import TraceError, UsageError
from et_sim.trace.disk import drafts

_ENDINGS = (".json", ".json.gz", ".gz")
Report = Callable[[int], None]  # bytes of inputs that are done


def jobs_of_folder(folder: Path, prefix: str, without: frozenset[Link]) -> tuple[list[Job], list[str]]:
    """One job per rank, in the order of ranks, and what is to be said about files that are left."""
    notes: list[str] = []
    known: list[tuple[Path, Identity]] = []
    unknown: list[tuple[Path, Identity]] = []
    for path in _candidates(folder):
        what = identify(path)
        if what.kind == "other":
            notes.append(f"{path} is no recording: {what.why}")
        else:
            (unknown if what.rank == ABSENT else known).append((path, what))
    if not known and not unknown:
        raise TraceError(
            "holds no execution trace of PyTorch and no Kineto timeline",
            place=str(folder),
            remedy="name a folder with files such as et_0.json.gz and kineto_0.json.gz",
        )
    found: dict[int, Job] = {}
    for path, what in known:
        _take(found, path, what.kind, what.rank, prefix, without)
    for path, what in unknown:
        rank = _rank_of(what, known, unknown)
        if rank is None:
            raise TraceError(
                "neither its content nor its name says of which rank it is",
                place=str(path),
                remedy="give files names such as kineto_0.json and et_0.json",
            )
        _take(found, path, what.kind, rank, prefix, without)
    if unknown and not known:
        notes.append("no file says of which rank it is: taken as rank 0")
    missing = sorted(set(range(max(found) + 1)) - set(found))
    if missing:
        first = f"the first is {missing[0]}"
        notes.append(f"{len(missing)} of ranks 0 to {max(found)} have no recording, {first}")
    return [found[rank] for rank in sorted(found)], notes


def _rank_of(
    what: Identity, known: list[tuple[Path, Identity]], unknown: list[tuple[Path, Identity]]
) -> int | None:
    """The rank of a file that does not say it: of its process, of the only other file, or the only one."""
    of_process = {other.process: other.rank for _, other in known if other.process != ABSENT}
    if what.process in of_process:
        return of_process[what.process]
    ranks = {other.rank for _, other in known}
    if len(ranks) > 1 or sum(other.kind == what.kind for _, other in [*known, *unknown]) > 1:
        return None
    return min(ranks, default=0)


def _candidates(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.rglob("*") if path.name.endswith(_ENDINGS) and path.is_file())
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceError(
            f"cannot be read: {reason}", place=str(folder), remedy="name a readable folder"
        ) from None


def _take(
    found: dict[int, Job], path: Path, kind: str, rank: int, prefix: str, without: frozenset[Link]
) -> None:
    job = found.setdefault(rank, Job(Path(f"{prefix}.{rank}.et"), without=without))
    taken = getattr(job, kind)
    if taken is not None:
        raise TraceError(
            f"is of rank {rank}, as is {taken}",
            place=str(path),
            remedy="convert one recording of each rank at a time; name two files with --host and --device",
        )
    found[rank] = _with(job, kind, path)


def _with(job: Job, kind: str, path: Path) -> Job:
    files: dict[str, Any] = {kind: path}
    return replace(job, **files)


def convert_all(
    jobs: list[Job], processes: int, progress: Report, notes: list[str] | None = None
) -> list[Done]:
    """Every rank, in the order of `jobs`; what is to be said about all of them is added to `notes`."""
    refuse_overwriting(jobs)
    with drafts() as draft_of:
        of_job = {job: draft_of(job.output) for job in jobs}
        finished = sorted(_converted(of_job, processes, progress), key=lambda done: jobs.index(done.job))
        if not any(job.force for job in jobs):
            refuse_unlike([done.report for done in finished])
        said = settle_files(finished)
        said += missing_ranks([done.report for done in finished])
        if notes is not None:
            notes += said
    return finished


def _converted(draft_of: Mapping[Job, Path], processes: int, progress: Report) -> list[Done]:
    jobs = list(draft_of)
    sizes = {job: sum(path.stat().st_size for path in job.inputs) for job in jobs}
    count = min(processes, len(jobs))
    finished: list[Done] = []
    ready = 0
    if count <= 1:
        for job, draft in draft_of.items():
            finished.append(convert(job, draft, lambda size, before=ready: progress(before + size)))  # type: ignore[misc]
            ready += sizes[job]
        return finished
    # The first rank is converted here: it leaves the machine code that the others load.
    finished.append(convert(jobs[0], draft_of[jobs[0]], progress))
    ready = sizes[jobs[0]]
    with ProcessPoolExecutor(count) as pool:
        running = {pool.submit(convert, job, draft_of[job]): job for job in jobs[1:]}
        try:
            for future in as_completed(running):
                finished.append(future.result())
                ready += sizes[running[future]]
                progress(ready)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return finished


def refuse_overwriting(jobs: list[Job]) -> None:
    """An output that is one of the inputs would destroy what cannot be recorded again."""
    inputs = {path.resolve() for job in jobs for path in job.inputs}
    for job in jobs:
        if job.output.resolve() in inputs:
            raise UsageError(
                "would be overwritten, and it is an input", place=str(job.output), remedy="choose another -o"
            )


def job_of_file(path: Path, output: Path, without: frozenset[Link]) -> Job:
    """What to do with a single file."""
    what = identify(path)
    if what.kind == "other":
        raise TraceError(
            f"is no recording of PyTorch: {what.why}",
            place=str(path),
            remedy="give an execution trace or a Kineto timeline, or a folder of them",
        )
    return _with(Job(output, without=without), what.kind, path)


def processors() -> int:
    """How many processes may run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
