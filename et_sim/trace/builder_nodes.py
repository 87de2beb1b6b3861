"""Nodes as a builder's calls describe them, and the columns that many of them make.

Not here: the calls and their checks (`builder`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.basics.errors import TraceError, did_you_mean
from et_sim.trace.columns import BIT, NUMBERS, TEXT_ATTRIBUTES, CollectiveKind, NodeKind, RowColumn
from et_sim.trace.tensors import Words

SIZE = (0, 2**63 - 1)
ID = (0, 2**64 - 1)

BY_COLUMN = {one.column: one for one in (*NUMBERS, *TEXT_ATTRIBUTES)}
# Where a collective that has a root keeps it.
ROOT_COLUMN = {
    CollectiveKind.BROADCAST: "comm_src",
    CollectiveKind.SCATTER: "comm_src",
    CollectiveKind.REDUCE: "comm_dst",
    CollectiveKind.GATHER: "comm_dst",
}


@dataclass(slots=True)
class NodeCall:
    """What one call said."""

    node_id: int
    kind: NodeKind
    name: str
    micros: int
    values: dict[str, int]
    data: tuple[int, ...]
    ctrl: tuple[int, ...]
    texts: dict[str, str]  # by column
    dims: tuple[bool, ...] | None = None
    text: str = ""
    tensors: tuple[Words | None, Words | None] = (None, None)  # inputs, outputs


def numbered(words: list[str]) -> tuple[tuple[str, ...], RowColumn]:
    """The distinct words by first use, and the number of each word."""
    number: dict[str, int] = {}
    numbers = [number.setdefault(word, len(number)) for word in words]
    return tuple(number), np.array(numbers, np.int32)


def present_bits(node: NodeCall) -> int:
    """Which attributes the node carries."""
    said = {BY_COLUMN[column].name for column in (*node.values, *node.texts)}
    lists = zip(("involved_dim", "inputs", "outputs"), (node.dims, *node.tensors), strict=True)
    said.update(name for name, value in lists if value is not None)
    return sum(BIT[name] for name in said)


def value_columns(nodes: list[NodeCall]) -> dict[str, Any]:
    """The columns of the attributes that are numbers or texts, and the texts."""
    found: dict[str, Any] = {
        one.column: np.array([node.values.get(one.column, 0) for node in nodes], one.dtype) for one in NUMBERS
    }
    for one in TEXT_ATTRIBUTES:
        found[one.texts], number = numbered(["", *[node.texts.get(one.column, "") for node in nodes]])
        found[one.column] = number[1:]
    return found


def collective_kind(kind: CollectiveKind | str, source: str) -> CollectiveKind:
    """The collective that a call names."""
    if isinstance(kind, CollectiveKind):
        return kind
    wanted = str(kind).upper()
    if wanted in CollectiveKind.__members__:
        return CollectiveKind[wanted]
    known = [name.lower() for name in CollectiveKind.__members__]
    raise TraceError(
        f"there is no collective {kind!r}",
        place=source,
        remedy=did_you_mean(str(kind).lower(), known) or f"known: {', '.join(known)}",
    )
