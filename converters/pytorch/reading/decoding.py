"""Batches of JSON elements to typed records, with a sentence for what cannot be read.

Text that is almost JSON, made JSON: what profilers write although the standard forbids it. Numbers that JSON
does not know (nan, inf) become null, bytes that are not UTF-8 become the replacement character, and what may
not stand in a string (control characters, backslashes that escape nothing) is escaped. Everything else stays,
byte for byte.

Not here: what the records are (`host_records`, `device_records`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from converters.pytorch.reading.json_chunks import Batch, Member
from et_sim.basics.errors import TraceError

_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?\b(?:nan|inf|infinity)\b', re.DOTALL | re.IGNORECASE)
# Two halves of a character outside the basic plane, one half alone, an escape that JSON knows, a backslash.
_ESCAPE = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r'|(\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))'
    r"|\\"
)
_CONTROL = re.compile(r"[\x00-\x1f]")


def repaired_json(content: bytes) -> bytes:
    """The content as valid JSON, as far as its faults are of the known kinds."""
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


_T = TypeVar("_T")
NO_TEXT = msgspec.Raw()


class Decoder(Generic[_T]):
    """Decodes batches to lists of `kind`, mending those that are almost JSON and counting them."""

    def __init__(self, kind: type[_T], path: Path) -> None:
        self._decoder: msgspec.json.Decoder[list[_T]] = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
        self._path = path
        self.repaired = 0
        self.count = 0

    def __call__(self, batch: Batch) -> list[_T]:
        content = batch.content
        try:
            if not content.isascii():
                content.decode()  # the decoder does not look into what it leaves as text
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

    def _error(self, batch: Batch, error: Exception) -> TraceError:
        return unreadable(batch, self._path, f"{error} ($[0] is its element {self.count})")


def unreadable(batch: Batch, path: Path, why: str) -> TraceError:
    """What to say when something in a batch is not what it should be."""
    where = f'"{batch.key}"' if batch.key else "the list"
    return TraceError(
        f"elements of {where} cannot be read: {why}",
        place=f"{path}: byte {batch.offset}",
        remedy="the file is damaged or of another kind; record again, or fetch it again",
    )


def decoded(member: Member, path: Path) -> Any:
    """The value of a member that is small."""
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
