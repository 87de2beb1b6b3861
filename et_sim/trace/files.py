"""Trace files on disk: PREFIX.0.et, PREFIX.1.et, … to a `Workload`, and back.

Ranks whose files hold the same bytes share one decoded trace. Writing is atomic: a reader sees the old file
or the new one, never a part; and the files of a workload get their names together.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from et_sim.basics.errors import TraceError, did_you_mean
from et_sim.basics.files import is_file, is_folder
from et_sim.basics.units import plural
from et_sim.documents.recognise import FileKind, kind_of
from et_sim.trace.columns import Trace
from et_sim.trace.decoded_files import DecodedFiles
from et_sim.trace.disk import ENDING, is_manifest, read_bytes, replace_all, unpacked
from et_sim.trace.workload import Workload

# Endings of recipes, layer files, manifests and GOAL texts, but never of a prefix.
ENDINGS_OF_FILES = (".yaml", ".yml", ".json", ".txt", ".goal")


def read_trace(path: str | Path, *, drop_dangling: bool = False) -> Trace:
    """Read one trace file, gzip or not; see `wire.decode` for `drop_dangling`."""
    from et_sim.trace.wire import decode

    content = unpacked(read_bytes(Path(path)), str(path))
    return decode(content, str(path), drop_dangling=drop_dangling)


def read_workload(
    prefix: str | Path,
    ranks: int | None = None,
    *,
    drop_dangling: bool = False,
    may_be_more: bool = False,
) -> Workload:
    """Read the traces of all ranks; without `ranks`, of as many as there are files.

    With `may_be_more`, traces of ranks beyond `ranks` are ignored with a notice; otherwise they are refused.
    `prefix` may also name a workload manifest (with or without its ending) or a GOAL text.
    """
    manifest = Path(prefix if is_manifest(prefix) else f"{prefix}{ENDING}")
    files = {} if manifest == Path(prefix) else _files_of_ranks(Path(prefix))
    if manifest == Path(prefix) or (not files and is_file(manifest)):
        from et_sim.trace.manifest import read_manifest

        return read_manifest(manifest, ranks, drop_dangling=drop_dangling)
    if not files and kind_of(Path(prefix)) is FileKind.GOAL:
        from et_sim.trace.goal.file import read_goal

        return read_goal(Path(prefix), ranks)
    paths, notices = _chosen(Path(prefix), files, ranks, may_be_more)
    return read_traces(paths, str(prefix), notices, drop_dangling=drop_dangling)


def traces_of(path: str | Path) -> dict[int, Path]:
    """Return the trace files of a prefix, by rank in ascending order, or the single named file."""
    single = Path(path)
    match = re.fullmatch(r".*\.(0|[1-9][0-9]*)\.et(?:\.gz)?", single.name)
    if match and is_file(single):
        return {int(match[1]): single}
    paths = _files_of_ranks(single)
    return {rank: paths[rank][0] for rank in sorted(paths)}


def read_traces(
    paths: Iterable[Path], source: str, notices: Iterable[str] = (), *, drop_dangling: bool = False
) -> Workload:
    """Read the traces of some files as those of rank 0, 1 and so on."""
    paths = list(paths)
    templates = DecodedFiles(drop_dangling)
    of_content: dict[bytes, int] = {}
    of_rank = np.empty(len(paths), np.int32)
    inputs: list[tuple[str, str]] = []
    for rank, path in enumerate(paths):
        with templates.decoding_after_errors():
            raw = read_bytes(path)
            digest = hashlib.sha256(raw)
            inputs.append((str(path), digest.hexdigest()))
            content = unpacked(raw, str(path))
        key = digest.digest() if content is raw else hashlib.sha256(content).digest()
        if key not in of_content:
            of_content[key] = len(of_content)
            templates.add(content, str(path))
        of_rank[rank] = of_content[key]
    return Workload(
        templates.finish(), of_rank, source, tuple(inputs), tuple(notices), has_file_per_rank=True
    )


def write_trace(trace: Trace | bytes, path: str | Path) -> None:
    """Write one trace file; a name that ends in `.gz` is compressed."""
    if isinstance(trace, Trace):
        from et_sim.trace.encode import encode_trace

        content = encode_trace(trace)
    else:
        content = bytes(trace)
    target = Path(path)
    if target.suffix == ".gz":
        import gzip

        content = gzip.compress(content, mtime=0)
    replace_all([(target, content)])


def write_workload(workload: Workload, prefix: str | Path) -> None:
    """Write PREFIX.<rank>.et for every rank, and PREFIX.groups.json if the workload has group rules.

    Ranks of a larger workload with this prefix are removed. An interruption leaves the old files, the new
    ones, or a set without its first file, which is refused as incomplete (`disk.replace_all`).
    """
    replace_all(files_of_ranks(workload, prefix), prefix)


def files_of_ranks(workload: Workload, prefix: str | Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the path and content of each file.

    Distances become ranks, and groups that follow a rule become numbers, which the groups file lists.
    """
    from et_sim.trace.encode import encode_trace
    from et_sim.trace.expansion import Expansion

    expansion = Expansion(workload)
    if workload.group_rules:
        groups = {number: list(members) for number, members in expansion.groups.items()}
        yield groups_path(prefix), json.dumps(groups).encode()
    encoded: dict[int, tuple[tuple[int, ...], bytes]] = {}  # by template: last variant and file
    for rank in range(workload.ranks):
        variant = expansion.variant(rank)
        if encoded.get(variant[0], ((), b""))[0] != variant:
            encoded[variant[0]] = variant, encode_trace(expansion.trace(rank))
        yield Path(f"{prefix}.{rank}.et"), encoded[variant[0]][1]


