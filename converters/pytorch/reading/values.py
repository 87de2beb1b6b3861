"""Decoding of batches of JSON elements to typed records, interpretation of values, and growing columns.

Profilers write text that the JSON standard forbids, which is corrected: invalid numbers (nan, inf) become
null, bytes that are not UTF-8 become the replacement character, and invalid characters in strings (control
characters, backslashes that escape nothing) are escaped. Everything else stays, byte for byte.

Values of a block are stored in compact arrays. The name of a file may contain the rank; the name of an
operator determines whether the values of its arguments are kept.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from converters.pytorch.columns import ABSENT, EventLane, ProcessGroup
from converters.pytorch.reading.json_chunks import JsonBatch, Member
from et_sim.basics.errors import TraceError

# files differ in quotation marks; `whole_number` reads all forms
Number: TypeAlias = int | float | str | None
_T = TypeVar("_T")
_V = TypeVar("_V")
_LARGEST_32 = 2**31 - 1
_WRAP = 1 << 64
_PART_ROWS = 1 << 17
_OWN_PAGES_BYTES = 1 << 16


class Numbering(dict[_T, int]):
    """A numbering in the order of first use: `table[thing]`."""

    def __missing__(self, thing: _T) -> int:
        self[thing] = number = len(self)
        return number


class Memo(dict[_T, _V]):
    """A cache of the results of a function, by argument."""

    def __init__(self, function: Callable[[_T], _V]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, argument: _T) -> _V:
        self[argument] = value = self._function(argument)
        return value


class ValueColumn:
    """A column of whole numbers of type `kind`, or else of 32 bits as long as all values of a block fit."""

    def __init__(self, kind: type[np.integer[Any]] | None = None) -> None:
        self._kind = kind
        self._parts: list[npt.NDArray[Any]] = []
        self._recent: list[npt.NDArray[Any]] = []
        self._recent_rows = 0

    def add(self, values: Sequence[Any] | npt.NDArray[np.int64]) -> None:
        part = numbers(values)
        self._recent.append(narrow(part) if self._kind is None else part.astype(self._kind))
        self._recent_rows += len(part)
        if self._recent_rows >= _PART_ROWS:
            self._join()

    def finish(self) -> npt.NDArray[Any]:
        """Return all values; the column is empty afterwards."""
        self._join()
        parts, self._parts = self._parts, []
        return _joined(parts) if parts else np.zeros(0, self._kind or np.int32)

    def _join(self) -> None:
        if self._recent:
            self._parts.append(_joined(self._recent))
            self._recent, self._recent_rows = [], 0


Kinds = Mapping[str, type[np.integer[Any]] | None]


class ValueColumns:
    """The columns of one table."""

    def __init__(self, kinds: Kinds) -> None:
        self._columns = {column: ValueColumn(kind) for column, kind in kinds.items()}
        self.rows = 0

    def add(self, values: Mapping[str, Any]) -> None:
        """Add the next rows."""
        for name, column in self._columns.items():
            column.add(values[name])
        self.rows += len(next(iter(values.values())))

    def finish(self) -> dict[str, npt.NDArray[Any]]:
        """Return all rows."""
        return {name: column.finish() for name, column in self._columns.items()}


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return the parts as one array (of 64 bits if any part has them), in pages of its own: heap memory
    between the objects of a block is never returned to the system.
    """
    kind = np.result_type(*parts)
    rows = sum(map(len, parts))
    if rows * kind.itemsize < _OWN_PAGES_BYTES:
        return np.concatenate(parts)
    whole: npt.NDArray[Any] = np.frombuffer(mmap(-1, rows * kind.itemsize), kind)
    return np.concatenate(parts, out=whole)


