"""The nodes of a rank, recorded for a trace: many nodes of few kinds.

A trace repeats itself: each micro-batch has the nodes of the previous one. So equal operations are stored
once; a node is the number of its operation, a name, and its dependencies. If some nodes name tensors, all
others read and write none.

Ranks with the same nodes in other sizes share a recording's nodes (`resized`), and their traces share its
columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.trace.builder import TraceBuilder
from et_sim.trace.columns import BIT, TEXT_ATTRIBUTES, RowColumn, TensorLists, Trace
from et_sim.trace.tensors import Words, as_lists, with_sizes

Nodes = tuple[int, ...]
Key = tuple[Any, ...]  # equal for equal operations
MOST_NODES = 20_000_000  # on one rank
_NO_TENSORS: tuple[Words, None] = ((), None)
_NODE_COLUMNS = ("node_id", "name", "data_start", "data_deps", "ctrl_start", "ctrl_deps")
_OWN_COLUMNS = (*_NODE_COLUMNS, "present")


class NodeOperation(Struct, frozen=True):
    """An operation of nodes: `make` of a builder makes it with these options."""

    key: Key
    make: Callable[..., int]
    options: Mapping[str, Any]
    attributes: Mapping[str, int]


class NodeRecording:
    """Nodes in the order in which they were recorded, which is that of their ids."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._builder = _new_builder(source)
        self._number: dict[Key, int] = {}
        self._operations: list[NodeOperation] = []  # by that number
        self._kind: list[int] = []
        self._name: list[int] = []
        self._names: dict[str, int] = {}
        self._data: list[Nodes] = []
        self._ctrl: list[Nodes] = []
        self._tensors: dict[int, tuple[Words | None, Words | None]] = {}  # by node
        self._first: NodeRecording | None = None  # the recording with the same nodes in other sizes
        self._sizes: Mapping[str, int] = {}  # bytes of tensors that differ from the first
        self._trace: Trace | None = None  # resized recordings share its columns
        self._digest = b""
        self._tensor_names: frozenset[str] = frozenset()
        self._built: dict[tuple[Key, ...], Trace] = {}  # by operations that differ

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
        """Add a node; `make` of a builder makes it with these options, which are checked once."""
        if len(self._kind) >= MOST_NODES:
            raise UsageError(
                f"a rank has more than {MOST_NODES:,} nodes",
                place=self.source,
                remedy="use fewer layers or micro-batches",
            )
        key = (make.__name__, *options, *options.values(), *sorted(attributes.items()))
        number = self._number.get(key)
        if number is None:
            operation = NodeOperation(key, make, options, attributes)
            number = self._number[key] = _make(self._builder, operation)
            self._operations.append(operation)
        self._kind.append(number)
        self._name.append(self._names.setdefault(name, len(self._names)))
        self._data.append(data)
        self._ctrl.append(ctrl)
        if tensors != (None, None):
            self._tensors[len(self._kind) - 1] = (_words(tensors[0]), _words(tensors[1]))
        return len(self._kind) - 1

    def name_tensors(self, node: int, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> None:
        """Add tensors that a node reads and writes."""
        before = self._tensors.get(node, (None, None))
        merged = [
            (earlier or ()) + (_words(more) or ())
            for earlier, more in zip(before, (inputs, outputs), strict=True)
        ]
        self._tensors[node] = (merged[0], merged[1] or before[1])

    def operations(self) -> list[tuple[str, NodeOperation]]:
        """Return the name and the operation of every node."""
        names = list(self._names)
        return [
            (names[name], self._operations[kind]) for name, kind in zip(self._name, self._kind, strict=True)
        ]

    def names_of(self, key: Key) -> set[str]:
        """Return the names of all nodes with an operation."""
        number, names = self._number.get(key), list(self._names)
        return {names[name] for name, kind in zip(self._name, self._kind, strict=True) if kind == number}

    def resized(
        self,
        operations: Mapping[Key, NodeOperation],
        sizes: Mapping[str, int],
        built: dict[tuple[Key, ...], Trace],
    ) -> NodeRecording:
        """Return the same nodes with some other operations, and other sizes of some tensors.

        No node may be added to either recording afterwards. `built` is a cache that several recordings share.
        """
        if self._trace is None:
            self._digest, self._trace = self.content, self.trace()
            self._built[()] = self._kinds()
            self._tensor_names = frozenset(self._trace.tensors.texts)
        sizes = {name: size for name, size in sizes.items() if name in self._tensor_names}
        if not sizes and not operations.keys() & self._number.keys():
            return self
        resized = NodeRecording(self.source)
        resized._first, resized._sizes, resized._built = self, sizes, built
        resized._kind, resized._name, resized._names = self._kind, self._name, self._names
        resized._operations = [operations.get(operation.key, operation) for operation in self._operations]
        return resized

    def _kinds(self) -> Trace:
        """Return a trace with a row for each operation."""
        if self._first is None:
            return self._builder.build()
        before = self._first._operations
        rows = [
            row for row, (then, now) in enumerate(zip(before, self._operations, strict=True)) if then != now
        ]
        keys = tuple(self._operations[row].key for row in rows)
        if keys not in self._built:
            builder = _new_builder(self.source)
            for row in rows:
                _make(builder, self._operations[row])
            self._built[keys] = builder.build()
        return _with_rows(self._first._built[()], np.array(rows, np.int64), self._built[keys])

    @property
    def content(self) -> bytes:
        """Return a digest that is equal for recordings with equal traces."""
        if self._first is not None:
            keys = [operation.key for operation in self._operations]
            return hashlib.sha256(self._first._digest + repr((keys, self._sizes)).encode()).digest()
        digest = hashlib.sha256(repr((list(self._number), list(self._names))).encode())
        for column in (self._kind, self._name):
            digest.update(np.array(column, np.int64).tobytes())
        for lists in (self._data, self._ctrl):
            for array in _rows(lists):
                digest.update(array.tobytes())
        digest.update(repr(self._tensors).encode())
        return digest.digest()

    def trace(self) -> Trace:
        """Return the trace of all nodes so far."""
        kinds, rows = self._kinds(), np.array(self._kind, np.int64)
        lists = self._tensor_lists()
        bits = np.zeros(len(rows), np.uint32)
        for is_output, word in enumerate(("inputs", "outputs")):
            bits[lists.row[lists.is_output == bool(is_output)]] |= np.uint32(BIT[word])
        taken = {
            name: getattr(kinds, name)[rows]
            for name in Trace.__struct_fields__
            if name not in _OWN_COLUMNS and isinstance(getattr(kinds, name), np.ndarray)
        }
        taken |= self._own_columns()
        return replace(kinds, present=kinds.present[rows] | bits, tensors=lists, **taken)

    def _own_columns(self) -> dict[str, Any]:
        """Return the columns that differ between nodes of an operation: ids, names, dependencies."""
        if self._first is not None:
            return {column: getattr(self._first._trace, column) for column in (*_NODE_COLUMNS, "names")}
        return {
            "node_id": np.arange(len(self), dtype=np.uint64),
            "name": np.array(self._name, np.int32),
            "names": tuple(self._names),
            **dict(zip(("data_start", "data_deps"), _rows(self._data), strict=True)),
            **dict(zip(("ctrl_start", "ctrl_deps"), _rows(self._ctrl), strict=True)),
        }

    def _tensor_lists(self) -> TensorLists:
        if self._first is None or self._first._trace is None:
            rows = [self._tensors.get(row, _NO_TENSORS) for row in range(len(self))]
            return as_lists(rows * bool(self._tensors))
        return with_sizes(self._first._trace.tensors, self._sizes)


def _new_builder(source: str) -> TraceBuilder:
    return TraceBuilder(version="et-sim workloads", source=source)


def _make(builder: TraceBuilder, operation: NodeOperation) -> int:
    more = {"attributes": operation.attributes} if operation.attributes else {}
    return operation.make(builder, **operation.options, **more)


def _with_rows(kinds: Trace, rows: Any, others: Trace) -> Trace:
    """Return the same trace with other operations in some rows."""
    columns: dict[str, Any] = {}
    for name in Trace.__struct_fields__:
        column = getattr(kinds, name)
        if name not in _NODE_COLUMNS and isinstance(column, np.ndarray):
            columns[name] = column.copy()
            columns[name][rows] = getattr(others, name)
    for text in TEXT_ATTRIBUTES:
        known = getattr(kinds, text.texts)
        columns[text.column][rows] += len(known)
        columns[text.texts] = known + getattr(others, text.texts)
    return replace(kinds, **columns)


def _words(tensors: Mapping[str, int] | None) -> Words | None:
    return None if tensors is None else tuple(word for item in tensors.items() for word in map(str, item))


def _rows(lists: Sequence[Nodes]) -> tuple[Any, RowColumn]:
    """Return lists as offsets and entries."""
    start = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(row_nodes) for row_nodes in lists], out=start[1:])
    return start, np.array([node for row_nodes in lists for node in row_nodes], np.int32)