def groups_path(prefix: str | Path) -> Path:
    """Return the path of the groups file of a workload with group rules."""
    return Path(f"{prefix}.groups.json")


def _files_of_ranks(prefix: Path) -> dict[int, list[Path]]:
    """Return every PREFIX.<rank>.et and .et.gz, by rank; the uncompressed one first."""
    pattern = re.compile(re.escape(prefix.name) + r"\.(0|[1-9][0-9]*)\.et(?:\.gz)?")
    files: dict[int, list[Path]] = {}
    for name in _names_in(prefix.parent):
        match = pattern.fullmatch(name)
        if match:
            files.setdefault(int(match[1]), []).append(prefix.parent / name)
    return files


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - only names are needed, of many files
    except OSError:
        return []


def _chosen(
    prefix: Path, files: dict[int, list[Path]], ranks: int | None, may_be_more: bool
) -> tuple[list[Path], list[str]]:
    """Return the file of each rank, and notices on ignored files."""
    if ranks is not None and ranks < 1:
        raise TraceError(
            f"a workload of {ranks} ranks was requested",
            place=str(prefix),
            remedy="request at least one rank",
        )
    if not files:
        raise _nothing_found(prefix)
    count = ranks if ranks is not None else max(files) + 1
    missing = next((rank for rank in range(count) if rank not in files), None)
    if missing is not None:
        have = sum(1 for rank in files if rank < count)
        reason = (
            f"{plural(count, 'rank')} need one each"
            if ranks is not None
            else f"the last is rank {max(files)}"
        )
        raise TraceError(
            f"{prefix.name}.{missing}.et is missing: {have} of {count} trace files found ({reason})",
            place=str(prefix),
            remedy="supply one file per rank, from 0 on without a gap, or run the present ranks with --alone",
        )
    last = max(files)
    if last >= count and not may_be_more:
        raise TraceError(
            f"there are traces up to rank {last} ({files[last][0].name}),"
            f" but the machine has {plural(count, 'NPU')}",
            place=str(prefix),
            remedy=f"describe a machine of {last + 1} NPUs, or move the traces of further ranks away",
        )
    notices = _notices(prefix, files, count)
    return [files[rank][0] for rank in range(count)], notices


def _notices(prefix: Path, files: dict[int, list[Path]], count: int) -> list[str]:
    notices = []
    extra = [rank for rank in files if rank >= count]
    if extra:
        beyond = f"beyond the {count} {'rank' if count == 1 else 'ranks'}"
        first = f"{prefix.name}.{min(extra)}.et"
        if len(extra) == 1:
            notices.append(f"1 trace file {beyond} is not used: {first}")
        else:
            notices.append(f"{len(extra)} trace files {beyond} are not used, from {first} on")
    double = [rank for rank, paths in files.items() if len(paths) > 1 and rank < count]
    if double:
        both = "1 rank has" if len(double) == 1 else f"{len(double)} ranks have"
        notices.append(
            f"{both} an .et and an .et.gz file; the .et file is used (first: {prefix.name}.{min(double)}.et)"
        )
    return notices


def _nothing_found(prefix: Path) -> TraceError:
    """Return the error for a prefix without files, as precise as the directory permits."""
    wanted = f"no file {prefix.name}.0.et"
    if not is_folder(prefix.parent):
        return TraceError(
            f"there is no directory {prefix.parent}", place=str(prefix), remedy="check the path"
        )
    name = re.sub(r"(\.[0-9]+)?\.et(\.gz)?$", "", prefix.name)
    if name != prefix.name:
        remedy = f"give the prefix, without rank and ending: {prefix.parent / name}"
        return TraceError("is a file name, not a trace prefix", place=str(prefix), remedy=remedy)
    if is_file(prefix):
        remedy = "of traces, give the prefix; a layer file begins with a keyword such as DATA"
        return TraceError("is a file, but no layer file", place=str(prefix), remedy=remedy)
    if prefix.suffix in ENDINGS_OF_FILES:
        files = [other for other in _names_in(prefix.parent) if Path(other).suffix in ENDINGS_OF_FILES]
        remedy = did_you_mean(prefix.name, files) or "check the path"
        return TraceError("there is no such file", place=str(prefix), remedy=remedy)
    first_files = [
        match[1]
        for match in (re.fullmatch(r"(.+)\.0\.et(?:\.gz)?", other) for other in _names_in(prefix.parent))
        if match
    ]
    remedy = did_you_mean(prefix.name, first_files)
    if not remedy:
        known = ", ".join(first_files[:5]) or "none"
        remedy = f"trace prefixes in {prefix.parent}: {known}"
    return TraceError(wanted, place=str(prefix), remedy=remedy)
