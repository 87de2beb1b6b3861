"""The JSON lines of et-sim: a header object, then one object per node; `et-convert show --json` writes them.

The form keeps all content of a trace file, so that `et-convert json` makes the same bytes again. Attributes
with a meaning are keys of the node if they have the kind that other tools expect; all others are entries of
`attr`: [name, kind, value] or [name, kind, value, description]. If the attributes of a node are not in the
usual order (keys first, in the order of `EXPECTED_MEMBER`), `attr` also holds the names of the keys, each at
its position. Fields that a node lacks are left out. `docs/converting.md` has the table of keys.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from converters.files import watched
from converters.json_values import (
    FlavourKeys,
    InputRemarks,
    UnfitError,
    about,
    add_attribute,
    flat_node,
    from_base64,
    integer,
    node_label,
    shown,
    text,
)
from converters.records import EXPECTED_MEMBER, parse, split
from et_sim.basics.units import plural
from et_sim.trace.columns import CollectiveKind, kind_name
from et_sim.trace.schema import messages

_MARK, _FORM = "et_sim_trace", 1
_KEYS = FlavourKeys(
    "id",
    "name",
    "kind",
    "duration_us",
    "data_deps",
    "ctrl_deps",
    others=("start_us", "inputs", "outputs", "storage", "attr"),
)
_TENSOR_TEXTS = ("values", "shapes", "types")
_EXPECTED = dict(EXPECTED_MEMBER)


def recognises(first: dict[str, Any]) -> bool:
    """Return whether an input that starts with this object has this flavour."""
    return _MARK in first


def read(first: dict[str, Any], rest: Iterator[dict[str, Any]], remarks: InputRemarks) -> Iterator[Any]:
    """Yield the metadata, then the nodes."""
    if first[_MARK] != _FORM:
        raise UnfitError(
            f"{_MARK} is {shown(first[_MARK])}", f"this version reads form {_FORM}; write the lines again"
        )
    remarks.note_unknown(first, {_MARK, "version", "attr"}, "the header")
    with about("the header"):
        header = messages().GlobalMetadata(version=text("version", first.get("version", "")))
        _add_attributes(header, first)
    yield header
    known = _KEYS.known()
    for given in rest:
        with about(node_label(given.get("id", "?"), given.get("name"))):
            node = _node(given, known, remarks)
        yield node


def _node(given: dict[str, Any], known: frozenset[str], remarks: InputRemarks) -> Any:
    node = flat_node(given, _KEYS, known, remarks)
    node.start_time_micros = integer("start_us", given.get("start_us", 0))
    for key in ("inputs", "outputs"):
        if key in given:
            _set_tensors(getattr(node, key), key, given[key])
    if "storage" in given:
        node.storage_bytes = from_base64("storage", given["storage"])
    _add_attributes(node, given)
    return node


def header_object(header: Any) -> dict[str, Any]:
    """Return the object of the first line."""
    written: dict[str, Any] = {_MARK: _FORM, "version": header.version}
    if header.attr:
        written["attr"] = [_entry(attribute) for attribute in header.attr]
    return written


def node_object(node: Any) -> dict[str, Any]:
    """Return the object of a node's line."""
    written: dict[str, Any] = {"id": node.id, "kind": kind_name(node.type)}
    if node.name:
        written["name"] = node.name
    if node.start_time_micros:
        written["start_us"] = node.start_time_micros
    if node.duration_micros:
        written["duration_us"] = node.duration_micros
    for key in ("data_deps", "ctrl_deps"):
        if getattr(node, key):
            written[key] = list(getattr(node, key))
    flat, others = _attributes(node)
    written |= flat
    for key in ("inputs", "outputs"):
        if node.HasField(key):
            tensors = getattr(node, key)
            written[key] = {name: getattr(tensors, name) for name in _TENSOR_TEXTS if getattr(tensors, name)}
    if node.storage_bytes:
        written["storage"] = base64.b64encode(node.storage_bytes).decode()
    if others:
        written["attr"] = others
    return written


