"""Recorded communications: operation, bytes in and out, group, root or peer, splits.

Five sources describe them: `record_param_comms` of the execution trace (by position in old schemas, by name
in new ones), the NCCL arguments of Kineto's kernels and operators, operators `c10d::*` and
`_c10d_functional::*` with their arguments, and annotations such as `nccl:all_reduce` with shapes. All give a
`Communication`.

Bytes are those of the tensors, not of the datatype given beside them. `comm_size` of the trace format counts
the input of a node: the buffer of an all-reduce, the local part of an all-gather, the whole of a
reduce-scatter; but the output of a scatter and a receive.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from converters.pytorch.calls import UNNAMED_OPERATION, CommunicationKind, rules
from converters.pytorch.columns import ABSENT, HostNodeKind, HostTrace, Tensors
from et_sim.trace.columns import CollectiveKind, NodeKind

UNKNOWN = -1
_COMES_OUT = (CollectiveKind.SCATTER,)
_ROOTED = (CollectiveKind.BROADCAST, CollectiveKind.REDUCE, CollectiveKind.SCATTER, CollectiveKind.GATHER)


class Communication(Struct, frozen=True):
    """One collective or message from the view of one rank."""

    operation: CommunicationKind
    in_bytes: int
    out_bytes: int
    group: str = ""  # name; "" if missing
    group_size: int = UNKNOWN
    group_ranks: tuple[int, ...] = ()
    root: int = UNKNOWN  # rank within the group: of rooted collectives the root, of messages the peer
    peer: int = UNKNOWN  # the same as a global rank, if the trace has it or the group is known
    tag: int = 0
    datatype: str = ""
    in_splits: tuple[int, ...] = ()
    out_splits: tuple[int, ...] = ()
    is_empty: bool = False  # the recording states that nothing is transferred

    @property
    def split_bytes(self) -> tuple[int, ...]:
        """Return the bytes that an all-to-all with split sizes sends to each member; () if there are none or
        they do not fit.

        If only output splits are given, every member receives the same.
        """
        is_exchange = self.operation.collective == CollectiveKind.ALL_TO_ALL
        splits = self.in_splits or (1,) * len(self.out_splits)
        if not is_exchange or self.group_size not in (UNKNOWN, len(splits)) or min(splits, default=-1) < 0:
            return ()
        each, rest = divmod(self.in_bytes, max(sum(splits), 1))
        if rest or (sum(splits) and not each and not self.is_empty):
            return ()
        return tuple(each * size for size in splits)

    @property
    def is_unsized(self) -> bool:
        """Return whether the recording lacks the size of the transfer."""
        if self.operation == UNNAMED_OPERATION:
            return True
        if self.split_bytes:
            return False
        return not (self.comm_bytes or self.is_empty or self.operation.collective == CollectiveKind.BARRIER)

    @property
    def comm_bytes(self) -> int:
        """Return the size in the sense of the trace format."""
        if self.operation.collective == CollectiveKind.BARRIER:
            return 0
        if self.split_bytes:
            return self.in_bytes
        comes_out = self.operation.node == NodeKind.RECV or self.operation.collective in _COMES_OUT
        first, second = (self.out_bytes, self.in_bytes) if comes_out else (self.in_bytes, self.out_bytes)
        return first or second

    def with_group_of(self, other: Communication) -> Communication:
        """Add the group of another record of the same communication."""
        return replace(
            self,
            group=self.group or other.group,
            group_size=other.group_size if self.group_size == UNKNOWN else self.group_size,
            group_ranks=self.group_ranks or other.group_ranks,
        )


class ArgumentValues(Struct, frozen=True):
    """Arguments of a recorded operator: values and types side by side; bytes of the tensors by argument."""

    values: Sequence[Any]
    types: Sequence[str]
    in_bytes: Mapping[int, int]
    out_bytes: int


def from_record(given: ArgumentValues, attributes: Mapping[str, Any]) -> Communication | None:
    """Convert `record_param_comms` of an execution trace; None if it transfers nothing or is unknown."""
    name, position = _operation_name(given, attributes)
    operation = rules().operation(name)
    if operation is None or rules().is_bookkeeping(name):
        return None
    tensors = [at for at, kind in enumerate(given.types) if "Tensor" in kind]
    in_bytes = sum(given.in_bytes.get(at, 0) for at in tensors)
    lists = [value for value in given.values[position + 1 :] if isinstance(value, list)]
    numbers = [value for value in given.values[position + 1 :] if _is_int(value)]
    root = given.values[position - 1] if position > 0 else UNKNOWN
    name_of_group = next((value[0] for value in given.values[:position] if _is_pair(value)), "")
    start, stride, size = numbers[-3:] if len(numbers) >= 3 else (UNKNOWN, 0, *numbers[-1:], UNKNOWN)[:3]
    return Communication(
        operation,
        in_bytes or _message_bytes(attributes, "in"),
        given.out_bytes or _message_bytes(attributes, "out") or in_bytes,
        group=str(attributes.get("pg_name", "") or name_of_group),
        group_size=int(attributes.get("pg_size", size)),
        group_ranks=_regular_ranks(start, stride, size),
        root=int(root) if _has_root(operation) and _is_int(root) else UNKNOWN,
        datatype=str(attributes.get("dtype", "")),
        in_splits=_whole(lists[0]) if lists else (),
        out_splits=_whole(lists[1]) if len(lists) > 1 else (),
        is_empty=any(at in given.in_bytes for at in tensors) and not in_bytes,
    )


def from_nccl(arguments: Mapping[str, Any]) -> Communication | None:
    """Convert NCCL arguments of a Kineto event, with the keys of `columns.Collectives`."""
    name = str(arguments["operation"])
    operation = rules().operation(name)
    if operation is None or rules().is_bookkeeping(name):
        return None
    datatype = str(arguments["dtype"])
    each = rules().bytes_of(datatype)
    size = int(arguments["group_size"])
    named = _plain_list(arguments["group_ranks"])
    start, stride = int(arguments["rank_start"]), int(arguments["rank_stride"])
    ends = int(arguments["destination"]), int(arguments["source"])
    elements = int(arguments["in_elements"]), int(arguments["out_elements"])
    return Communication(
        operation,
        max(0, elements[0]) * each,
        max(0, elements[1]) * each,
        group=str(arguments["group_name"]),
        group_size=size,
        group_ranks=named if len(named) == size else _regular_ranks(start, stride, size),
        peer=ends[operation.node == NodeKind.RECV] if operation.is_message else UNKNOWN,
        datatype=datatype,
        in_splits=_plain_list(arguments["in_splits"]),
        out_splits=_plain_list(arguments["out_splits"]),
        is_empty=elements == (0, 0) and each > 0,
    )


def from_operator(name: str, given: ArgumentValues) -> Communication | None:
    """Convert `c10d::*` and `_c10d_functional::*` by the order of their arguments."""
    operation = rules().operation(name)
    if operation is None or rules().is_bookkeeping(name):
        return None
    tensors = [at for at, kind in enumerate(given.types) if "Tensor" in kind]
    functional = "functional" in name
    writes_first = not functional and len(tensors) > 1 and operation.node == NodeKind.COLL
    inputs = tensors[1:2] if writes_first else tensors[:1]
    outputs = tensors[:1] if writes_first else []
    in_bytes = sum(given.in_bytes.get(at, 0) for at in inputs)
    out_bytes = sum(given.in_bytes.get(at, 0) for at in outputs) or given.out_bytes or in_bytes
    texts = [value for value in given.values if isinstance(value, str) and not value.startswith("<")]
    integers = [v for v, kind in zip(given.values, given.types, strict=False) if kind == "Int" and _is_int(v)]
    lists = [_whole(v) for v, kind in zip(given.values, given.types, strict=False) if _is_int_list(v, kind)]
    is_message = operation.is_message
    return Communication(
        operation,
        in_bytes,
        out_bytes,
        group=texts[-1] if functional and texts else "",
        group_size=_size_by_ratio(operation, in_bytes, out_bytes),
        root=integers[0] if _has_root(operation) and integers else UNKNOWN,
        tag=integers[1] if is_message and len(integers) > 1 else 0,
        out_splits=lists[0] if len(lists) > 1 else (),
        in_splits=lists[1] if len(lists) > 1 else (),
        is_empty=any(at in given.in_bytes for at in inputs) and not in_bytes,
    )


def from_annotation(name: str, in_bytes: int) -> Communication | None:
    """Convert `nccl:all_reduce` with the shape of its input; old Kineto files have no more."""
    operation = rules().operation(name)
    if operation is None or rules().is_bookkeeping(name):
        return None
    return Communication(operation, in_bytes, 0)


def shape_bytes(dims: Any, types: Sequence[str]) -> list[int]:
    """Return the bytes of each input by the shapes and types that Kineto records; lists of tensors are
    summed.
    """
    return [
        _elements(shape) * rules().bytes_of(kind.removeprefix("GenericList[").rstrip("]"))
        for shape, kind in zip(dims, types, strict=False)
    ]


def _elements(shape: Any) -> int:
    """Return the elements of a tensor of this shape, or of all tensors of a list of shapes; scalars have
    none.
    """
    if not isinstance(shape, list) or not shape:
        return 0
    if isinstance(shape[0], list):
        return sum(_elements(part) for part in shape)
    product = 1
    for extent in shape:
        product *= int(extent)
    return product


def _operation_name(given: ArgumentValues, attributes: Mapping[str, Any]) -> tuple[str, int]:
    """Return the collective's name, and its position among the values."""
    for at, kind in enumerate(given.types):
        if kind == "String" and at < len(given.values) and isinstance(given.values[at], str):
            return given.values[at], at
    return str(attributes.get("collective_name", "")), 0


