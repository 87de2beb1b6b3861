"""What a rank was told to do, as a trace: many nodes of few kinds.

A trace repeats itself: each micro-batch has the nodes of the one before. What a node does is kept once for
all nodes that do the same; a node then is a number, a name and what it comes after. Where some nodes name
tensors, those that name none are said to read and write none.

Not here: order by streams, and places (`rank`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from et_sim.basics.errors import UsageError
from et_sim.trace.builder import TraceBuilder
from et_sim.trace.columns import BIT, RowColumn, Trace
from et_sim.trace.tensors import Words, as_lists

Nodes = tuple[int, ...]
MOST_NODES = 20_000_000  # of one rank
_NO_TENSORS: tuple[Words, None] = ((), None)
_OWN_COLUMNS = ("node_id", "name", "data_start", "data_deps", "ctrl_start", "ctrl_deps", "present")


@dataclass(slots=True)
class Recording:
    """Nodes in the order in which they were recorded, which is that of their ids."""

    source: str
    _kinds: TraceBuilder = field(init=False)
    _number: dict[Any, int] = field(default_factory=dict)
    _kind: list[int] = field(default_factory=list)
    _name: list[int] = field(default_factory=list)
    _names: dict[str, int] = field(default_factory=dict)
    _data: list[Nodes] = field(default_factory=list)
    _ctrl: list[Nodes] = field(default_factory=list)
    _tensors: dict[int, tuple[Words | None, Words | None]] = field(default_factory=dict)  # by node

    def __post_init__(self) -> None:
        self._kinds = TraceBuilder(version="et-sim workloads", source=self.source)

    def __len__(self) -> int:
        return len(self._kind)

    def add(
        self,
        make: Callable[..., int],
        options: Mapping[str, Any],
        name: str,
        data: Nodes,
        ctrl: Nodes,
        tensors: tuple[Mapping[str, int] | None, Mapping[str, int] | None],
        attributes: Mapping[str, int],
    ) -> int:
        """One more node; `make` of a builder makes it with these options, checked when they are new."""
        if len(self._kind) >= MOST_NODES:
            raise UsageError(
                f"a rank has more than {MOST_NODES:,} nodes",
                place=self.source,
                remedy="use fewer layers or micro-batches",
            )
        key = (make.__name__, *options, *options.values(), *sorted(attributes.items()))
        number = self._number.get(key)
        if number is None:
            more = {"attributes": attributes} if attributes else {}
            number = self._number[key] = make(self._kinds, **options, **more)
        self._kind.append(number)
        self._name.append(self._names.setdefault(name, len(self._names)))
        self._data.append(data)
        self._ctrl.append(ctrl)
        if tensors != (None, None):
            self._tensors[len(self._kind) - 1] = (_words(tensors[0]), _words(tensors[1]))
        return len(self._kind) - 1

    def name_tensors(self, node: int, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> None:
        """What a node reads and writes besides what it names already."""
        before = self._tensors.get(node, (None, None))
        merged = [
            (said or ()) + (_words(more) or ()) for said, more in zip(before, (inputs, outputs), strict=True)
        ]
        self._tensors[node] = (merged[0], merged[1] or before[1])

    @property
    def content(self) -> bytes:
        """Equal for recordings whose traces are equal."""
        digest = hashlib.sha256(repr((list(self._number), list(self._names))).encode())
        for column in (self._kind, self._name):
            digest.update(np.array(column, np.int64).tobytes())
        for lists in (self._data, self._ctrl):
            for array in _rows(lists):
                digest.update(array.tobytes())
        digest.update(repr(self._tensors).encode())
        return digest.digest()

    def trace(self) -> Trace:
        """All nodes so far."""
        kinds, rows = self._kinds.build(), np.array(self._kind, np.int64)
        data_start, data_deps = _rows(self._data)
        ctrl_start, ctrl_deps = _rows(self._ctrl)
        taken = {
            one.name: getattr(kinds, one.name)[rows]
            for one in fields(Trace)
            if one.name not in _OWN_COLUMNS and isinstance(getattr(kinds, one.name), np.ndarray)
        }
        lists = as_lists(
            [self._tensors.get(row, _NO_TENSORS) for row in range(len(rows))] * bool(self._tensors)
        )
        said = np.zeros(len(rows), np.uint32)
        for is_output, word in enumerate(("inputs", "outputs")):
            said[lists.row[lists.is_output == bool(is_output)]] |= np.uint32(BIT[word])
        return replace(
            kinds,
            node_id=np.arange(len(rows), dtype=np.uint64),
            name=np.array(self._name, np.int32),
            names=tuple(self._names),
            data_start=data_start,
            data_deps=data_deps,
            ctrl_start=ctrl_start,
            ctrl_deps=ctrl_deps,
            present=kinds.present[rows] | said,
            tensors=lists,
            **taken,
        )


def _words(tensors: Mapping[str, int] | None) -> Words | None:
    return None if tensors is None else tuple(word for item in tensors.items() for word in map(str, item))


def _rows(lists: Sequence[Nodes]) -> tuple[Any, RowColumn]:
    """Lists as offsets and entries."""
    start = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(one) for one in lists], out=start[1:])
    return start, np.array([node for one in lists for node in one], np.int32)
