"""Protobuf's own JSON: a GlobalMetadata object and one object per node, one after another.

This is what `chakra_jsonizer` writes: camelCase keys, 64-bit integers as text, enum names, defaults
omitted. Protobuf's library reads the objects; keys that the schema lacks are counted and left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from converters.json_remarks import Remarks, who
from converters.json_values import UnfitError, about, node_kind
from et_sim.trace.schema import messages

NAME = "protobuf JSON"


def recognises(first: dict[str, Any]) -> bool:
    """Whether an input that starts with this object is of this flavour."""
    keys = set(first)
    return keys <= _keys(messages().GlobalMetadata) or {"name", "type"} <= keys <= _keys(messages().Node)


def read(first: dict[str, Any], rest: Iterator[dict[str, Any]], remarks: Remarks) -> Iterator[Any]:
    """The metadata and the nodes."""
    schema = messages()
    if set(first) <= _keys(schema.GlobalMetadata):
        yield _parsed(first, schema.GlobalMetadata(), "the metadata", remarks)
    else:
        remarks.sentences.append(("added", "an empty GlobalMetadata record, which the file lacks"))
        yield schema.GlobalMetadata()
        rest = chain((first,), rest)
    for given in rest:
        caller = who(given.get("id", 0), given.get("name"))
        with about(caller):
            node_kind(given.get("type", 0))
            node = _parsed(given, schema.Node(), caller, remarks)
        yield node


def _parsed(given: dict[str, Any], message: Any, caller: str, remarks: Remarks) -> Any:
    from google.protobuf.json_format import ParseDict, ParseError

    try:
        return ParseDict(given, message)
    except ParseError:
        message.Clear()  # nearly always a key that the schema lacks
    try:
        return ParseDict(_pruned(given, message.DESCRIPTOR, caller, remarks), message)
    except ParseError as error:
        raise UnfitError(str(error), "write what protobuf's JSON form allows there") from None


def _pruned(given: Any, kind: Any, caller: str, remarks: Remarks) -> Any:
    """`given` without the keys that the message lacks, at any depth."""
    if isinstance(given, list):
        return [_pruned(item, kind, caller, remarks) for item in given]
    if kind is None or not isinstance(given, dict):
        return given
    fields = {field.json_name: field for field in kind.fields} | {field.name: field for field in kind.fields}
    remarks.note_unknown(given, fields, caller)
    return {
        key: _pruned(value, fields[key].message_type, caller, remarks)
        for key, value in given.items()
        if key in fields
    }


def _keys(message_class: Any) -> set[str]:
    fields = message_class.DESCRIPTOR.fields
    return {field.name for field in fields} | {field.json_name for field in fields}
