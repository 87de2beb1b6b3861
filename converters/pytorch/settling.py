"""Into the files of a job's ranks goes what only all of them together say: starts, and sizes.

A file that nothing is said about stays as it is. A start is an attribute of the first record; of nodes, only
those with sizes to be added are read.

Not here: what is concluded (`meetings`).
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import IO, Any

from converters.pytorch.converting import Done
from converters.pytorch.meetings import settle
from et_sim.basics.protobuf_fields import varint
from et_sim.trace.columns import ESTIMATED, START_NS, UNSIZED
from et_sim.trace.schema import messages

_COPIED = 1 << 20  # bytes at a time


def settle_files(finished: Sequence[Done]) -> list[str]:
    """Complete the drafts and reports of all ranks; gives what is to be said about all of them."""
    timed = [done for done in finished if done.meetings is not None]
    if not timed:
        return []
    found = settle([done.meetings for done in timed if done.meetings is not None])
    for done, start, sizes, estimates in zip(
        timed, found.start_ns, found.sizes, found.estimates, strict=True
    ):
        done.report["start_ns"] = start
        unsized = done.report["unsized"]
        unsized["estimated"] = len(estimates)
        unsized["of_other_ranks"] = len(sizes) - len(estimates)
        if start or sizes:
            _rewrite(done.draft, done.job.output.suffix == ".gz", start, sizes, estimates)
            done.report["output_bytes"] = _size(done.draft, done.job.output.suffix == ".gz")
    return [f"start skew: {found.said}"] if found.said else []


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
    """All records, until the last node with something to add."""
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