def _attributes(node: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the attributes that are keys, and the entries. Only the first attribute of a name becomes a key.

    If the order is unusual, the names of keys are entries too.
    """
    flat: dict[str, Any] = {}
    others: list[Any] = []
    met: set[str] = set()
    for attribute in node.attr:
        name, member = attribute.name, attribute.WhichOneof("value")
        if name in met or member is None or _EXPECTED.get(name) != member or attribute.doc_string:
            others.append(_entry(attribute))
        else:
            value = plain_value(attribute)
            is_known = name == "comm_type" and value in [int(kind) for kind in CollectiveKind]
            flat[name] = CollectiveKind(value).name if is_known else value
            others.append(name)
        met.add(name)
    usual = [name for name in _EXPECTED if name in flat]
    if others[: len(usual)] == usual:
        del others[: len(usual)]
    return {name: flat[name] for name in usual}, others


def plain_value(attribute: Any) -> Any:
    """Return the value for JSON; bytes become base64 text."""
    member = attribute.WhichOneof("value")
    if member is None:
        return None
    held = getattr(attribute, member)
    if member.startswith("bytes_"):
        if member == "bytes_val":
            return base64.b64encode(held).decode()
        return [base64.b64encode(item).decode() for item in held.values]
    return list(held.values) if member.endswith("_list") else held


def _entry(attribute: Any) -> list[Any]:
    entry = [attribute.name, attribute.WhichOneof("value"), plain_value(attribute)]
    return [*entry, attribute.doc_string] if attribute.doc_string else entry


def _add_attributes(message: Any, given: dict[str, Any]) -> None:
    entries = given.get("attr", [])
    if not isinstance(entries, list):
        raise UnfitError(f"attr is {shown(entries)}", "give a list of [name, kind, value]")
    keys = _out_of_place(message, entries)
    for entry in entries:
        if isinstance(entry, str):
            message.attr.append(keys[entry])
            continue
        if not isinstance(entry, list) or len(entry) not in (3, 4):
            raise UnfitError(f"attr holds {shown(entry)}", "give [name, kind, value]")
        name, member, value = entry[:3]
        if member is None:
            attribute = message.attr.add(name=text("an attribute's name", name))
        else:
            attribute = add_attribute(message, name, member, value)
        if len(entry) == 4:
            attribute.doc_string = text("a description", entry[3])


def _out_of_place(message: Any, entries: list[Any]) -> dict[str, Any]:
    """Remove the attributes that entries place, and return all; the caller puts them back in order."""
    names = [entry for entry in entries if isinstance(entry, str)]
    if not names:
        return {}
    held = {attribute.name: attribute for attribute in message.attr}
    for at, name in enumerate(names):
        if name not in held or name in names[:at]:
            cause = (
                f"attr names the key {shown(name)}, which {'comes twice' if name in held else 'is not there'}"
            )
            raise UnfitError(cause, "name keys of the node at most once, or leave their names out")
    left = [attribute for name, attribute in held.items() if name not in names]
    message.ClearField("attr")
    message.attr.extend(left)
    return held


def _set_tensors(tensors: Any, key: str, given: Any) -> None:
    if not isinstance(given, dict) or not set(given) <= set(_TENSOR_TEXTS):
        raise UnfitError(f"{key} is {shown(given)}", f"give an object with {', '.join(_TENSOR_TEXTS)}")
    tensors.SetInParent()
    for name, value in given.items():
        setattr(tensors, name, text(f"{key}.{name}", value))


class Spelling(Struct):
    """The records whose bytes change on the way back, because protobuf writes them differently."""

    unusual: int = 0  # the content is the same
    unknown: int = 0  # fields that the schema lacks, which JSON lines cannot hold

    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield the remarks as (label, sentence)."""
        if self.unusual:
            yield (
                "spelling",
                f"{plural(self.unusual, 'record')} come back with the same content, in other bytes",
            )
        if self.unknown:
            yield "lost", f"fields that the trace schema does not have, in {plural(self.unknown, 'record')}"


def as_lines(content: bytes, source: str) -> tuple[bytes, Spelling]:
    """Return the file as text. The decoder has checked `content`."""
    spelling = Spelling()
    lines = []
    records = list(split(content))
    pairs = zip(records, parse(iter(records), source), strict=True)
    for at, (record, message) in enumerate(watched(pairs, len(records), "records")):
        lines.append(json.dumps(node_object(message) if at else header_object(message), ensure_ascii=False))
        message.DiscardUnknownFields()
        if message.SerializeToString(deterministic=True) == record:
            continue
        if message.ByteSize() < type(message).FromString(record).ByteSize():
            spelling.unknown += 1
        else:
            spelling.unusual += 1
    return ("\n".join(lines) + "\n").encode(), spelling
