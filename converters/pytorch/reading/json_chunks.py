"""A file that is one JSON object with a very long list in it, in pieces of bounded size.

The text, plain or gzip, is read in blocks. A piece is either a whole member of the object, or some
consecutive elements of a long list. Members may come in any order, and the file may be that list alone. This
module finds the ends of pieces; a typed decoder reads them (msgspec, because it skips other keys). A
streaming parser (ijson) takes as long only to build dictionaries of everything, without the columns, and it
stops at the first number or byte that JSON forbids, which profilers do write. Figures are in
benchmarks/README.md.

numpy finds the ends of JSON values inside a block of bytes without a parser. A bracket counts unless it is in
a string, and a quotation mark opens or closes a string unless an odd number of backslashes precedes it. Both
are evaluated for a whole block at once, at several hundred MB/s.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from et_sim.basics.errors import TraceError, unreadable

BLOCK_BYTES = 1 << 18  # decoded objects of one block fit into the cache of a core
_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Progress = Callable[[int], None]


class JsonText:
    """An open file; `read` returns the next bytes of its text, b"" at its end."""

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self._progress = progress
        try:
            self._file = path.open("rb")
            packed = self._file.read(2) == _GZIP
            self._file.seek(0)
        except OSError as error:
            raise TraceError(
                f"cannot be read: {unreadable(error)}", place=str(path), remedy="name a readable file"
            ) from None
        self._text = gzip.GzipFile(fileobj=self._file) if packed else self._file
        self._at_start = True

    def __enter__(self) -> JsonText:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._text.close()
        self._file.close()

    def last(self, size: int) -> bytes:
        """Return the last bytes of the text; a compressed text is read as a whole."""
        if self._text is self._file:
            self._file.seek(max(0, self.path.stat().st_size - size))
            return self.read(size)
        tail = b""
        while block := self.read(size):
            tail = (tail + block)[-size:]
        return tail

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, fewer only at the end, and report the progress."""
        try:
            block = self._text.read(size)
        except (EOFError, OSError, zlib.error) as error:
            problem = "ends early" if isinstance(error, EOFError) else f"is damaged: {error}"
            raise TraceError(
                f"the gzip data {problem}",
                place=str(self.path),
                remedy="fetch it again, or record again: its writer was probably stopped",
            ) from None
        if self._progress is not None:
            self._progress(self._file.tell())
        if self._at_start:
            self._at_start = False
            block = block.removeprefix(_BYTE_ORDER_MARK)
        return block


_QUOTE, _BACKSLASH = b'"\\'
# "[" and "{" differ in one bit only, and so do "]" and "}".
_OPENING, _CLOSING, _CASE = ord("{"), ord("}"), ord("{") ^ ord("[")


class Elements(NamedTuple):
    """The elements in a block that starts between two elements of a list."""

    end: int  # end of the last whole element; 0 if there is none
    closed_at: int  # position of the list's closing bracket, or -1


def elements(block: bytes) -> Elements:
    """Return the whole elements (objects or lists) at the beginning of a block."""
    positions, depths = _depths(block)
    closing = np.flatnonzero(depths < 0)
    closed_at = -1
    if len(closing):
        closed_at = int(positions[closing[0]])
        positions, depths = positions[: closing[0]], depths[: closing[0]]
    ends = np.flatnonzero(depths == 0)
    return Elements(int(positions[ends[-1]]) + 1 if len(ends) else 0, closed_at)


def container_end(block: bytes) -> int:
    """Return the end of the object or list with which the block starts, or -1 if it is outside."""
    positions, depths = _depths(block)
    ends = np.flatnonzero(depths == 0)
    return int(positions[ends[0]]) + 1 if len(ends) else -1


def _depths(block: bytes) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
    """Return the brackets of a block that starts outside of strings, and the depth after each."""
    letters = np.frombuffer(block, np.uint8)
    folded = letters | _CASE
    marks = letters == _QUOTE
    _clear_escaped(marks, letters)
    marks |= folded == _OPENING
    marks |= folded == _CLOSING
    positions = np.flatnonzero(marks)
    found_letters = letters[positions]
    is_quote = found_letters == _QUOTE
    in_string = np.cumsum(is_quote, dtype=np.int32) & 1
    counts = (in_string == 0) & ~is_quote
    positions, found_letters = positions[counts], found_letters[counts] | _CASE
    return positions, np.cumsum(np.where(found_letters == _OPENING, 1, -1))


def _clear_escaped(marks: npt.NDArray[np.bool_], letters: npt.NDArray[np.uint8]) -> None:
    """Unmark the letters that a backslash escapes; in a run of backslashes every other one escapes."""
    slashes = np.flatnonzero(letters == _BACKSLASH)
    if not len(slashes):
        return
    order = np.arange(len(slashes))
    starts_run = np.ones(len(slashes), np.bool_)
    starts_run[1:] = slashes[1:] != slashes[:-1] + 1
    place_in_run = order - np.maximum.accumulate(np.where(starts_run, order, 0))
    escaped = slashes[place_in_run % 2 == 0] + 1
    marks[escaped[escaped < len(marks)]] = False


_SPACE = re.compile(rb"[ \t\r\n]*")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\]}]+")
_CUT_OFF = "the file ends in the middle of {what}"
_CUT_OFF_REMEDY = "the program was probably stopped while writing it; record again, or fetch the file again"
_LARGEST_MEMBER = 1 << 28
_SHOWN = 20


class Member(Struct, frozen=True):
    """A member of the file's object: its key, and its value as JSON."""

    key: str
    value: bytes
    offset: int


