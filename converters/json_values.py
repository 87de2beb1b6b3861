"""Single values of a JSON trace into protobuf messages, checked; refusals say what was expected.

A value that does not fit raises `UnfitError`; `about` adds the node, and whoever knows the file adds
that. Not here: the keys under which a flavour keeps its values.
"""

from __future__ import annotations

import base64
import binascii
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from et_sim.basics.errors import did_you_mean
from et_sim.trace.columns import LAST_KIND_NUMBER, CollectiveKind, NodeKind, kind_name
from et_sim.trace.schema import ATTRIBUTE_KINDS, ENUMS

MEMBERS = tuple(f"{kind}_{form}" for kind in ATTRIBUTE_KINDS for form in ("val", "list"))
_LONGEST_SHOWN = 60
_LARGEST_DOUBLE = sys.float_info.max
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
_WIRE_NAMES = dict(ENUMS["NodeType"])


class UnfitError(ValueError):
    """A value that cannot be used: the sentence, and what to do."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.remedy = remedy
        self.who = ""

    def __str__(self) -> str:
        cause = super().__str__()
        return f"{self.who}: {cause}" if self.who else cause


@contextmanager
def about(who: str) -> Iterator[None]:
    """Whatever does not fit inside belongs to `who`."""
    try:
        yield
    except UnfitError as error:
        error.who = error.who or who
        raise


def shown(value: Any) -> str:
    """A value in a message, cut if it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def node_kind(value: Any) -> int:
    """A node type: its number, our name (`COLL`, `TYPE_11`) or the schema's (`COMM_COLL_NODE`)."""
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
    """The number of a collective given by name; anything else as it is."""
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
    """A text that UTF-8 can hold."""
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError):
        raise UnfitError(f"{key} is {shown(value)}", "give text") from None
    return str(value)


def integer(key: str, value: Any, lowest: int = 0, highest: int = 2**64 - 1) -> int:
    """A whole number, possibly as text, because many JSON readers lose digits beyond 2^53."""
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
    """A list of node ids."""
    if not isinstance(value, list):
        raise UnfitError(f"{key} is {shown(value)}", "give a list of node ids")
    return [integer(key, item) for item in value]


def add_attribute(node: Any, name: str, member: str, value: Any) -> Any:
    """Append an attribute whose value is of the kind that `member` names; returns it."""
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
    """Bytes, as JSON keeps them."""
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise UnfitError(f"{name} is {shown(value)}", "give bytes as base64 text") from None
