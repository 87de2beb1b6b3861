"""Checked conversion of single JSON values to protobuf, and nodes whose attributes are keys.

A value that does not fit raises `UnfitError`; `about` adds the node, and the caller that has the path adds
the file. `InputRemarks` collect what a report needs besides figures: unknown keys and rounded numbers.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct, field

from converters.records import EXPECTED_MEMBER
from et_sim.basics.errors import did_you_mean
from et_sim.trace.columns import LAST_KIND_NUMBER, CollectiveKind, NodeKind, kind_name
from et_sim.trace.schema import ATTRIBUTE_KINDS, ENUMS, messages

MEMBERS = tuple(f"{kind}_{form}" for kind in ATTRIBUTE_KINDS for form in ("val", "list"))
_LONGEST_SHOWN = 60
_LARGEST_DOUBLE = sys.float_info.max
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
_WIRE_NAMES = dict(ENUMS["NodeType"])


class UnfitError(ValueError):
    """A value that cannot be used: the sentence, and the remedy."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.remedy = remedy
        self.subject = ""

    def __str__(self) -> str:
        cause = super().__str__()
        return f"{self.subject}: {cause}" if self.subject else cause


@contextmanager
def about(subject: str) -> Iterator[None]:
    """Add `subject` to errors about values inside the block."""
    try:
        yield
    except UnfitError as error:
        error.subject = error.subject or subject
        raise


def shown(value: Any) -> str:
    """Return a value for a message, cut if it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def node_kind(value: Any) -> int:
    """Return a node type given by number, et-sim's name (`COLL`, `TYPE_11`) or the schema's
    (`COMM_COLL_NODE`).
    """
    names = {**_WIRE_NAMES, **{kind_name(number): number for number in range(LAST_KIND_NUMBER + 1)}}
    if isinstance(value, str) and value in names:
        return names[value]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LAST_KIND_NUMBER:
        return value
    kinds = [kind.name for kind in NodeKind]
    known = f"node types are 0 to {LAST_KIND_NUMBER} or {', '.join(kinds)}"
    raise UnfitError(
        f"unknown node type {shown(value)}", did_you_mean(str(value), [*kinds, *_WIRE_NAMES]) or known
    )


def collective_number(value: Any) -> Any:
    """Return the number of a collective given by name; return any other value unchanged."""
    if not isinstance(value, str) or value.lstrip("-").isdecimal():
        return value
    if value.upper() in CollectiveKind.__members__:
        return int(CollectiveKind[value.upper()])
    known = [kind.name for kind in CollectiveKind]
    raise UnfitError(
        f"unknown collective {shown(value)}",
        did_you_mean(value.upper(), known) or f"known: {', '.join(known)}",
    )


def text(key: str, value: Any) -> str:
    """Return a text after checking that UTF-8 can hold it."""
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError):
        raise UnfitError(f"{key} is {shown(value)}", "give text") from None
    return str(value)


def integer(key: str, value: Any, lowest: int = 0, highest: int = 2**64 - 1) -> int:
    """Return a whole number. Text is accepted too, because many JSON readers lose digits beyond 2^53."""
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) <= 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UnfitError(f"{key} is {shown(value)}", "give a whole number")
    if not lowest <= value <= highest:
        raise UnfitError(f"{key} is {shown(value)}", f"it must be between {lowest} and {highest}")
    return value


def integers(key: str, value: Any) -> list[int]:
    """Return a list of node ids."""
    if not isinstance(value, list):
        raise UnfitError(f"{key} is {shown(value)}", "give a list of node ids")
    return [integer(key, item) for item in value]


def add_attribute(node: Any, name: str, member: str, value: Any) -> Any:
    """Append an attribute whose value has the kind that `member` names, and return it."""
    attribute = node.attr.add(name=text("an attribute's name", name))
    if member not in MEMBERS:
        remedy = did_you_mean(str(member), MEMBERS) or f"kinds are {', '.join(MEMBERS[::2])}, and …_list"
        raise UnfitError(f"attribute {name!r} has the unknown kind {shown(member)}", remedy)
    kind, _, form = member.rpartition("_")
    if form == "val":
        setattr(attribute, member, _scalar(name, kind, value))
        return attribute
    if not isinstance(value, list):
        raise UnfitError(f"{name} is {shown(value)}", "give a list")
    held = getattr(attribute, member)
    held.SetInParent()
    held.values.extend(_scalar(name, kind, item) for item in value)
    return attribute


def _scalar(name: str, kind: str, value: Any) -> Any:
    if kind == "string":
        return text(name, value)
    if kind == "bool":
        return bool(integer(name, int(value) if isinstance(value, bool) else value, 0, 1))
    if kind == "bytes":
        return from_base64(name, value)
    if kind in ("double", "float"):
        return _real(name, value, _LARGEST_FLOAT if kind == "float" else _LARGEST_DOUBLE)
    bits = int(kind[-2:])
    unsigned = kind.startswith(("uint", "fixed"))
    lowest, highest = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return integer(name, value, lowest, highest)


def _real(name: str, value: Any, largest: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnfitError(f"{name} is {shown(value)}", "give a number")
    if abs(value) > largest and value not in (math.inf, -math.inf):
        raise UnfitError(f"{name} is {shown(value)}", f"its kind holds numbers up to {largest:.3g}")
    return float(value)


def from_base64(name: str, value: Any) -> bytes:
    """Return the bytes of a base64 text."""
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise UnfitError(f"{name} is {shown(value)}", "give bytes as base64 text") from None


class Seen(Struct):
    """The number of occurrences, and the first place."""

    count: int
    first: str
    hint: str = ""


class InputRemarks(Struct):
    """Remarks collected while one input is read."""

    unknown: dict[str, Seen] = field(default_factory=dict)
    rounded: dict[str, Seen] = field(default_factory=dict)
    sentences: list[tuple[str, str]] = field(default_factory=list)

    def note_unknown(self, given: Iterable[str], known: Collection[str], subject: str) -> None:
        """Count the keys that are not in `known`."""
        for key in given:
            if key not in known:
                seen = self.unknown.setdefault(key, Seen(0, subject, did_you_mean(key, sorted(known))))
                seen.count += 1

    def note_rounded(self, key: str, subject: str) -> None:
        """Count a number that was rounded."""
        self.rounded.setdefault(key, Seen(0, subject)).count += 1

    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield all remarks as (label, sentence)."""
        yield from self.sentences
        for key, seen in sorted(self.rounded.items()):
            yield "rounded", f"{key} to whole microseconds, {_places(seen)}"
        for key, seen in sorted(self.unknown.items()):
            hint = f"; {seen.hint}" if seen.hint else ""
            yield "ignored", f"unknown key {json.dumps(key, ensure_ascii=False)}, {_places(seen)}{hint}"


