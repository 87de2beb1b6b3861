"""Attributes of a node's message, read and changed in place; of a name, the first counts.

Not here: which attributes change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from converters.records import EXPECTED_MEMBER

_MEMBER = dict(EXPECTED_MEMBER)


def set_attributes(node: Any, values: Mapping[str, Any]) -> None:
    """Give attributes new values, in the member that holds them now, or the usual one."""
    left = dict(values)
    for attribute in node.attr:
        if attribute.name in left:
            member = attribute.WhichOneof("value") or _MEMBER[attribute.name]
            setattr(attribute, member, _as(member, left.pop(attribute.name)))
    for name, value in left.items():
        setattr(node.attr.add(name=name), _MEMBER[name], value)


def _as(member: str, value: Any) -> Any:
    """Sizes are written as floating-point numbers by some."""
    return float(value) if member in ("double_val", "float_val") else value
