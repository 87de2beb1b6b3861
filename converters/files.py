"""Files that commands write: their names, the check that none replaces an input, progress, how to run them.

Not here: writing, which is `et_sim.trace.write_trace`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from et_sim.basics.errors import UsageError

if TYPE_CHECKING:
    from et_sim.trace import Workload

Item = TypeVar("Item")

SECONDS_BETWEEN_LINES = 2.0


def trace_path(prefix: str, rank: int) -> Path:
    """Where the trace of a rank is written."""
    return Path(f"{prefix}.{rank}.et")


def profile_option(workload: Workload) -> str:
    """An option of `et-sim run` for the profile that a manifest names, and trace files cannot."""
    return f" --profile {workload.profile}" if workload.profile else ""


def refuse_overwriting(inputs: Iterable[Path], outputs: Iterable[Path]) -> None:
    """An output that is one of the inputs would destroy what cannot be made again."""
    read = {path.resolve() for path in inputs}
    for path in outputs:
        if path.resolve() in read:
            raise UsageError(
                "would be overwritten, and it is an input", place=str(path), remedy="choose another -o PREFIX"
            )


def watched(items: Iterable[Item], count: int, noun: str = "files") -> Iterator[Item]:
    """The items, with a line on stderr now and then while whoever takes them is busy."""
    said = time.monotonic()
    for number, item in enumerate(items):
        yield item
        if time.monotonic() - said >= SECONDS_BETWEEN_LINES:
            said = time.monotonic()
            sys.stderr.write(f"et-convert: {number + 1:,} of {count:,} {noun}\n")