class ValueRows:
    """The columns of a table with few rows, filled row by row."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns
        self._columns = {name: array("q") for name in columns}

    def append(self, *values: object) -> None:
        """Add one row, in the order of the columns."""
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value if type(value) is int and abs(value) < _WRAP >> 1 else whole_number(value))

    def finish(self) -> dict[str, npt.NDArray[Any]]:
        """Return every column; "row" and similar ones in 32 bits if they fit."""
        return {name: narrow(np.array(column, np.int64)) for name, column in self._columns.items()}


def numbers(values: Sequence[Any] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return numbers in any form of the files, in 64 bits."""
    with suppress(ValueError):  # numpy's error for lists among the numbers
        array: npt.NDArray[Any] = np.asarray(values)
        if array.dtype.kind == "i" and array.ndim == 1:
            return array.astype(np.int64, copy=False)
    return np.array([whole_number(value) for value in values], np.int64)


def texts_of(table: Numbering[str] | Numbering[bytes] | Numbering[str | bytes]) -> tuple[bytes, ...]:
    """Return the strings of a table as bytes."""
    return tuple(text.encode() if isinstance(text, str) else text for text in table)


def whole_number(value: object) -> int:
    """Return a number in any form of the files: in quotation marks, in hexadecimal, or -1 as unsigned 64
    bits; ABSENT for anything that is no whole number.
    """
    if isinstance(value, str):
        try:
            value = int(value, 0)
        except ValueError:
            return ABSENT
    if isinstance(value, float):
        value = int(value) if value.is_integer() else ABSENT
    if not isinstance(value, int):
        return ABSENT
    wrapped = value % _WRAP
    return wrapped - _WRAP if wrapped >= _WRAP >> 1 else wrapped


def starts_of(counts: Iterable[int]) -> npt.NDArray[np.int64]:
    """Return the index of each list's first item, and the number of items at the end."""
    return np.concatenate(([0], np.cumsum(np.fromiter(counts, np.int64), dtype=np.int64)))


def narrow(values: npt.NDArray[np.int64]) -> npt.NDArray[np.signedinteger[Any]]:
    if len(values) and max(int(values.max()), -int(values.min())) > _LARGEST_32:
        return values
    return values.astype(np.int32)


_RANK = re.compile(r"(?:rank|worker|gpu|npu)[-_. ]?(\d{1,7})(?!\d)", re.IGNORECASE)
# A short number at the end; a long one is a process or a time.
_NUMBER = re.compile(r"(?:^|[-_.])(\d{1,4})(?:_plus)?(?:\.(?:pt|trace|json|gz))+$")
# arguments that are no tensors determine the cost, or the group and the peer
_VALUES_MATTER = re.compile(r"conv|attention|attn|mha_|^c10d::|^_?c10d_functional|^_dtensor::|^symm_mem::")
C10D = re.compile(r"^(?:c10d::|_?c10d_functional|_dtensor::|symm_mem::)")
GROUPS = "process_group:init"
COMMUNICATION = "record_param_comms"


def rank_of_name(path: Path) -> int:
    """Return the rank in a file's name: "rank3", "worker3", or a short number at its end ("et_3.json")."""
    match = _RANK.search(path.name) or _NUMBER.search(path.name)
    return int(match.group(1)) if match else ABSENT


def values_matter(name: str) -> bool:
    """Return whether the columns keep all input values of an operator of this name."""
    return name == COMMUNICATION or GROUPS in name or _VALUES_MATTER.search(name) is not None


def process_groups(listed: Any) -> Iterator[ProcessGroup]:
    """Yield the groups of a list of descriptions; other entries are skipped."""
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and "pg_name" in entry:
            ranks = entry.get("ranks")
            yield ProcessGroup(
                name=str(entry["pg_name"]),
                description=str(entry.get("pg_desc", "")),
                ranks=tuple(map(whole_number, ranks)) if isinstance(ranks, list) else (),
                size=whole_number(entry.get("pg_size", entry.get("group_size"))),
                backend=str(entry.get("backend_config", "")),
            )


_NO_STREAM = 2**32 - 1  # -1 as unsigned 32 bits


