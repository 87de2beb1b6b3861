"""The declaration of a format of recordings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from et_sim.basics.errors import UsageError

REFUSED = "other kinds"  # the name of the format that refuses all


class RecordingTask(Struct, frozen=True):
    """The files of one recording, and what is to be made of them."""

    path: Path  # as given: a file, or a folder
    files: Sequence[Path]  # the files of this format, in the order of their names
    output: str  # a prefix; empty if none was given
    as_json: bool

    @property
    def prefix(self) -> str:
        """Return the prefix of the traces to write, which must be given."""
        if not self.output:
            raise UsageError("-o is missing", remedy="name the traces to write: -o PREFIX")
        return self.output

    def refuse_output(self, cause: str, remedy: str) -> None:
        """Refuse an output that cannot be written from this format."""
        if self.output:
            raise UsageError(f"no traces can be made of it: {cause}", place=str(self.path), remedy=remedy)


class RecordingFormat(Struct, frozen=True):
    """A format: `recognises` decides by the path and the first bytes of a file, unpacked if it is gzipped;
    `convert` yields the lines to print.
    """

    name: str  # as messages state it, such as "flight-recorder dumps of PyTorch"
    recognises: Callable[[Path, bytes], bool]
    convert: Callable[[RecordingTask], Iterator[str]]
