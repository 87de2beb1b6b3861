"""Bytes of files, read whole and written atomically.

A reader sees the old file or the new one, never a part. If files are written together, it sees all or an
incomplete set.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from et_sim.basics.errors import TraceError, unreadable
from et_sim.basics.files import draft_folder, is_file

_GZIP = b"\x1f\x8b"
ENDING = ".workload.json"  # of manifests
MARK = "et_sim_workload"  # first key of a manifest
_LOOKED_AT = 4096  # this many bytes determine whether a file of another name is a manifest
_OF_RANK = re.compile(r"(.*)\.(0|[1-9][0-9]{0,17})\.et(?:\.gz)?", re.DOTALL)


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file."""
    try:
        with path.open("rb", buffering=0) as file:
            return file.readall()
    except OSError as error:
        raise TraceError(
            f"cannot be read: {unreadable(error)}", place=str(path), remedy="name a readable file"
        ) from None


def is_manifest(path: str | Path) -> bool:
    """Return whether a manifest describes a workload: by its name or, for an existing file, by its
    content.
    """
    path = Path(path)
    if path.name.endswith(ENDING):
        return True
    if not is_file(path):
        return False
    try:
        with path.open("rb") as file:
            begin = file.read(_LOOKED_AT)
    except OSError:
        return False
    return path.suffix == ".json" or (begin.lstrip().startswith(b"{") and f'"{MARK}"'.encode() in begin)


def read_unpacked(path: Path) -> bytes:
    """Return the content of a file, unpacked if it is compressed with gzip."""
    return unpacked(read_bytes(path), str(path))


def unpacked(content: bytes, source: str) -> bytes:
    """Return the content of a file that may be compressed with gzip."""
    if not content.startswith(_GZIP):
        return content
    from et_sim.documents.gzipped import ungzipped

    try:
        return ungzipped(content, source, TraceError)
    except (EOFError, OSError, zlib.error) as error:
        raise TraceError(
            f"the gzip data is damaged: {error}", place=source, remedy="fetch or compress the file again"
        ) from None


def replace_all(contents: Iterable[tuple[Path, bytes]], prefix: str | Path | None = None) -> None:
    """Write files that get their names together; with a prefix, other ranks of that prefix are removed."""
    with drafts(prefix) as draft_of:
        for target, content in contents:
            with _refused_as_unwritable(target):
                draft_of(target).write_bytes(content)


@contextmanager
def drafts(prefix: str | Path | None = None) -> Iterator[Callable[[Path], Path]]:
    """Yield a function from a target path to the path of its draft; all drafts are moved at the end.

    Of a set, readers need one file before all others: the manifest, or that of the lowest rank. It is removed
    before another is replaced, and comes last, so that old and new files are never taken for one set. A
    process that is killed meanwhile leaves a set that is refused as incomplete. With a prefix, the drafts are
    a whole set: other ranks of that prefix, of a larger set before it, are removed.
    """
    written: list[tuple[Path, Path]] = []
    folder_of: dict[Path, Path] = {}
    with ExitStack() as stack:

        def draft_of(target: Path) -> Path:
            with _refused_as_unwritable(target):
                if target.parent not in folder_of:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    folder_of[target.parent] = stack.enter_context(draft_folder(target))
            written.append((folder_of[target.parent] / target.name, target))
            return written[-1][0]

        yield draft_of
        written.sort(key=lambda draft: _place_in_set(draft[1].name), reverse=True)
        others = [] if prefix is None else _others(Path(prefix), {target.name for _, target in written})
        if len(written) + len(others) > 1:
            others.insert(0, written[-1][1])
        for path in others:
            with _refused_as_unwritable(path):
                path.unlink(missing_ok=True)
        for draft, target in written:
            with _refused_as_unwritable(target):
                draft.replace(target)


def _others(prefix: Path, kept: set[str]) -> list[Path]:
    """Return the files of a prefix that are not of its set."""
    ranks = ((path, _OF_RANK.fullmatch(path.name)) for path in sorted(prefix.parent.iterdir()))
    return [path for path, rank in ranks if rank and rank[1] == prefix.name and path.name not in kept]


def _place_in_set(name: str) -> tuple[int, int]:
    """Return the order in which a reader needs files: the manifest first, then ranks in ascending order."""
    if name.endswith(ENDING):
        return 0, 0
    of_rank = _OF_RANK.fullmatch(name)
    return (1, int(of_rank[2])) if of_rank else (2, 0)


@contextmanager
def _refused_as_unwritable(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TraceError(
            f"cannot be written: {unreadable(error)}", place=str(target), remedy="choose a writable place"
        ) from None
