"""Fields of protobuf messages as bytes: just what a writer needs.

A field is a tag (its number and wire type) and a value. Not here: what the numbers mean (`perfetto`).
"""

from __future__ import annotations

import struct

VARINT, FIXED64, LENGTH = 0, 1, 2


def varint(value: int) -> bytes:
    """A number from 0 to 2**64 - 1, seven bits a byte, the lowest first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A whole number; negative ones as their 64-bit complement."""
    return varint(field << 3 | VARINT) + varint(value & 0xFFFFFFFFFFFFFFFF)


def fixed64(field: int, value: int) -> bytes:
    """A number in eight bytes."""
    return varint(field << 3 | FIXED64) + struct.pack("<Q", value)


def message(field: int, *parts: bytes) -> bytes:
    """A message within a message."""
    content = b"".join(parts)
    return varint(field << 3 | LENGTH) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """A text."""
    return message(field, value.encode("utf-8", "replace"))