def _message_bytes(attributes: Mapping[str, Any], side: str) -> int:
    each = rules().bytes_of(str(attributes.get("dtype", "")))
    return max(0, int(attributes.get(f"{side}_msg_nelems", 0) or 0)) * each


def _has_root(operation: CommunicationKind) -> bool:
    return operation.is_message or operation.collective in _ROOTED


def _size_by_ratio(operation: CommunicationKind, in_bytes: int, out_bytes: int) -> int:
    """Return the group's size: gathering multiplies the bytes by it, and scattering divides them."""
    small, large = sorted((in_bytes, out_bytes))
    grows = operation.collective in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
    return large // small if grows and small and large % small == 0 else UNKNOWN


def _regular_ranks(start: int, stride: int, size: int) -> tuple[int, ...]:
    """Return the members of a group at regular distances."""
    if start < 0 or size <= 0 or (stride <= 0 and size > 1):
        return ()
    return tuple(range(start, start + max(stride, 1) * size, max(stride, 1)))


def _plain_list(text: Any) -> tuple[int, ...]:
    """Parse a list such as `[0, 1]`; a list that Kineto shortened with dots is empty."""
    try:
        return _whole(json.loads(text))
    except (TypeError, ValueError):
        return ()


def _whole(values: Any) -> tuple[int, ...]:
    return tuple(values) if isinstance(values, list) and all(_is_int(value) for value in values) else ()


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_int_list(value: Any, kind: str) -> bool:
    return isinstance(value, list) and "Tensor" not in kind and all(_is_int(item) for item in value)


