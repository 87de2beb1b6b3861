"""A trace with more nodes behind its own, which may come before them all the same: they have dependencies.

Not here: what the nodes are (`builder`).
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from et_sim.trace.columns import TEXT_ATTRIBUTES, IntColumn, RowColumn, TensorLists, Trace

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
