"""Faults of trace files, in words.

The compiled decoder leaves a code and a few positions. The sentence is built here, with the protobuf
library's help for the one record concerned. Files of other formats are distinguished from damaged traces.
"""

from __future__ import annotations

from typing import Any

from et_sim.basics.errors import TraceError
from et_sim.trace import wire_fields as wire
from et_sim.trace import wire_layout as at
from et_sim.trace.wire_layout import DecodeBuffers

_DAMAGED = "the file is damaged or is not a Chakra trace; fetch or write it again"
_OLD = "write it again with Chakra 0.0.4 (October 2023) or later"

_CAUSES = {
    wire.TRUNCATED_NUMBER: ("a number is cut off", _DAMAGED),
    wire.OVERLONG_NUMBER: ("a number is longer than 10 bytes", _DAMAGED),
    wire.BAD_TAG: ("a field has an impossible number", _DAMAGED),
    wire.OUTSIDE_RECORD: ("a field reaches past the end of its message", _DAMAGED),
    wire.GROUP_FIELD: ("a field is a protobuf group, which traces do not use", _DAMAGED),
    wire.BAD_WIRE_TYPE: ("a field has an unknown wire type", _DAMAGED),
    at.NOT_A_HEADER: (
        "the first record is not a GlobalMetadata, as in files from before schema 0.0.4",
        _OLD,
    ),
    at.RECORD_TOO_LONG: ("a record is longer than the rest of the file", "the file was cut off; " + _DAMAGED),
    at.TOO_MANY_ATTRIBUTE_NAMES: (
        f"the trace has more than {at.MAX_ATTRIBUTE_NAMES} different attribute names",
        "attribute names should not carry values; put the value in the attribute",
    ),
}

_SIGNATURES = (
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"\x1f\x8b", "compressed with gzip twice", "unpack it once"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "unpack it first"),
    (b"BZh", "compressed with bzip2", "unpack it first"),
    (b"\xfd7zXZ", "compressed with xz", "unpack it first"),
    (b"\x7fELF", "a program", "name a Chakra trace"),
    (b"ARROW1", "an Arrow file", "name a Chakra trace; for a finished run use et-sim inspect"),
    (b"\x89PNG", "a picture", "name a Chakra trace"),
    (b"SQLite format 3", "a database", "name a Chakra trace"),
)


def explain(buffers: DecodeBuffers, source: str) -> TraceError:
    """Return the error for a decoder that stopped early."""
    content = buffers.text.data
    code = int(buffers.registers[at.FAILURE])
    record = int(buffers.registers[at.RECORD])
    other = foreign_format(bytes(content[:4096]))
    if other is not None:
        return TraceError(f"is {other[0]}, not a Chakra trace", place=source, remedy=other[1])
    place = f"{source}: byte {int(buffers.registers[at.OFFSET])} (record {record})"
    if code in _CAUSES:
        cause, remedy = _CAUSES[code]
        if code == at.RECORD_TOO_LONG:
            size, left = (
                int(buffers.registers[at.RECORD_END]),
                len(content) - int(buffers.registers[at.RECORD_START]),
            )
            cause = f"a record of {size % 2**64} bytes is longer than the {left} bytes left in the file"
        return TraceError(cause, place=place, remedy=remedy)
    return _node_error(buffers, code, place)


def check_format(version: bytes, source: str) -> None:
    """Refuse a file from before schema 0.0.4, whose version text is in fact an attribute."""
    try:
        is_old = version.decode().startswith("\n")
    except UnicodeDecodeError:
        is_old = True
    if is_old:
        cause, remedy = _CAUSES[at.NOT_A_HEADER]
        raise TraceError(cause, place=f"{source}: byte 0 (record 0)", remedy=remedy)


def foreign_format(head: bytes) -> tuple[str, str] | None:
    """Return the apparent format of other files and the remedy, or None for traces."""
    for magic, format_name, remedy in _SIGNATURES:
        if head.startswith(magic):
            return format_name, remedy
    try:
        text = head[:-3].decode() if len(head) > 3 else head.decode()
    except UnicodeDecodeError:
        return None
    if any(character < " " and character not in "\t\n\r" for character in text):
        return None
    if text.lstrip()[:1] in ("{", "["):
        return "JSON text", "convert it with et-convert json"
    return "plain text", "name the prefix of Chakra traces (PREFIX for PREFIX.0.et, PREFIX.1.et, …)"


def _node_error(buffers: DecodeBuffers, code: int, place: str) -> TraceError:
    start, end = int(buffers.registers[at.RECORD_START]), int(buffers.registers[at.RECORD_END])
    record = bytes(buffers.text.data[start:end])
    node_name, node = _read_node(record)
    if code == at.BAD_NODE_KIND:
        number = f" {node.type}" if node is not None else ""
        return TraceError(
            f"{node_name} has unknown type{number}",
            place=place,
            remedy="node types are 0 to 10 (NodeType), and up to 255 in newer schemas",
        )
    if code == at.BAD_DURATION:
        return TraceError(f"{node_name} has a duration of 2^63 us or more", place=place, remedy=_DAMAGED)
    first = int(buffers.registers[at.ATTRIBUTE_START])
    attribute = bytes(buffers.text.data[first : int(buffers.registers[at.ATTRIBUTE_END])])
    return _attribute_error(code, node_name, attribute, place)


def _attribute_error(code: int, node_name: str, content: bytes, place: str) -> TraceError:
    name, member, value = _read_attribute(content)
    if code == at.NUMBER_OUT_OF_RANGE:
        allowed = _allowed_range(name)
        cause, remedy = f"attribute {name!r} of {node_name} is {value}", f"it must be {allowed}"
    elif code == at.TOO_MANY_DIMENSIONS:
        cause = f"attribute {name!r} of {node_name} lists more than {at.MAX_DIMENSIONS} dimensions"
        remedy = "list one flag per network dimension"
    elif code == at.WRONG_ATTRIBUTE_KIND:
        cause = f"attribute {name!r} of {node_name} " + (f"is a {member}" if member else "has no value")
        remedy = f"it must be {_wanted_kind(name)}"
    else:
        cause = f"attribute {name!r} of {node_name}: {_CAUSES.get(code, ('is damaged', ''))[0]}"
        remedy = _DAMAGED
    return TraceError(cause, place=place, remedy=remedy)


def _wanted_kind(name: str) -> str:
    if name == "pg_name":
        return "a string_val"
    if name in ("inputs", "outputs"):
        return "a string_list"
    return "a bool_list" if name == "involved_dim" else "an integer or bool value"


def _allowed_range(name: str) -> str:
    if name in ("comm_type", "comm_src", "comm_dst"):
        return "between -2^31 and 2^31 - 1"
    signed = name in ("comm_tag", "comm_priority")
    return "between -2^63 and 2^63 - 1" if signed else "between 0 and 2^63 - 1"


def _read_node(record: bytes) -> tuple[str, Any]:
    """Return the name of the node, and its message or None if protobuf cannot read it."""
    from google.protobuf.message import DecodeError

    from et_sim.trace.schema import messages

    try:
        node = messages().Node.FromString(record)
    except DecodeError:
        return "a node", None
    return f'node {node.id} "{node.name}"', node


def _read_attribute(content: bytes) -> tuple[str, str, Any]:
    """Return (name, member of the oneof or "", value)."""
    from google.protobuf.message import DecodeError

    from et_sim.trace.schema import messages

    try:
        attribute = messages().AttributeProto.FromString(content)
    except DecodeError:
        return "?", "", None
    member = attribute.WhichOneof("value") or ""
    return attribute.name, member, getattr(attribute, member) if member else None
