"""How many bytes an operator reads and writes, by the sizes of the tensors that are recorded of its call.

Every input is read once and every output written once, except where the name says otherwise: filling only
writes, gathering reads no more of its source than comes out. A timeline names no outputs: what is changed in
place is as large as the first input, a reduction's output is nothing beside its input, and other outputs are
as large as the largest input, or follow from the shapes (`formulas`). Which operators are moved by their
tensors at all, `rules.toml` says: of others the tensors do not tell, such as of a compiled function.

Not here: which kernel does the work (`costs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

import numpy as np

from converters.pytorch.columns import HostTrace, Tensors
from converters.pytorch.communication import shape_bytes
from converters.pytorch.formulas import Given, is_known, output_elements
from converters.pytorch.graph import Column
from converters.pytorch.nesting import NONE
from converters.pytorch.rules import rules

_MOST_BYTES = 1 << 62  # a shape that nobody has


class Sort(Enum):
    """What an operator does with its tensors."""

    UNKNOWN = auto()
    PLAIN = auto()
    FILLS = auto()  # the first one, without reading it
    REDUCES = auto()
    GATHERS = auto()  # from the first one
    SCATTERS = auto()  # into the first one


def sort_of(name: str) -> Sort:
    """What operators of this name do."""
    names = rules().traffic
    short = name.removeprefix("aten::").removesuffix("_")
    if short in names.sorts:
        return Sort[names.sorts[short]]
    if is_known(name):
        return Sort.PLAIN
    is_moved = names.by_tensors.search(name) and not names.others.search(name)
    return Sort.PLAIN if is_moved else Sort.UNKNOWN


def bytes_by_row(host: HostTrace) -> Column:
    """Of each row of an execution trace; NONE where the tensors do not tell."""
    sorts = [sort_of(name) for name in host.names]
    sort = np.array([one.value for one in sorts], np.int8)[host.name]
    inputs, outputs, first = _row_bytes(host.inputs), _row_bytes(host.outputs), _row_bytes(host.inputs, 0)
    found = inputs + outputs
    fills, gathers, scatters = (sort == one.value for one in (Sort.FILLS, Sort.GATHERS, Sort.SCATTERS))
    found = np.where(fills, np.maximum(outputs, first), found)
    found = np.where(gathers, inputs - first + 2 * outputs, found)
    found = np.where(scatters, 2 * (inputs - first), found)
    known: Column = np.where((sort == Sort.UNKNOWN.value) | (found <= 0), NONE, found)
    return known


def _row_bytes(tensors: Tensors, argument: int | None = None) -> Column:
    """Bytes of each row's tensors, or of those of one argument."""
    sizes = tensors.elements.astype(np.int64) * tensors.element_bytes.astype(np.int64)
    if argument is not None:
        sizes[tensors.argument != argument] = 0
    total = np.concatenate(([0], np.cumsum(sizes)))
    rows: Column = total[tensors.start[1:]] - total[tensors.start[:-1]]
    return rows


def bytes_of_call(name: str, given: Any) -> int:
    """Of a call with the arguments that a timeline records of it; NONE if they do not tell."""
    sort = sort_of(name)
    if not given or sort is Sort.UNKNOWN:
        return NONE
    sizes = shape_bytes(given["dims"], given["types"])
    total, first = sum(sizes), sizes[0] if sizes else 0
    if sort is Sort.FILLS:
        total = first
    elif sort is Sort.GATHERS:
        total = _gathered(name, given, sizes)
    elif sort is Sort.SCATTERS:
        total = 2 * (total - first)
    elif sort is Sort.PLAIN:
        total += _written(name, given, sizes) if total else 0
    return total if 0 < total < _MOST_BYTES else NONE


def _written(name: str, given: Any, sizes: Sequence[int]) -> int:
    """Bytes of the output."""
    elements = output_elements(name, Given(given["dims"], given.get("values") or []))
    if elements is not None:
        return elements * next((rules().bytes_of(kind) for kind in given["types"] if kind), 0)
    if name.rstrip("_") == "aten::copy":
        return 0  # what is written is the first input
    return sizes[0] if name.endswith("_") else max(sizes, default=0)


def _gathered(name: str, given: Any, sizes: Sequence[int]) -> int:
    """Of an embedding: a line of the table for each index, read and written; others do not tell."""
    shapes = given["dims"]
    if name != "aten::embedding" or len(sizes) < 2 or len(shapes[0]) != 2:
        return NONE
    of_index = rules().bytes_of(given["types"][1])
    lines = sizes[1] // of_index if of_index else 0
    return 2 * lines * int(shapes[0][1]) * rules().bytes_of(given["types"][0]) + sizes[1]
