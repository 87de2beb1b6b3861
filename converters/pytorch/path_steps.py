"""Which node decided when each node could begin, kept until the longest path is walked back.

Not here: the walk (`longest_path`, `totals`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

import numpy as np

_STEP = np.dtype([("duration_ns", np.int64), ("decided_by", np.int32), ("role", np.uint8)])


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Of nodes with consecutive numbers."""

    first: int  # number of the first
    duration_ns: Any
    role: Any
    decided_by: Any  # number of the node that it came after, or -1


class PathSteps(Protocol):
    """Takes steps in the order of numbers, and gives them back from the last to the first."""

    def put(self, steps: Steps) -> None:
        """Keep them."""

    def backwards(self) -> Iterator[Steps]:
        """The last first."""


@dataclass(slots=True)
class InMemory:
    """Keeps them as they are."""

    _kept: list[Steps] = field(default_factory=list)

    def put(self, steps: Steps) -> None:
        self._kept.append(steps)

    def backwards(self) -> Iterator[Steps]:
        yield from reversed(self._kept)


@dataclass(slots=True)
class InFile:
    """Keeps them in a file, which nobody else reads."""

    _file: IO[bytes]
    _sizes: list[tuple[int, int]] = field(default_factory=list)  # first, and how many

    def put(self, steps: Steps) -> None:
        rows = np.empty(len(steps.role), _STEP)
        for name in _STEP.names or ():
            rows[name] = getattr(steps, name)
        self._sizes.append((steps.first, len(rows)))
        rows.tofile(self._file)

    def backwards(self) -> Iterator[Steps]:
        for first, size in reversed(self._sizes):
            self._file.seek(first * _STEP.itemsize)
            rows = np.fromfile(self._file, _STEP, size)
            columns = {name: np.ascontiguousarray(rows[name]) for name in _STEP.names or ()}
            yield Steps(first, **columns)
