"""Nodes as a builder's calls describe them, and the columns that many of them make.

Nodes may be added behind those of a trace, and come before them all the same: they have dependencies.

Not here: the calls and their checks (`builder`).
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from msgspec import Struct

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

BY_COLUMN = {one.column: one for one in (*NUMBERS, *TEXT_ATTRIBUTES)}
# Where a collective that has a root keeps it.
ROOT_COLUMN = {
    CollectiveKind.BROADCAST: "comm_src",
    CollectiveKind.SCATTER: "comm_src",
    CollectiveKind.REDUCE: "comm_dst",
    CollectiveKind.GATHER: "comm_dst",
}


class NodeCall(Struct):
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


# Columns that say which of some texts a node has.
_TEXTS = {"name": "names", **{text.column: text.texts for text in TEXT_ATTRIBUTES}}
_DEPENDENCIES = ("data_start", "data_deps", "ctrl_start", "ctrl_deps")


def appended(trace: Trace, more: Trace, parents: IntColumn, children: IntColumn) -> Trace:
    """The nodes of both, of which `more` has the higher ids, and no dependencies.

    `parents` and `children` are rows of the result: control dependencies to be added.
    """
    found: dict[str, Any] = {}
    for column in (one.name for one in fields(Trace)):
        own, added = getattr(trace, column), getattr(more, column)
        if not isinstance(own, np.ndarray) or column in _DEPENDENCIES:
            continue
        if column in _TEXTS:
            texts = _TEXTS[column]
            found[texts], number = _numbered(getattr(trace, texts), getattr(more, texts))
            added = number[added]
        found[column] = np.concatenate((own, added))
    count = len(trace) + len(more)
    start = np.concatenate((trace.data_start, np.repeat(trace.data_start[-1:], len(more))))
    ctrl_start, ctrl_deps = _with_dependencies(trace, count, parents, children)
    return replace(
        trace,
        **found,
        data_start=start,
        ctrl_start=ctrl_start,
        ctrl_deps=ctrl_deps,
        tensors=_lists(trace.tensors, more.tensors, len(trace)),
    )


def _numbered(own: tuple[str, ...], added: tuple[str, ...]) -> tuple[tuple[str, ...], RowColumn]:
    """All texts, and the number of each of the added ones."""
    number = {text: at for at, text in reversed(list(enumerate(own)))}
    new = [text for text in added if text not in number]
    number |= {text: len(own) + at for at, text in enumerate(new)}
    return (*own, *new), np.array([number[text] for text in added], np.int32)


def _lists(own: TensorLists, added: TensorLists, rows: int) -> TensorLists:
    texts, number = _numbered(own.texts, added.texts)
    return TensorLists(
        row=np.concatenate((own.row, added.row + np.int32(rows))),
        is_output=np.concatenate((own.is_output, added.is_output)),
        start=np.concatenate((own.start, own.start[-1] + added.start[1:])),
        words=np.concatenate((own.words, number[added.words])),
        texts=texts,
    )


def _with_dependencies(
    trace: Trace, count: int, parents: IntColumn, children: IntColumn
) -> tuple[IntColumn, RowColumn]:
    """The control dependencies as CSR, with those that are new, each once."""
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
