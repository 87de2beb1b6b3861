"""Output that nobody reads to its end, as with `| head`: what a command's status says stands all the same.

Not here: what is printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class UnreadError(BrokenPipeError):
    """The reader has gone, and the command had come to this exit status."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


@contextmanager
def printing(status: int) -> Iterator[None]:
    """Around what a command prints once it knows its exit status."""
    try:
        yield
    except BrokenPipeError as gone:
        raise UnreadError(status) from gone
