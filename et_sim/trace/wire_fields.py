"""Protobuf's wire format, one field at a time, in compiled code.

Everything is `int64`: unsigned 64-bit values are held as the same bits, so a length or value of
2^63 and more looks negative. Positions are byte offsets in the file; a negative position is one
of the failure codes below. No function here reads outside `[pos, end)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from et_sim.compiled.decorators import compiled

Bytes = npt.NDArray[np.uint8]

VARINT = 0
FIXED64 = 1
BYTES = 2
GROUP_START = 3
GROUP_END = 4
FIXED32 = 5

# failures; 0 and up are positions
TRUNCATED_NUMBER = -1
OVERLONG_NUMBER = -2
BAD_TAG = -3
OUTSIDE_RECORD = -4
GROUP_FIELD = -5
BAD_WIRE_TYPE = -6

_LOW_32 = 0xFFFFFFFF
_SIGN_32 = 0x80000000
_LOW_63 = 0x7FFFFFFFFFFFFFFF


@compiled
def _read_long_varint(data: Bytes, pos: int, end: int) -> tuple[Any, int]:
    value = np.int64(0)
    for step in range(10):
        if pos >= end:
            return value, TRUNCATED_NUMBER
        byte = np.int64(data[pos])
        pos += 1
        value |= (byte & 127) << (7 * step)
        if byte < 128:
            return value, pos
    return value, OVERLONG_NUMBER


@compiled(forceinline=True)
def read_varint(data: Bytes, pos: int, end: int) -> tuple[Any, int]:
    """Return the base-128 number at `pos`, and the position after it."""
    if pos >= end:
        return np.int64(0), TRUNCATED_NUMBER
    first = np.int64(data[pos])
    if first < 128:
        return first, pos + 1
    return _read_long_varint(data, pos, end)


@compiled
def read_fixed(data: Bytes, pos: int, width: int) -> Any:
    """Return `width` bytes at `pos` as a little-endian number; the caller has checked the bounds."""
    value = np.int64(0)
    for index in range(width):
        value |= np.int64(data[pos + index]) << (8 * index)
    return value


@compiled(forceinline=True)
def read_field(data: Bytes, pos: int, end: int) -> tuple[int, int, Any, int, int]:
    """Return (field number, wire type, payload, size, position after the field).

    The payload is the number itself, or for BYTES the position of the first of `size` bytes.
    """
    tag, pos = read_varint(data, pos, end)
    if pos < 0:
        return 0, 0, np.int64(0), 0, pos
    if tag < 8 or tag > _LOW_32:
        return 0, 0, np.int64(0), 0, BAD_TAG
    field = tag >> 3
    wire = tag & 7
    if wire == VARINT:
        value, pos = read_varint(data, pos, end)
        return field, wire, value, 0, pos
    if wire == BYTES:
        size, pos = read_varint(data, pos, end)
        if pos >= 0 and (size < 0 or size > end - pos):
            pos = OUTSIDE_RECORD
        return field, wire, np.int64(pos), size, (pos + size if pos >= 0 else pos)
    return _read_rare_field(data, pos, end, field, wire)


@compiled
def read_cold_field(data: Bytes, pos: int, end: int) -> tuple[int, int, Any, int, int]:
    """Call `read_field` without inlining, for code size instead of speed."""
    return read_field(data, pos, end)


@compiled
def _read_rare_field(
    data: Bytes, pos: int, end: int, field: int, wire: int
) -> tuple[int, int, Any, int, int]:
    if wire in (GROUP_START, GROUP_END):
        return field, wire, np.int64(0), 0, GROUP_FIELD
    if wire not in (FIXED32, FIXED64):
        return field, wire, np.int64(0), 0, BAD_WIRE_TYPE
    width = 8 if wire == FIXED64 else 4
    if width > end - pos:
        return field, wire, np.int64(0), 0, OUTSIDE_RECORD
    return field, wire, read_fixed(data, pos, width), 0, pos + width


@compiled(forceinline=True)
def as_signed_32(value: Any) -> Any:
    """Return the low 32 bits as a signed number."""
    return ((value & _LOW_32) ^ _SIGN_32) - _SIGN_32


@compiled(forceinline=True)
def as_unsigned_32(value: Any) -> Any:
    """Return the low 32 bits as an unsigned number."""
    return value & _LOW_32


@compiled(forceinline=True)
def unzigzag(value: Any) -> Any:
    """Return 0, -1, 1, -2, … for 0, 1, 2, 3, …: protobuf's coding of sint32 and sint64."""
    return ((value >> 1) & _LOW_63) ^ -(value & 1)
