"""Output files of commands: their names, protection of inputs, and progress."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from et_sim.basics.errors import UsageError
from et_sim.basics.terminal import Estimate, Status, StatusLine

if TYPE_CHECKING:
    from et_sim.trace import Workload


Item = TypeVar("Item")

SECONDS_BETWEEN_LINES = 2.0


def trace_path(prefix: str, rank: int) -> Path:
    """Return the path of the trace of a rank."""
    return Path(f"{prefix}.{rank}.et")


def profile_option(workload: Workload) -> str:
    """Return the option of `et-sim run` for the profile of the manifest, which trace files cannot hold."""
    return f" --profile {workload.profile}" if workload.profile else ""


def refuse_overwriting(inputs: Iterable[Path], outputs: Iterable[Path]) -> None:
    """Refuse outputs that are also inputs: they would destroy data that cannot be made again."""
    read = {file for path in inputs if (file := _identity(path))}
    for path in outputs:
        if _identity(path) in read:
            raise UsageError(
                "would be overwritten, and it is an input", place=str(path), remedy="choose another -o PREFIX"
            )


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the file at a path, or None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - called for thousands of outputs
    except OSError:
        return None
    return found.st_dev, found.st_ino


def write_files(
    inputs: Iterable[Path],
    paths: Sequence[Path],
    files: Iterable[tuple[Path, bytes]],
    whole: str | None = None,
) -> None:
    """Write all files at `paths` or none; none may be an input. With `whole`, they are the complete set of
    that prefix.
    """
    from et_sim.trace.disk import replace_all

    refuse_overwriting(inputs, paths)
    replace_all(watched(files, len(paths)), whole)


def watched(items: Iterable[Item], count: int, noun: str = "files") -> Iterator[Item]:
    """Yield the items and write a line to stderr every few seconds."""
    reported = time.monotonic()
    for number, item in enumerate(items):
        yield item
        if time.monotonic() - reported >= SECONDS_BETWEEN_LINES:
            reported = time.monotonic()
            sys.stderr.write(f"et-convert: {number + 1:,} of {count:,} {noun}\n")


_SILENT_SECONDS = 1.0
_BETWEEN_UPDATES = 0.5
_BETWEEN_LINES = 10.0


class ShareProgress:
    """A display of the share of a known total that is done."""

    def __init__(self, noun: str, total: int) -> None:
        self._noun = noun
        self._total = max(total, 1)
        self._begin = time.monotonic()
        self._shown_at = self._begin
        self._line = StatusLine()
        self._estimate = Estimate()
        self._estimate.add(0.0, self._begin)

    def __call__(self, done: int) -> None:
        """Show the share that is done if enough time has passed."""
        now, share = time.monotonic(), min(done / self._total, 1.0)
        self._estimate.add(share, now)
        pause = _BETWEEN_UPDATES if self._line.is_live else _BETWEEN_LINES
        left = self._estimate.left(now)
        if now - self._begin < _SILENT_SECONDS or now - self._shown_at < pause or left is None:
            return
        self._shown_at = now
        plain = f"et-convert: {self._noun}: {100 * share:.0f} %, about {left:.0f} s left"
        self._line.show(Status(plain, f"converting {self._noun}", share, now - self._begin, left))

    def close(self) -> None:
        """Clear the line."""
        self._line.clear()


@contextmanager
def progress(noun: str, total: int) -> Iterator[ShareProgress]:
    """Yield a progress display, which is closed after the work."""
    shown = ShareProgress(noun, total)
    try:
        yield shown
    finally:
        shown.close()
