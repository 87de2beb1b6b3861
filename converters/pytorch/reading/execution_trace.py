"""Reading of an execution trace of PyTorch into columns.

Nodes are decoded block by block; no node outlives its block. Repeated texts (shapes, types, signatures) are
kept once.

Tensors among the arguments of operators have columns of their own. The type of an argument identifies tensors
("Tensor(float)", "GenericList[Tensor(float),Tensor(float)]"); a tensor is written as [id, storage, offset,
elements, bytes of an element, device].
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np

from converters.pytorch.columns import ABSENT, HostNodeKind, HostTrace, ProcessGroup, Tensors
from converters.pytorch.reading.execution_trace_nodes import (
    ExecutionTraceNode,
    Fields,
    FlatNode,
    NodeLayout,
    fields_of,
    fields_of_flat,
)
from converters.pytorch.reading.json_chunks import BLOCK_BYTES, JsonBatch, Member, Progress, json_chunks
from converters.pytorch.reading.values import (
    C10D,
    COMMUNICATION,
    GROUPS,
    Decoder,
    Kinds,
    Memo,
    Numbering,
    ValueColumns,
    decoded,
    numbers,
    process_groups,
    rank_of_name,
    starts_of,
    texts_of,
    unreadable,
    values_matter,
    whole_number,
)
from et_sim.basics.errors import TraceError
from et_sim.basics.unique import unique

_STORAGE, _ELEMENTS, _ELEMENT_BYTES, _DEVICE = 1, 3, 4, 5
_TENSOR_LENGTH = 6
_TENSOR_COLUMNS: Kinds = {
    "argument": np.uint16,
    "storage_id": None,
    "elements": None,
    "element_bytes": np.uint8,
    "device": np.int32,
}
_Found = tuple[int, list[Any]]  # number of the argument, and the tensor


class TensorColumns:
    """A collector of the tensors of rows."""

    def __init__(self, texts: Numbering[str | bytes]) -> None:
        self._texts = texts
        self._wanted: Memo[bytes, tuple[int, ...]] = Memo(_arguments_with_tensors)
        self._decode = msgspec.json.Decoder(list[Any]).decode
        self._columns = ValueColumns(_TENSOR_COLUMNS)

    def add(self, values: list[msgspec.Raw], types: list[bytes]) -> list[int]:
        """Add the next rows, given their arguments and types; return the number of tensors of each."""
        tensors: list[_Found] = []
        counts = []
        for row_values, row_types in zip(values, types, strict=True):
            before = len(tensors)
            wanted = self._wanted[row_types]
            if wanted and row_values:
                arguments = self._decode(row_values)
                for number in wanted:
                    if number < len(arguments):
                        _collect(number, arguments[number], tensors)
            counts.append(len(tensors) - before)
        texts = self._texts
        self._columns.add(
            {
                "argument": [number for number, _ in tensors],
                "storage_id": [tensor[_STORAGE] for _, tensor in tensors],
                "elements": [tensor[_ELEMENTS] for _, tensor in tensors],
                "element_bytes": [tensor[_ELEMENT_BYTES] for _, tensor in tensors],
                "device": [texts[tensor[_DEVICE]] for _, tensor in tensors],
            }
        )
        return counts

    def finish(self, counts: Any) -> Tensors:
        """Return the tensors, given the number of each row."""
        return Tensors(starts_of(counts), **self._columns.finish())


def _arguments_with_tensors(types: bytes) -> tuple[int, ...]:
    names = msgspec.json.decode(types, type=list[Any]) if types else []
    return tuple(number for number, name in enumerate(names) if isinstance(name, str) and "Tensor(" in name)


def _collect(number: int, argument: Any, tensors: list[_Found]) -> None:
    """Append the tensors of an argument in order, including those in nested lists."""
    left = [argument]
    while left:
        value = left.pop()
        if not isinstance(value, list):
            continue
        if len(value) == _TENSOR_LENGTH and isinstance(value[_DEVICE], str):
            if value[_ELEMENT_BYTES] or value[_DEVICE]:  # otherwise a placeholder of a missing tensor
                tensors.append((number, value))
        else:
            left.extend(reversed(value))


_ROOT = re.compile(r"^\[pytorch\|profiler\|execution_(?:trace|graph)\|(process|thread)\]")
_USER_SCOPE = 7
_INPUTS, _OUTPUTS = "inputs", "outputs"
_COLUMNS: Kinds = {
    "node_id": None,
    "parent": None,
    "kind": np.uint8,
    "name": np.int32,
    "record_function": None,
    "thread": None,
    "sequence": None,
    "scope": np.uint8,
    "schema_text": np.int32,
    "input_shapes": np.int32,
    "input_types": np.int32,
    "output_shapes": np.int32,
    "output_types": np.int32,
    "input_values": np.int32,
    "attributes": np.int32,
    _INPUTS: np.int32,  # numbers of tensors
    _OUTPUTS: np.int32,
}

AnyNodes: TypeAlias = Sequence[ExecutionTraceNode | FlatNode]
Watcher = Callable[[AnyNodes, JsonBatch], None]


def read_host(
    path: Path,
    *,
    progress: Progress | None = None,
    block_bytes: int = BLOCK_BYTES,
    watcher: Watcher | None = None,
) -> HostTrace:
    """Read an execution trace, plain or compressed with gzip; `watcher` receives the nodes of each block."""
    reader = HostReader(path)
    for piece in json_chunks(path, ("nodes", "traceEvents"), block_bytes=block_bytes, progress=progress):
        if piece.key in ("traceEvents", ""):
            raise TraceError(
                "is a Kineto timeline, not an execution trace of PyTorch"
                if piece.key
                else "is a list, not an execution trace of PyTorch",
                place=str(path),
                remedy="give what the ExecutionTraceObserver wrote as --host, and the timeline as --device",
            )
        if isinstance(piece, Member):
            reader.member(piece)
        else:
            nodes = reader.batch(piece)
            if watcher is not None:
                watcher(nodes, piece)
    return reader.finish()


class HostReader:
    """A collector of the nodes and the other members of one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decode: Decoder[Any] | None = None
        self._fields: Callable[[Any], Fields] = fields_of
        self._members: dict[str, Any] = {}
        self._names: Numbering[str] = Numbering()
        self._texts: Numbering[str | bytes] = Numbering()
        self._kinds: Memo[str, int] = Memo(kind_of_node)
        self._keeps_values: Memo[str, bool] = Memo(values_matter)
        self._columns = ValueColumns(_COLUMNS)
        self._inputs = TensorColumns(self._texts)
        self._outputs = TensorColumns(self._texts)
        self._groups: dict[str, ProcessGroup] = {}
        self._dropped: Counter[str] = Counter()

    def member(self, member: Member) -> None:
        """Add a member of the file's object."""
        self._members[member.key] = decoded(member, self._path)

    def batch(self, batch: JsonBatch) -> AnyNodes:
        """Add some nodes."""
        if self._decode is None:
            self._decode = self._decoder(batch)
        nodes: AnyNodes = self._decode(batch)
        try:
            if nodes:
                self._append(nodes, self._fields(nodes))
        except msgspec.DecodeError as error:  # in raw text that the decoder skipped
            raise unreadable(batch, self._path, str(error)) from None
        return nodes

    def finish(self) -> HostTrace:
        """Return the columns of everything added."""
        if self._decode is None:
            raise TraceError(
                'holds no "nodes"',
                place=str(self._path),
                remedy="name the file that PyTorch's ExecutionTraceObserver wrote",
            )
        columns = self._columns.finish()
        ids = np.sort(columns["node_id"])
        again = unique(ids[1:][ids[1:] == ids[:-1]])
        if len(again):
            raise TraceError(
                f"{len(again)} node ids are used more than once, the first is {int(again[0])}",
                place=str(self._path),
                remedy="the file is damaged, or two were written into one; record again",
            )
        return HostTrace(
            path=str(self._path),
            schema=str(self._members.get("schema", "")),
            process=whole_number(self._members.get("pid")),
            rank=rank_of_name(self._path),
            start_ms=whole_number(self._members.get("start_ts")),
            finish_ms=whole_number(self._members.get("finish_ts")),
            names=tuple(self._names),
            groups=tuple(self._groups.values()),
            dropped=dict(sorted(self._dropped.items())),
            repaired=self._decode.repaired,
            inputs=self._inputs.finish(columns.pop(_INPUTS)),
            outputs=self._outputs.finish(columns.pop(_OUTPUTS)),
            texts=texts_of(self._texts),
            **columns,
        )

    def _decoder(self, batch: JsonBatch) -> Decoder[Any]:
        """Return the decoder of the file's layout, which its first nodes show."""
        layouts = Decoder(NodeLayout, self._path)(batch)
        if any(layout.attrs or layout.ctrl_deps for layout in layouts):
            return Decoder(ExecutionTraceNode, self._path)
        self._fields = fields_of_flat
        return Decoder(FlatNode, self._path)

    def _append(self, nodes: AnyNodes, fields: Fields) -> None:
        """Append one row for each node."""
        names, texts, kinds = self._names, self._texts, self._kinds
        input_types = [bytes(types) for types in fields.input_types]
        output_types = [bytes(types) for types in fields.output_types]
        values: dict[str, Any] = {
            "node_id": [node.node_id for node in nodes],
            "parent": fields.parent,
            "kind": [
                HostNodeKind.DEVICE if node.category and node.category != "cpu_op" else kinds[node.name]
                for node in nodes
            ],
            "name": [names[node.name] for node in nodes],
            "record_function": fields.record_function,
            "thread": fields.thread,
            "sequence": fields.sequence,
            "scope": fields.scope,
            "schema_text": [texts[text] if text else ABSENT for text in fields.schema_text],
            "input_shapes": [texts[bytes(shapes) or b"[]"] for shapes in fields.input_shapes],
            "input_types": [texts[types or b"[]"] for types in input_types],
            "output_shapes": [texts[bytes(shapes) or b"[]"] for shapes in fields.output_shapes],
            "output_types": [texts[types or b"[]"] for types in output_types],
            "input_values": [
                texts[bytes(given)] if given and self._keeps_values[node.name] else ABSENT
                for node, given in zip(nodes, fields.inputs, strict=True)
            ],
            "attributes": [texts[msgspec.json.encode(more)] if more else ABSENT for more in fields.more],
            _INPUTS: self._inputs.add(fields.inputs, input_types),
            _OUTPUTS: self._outputs.add(fields.outputs, output_types),
        }
        kind, scope = np.array(values["kind"], np.uint8), numbers(fields.scope)
        values["kind"] = np.where(
            (kind == HostNodeKind.OPERATOR) & (scope == _USER_SCOPE), HostNodeKind.ANNOTATION, kind
        )
        self._columns.add(values)
        for node, given in zip(nodes, fields.inputs, strict=True):
            if kinds[node.name] == HostNodeKind.GROUPS:
                self._add_groups(given)

    def _add_groups(self, given: msgspec.Raw) -> None:
        """Add process groups from JSON in a string; the end of profiling may list the same ones again."""
        for argument in msgspec.json.decode(given, type=list[Any]) if given else ():
            try:
                listed = msgspec.json.decode(argument) if isinstance(argument, str) else None
            except msgspec.DecodeError:
                self._dropped["list of process groups that is no JSON"] += 1
                continue
            for group in process_groups(listed):
                self._groups.setdefault(group.name, group)


def kind_of_node(name: str) -> int:
    """Return the kind of a node by its name; its scope decides about annotations."""
    root = _ROOT.match(name)
    if root:
        return HostNodeKind.PROCESS if root.group(1) == "process" else HostNodeKind.THREAD
    if name == COMMUNICATION:
        return HostNodeKind.COMMUNICATION
    if GROUPS in name:
        return HostNodeKind.GROUPS
    return HostNodeKind.C10D if C10D.match(name) else HostNodeKind.OPERATOR
