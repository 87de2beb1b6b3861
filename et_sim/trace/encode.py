"""Write a `Trace` as the bytes of a trace file.

The protobuf library does the writing, with the value kinds that other tools expect for each
attribute. Equal traces give equal bytes, and `wire.decode` gives the same columns back.

Not here: attributes that the simulator ignores; a trace only remembers how many there were.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.errors import TraceError
from et_sim.trace.columns import Has, NodeKind, TensorLists, Trace
from et_sim.trace.schema import messages

# (attribute, how the wire spells it, member of the oneof, column), in the order written.
_NUMBERS = (
    (Has.IS_CPU_OP, "is_cpu_op", "bool_val", "is_cpu"),
    (Has.NUM_OPS, "num_ops", "int64_val", "num_ops"),
    (Has.TENSOR_SIZE, "tensor_size", "uint64_val", "tensor_bytes"),
    (Has.COMM_TYPE, "comm_type", "int64_val", "comm_type"),
    (Has.COMM_SIZE, "comm_size", "int64_val", "comm_bytes"),
    (Has.COMM_TAG, "comm_tag", "int32_val", "comm_tag"),
    (Has.COMM_SRC, "comm_src", "int32_val", "comm_src"),
    (Has.COMM_DST, "comm_dst", "int32_val", "comm_dst"),
    (Has.COMM_PRIORITY, "comm_priority", "int32_val", "comm_priority"),
)


def encode_trace(trace: Trace) -> bytes:
    """The whole file: GlobalMetadata, then one record per row."""
    schema = messages()
    records = [schema.GlobalMetadata(version=trace.version).SerializeToString(deterministic=True)]
    columns = {column: getattr(trace, column).tolist() for _, _, _, column in _NUMBERS}
    tensors = trace.tensors
    lists_until = np.searchsorted(tensors.row, np.arange(len(trace)), side="right").tolist()
    at_list = 0
    for row in range(len(trace)):
        node = _plain_node(trace, row, schema.Node())
        _add_attributes(trace, row, node, columns)
        while at_list < lists_until[row]:
            _add_tensors(tensors, at_list, node)
            at_list += 1
        records.append(node.SerializeToString(deterministic=True))
    return b"".join(part for record in records for part in (_varint(len(record)), record))


def _plain_node(trace: Trace, row: int, node: Any) -> Any:
    """The fields of a node that are not attributes."""
    node.id = int(trace.node_id[row])
    node.name = trace.node_name(row)
    node.type = int(trace.kind[row])
    node.duration_micros = int(trace.duration_us[row])
    ctrl = trace.ctrl_deps[trace.ctrl_start[row] : trace.ctrl_start[row + 1]]
    data = trace.data_deps[trace.data_start[row] : trace.data_start[row + 1]]
    node.ctrl_deps.extend(trace.node_id[ctrl].tolist())
    node.data_deps.extend(trace.node_id[data].tolist())
    if trace.kind[row] == NodeKind.METADATA and trace.metadata_text.get(row):
        node.inputs.values = trace.metadata_text[row]
    return node


def _add_attributes(trace: Trace, row: int, node: Any, columns: dict[str, list[Any]]) -> None:
    """Exactly the attributes that `present` names."""
    present = int(trace.present[row])
    for bit, name, member, column in _NUMBERS:
        if present & bit:
            value = columns[column][row]
            if member == "int32_val" and not -(2**31) <= value < 2**31:
                member = "int64_val"
            try:
                node.attr.add(name=name, **{member: value})
            except ValueError:
                raise TraceError(
                    f"column {column} of {trace.describe(row)} is {value}, which the file cannot hold",
                    place=trace.source,
                    remedy="sizes and counts are not negative",
                ) from None
    if present & Has.GROUP:
        node.attr.add(name="pg_name", string_val=trace.group_names[trace.group[row]])
    if present & Has.INVOLVED_DIM:
        flags, count = int(trace.involved_dims[row]), int(trace.involved_count[row])
        attribute = node.attr.add(name="involved_dim")
        attribute.bool_list.SetInParent()
        attribute.bool_list.values.extend(bool(flags >> bit & 1) for bit in range(count))


def _add_tensors(tensors: TensorLists, at_list: int, node: Any) -> None:
    """One list of tensors."""
    attribute = node.attr.add(name="outputs" if tensors.is_output[at_list] else "inputs")
    attribute.string_list.SetInParent()
    words = tensors.words[tensors.start[at_list] : tensors.start[at_list + 1]]
    attribute.string_list.values.extend(tensors.texts[word] for word in words.tolist())


def _varint(value: int) -> bytes:
    """The length prefix of a record."""
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)