class JsonBatch(Struct, frozen=True):
    """Some elements of the list `key`, as a JSON list; `key` is "" if the file is the list alone.

    `offset` is the position of the first element in the text of the file.
    """

    key: str
    content: bytes
    offset: int


def json_chunks(
    path: Path,
    lists: Collection[str],
    *,
    block_bytes: int = BLOCK_BYTES,
    progress: Progress | None = None,
) -> Iterator[Member | JsonBatch]:
    """Yield the pieces of a file; the lists named in `lists` come in batches, everything else whole."""
    with JsonText(path, progress) as blocks:
        text = _Text(blocks, block_bytes)
        first = text.next_letter()
        if first == b"[":
            text.position += 1
            yield from _batches(text, "")
        elif first == b"{":
            yield from _members(text, lists)
        else:
            shown = text.buffer[text.position : text.position + _SHOWN]
            problem = f"starts with {shown!r}, not with a JSON object" if first else "is empty"
            raise TraceError(
                problem, place=str(path), remedy="name a recording of PyTorch: JSON, or JSON in gzip"
            )
        if text.next_letter():
            raise text.error("text follows after the end of the JSON object")


class _Text:
    """The part of the file in memory; `buffer[position:]` is not yet consumed."""

    def __init__(self, blocks: JsonText, block_bytes: int) -> None:
        self.blocks = blocks
        self.block_bytes = block_bytes
        self.buffer = b""
        self.position = 0
        self.before = 0  # bytes of the file before the buffer

    @property
    def offset(self) -> int:
        return self.before + self.position

    def more(self) -> bool:
        """Discard the consumed part and read at least as much as is left; return False at the end of the
        file.
        """
        rest = self.buffer[self.position :]
        block = self.blocks.read(max(self.block_bytes, len(rest)))
        self.before += self.position
        self.buffer, self.position = rest + block, 0
        return bool(block)

    def next_letter(self) -> bytes:
        """Return the next byte that is no white space, b"" at the end; `position` is there then."""
        while True:
            match = _SPACE.match(self.buffer, self.position)
            self.position = match.end() if match else self.position
            if self.position < len(self.buffer):
                return self.buffer[self.position : self.position + 1]
            if not self.more():
                return b""

    def value(self, subject: str) -> bytes:
        """Return the next JSON value, whole."""
        while (end := self._value_end(self.next_letter())) < 0:
            if len(self.buffer) - self.position > _LARGEST_MEMBER:
                raise self.error(f"{subject} is longer than {_LARGEST_MEMBER >> 20} MiB")
            if not self.more():
                raise self.cut_off(subject)
        value = self.buffer[self.position : end]
        self.position = end
        return value

    def _value_end(self, first: bytes) -> int:
        if first in (b"{", b"["):
            end = container_end(self.buffer[self.position :] if self.position else self.buffer)
            return end + self.position if end >= 0 else -1
        match = (_STRING if first == b'"' else _SCALAR).match(self.buffer, self.position)
        # a number at the end of the buffer may continue in the next block
        return match.end() if match and (first == b'"' or match.end() < len(self.buffer)) else -1

    def error(self, problem: str) -> TraceError:
        return TraceError(
            f"is not the JSON it should be: {problem}",
            place=f"{self.blocks.path}: byte {self.offset}",
            remedy="the file is damaged or was edited; record again, or fetch it again",
        )

    def cut_off(self, subject: str) -> TraceError:
        cause = _CUT_OFF.format(what=subject)
        return TraceError(
            cause, place=f"{self.blocks.path}: byte {self.before + len(self.buffer)}", remedy=_CUT_OFF_REMEDY
        )


def _members(text: _Text, lists: Collection[str]) -> Iterator[Member | JsonBatch]:
    """Yield the pieces of an object, from its opening bracket on."""
    text.position += 1
    if text.next_letter() == b"}":
        text.position += 1
        return
    while True:
        if text.next_letter() not in (b'"', b""):
            raise text.error("the name of a member is expected")
        key = text.value("the object")[1:-1].decode("utf-8", "replace")
        if text.next_letter() not in (b":", b""):
            raise text.error(f'a colon is expected after "{key}"')
        text.position += 1
        if text.next_letter() == b"[" and key in lists:
            text.position += 1
            yield from _batches(text, key)
        else:
            offset = text.offset
            yield Member(key, text.value(f'"{key}"'), offset)
        letter = text.next_letter()
        if letter not in (b",", b"}"):
            raise text.error('"," or "}" is expected') if letter else text.cut_off("the object")
        text.position += 1
        if letter == b"}":
            return


def _batches(text: _Text, key: str) -> Iterator[JsonBatch]:
    """Yield the elements of a list, from after its opening bracket to after its closing one."""
    subject = f'the list "{key}"' if key else "the list"
    is_first = True
    while True:
        start = text.position
        end, closed_at = elements(text.buffer[start:])
        if not end and closed_at < 0:
            if not text.more():
                raise text.cut_off(subject)
            continue
        stop = closed_at if closed_at >= 0 else end
        content = text.buffer[start : start + stop].strip()
        offset = text.offset
        text.position = start + stop
        if not is_first and content:
            if not content.startswith(b","):
                raise text.error(f'"," is expected between elements of {subject}')
            content = content[1:]
        if content or is_first:  # an empty list is a batch, too
            yield JsonBatch(key, b"[" + content + b"]", offset)
            is_first = False
        if closed_at >= 0:
            text.position += 1
            return