def node_label(node_id: Any, name: Any) -> str:
    """Return the name of a JSON file's node in messages."""
    quoted_name = f" {json.dumps(name, ensure_ascii=False)}" if isinstance(name, str) and name else ""
    return f"node {node_id}{quoted_name}"


def _places(seen: Seen) -> str:
    return f"in {seen.first}" if seen.count == 1 else f"{seen.count:,} times, first in {seen.first}"


_ATTRIBUTES = tuple(name for name, _ in EXPECTED_MEMBER)


class FlavourKeys(Struct, frozen=True):
    """The keys of a flavour for the fields of a node."""

    node_id: str
    name: str
    kind: str
    duration_us: str
    data_deps: str
    ctrl_deps: str
    others: tuple[str, ...] = ()

    def known(self) -> frozenset[str]:
        """Return every key that a node may have."""
        fields = (self.node_id, self.name, self.kind, self.duration_us, self.data_deps, self.ctrl_deps)
        return frozenset((*fields, *self.others, *_ATTRIBUTES))


def flat_node(given: dict[str, Any], keys: FlavourKeys, known: frozenset[str], remarks: InputRemarks) -> Any:
    """Return the message of one node; keys in `keys.others` are left to the caller."""
    for required in (keys.node_id, keys.kind):
        if required not in given:
            raise UnfitError(f"{required} is missing", f"give every node its {keys.node_id} and {keys.kind}")
    caller = node_label(given[keys.node_id], given.get(keys.name))
    remarks.note_unknown(given, known, caller)
    node = messages().Node(
        id=integer(keys.node_id, given[keys.node_id]),
        name=text(keys.name, given.get(keys.name, "")),
        type=node_kind(given[keys.kind]),
        duration_micros=_micros(given, keys.duration_us, caller, remarks),
        data_deps=integers(keys.data_deps, given.get(keys.data_deps, [])),
        ctrl_deps=integers(keys.ctrl_deps, given.get(keys.ctrl_deps, [])),
    )
    for name, member in EXPECTED_MEMBER:
        if name in given:
            value = collective_number(given[name]) if name == "comm_type" else given[name]
            add_attribute(node, name, member, value)
    return node


def _micros(given: dict[str, Any], key: str, caller: str, remarks: InputRemarks) -> int:
    value = given.get(key, 0)
    if isinstance(value, float) and math.isfinite(value) and not value.is_integer():
        remarks.note_rounded(key, caller)
        value = round(value)
    return integer(key, value, 0, 2**63 - 1)