def stream_number(stream: Number) -> int:
    """Return the number of a stream; ABSENT if there is none."""
    number = whole_number(stream)
    return ABSENT if number >= _NO_STREAM else number


class Lanes(Memo[tuple[Any, ...], int]):
    """The numbers of lanes, by (process, thread) of the host and (process, thread, device, stream) of
    devices; different spellings of one lane share a number.
    """

    def __init__(self) -> None:
        super().__init__(lambda written: self.lanes[_lane(written, self._words)])
        self._words: Numbering[str] = Numbering()
        self.lanes: Numbering[EventLane] = Numbering()


def _lane(written: tuple[Any, ...], words: Numbering[str]) -> EventLane:
    process, thread = (_number(value, words) for value in written[:2])
    if len(written) == 2:
        return EventLane(process, thread, ABSENT, ABSENT)
    device, stream = whole_number(written[2]), stream_number(written[3])
    return EventLane(
        process,
        thread,
        process if device == ABSENT else device,
        stream_number(thread) if written[3] is None else stream,
    )


def _number(value: Number, words: Numbering[str]) -> int:
    """Return a number; processes and threads with names get numbers below all others."""
    number = whole_number(value)
    if number == ABSENT and isinstance(value, str) and value.strip() != str(ABSENT):
        return ABSENT - 1 - words[value]
    return number


_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?\b(?:nan|inf|infinity)\b', re.DOTALL | re.IGNORECASE)
# a surrogate pair, half of one, a valid escape, a backslash
_ESCAPE = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r'|(\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))'
    r"|\\"
)
_CONTROL = re.compile(r"[\x00-\x1f]")


def repaired_json(content: bytes) -> bytes:
    """Return the content as valid JSON, as far as its faults are of the known kinds."""
    return _TOKENS.sub(_token, content.decode("utf-8", "replace")).encode()


def _token(match: re.Match[str]) -> str:
    token = match.group()
    if not token.startswith('"'):
        return "null"
    if "\\" in token:
        token = _ESCAPE.sub(_escape, token)
    return _CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", token)


def _escape(match: re.Match[str]) -> str:
    pair, half, known = match.groups()
    return "\\ufffd" if half else pair or known or "\\\\"


_Record = TypeVar("_Record")
NO_TEXT = msgspec.Raw()


class Decoder(Generic[_Record]):
    """A decoder of batches to lists of `kind`; it corrects invalid JSON and counts the corrections."""

    def __init__(self, kind: type[_Record], path: Path) -> None:
        self._decoder: msgspec.json.Decoder[list[_Record]] = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
        self._path = path
        self.repaired = 0
        self.count = 0

    def __call__(self, batch: JsonBatch) -> list[_Record]:
        content = batch.content
        try:
            if not content.isascii():
                content.decode()  # the decoder does not check raw text
            records = self._decoder.decode(content)
        except msgspec.ValidationError as error:
            raise self._error(batch, error) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.repaired += 1
            try:
                records = self._decoder.decode(repaired_json(content))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise self._error(batch, error) from None
        self.count += len(records)
        return records

    def _error(self, batch: JsonBatch, error: Exception) -> TraceError:
        return unreadable(batch, self._path, f"{error} ($[0] is its element {self.count})")


def unreadable(batch: JsonBatch, path: Path, why: str) -> TraceError:
    """Return the error for invalid elements of a batch."""
    where = f'"{batch.key}"' if batch.key else "the list"
    return TraceError(
        f"elements of {where} cannot be read: {why}",
        place=f"{path}: byte {batch.offset}",
        remedy="the file is damaged or of another kind; record again, or fetch it again",
    )


def decoded(member: Member, path: Path) -> Any:
    """Return the value of a small member."""
    try:
        return msgspec.json.decode(member.value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            return msgspec.json.decode(repaired_json(member.value))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise TraceError(
                f'"{member.key}" cannot be read: {error}',
                place=f"{path}: byte {member.offset}",
                remedy="the file is damaged; record again, or fetch it again",
            ) from None
