"""Conversion of a JSON file to the bytes of a trace file: detect the flavour, read, and check with the
reader.

Objects are decoded one at a time: one after another, one per line, or in one array. Besides et-sim's JSON
lines there are two flavours:

* the feeder's: one object with the nodes in `workload_graph`, attributes as keys of a node. Units are those
  of Chakra's feeder: `runtime` in microseconds, sizes in bytes. The feeder ignores `ctrlDeps`; here they are
  control dependencies, as everywhere else;
* protobuf's own JSON, as `chakra_jsonizer` writes it: a GlobalMetadata object and one object per
  node, camelCase keys, 64-bit integers as text, enum names, defaults omitted. Protobuf's library reads the
  objects; keys that the schema lacks are counted and left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct

from converters import json_lines
from converters.json_values import (
    FlavourKeys,
    InputRemarks,
    UnfitError,
    about,
    add_attribute,
    flat_node,
    node_kind,
    node_label,
    shown,
)
from converters.records import Dropped, frame, without_dangling
from converters.report import ConversionReport, make_report
from et_sim.basics.errors import TraceError
from et_sim.trace import decode
from et_sim.trace.disk import read_unpacked
from et_sim.trace.schema import messages

_SPACE = re.compile(r"[ \t\r\n]*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SHOWN = 6


class JsonTrace(Struct, frozen=True):
    """A JSON file converted to a trace file."""

    flavour: str
    content: bytes
    report: ConversionReport


def convert(path: Path, *, drop_dangling: bool = False) -> JsonTrace:
    """Read one JSON file of any flavour."""
    source = str(path)
    remarks = InputRemarks()
    given = _objects(_text(path), source)
    first = next(given, None)
    if first is None:
        raise TraceError("holds no JSON object", place=source, remedy="name a trace as JSON")
    flavour = next((flavour for flavour in _FLAVOURS if flavour.recognises(first)), None)
    if flavour is None:
        raise _not_a_trace(first, source)
    content = frame(_messages(flavour, first, given, remarks, source))
    try:
        trace = decode(content, source, drop_dangling=True)
    except TraceError as error:
        error.place = source  # offsets would refer to bytes that are in no file
        raise
    dropped = Dropped()
    if trace.dropped_dependencies:
        content, dropped = without_dangling(content, set(trace.node_id.tolist()), source)
        if not drop_dangling:
            raise _dangling(dropped, source)
    return JsonTrace(flavour.name, content, make_report(trace, dropped, remarks.notes()))


def _messages(
    flavour: _Flavour,
    first: dict[str, Any],
    rest: Iterator[dict[str, Any]],
    remarks: InputRemarks,
    source: str,
) -> Iterator[Any]:
    """Yield the messages of the file. Values that do not fit raise an error about that file."""
    try:
        yield from flavour.read(first, rest, remarks)
    except UnfitError as error:
        raise TraceError(str(error), place=source, remedy=error.remedy) from None


def _text(path: Path) -> str:
    content = read_unpacked(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not UTF-8 text, so the file is not JSON"
        raise TraceError(
            problem, place=str(path), remedy="name a trace as JSON; et-convert show prints a trace file"
        ) from None


def _objects(text: str, source: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of the text, or the items if it is one array."""
    decode_next = json.JSONDecoder().raw_decode
    may_lack_halves = _SURROGATE.search(text) is not None
    position = _after_space(text, 0)
    while position < len(text):
        try:
            value, position = decode_next(text, position)
        except json.JSONDecodeError as error:
            raise TraceError(
                f"is not JSON: {error.msg}",
                place=f"{source}: line {error.lineno}, column {error.colno}",
                remedy="the file is damaged or cut off, or is no JSON; write it again",
            ) from None
        except (RecursionError, ValueError) as error:
            raise TraceError(f"is no usable JSON: {error}", place=source, remedy="write it again") from None
        for item in value if isinstance(value, list) else (value,):
            if not isinstance(item, dict):
                shown = json.dumps(item, ensure_ascii=False)[:40]
                raise TraceError(
                    f"holds {shown} where an object is expected",
                    place=source,
                    remedy="a trace is a sequence of JSON objects",
                )
            if may_lack_halves and not _is_text(item):
                raise TraceError(
                    "a text holds half of a character (an unpaired surrogate)",
                    place=source,
                    remedy="write the file as UTF-8 text",
                )
            yield item
        position = _after_space(text, position)


