"""Nodes as a builder's calls describe them, and the columns of many such nodes.

Nodes may be appended to a trace and still run before its nodes: dependencies order them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import TraceError, did_you_mean
from et_sim.trace.columns import (
    BIT,
    NUMBERS,
    TEXT_ATTRIBUTES,
    CollectiveKind,
    IntColumn,
    NodeKind,
    RowColumn,
    TensorLists,
    Trace,
)
from et_sim.trace.tensors import Words

SIZE = (0, 2**63 - 1)
ID = (0, 2**64 - 1)

BY_COLUMN = {attribute.column: attribute for attribute in (*NUMBERS, *TEXT_ATTRIBUTES)}
# the column of the root, by collective
ROOT_COLUMN = {
    CollectiveKind.BROADCAST: "comm_src",
    CollectiveKind.SCATTER: "comm_src",
    CollectiveKind.REDUCE: "comm_dst",
    CollectiveKind.GATHER: "comm_dst",
}


class NodeCall(Struct):
    """The arguments of one call."""

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
    """Return the distinct words by first use, and the number of each word."""
    number: dict[str, int] = {}
    numbers = [number.setdefault(word, len(number)) for word in words]
    return tuple(number), np.array(numbers, np.int32)


def present_bits(node: NodeCall) -> int:
    """Return the bits of the attributes of a node."""
    names = {BY_COLUMN[column].name for column in (*node.values, *node.texts)}
    lists = zip(("involved_dim", "inputs", "outputs"), (node.dims, *node.tensors), strict=True)
    names.update(name for name, value in lists if value is not None)
    return sum(BIT[name] for name in names)


def value_columns(nodes: list[NodeCall]) -> dict[str, Any]:
    """Return the columns of the attributes that are numbers or texts, and the texts."""
    columns: dict[str, Any] = {
        attribute.column: np.array([node.values.get(attribute.column, 0) for node in nodes], attribute.dtype)
        for attribute in NUMBERS
    }
    for attribute in TEXT_ATTRIBUTES:
        columns[attribute.texts], number = numbered(
            ["", *[node.texts.get(attribute.column, "") for node in nodes]]
        )
        columns[attribute.column] = number[1:]
    return columns


def collective_kind(kind: CollectiveKind | str, source: str) -> CollectiveKind:
    """Return the collective that a call names."""
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


# columns of indices into texts, and the field that holds the texts
_TEXTS = {"name": "names", **{text.column: text.texts for text in TEXT_ATTRIBUTES}}
_DEPENDENCIES = ("data_start", "data_deps", "ctrl_start", "ctrl_deps")


def appended(trace: Trace, more: Trace, parents: IntColumn, children: IntColumn) -> Trace:
    """Return the nodes of both traces, with control dependencies added; `more` has the higher ids.

    `parents` and `children` are rows of the result.
    """
    columns: dict[str, Any] = {}
    for column in Trace.__struct_fields__:
        before, added = getattr(trace, column), getattr(more, column)
        if not isinstance(before, np.ndarray) or column in _DEPENDENCIES:
            continue
        if column in _TEXTS:
            texts = _TEXTS[column]
            columns[texts], number = _numbered(getattr(trace, texts), getattr(more, texts))
            added = number[added]
        columns[column] = np.concatenate((before, added))
    count = len(trace) + len(more)
    start = np.concatenate((trace.data_start, np.repeat(trace.data_start[-1:], len(more))))
    ctrl_start, ctrl_deps = _with_dependencies(trace, count, parents, children)
    return replace(
        trace,
        **columns,
        data_start=start,
        ctrl_start=ctrl_start,
        ctrl_deps=ctrl_deps,
        tensors=_lists(trace.tensors, more.tensors, len(trace)),
    )


def _numbered(before: tuple[str, ...], added: tuple[str, ...]) -> tuple[tuple[str, ...], RowColumn]:
    """Return all texts, and the number of each of the added ones."""
    number = {text: at for at, text in reversed(list(enumerate(before)))}
    new = [text for text in added if text not in number]
    number |= {text: len(before) + at for at, text in enumerate(new)}
    return (*before, *new), np.array([number[text] for text in added], np.int32)


def _lists(before: TensorLists, added: TensorLists, rows: int) -> TensorLists:
    texts, number = _numbered(before.texts, added.texts)
    return TensorLists(
        row=np.concatenate((before.row, added.row + np.int32(rows))),
        is_output=np.concatenate((before.is_output, added.is_output)),
        start=np.concatenate((before.start, before.start[-1] + added.start[1:])),
        words=np.concatenate((before.words, number[added.words])),
        texts=texts,
    )


def _with_dependencies(
    trace: Trace, count: int, parents: IntColumn, children: IntColumn
) -> tuple[IntColumn, RowColumn]:
    """Return the control dependencies as CSR, with the new ones, each once."""
    child = np.repeat(np.arange(len(trace)), np.diff(trace.ctrl_start))
    data_child = np.repeat(np.arange(len(trace)), np.diff(trace.data_start))
    known = np.concatenate((trace.ctrl_deps + child * count, trace.data_deps + data_child * count))
    new = np.setdiff1d(parents + children * count, known)
    every = np.concatenate((child, new // count))
    order = np.argsort(every, kind="stable")
    deps = np.concatenate((trace.ctrl_deps, (new % count).astype(np.int32)))[order]
    start = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(every, minlength=count), out=start[1:])
    return start, deps
