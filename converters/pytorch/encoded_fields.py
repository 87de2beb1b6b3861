"""Encoded fields that many rows share: names, shapes, types, groups.

A piece is what stands in a record, tag and length included, so that writing a row copies it. Not here:
which row has which piece (`emission`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from converters.pytorch.graph import Column
from converters.pytorch.wire_rows import Pieces
from et_sim.basics.protobuf_fields import delimited, varint
from et_sim.trace.schema import ATTRIBUTE_KINDS, FIRST_ATTRIBUTE_FIELD

NONE = -1
NAME_FIELD, ATTRIBUTE_FIELD = 2, 10
VALUES_FIELD, SHAPES_FIELD, TYPES_FIELD = 1, 2, 3


class EncodedFields:
    """Pieces, each distinct one once."""

    def __init__(self) -> None:
        self._number: dict[bytes, int] = {}

    def add(self, content: bytes) -> int:
        """The number of a piece; NONE for nothing."""
        return self._number.setdefault(content, len(self._number)) if content else NONE

    def table(self, used: Any, contents: Sequence[Any], encode: Any) -> Column:
        """The piece of each of `contents`, encoding those that are used; the last entry, which -1 finds, is
        NONE."""
        found = np.full(len(contents) + 1, NONE, np.int64)
        for at in used.tolist():
            if at >= 0:
                found[at] = self.add(encode(contents[at]))
        return found

    def packed(self) -> Pieces:
        """All pieces as compiled code reads them."""
        start = np.zeros(len(self._number) + 1, np.int64)
        np.cumsum([len(content) for content in self._number], out=start[1:])
        return Pieces(np.frombuffer(b"".join(self._number) or b"\0", np.uint8).copy(), start)


def text_field(field: int, text: str) -> bytes:
    """A field that holds text; nothing for an empty one."""
    content = text.encode(errors="replace")
    return delimited(field, content) if content else b""


def printed(field: int, content: bytes) -> bytes:
    """A JSON list as readers of the format expect it: in Python's notation."""
    return text_field(field, str(json.loads(content)))


def number_head(name: str, kind: str) -> bytes:
    """What stands before the value of an attribute that is a number."""
    return delimited(1, name.encode()) + varint(_value_field(kind) << 3)


def text_attribute(name: str, text: str) -> bytes:
    """A whole attribute that is text; nothing for an empty one."""
    content = text.encode(errors="replace")
    return _attribute(name, delimited(_value_field("string"), content)) if content else b""


def list_attribute(name: str, numbers: Iterable[int]) -> bytes:
    """A whole attribute that is a list of numbers; nothing for an empty one."""
    content = b"".join(varint(number) for number in numbers)
    listed = delimited(_value_field("int64") + 1, delimited(1, content))
    return _attribute(name, listed) if content else b""


def number_attribute(name: str, value: int, kind: str = "int64") -> bytes:
    """A whole attribute that is a number."""
    return delimited(ATTRIBUTE_FIELD, number_head(name, kind) + varint(value))


def _attribute(name: str, value: bytes) -> bytes:
    return delimited(ATTRIBUTE_FIELD, delimited(1, name.encode()) + value)


def _value_field(kind: str) -> int:
    return FIRST_ATTRIBUTE_FIELD + 2 * ATTRIBUTE_KINDS.index(kind)
