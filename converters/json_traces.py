"""A JSON file to the bytes of a trace file: tell the flavours apart, read, and have the reader judge.

Objects are decoded one at a time from wherever they stand: one after another, one per line, or in
one array. Not here: the flavours (`json_protobuf`, `json_feeder`, `json_lines`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters import json_feeder, json_lines, json_protobuf
from converters.json_remarks import Remarks
from converters.json_values import UnfitError
from converters.records import Dropped, frame, without_dangling
from converters.report import Report, make_report
from et_sim.basics.errors import TraceError
from et_sim.trace import decode
from et_sim.trace.disk import read_unpacked

_FLAVOURS: tuple[Any, ...] = (json_feeder, json_lines, json_protobuf)
_SPACE = re.compile(r"[ \t\r\n]*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class JsonTrace:
    """One JSON file as a trace file."""

    flavour: str
    content: bytes
    report: Report


def convert(path: Path, *, drop_dangling: bool = False) -> JsonTrace:
    """Read one JSON file, of whichever flavour it is."""
    source = str(path)
    remarks = Remarks()
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
        error.place = source  # offsets would be those of bytes that nobody has
        raise
    dropped = Dropped()
    if trace.dropped_dependencies:
        content, dropped = without_dangling(content, set(trace.node_id.tolist()), source)
        if not drop_dangling:
            raise _dangling(dropped, source)
    return JsonTrace(flavour.NAME, content, make_report(trace, dropped, remarks.notes()))


def _messages(
    flavour: Any, first: dict[str, Any], rest: Iterator[dict[str, Any]], remarks: Remarks, source: str
) -> Iterator[Any]:
    """The messages of the file; what does not fit is an error of that file."""
    try:
        yield from flavour.read(first, rest, remarks)
    except UnfitError as error:
        raise TraceError(str(error), place=source, remedy=error.remedy) from None


def _text(path: Path) -> str:
    content = read_unpacked(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        what = f"byte {error.start} is not UTF-8 text, so the file is not JSON"
        raise TraceError(
            what, place=str(path), remedy="name a trace as JSON; et-convert show prints a trace file"
        ) from None


def _objects(text: str, source: str) -> Iterator[dict[str, Any]]:
    """The objects of the text; those of a single array, if it is one."""
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
    """Whether everything in the object can be written as UTF-8."""
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
        what = "is a profiler's timeline (Kineto), not a trace of the Chakra schema as JSON"
    elif "nodes" in first and "schema" in first:
        what = "is PyTorch's execution trace, not a trace of the Chakra schema as JSON"
    else:
        what = f"is JSON of an unknown flavour: its first object has the keys {keys}"
    flavours = ", ".join(flavour.NAME for flavour in _FLAVOURS)
    return TraceError(what, place=source, remedy=f"known flavours: {flavours}; see docs/converting.md")


def _dangling(dropped: Dropped, source: str) -> TraceError:
    others = f" ({len(dropped) - 1} more dependencies like it)" if len(dropped) > 1 else ""
    return TraceError(
        f"{dropped.first}{others}",
        place=source,
        remedy="the writer left that node out; write the file again, or drop such dependencies"
        " with --drop-dangling",
    )
