"""Fields of protobuf messages as bytes, for writers.

A field is a tag (its number and wire type) and a value.
"""

from __future__ import annotations

import struct

VARINT, FIXED64, LENGTH = 0, 1, 2
_ONE_BYTE = tuple(bytes([value]) for value in range(128))


def varint(value: int) -> bytes:
    """Return a whole number, seven bits a byte, lowest first; negative ones as 64-bit complement."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    value &= 0xFFFFFFFFFFFFFFFF
    if value < 128 * 128:
        return bytes((value & 127 | 128, value >> 7))
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def first_varint(content: bytes) -> tuple[int, int]:
    """Return the whole number at the beginning, and its length in bytes; missing bytes count as zero."""
    value = size = 0
    while size < len(content):
        value |= (content[size] & 127) << 7 * size
        size += 1
        if content[size - 1] < 128:
            break
    return value, size


def tag(field: int, wire_type: int) -> bytes:
    """Return the tag before a value."""
    return varint(field << 3 | wire_type)


def delimited(field: int, content: bytes) -> bytes:
    """Return bytes, preceded by their length."""
    return tag(field, LENGTH) + varint(len(content)) + content


def number(field: int, value: int) -> bytes:
    """Return a whole number."""
    return tag(field, VARINT) + varint(value)


def fixed64(field: int, value: int) -> bytes:
    """Return a number of eight bytes."""
    return tag(field, FIXED64) + struct.pack("<Q", value)


def message(field: int, *parts: bytes) -> bytes:
    """Return a message within a message."""
    return delimited(field, b"".join(parts))


def text(field: int, value: str) -> bytes:
    """Return a text."""
    return delimited(field, value.encode("utf-8", "replace"))
