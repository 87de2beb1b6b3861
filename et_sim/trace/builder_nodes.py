"""Nodes as a builder's calls describe them, and the columns that many of them make.

Not here: the calls and their checks (`builder`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.trace.columns import CollectiveKind, Has, NodeKind, RowColumn
from et_sim.trace.tensors import Words

INT32 = (-(2**31), 2**31 - 1)
INT64 = (-(2**63), 2**63 - 1)
SIZE = (0, 2**63 - 1)
ID = (0, 2**64 - 1)

# Columns that an argument fills: (bit in `present`, allowed range).
ATTRIBUTES: dict[str, tuple[Has, tuple[int, int]]] = {
    "is_cpu": (Has.IS_CPU_OP, (0, 1)),
    "num_ops": (Has.NUM_OPS, SIZE),
    "tensor_bytes": (Has.TENSOR_SIZE, SIZE),
    "comm_type": (Has.COMM_TYPE, INT32),
    "comm_bytes": (Has.COMM_SIZE, SIZE),
    "comm_tag": (Has.COMM_TAG, INT64),
    "comm_src": (Has.COMM_SRC, INT32),
    "comm_dst": (Has.COMM_DST, INT32),
    "comm_priority": (Has.COMM_PRIORITY, INT64),
    "duration_ns": (Has.DURATION_NS, SIZE),
    "is_concurrent": (Has.CONCURRENT, (0, 1)),
}
# Where a collective that has a root keeps it.
ROOT_COLUMN = {
    CollectiveKind.BROADCAST: "comm_src",
    CollectiveKind.SCATTER: "comm_src",
    CollectiveKind.REDUCE: "comm_dst",
    CollectiveKind.GATHER: "comm_dst",
}
DTYPES: dict[str, Any] = {
    "is_cpu": np.bool_,
    "is_concurrent": np.bool_,
    "comm_type": np.int32,
    "comm_src": np.int32,
    "comm_dst": np.int32,
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
    group: str | None = None
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
    bits = Has(0)
    for column in node.values:
        bits |= ATTRIBUTES[column][0]
    if node.group is not None:
        bits |= Has.GROUP
    if node.dims is not None:
        bits |= Has.INVOLVED_DIM
    for words, bit in zip(node.tensors, (Has.INPUTS, Has.OUTPUTS), strict=True):
        bits |= Has(0) if words is None else bit
    return int(bits)


def value_columns(nodes: list[NodeCall]) -> dict[str, Any]:
    """The columns of ATTRIBUTES."""
    return {
        column: np.array([node.values.get(column, 0) for node in nodes], DTYPES.get(column, np.int64))
        for column in ATTRIBUTES
    }
