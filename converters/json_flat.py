"""Nodes whose attributes are keys of the node itself: what the feeder's flavour and ours share.

Not here: the names of the other keys, which each flavour gives as `Keys`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from converters.json_remarks import Remarks, who
from converters.json_values import (
    UnfitError,
    add_attribute,
    collective_number,
    integer,
    integers,
    node_kind,
    text,
)
from converters.records import EXPECTED_MEMBER
from et_sim.trace.schema import messages

ATTRIBUTES = tuple(name for name, _ in EXPECTED_MEMBER)


@dataclass(frozen=True, slots=True)
class Keys:
    """What a flavour calls the fields of a node."""

    node_id: str
    name: str
    kind: str
    duration_us: str
    data_deps: str
    ctrl_deps: str
    others: tuple[str, ...] = ()

    def known(self) -> frozenset[str]:
        """Every key that a node may have."""
        fields = (self.node_id, self.name, self.kind, self.duration_us, self.data_deps, self.ctrl_deps)
        return frozenset((*fields, *self.others, *ATTRIBUTES))


def flat_node(given: dict[str, Any], keys: Keys, known: frozenset[str], remarks: Remarks) -> Any:
    """The message of one node; keys in `keys.others` are left to the caller."""
    for required in (keys.node_id, keys.kind):
        if required not in given:
            raise UnfitError(f"{required} is missing", f"give every node its {keys.node_id} and {keys.kind}")
    caller = who(given[keys.node_id], given.get(keys.name))
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


def _micros(given: dict[str, Any], key: str, caller: str, remarks: Remarks) -> int:
    value = given.get(key, 0)
    if isinstance(value, float) and math.isfinite(value) and not value.is_integer():
        remarks.note_rounded(key, caller)
        value = round(value)
    return integer(key, value, 0, 2**63 - 1)
