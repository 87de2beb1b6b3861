"""Decoding of trace files; small ones are decoded together, which is many times faster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from et_sim.basics.errors import TraceError
from et_sim.trace.stack import Stack, Templates

_BYTES_AT_ONCE = 1 << 20  # of small files that are decoded together; larger batches are slower


class DecodedFiles:
    """A decoder of files that batches small ones."""

    def __init__(self, drop_dangling: bool) -> None:
        self._drop_dangling = drop_dangling
        self._stacks: list[Stack] = []
        self._contents: list[bytes] = []
        self._sources: list[str] = []
        self._bytes = 0

    def add(self, content: bytes, source: str) -> None:
        """Add a file, which is decoded at once or with some that follow."""
        if self._bytes + len(content) > _BYTES_AT_ONCE:
            self._decode()
        self._contents.append(content)
        self._sources.append(source)
        self._bytes += len(content)

    def finish(self) -> Templates:
        """Return the traces of all files."""
        self._decode()
        return Templates(stacks=self._stacks)

    @contextmanager
    def decoding_after_errors(self) -> Iterator[None]:
        """Report errors in earlier files before an error that is raised inside."""
        try:
            yield
        except TraceError:
            self._decode()
            raise

    def _decode(self) -> None:
        if not self._contents:
            return
        from et_sim.trace.wire import decode_several

        self._stacks.append(decode_several(self._contents, self._sources, drop_dangling=self._drop_dangling))
        self._contents, self._sources, self._bytes = [], [], 0