def _is_pair(value: Any) -> bool:
    """Return whether a value is (name, description) of a process group."""
    return isinstance(value, list) and len(value) == 2 and all(isinstance(item, str) for item in value)


class HostRecords(Struct, frozen=True):
    """A reader of communication in rows of an execution trace."""

    host: HostTrace

    def of(self, row: int) -> Communication | None:
        """Return the communication of a row of kind COMMUNICATION or C10D; None for other rows and empty
        transfers.
        """
        kind = int(self.host.kind[row])
        if kind == HostNodeKind.COMMUNICATION:
            return from_record(self._values(row), self._attributes(row))
        if kind == HostNodeKind.C10D:
            return from_operator(self.host.names[self.host.name[row]], self._values(row))
        return None

    def is_on_host(self, row: int) -> bool:
        """Return whether the tensors of a row are in host memory."""
        tensors = self.host.inputs
        low, high = tensors.start[row], tensors.start[row + 1]
        devices = {self.host.texts[text] for text in tensors.device[low:high].tolist() if text != ABSENT}
        return devices == {b"cpu"}

    def _values(self, row: int) -> ArgumentValues:
        host = self.host
        values = self._json(int(host.input_values[row]))
        types = self._json(int(host.input_types[row]))
        return ArgumentValues(values, types, bytes_by_argument(host.inputs, row), _total(host.outputs, row))

    def _attributes(self, row: int) -> dict[str, Any]:
        text = int(self.host.attributes[row])
        attributes = json.loads(self.host.texts[text]) if text != ABSENT else {}
        return attributes if isinstance(attributes, dict) else {}

    def _json(self, text: int) -> list[Any]:
        value = json.loads(self.host.texts[text]) if text != ABSENT else []
        return value if isinstance(value, list) else []


def bytes_by_argument(tensors: Tensors, row: int) -> dict[int, int]:
    """Return the bytes of the tensors of each argument of a row."""
    sizes: dict[int, int] = {}
    for at in range(int(tensors.start[row]), int(tensors.start[row + 1])):
        argument = int(tensors.argument[at])
        sizes[argument] = sizes.get(argument, 0) + int(tensors.elements[at]) * int(tensors.element_bytes[at])
    return sizes


def _total(tensors: Tensors, row: int) -> int:
    return sum(bytes_by_argument(tensors, row).values())