def _is_text(item: dict[str, Any]) -> bool:
    """Return whether every text in the object can be written as UTF-8."""
    try:
        json.dumps(item, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _after_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _not_a_trace(first: dict[str, Any], source: str) -> TraceError:
    keys = ", ".join(sorted(first)[:_SHOWN])
    if "traceEvents" in first:
        problem = "is a profiler's timeline (Kineto), not a trace of the Chakra schema as JSON"
    elif "nodes" in first and "schema" in first:
        problem = "is PyTorch's execution trace, not a trace of the Chakra schema as JSON"
    else:
        problem = f"is JSON of an unknown flavour: its first object has the keys {keys}"
    flavours = ", ".join(flavour.name for flavour in _FLAVOURS)
    return TraceError(problem, place=source, remedy=f"known flavours: {flavours}; see docs/converting.md")


def _dangling(dropped: Dropped, source: str) -> TraceError:
    others = f" ({len(dropped) - 1} more dependencies like it)" if len(dropped) > 1 else ""
    return TraceError(
        f"{dropped.first}{others}",
        place=source,
        remedy="the writer left that node out; write the file again, or drop such dependencies"
        " with --drop-dangling",
    )


_GRAPH = "workload_graph"
_GRAPH_KEYS = FlavourKeys("Id", "Name", "NodeType", "runtime", "data_deps", "ctrlDeps")
# Keys that describe the whole file; they become metadata of the trace.
_DESCRIPTION = {"workload_name": "string_val", "ngpus": "int64_val", "soc": "string_val"}


def _read_graph(
    first: dict[str, Any], rest: Iterator[dict[str, Any]], remarks: InputRemarks
) -> Iterator[Any]:
    """Yield the metadata, then the nodes."""
    remarks.sentences.append(("units", "runtime taken as microseconds, sizes as bytes"))
    remarks.note_unknown(first, {_GRAPH, *_DESCRIPTION}, "the file's own object")
    header = messages().GlobalMetadata()
    with about("the file's own object"):
        for key, member in _DESCRIPTION.items():
            if key in first:
                add_attribute(header, key, member, first[key])
    described = ", ".join(f"{key} {first[key]}" for key in _DESCRIPTION if key in first)
    if described:
        remarks.sentences.append(("describes", f"{described} (kept in the metadata)"))
    yield header
    if not isinstance(first[_GRAPH], list):
        raise UnfitError(f"{_GRAPH} is not a list", "give a list of nodes")
    known = _GRAPH_KEYS.known()
    for given in first[_GRAPH]:
        if not isinstance(given, dict):
            raise UnfitError(f"{_GRAPH} holds {shown(given)}", "give nodes as objects")
        with about(node_label(given.get("Id", "?"), given.get("Name"))):
            node = flat_node(given, _GRAPH_KEYS, known, remarks)
        yield node
    if next(rest, None) is not None:
        raise UnfitError("another object follows the graph", "give one file per rank")


def _is_protobuf(first: dict[str, Any]) -> bool:
    """Return whether an input that starts with this object has this flavour."""
    keys = set(first)
    return keys <= _keys(messages().GlobalMetadata) or {"name", "type"} <= keys <= _keys(messages().Node)


def _read_protobuf(
    first: dict[str, Any], rest: Iterator[dict[str, Any]], remarks: InputRemarks
) -> Iterator[Any]:
    """Yield the metadata, then the nodes."""
    schema = messages()
    if set(first) <= _keys(schema.GlobalMetadata):
        yield _parsed(first, schema.GlobalMetadata(), "the metadata", remarks)
    else:
        remarks.sentences.append(("added", "an empty GlobalMetadata record, which the file lacks"))
        yield schema.GlobalMetadata()
        rest = chain((first,), rest)
    for given in rest:
        caller = node_label(given.get("id", 0), given.get("name"))
        with about(caller):
            node_kind(given.get("type", 0))
            node = _parsed(given, schema.Node(), caller, remarks)
        yield node


def _parsed(given: dict[str, Any], message: Any, caller: str, remarks: InputRemarks) -> Any:
    from google.protobuf.json_format import ParseDict, ParseError

    try:
        return ParseDict(given, message)
    except ParseError:
        message.Clear()  # the usual cause is a key that the schema lacks
    try:
        return ParseDict(_pruned(given, message.DESCRIPTOR, caller, remarks), message)
    except ParseError as error:
        raise UnfitError(str(error), "write what protobuf's JSON form allows there") from None


def _pruned(given: Any, kind: Any, caller: str, remarks: InputRemarks) -> Any:
    """Remove the keys that the message lacks, at any depth, and count them."""
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


class _Flavour(Struct, frozen=True):
    """A form of traces as JSON; `recognises` tests the first object of an input."""

    name: str
    recognises: Callable[[dict[str, Any]], bool]
    read: Callable[[dict[str, Any], Iterator[dict[str, Any]], InputRemarks], Iterator[Any]]  # metadata, nodes


_FLAVOURS = (
    _Flavour("JSON workload_graph", lambda first: _GRAPH in first, _read_graph),
    _Flavour("JSON lines", json_lines.recognises, json_lines.read),
    _Flavour("protobuf JSON", _is_protobuf, _read_protobuf),
)
