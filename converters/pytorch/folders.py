"""A folder of recordings: files by rank, and parallel conversion of all ranks.

The kind of a file follows from its content, its rank from its content or else its name. Two recordings belong
together if they have the same rank; or the same process, if one has no rank. Ranks are converted by processes
of their own; files get their names when all are done.

Starts and sizes depend on all ranks of a job and are added at the end. A file without additions stays
unchanged. A start is an attribute of the first record; only nodes with added sizes are read.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from msgspec.structs import replace

from converters.pytorch.columns import ABSENT
from converters.pytorch.converting import ConversionJob, Done, convert
from converters.pytorch.graph import Link
from converters.pytorch.meetings import settle
from converters.pytorch.reading import Identity, identify
from et_sim.basics.errors import TraceError, UsageError, unreadable
from et_sim.basics.protobuf_fields import varint
from et_sim.basics.units import format_ns, plural
from et_sim.trace.columns import ESTIMATED, START_NS, UNSIZED
from et_sim.trace.disk import drafts
from et_sim.trace.schema import messages

_COPIED = 1 << 20  # bytes at a time


def settle_files(finished: Sequence[Done]) -> list[str]:
    """Complete the drafts and reports of all ranks; return remarks on all of them."""
    timed = [done for done in finished if done.meetings is not None]
    if not timed:
        return []
    settled = settle([done.meetings for done in timed if done.meetings is not None])
    for done, start, sizes, estimates in zip(
        timed, settled.start_ns, settled.sizes, settled.estimates, strict=True
    ):
        done.report["start_ns"] = start
        unsized = done.report["unsized"]
        unsized["estimated"] = len(estimates)
        unsized["of_other_ranks"] = len(sizes) - len(estimates)
        if start or sizes:
            _rewrite(done.draft, done.job.output.suffix == ".gz", start, sizes, estimates)
            done.report["output_bytes"] = _size(done.draft, done.job.output.suffix == ".gz")
    return [f"start skew: {settled.starts_text}"] if settled.starts_text else []


def _size(path: Path, is_packed: bool) -> int:
    with _opened(path, "rb", is_packed) as file:
        return sum(len(part) for part in iter(lambda: file.read(_COPIED), b""))


def _rewrite(path: Path, is_packed: bool, start_ns: int, sizes: Mapping[int, int], guessed: Set[int]) -> None:
    other = path.with_name(f"{path.name}.2")
    try:
        with _opened(path, "rb", is_packed) as old, _opened(other, "wb", is_packed) as new:
            _header(old, new, start_ns)
            if sizes:
                _nodes(old, new, sizes, guessed)
            shutil.copyfileobj(old, new, _COPIED)
        other.replace(path)
    finally:
        other.unlink(missing_ok=True)


def _header(old: IO[bytes], new: IO[bytes], start_ns: int) -> None:
    header = messages().GlobalMetadata.FromString(_record(old))
    if start_ns:
        header.attr.add(name=START_NS, int64_val=start_ns)
    _put(new, header)


def _nodes(old: IO[bytes], new: IO[bytes], sizes: Mapping[int, int], guessed: Set[int]) -> None:
    """Copy the records until the last node with an addition."""
    left = set(sizes)
    while left:
        node = messages().Node.FromString(_record(old))
        if node.id in left:
            left.remove(node.id)
            kept = [attribute for attribute in node.attr if attribute.name != UNSIZED]
            del node.attr[:]
            node.attr.extend(kept)
            node.attr.add(name="comm_size", int64_val=sizes[node.id])
            if node.id in guessed:
                node.attr.add(name=ESTIMATED, bool_val=True)
        _put(new, node)


def _record(file: IO[bytes]) -> bytes:
    size = shift = 0
    while True:
        byte = file.read(1)[0]
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return file.read(size)


def _put(file: IO[bytes], message: Any) -> None:
    content = message.SerializeToString()
    file.write(varint(len(content)) + content)


def _opened(path: Path, mode: str, is_packed: bool) -> Any:
    return gzip.GzipFile(path, mode, mtime=0) if is_packed else path.open(mode)


_APART_NS = 60_000_000_000  # clocks of machines differ by less
_REMEDY = "give recordings of one run and the same steps, or --force to convert these"


def _differences(reports: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for key, wording in (("world_size", "a world of {}"), ("steps", "{}")):
        known = [report for report in reports if report["recorded"][key]]
        for report in known[1:]:
            first, other = known[0]["recorded"][key], report["recorded"][key]
            if first != other:
                ours, theirs = wording.format(_shown(other)), wording.format(_shown(first))
                yield _place(report), f"is of {ours}, and {_place(known[0])} of {theirs}"
    for report in reports if len(reports) > 1 else ():  # the rank of a single one may be a guess
        size = report["recorded"]["world_size"]
        if size and report["rank"] is not None and report["rank"] >= size:
            yield _place(report), f"is of rank {report['rank']} of a world of {size}"
    without = [report for report in reports if report["time"] is None]
    if without and len(without) < len(reports):
        timed_too = next(report for report in reports if report["time"] is not None)
        yield (
            _place(without[0]),
            f"has no times, so its rank would take none, and {_place(timed_too)} has: a timeline is missing",
        )
    timed = [report for report in reports if report["recorded"]["begin_ns"] is not None]
    for before, after in pairwise(timed):
        ours, theirs = after["recorded"], before["recorded"]
        apart = max(ours["begin_ns"] - theirs["end_ns"], theirs["begin_ns"] - ours["end_ns"])
        if apart > _APART_NS:
            yield _place(after), f"was recorded {format_ns(apart)} apart from {_place(before)}"


def missing_ranks(reports: Sequence[dict[str, Any]]) -> list[str]:
    """Return a remark if the world has more ranks than are converted together."""
    world = max((report["recorded"]["world_size"] or 0 for report in reports), default=0)
    if world <= len(reports) or len(reports) == 1:
        return []
    return [
        f"{len(reports)} of {plural(world, 'rank')} of the run are present: groups of all ranks have only"
        " these members, with less communication (et-sim run --alone takes the recorded times)"
    ]


def _place(report: dict[str, Any]) -> str:
    return str(report["inputs"][-1])


def _shown(value: Any) -> str:
    """Return a value for a message, such as `8` or `steps 3 to 5`."""
    if isinstance(value, int):
        return str(value)
    several = f"steps {value[0]} to {value[-1]}" if len(value) > 1 else f"step {value[0]}"
    return several if value == list(range(value[0], value[-1] + 1)) else f"steps {', '.join(map(str, value))}"


_ENDINGS = (".json", ".json.gz", ".gz")
Report = Callable[[int], None]  # bytes of inputs that are done


def jobs_of_folder(
    folder: Path, prefix: str, without: frozenset[Link]
) -> tuple[list[ConversionJob], list[str]]:
    """Return one job per rank, in the order of ranks, and remarks on the files that are left."""
    notes: list[str] = []
    known: list[tuple[Path, Identity]] = []
    unknown: list[tuple[Path, Identity]] = []
    for path in _candidates(folder):
        identity = identify(path)
        if identity.kind == "other":
            notes.append(f"{path} is no recording: {identity.why}")
        else:
            (unknown if identity.rank == ABSENT else known).append((path, identity))
    if not known and not unknown:
        raise TraceError(
            "holds no execution trace of PyTorch and no Kineto timeline",
            place=str(folder),
            remedy="name a folder with files such as et_0.json.gz and kineto_0.json.gz",
        )
    jobs: dict[int, ConversionJob] = {}
    for path, identity in known:
        _take(jobs, path, identity.kind, identity.rank, prefix, without)
    for path, identity in unknown:
        rank = _rank_of(identity, known, unknown)
        if rank is None:
            raise TraceError(
                "has no rank in its content or its name",
                place=str(path),
                remedy="give files names such as kineto_0.json and et_0.json",
            )
        _take(jobs, path, identity.kind, rank, prefix, without)
    if unknown and not known:
        notes.append("no file states a rank: rank 0 is assumed")
    missing = sorted(set(range(max(jobs) + 1)) - set(jobs))
    if missing:
        first = f"the first is {missing[0]}"
        notes.append(f"{len(missing)} of ranks 0 to {max(jobs)} have no recording, {first}")
    return [jobs[rank] for rank in sorted(jobs)], notes


def _rank_of(
    identity: Identity, known: list[tuple[Path, Identity]], unknown: list[tuple[Path, Identity]]
) -> int | None:
    """Return the rank of a file without one: that of its process, of the only other file, or 0."""
    of_process = {other.process: other.rank for _, other in known if other.process != ABSENT}
    if identity.process in of_process:
        return of_process[identity.process]
    ranks = {other.rank for _, other in known}
    if len(ranks) > 1 or sum(other.kind == identity.kind for _, other in [*known, *unknown]) > 1:
        return None
    return min(ranks, default=0)


def _candidates(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.rglob("*") if path.name.endswith(_ENDINGS) and path.is_file())
    except OSError as error:
        raise TraceError(
            f"cannot be read: {unreadable(error)}", place=str(folder), remedy="name a readable folder"
        ) from None


def _take(
    jobs: dict[int, ConversionJob], path: Path, kind: str, rank: int, prefix: str, without: frozenset[Link]
) -> None:
    job = jobs.setdefault(rank, ConversionJob(Path(f"{prefix}.{rank}.et"), without=without))
    taken = getattr(job, kind)
    if taken is not None:
        raise TraceError(
            f"is of rank {rank}, as is {taken}",
            place=str(path),
            remedy="convert one recording of each rank at a time; name two files with --host and --device",
        )
    jobs[rank] = _with(job, kind, path)


def _with(job: ConversionJob, kind: str, path: Path) -> ConversionJob:
    files: dict[str, Any] = {kind: path}
    return replace(job, **files)


def convert_all(
    jobs: list[ConversionJob], processes: int, progress: Report, notes: list[str] | None = None
) -> list[Done]:
    """Convert all ranks, return them in the order of `jobs`, and add remarks on all of them to `notes`."""
    refuse_overwriting(jobs)
    with drafts() as draft_of:
        of_job = {job: draft_of(job.output) for job in jobs}
        finished = sorted(_converted(of_job, processes, progress), key=lambda done: jobs.index(done.job))
        if not any(job.force for job in jobs):
            reports = [done.report for done in finished]
            for place, difference in _differences(reports):
                raise TraceError(difference, place=place, remedy=_REMEDY)
        remarks = settle_files(finished)
        remarks += missing_ranks([done.report for done in finished])
        if notes is not None:
            notes += remarks
    return finished


def _converted(draft_of: Mapping[ConversionJob, Path], processes: int, progress: Report) -> list[Done]:
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
    # the first rank is converted here: it compiles the machine code that the others load
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


def refuse_overwriting(jobs: list[ConversionJob]) -> None:
    """Refuse outputs that are also inputs: they would destroy recordings that cannot be repeated."""
    inputs = {path.resolve() for job in jobs for path in job.inputs}
    for job in jobs:
        if job.output.resolve() in inputs:
            raise UsageError(
                "would be overwritten, and it is an input", place=str(job.output), remedy="choose another -o"
            )


def job_of_file(path: Path, output: Path, without: frozenset[Link]) -> ConversionJob:
    """Return the job of a single file."""
    identity = identify(path)
    if identity.kind == "other":
        raise TraceError(
            f"is no recording of PyTorch: {identity.why}",
            place=str(path),
            remedy="give an execution trace or a Kineto timeline, or a folder of them",
        )
    return _with(ConversionJob(output, without=without), identity.kind, path)
