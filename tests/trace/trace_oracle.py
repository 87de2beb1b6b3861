"""The slow, obvious way to read a trace: the protobuf library, one Python object per node."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import structs
from msgspec.structs import fields

from et_sim.trace.columns import TensorLists, Trace
from et_sim.trace.schema import messages

UNSIGNED_SIZES = {
    "num_ops": "num_ops",
    "tensor_size": "tensor_bytes",
    "comm_size": "comm_bytes",
    "duration_ns": "duration_ns",
}
FLAGS = {
    "is_cpu_op": "is_cpu",
    "concurrent": "is_concurrent",
    "comm_size_unknown": "is_unsized",
    "comm_size_estimated": "is_estimated",
    "gap": "is_gap",
    "launch": "is_launch",
    "copy": "is_copy",
    "cold": "is_cold",
}
INT64 = {"tid": "thread"} | {name: name for name in ("comm_tag", "comm_priority", "stream")}
INT32 = {name: name for name in ("comm_type", "comm_src", "comm_dst", "launches", "memory_tier")}
BITS = (
    *("is_cpu_op", "num_ops", "tensor_size", "comm_type", "comm_size", "comm_tag", "comm_src", "comm_dst"),
    *("comm_priority", "pg_name", "layer_shape", "dtype", "comm_split_sizes", "involved_dim"),
    *("duration_ns", "concurrent", "comm_size_unknown", "comm_size_estimated", "gap", "launch", "copy"),
    *("cold", "launches", "memory_tier", "stream", "tid"),
    *("inputs", "outputs"),
)
TEXTS = {
    "pg_name": ("group", "group_names"),
    "layer_shape": ("layer_shape", "layer_shapes"),
    "dtype": ("datatype", "datatypes"),
    "comm_split_sizes": ("splits", "split_texts"),
}
NOT_NUMBERS = ("double", "float", "string", "bytes")


class RefusedError(Exception):
    """The file must not be accepted."""


def varint(value: int) -> bytes:
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def framed(*records: bytes) -> bytes:
    return b"".join(varint(len(record)) + record for record in records)


def records_of(content: bytes) -> list[bytes]:
    results = []
    pos = 0
    while pos < len(content):
        size = shift = 0
        while True:
            byte = content[pos]
            size |= (byte & 127) << shift
            shift += 7
            pos += 1
            if byte < 128:
                break
        results.append(content[pos : pos + size])
        pos += size
    return results


def _number(name: str, value: Any, limits: tuple[int, int]) -> int:
    if not limits[0] <= value <= limits[1]:
        raise RefusedError(name)
    return int(value)


def _attributes(node: Any, row: dict[str, Any], ignored: dict[str, int]) -> None:
    seen = set()
    for attribute in node.attr:
        name = attribute.name
        if name in seen:
            continue
        seen.add(name)
        if name not in BITS:
            ignored[name] = ignored.get(name, 0) + 1
            continue
        row["present"] |= 1 << BITS.index(name)
        member = attribute.WhichOneof("value")
        value = getattr(attribute, member) if member else None
        kind, _, shape = (member or "none_none").partition("_")
        if name in TEXTS:
            if member != "string_val":
                raise RefusedError(name)
            row[TEXTS[name][0]] = value
        elif name in ("inputs", "outputs"):
            if member not in (None, "string_list"):
                raise RefusedError(name)
            row[name] = list(value.values) if member else []
        elif name == "involved_dim":
            if shape != "list" or kind in NOT_NUMBERS or len(value.values) > 64:
                raise RefusedError(name)
            row["dims"] = [bool(flag) for flag in value.values]
        elif shape != "val" or kind in NOT_NUMBERS:
            raise RefusedError(name)
        elif name in FLAGS:
            row[FLAGS[name]] = bool(value)
        elif name in UNSIGNED_SIZES:
            row[UNSIGNED_SIZES[name]] = _number(name, value, (0, 2**63 - 1))
        elif name in INT64:
            row[INT64[name]] = _number(name, value, (-(2**63), 2**63 - 1))
        else:
            row[INT32[name]] = _number(name, value, (-(2**31), 2**31 - 1))


def expected(content: bytes) -> dict[str, Any]:
    """Return every column by name, or raise RefusedError; dependencies per row are lists of ids."""
    schema = messages()
    header, *records = records_of(content)
    rows, ignored = [], {}
    for record in records:
        node = schema.Node.FromString(record)
        if not 0 <= node.type <= 255 or node.duration_micros >= 2**63:
            raise RefusedError("node")
        row = {"node_id": node.id, "kind": node.type, "name": node.name, "duration_us": node.duration_micros}
        row |= {
            "is_cpu": False,
            "is_concurrent": False,
            "is_unsized": False,
            "is_estimated": False,
            "is_gap": False,
            "is_launch": False,
            "is_copy": False,
            "is_cold": False,
            "group": "",
            "layer_shape": "",
            "datatype": "",
            "splits": "",
            "dims": [],
            "present": 0,
            "inputs": None,
            "outputs": None,
        }
        for names in (UNSIGNED_SIZES, INT64, INT32):
            row |= dict.fromkeys(names.values(), 0)
        row["data"], row["ctrl"] = list(node.data_deps), list(node.ctrl_deps)
        row["text"] = node.inputs.values if node.type == 1 else ""
        _attributes(node, row, ignored)
        rows.append(row)
    rows.sort(key=lambda row: row["node_id"])
    ids = [row["node_id"] for row in rows]
    wanted = {node_id for row in rows for node_id in row["data"] + row["ctrl"]}
    if len(set(ids)) != len(ids) or wanted - set(ids):
        raise RefusedError("ids")
    version = schema.GlobalMetadata.FromString(header).version
    return {"rows": rows, "ignored": ignored, "version": version}


def as_rows(trace: Trace) -> dict[str, Any]:
    """Return a decoded trace in the form of `expected`."""
    rows = []
    plain = ("node_id", "kind", "duration_us", *FLAGS.values(), "present")
    plain += (*UNSIGNED_SIZES.values(), *INT64.values(), *INT32.values())
    for index in range(len(trace)):
        row = {name: getattr(trace, name)[index].item() for name in plain}
        row["name"] = trace.node_name(index)
        for column, texts in TEXTS.values():
            row[column] = getattr(trace, texts)[getattr(trace, column)[index]]
        flags = int(trace.involved_dims[index])
        row["dims"] = [bool(flags >> bit & 1) for bit in range(trace.involved_count[index])]
        for kind in ("data", "ctrl"):
            start, items = getattr(trace, f"{kind}_start"), getattr(trace, f"{kind}_deps")
            row[kind] = trace.node_id[items[start[index] : start[index + 1]]].tolist()
        row["text"] = trace.metadata_text.get(index, "")
        row["inputs"] = row["outputs"] = None
        rows.append(row)
    lists = trace.tensors
    for number, index in enumerate(lists.row.tolist()):
        words = lists.words[lists.start[number] : lists.start[number + 1]]
        rows[index]["outputs" if lists.is_output[number] else "inputs"] = [lists.texts[w] for w in words]
    return {"rows": rows, "ignored": trace.ignored_attributes, "version": trace.version}


def assert_same_trace(first: Trace, second: Trace, *, apart_from: tuple[str, ...] = ("source",)) -> None:
    """Check that every column is equal, in values and type."""
    for column in fields(Trace):
        if column.name in apart_from:
            continue
        left, right = getattr(first, column.name), getattr(second, column.name)
        _assert_same(left, right, column.name)


def _assert_same(left: Any, right: Any, name: str) -> None:
    if isinstance(left, TensorLists):
        for column in structs.fields(TensorLists):
            _assert_same(getattr(left, column.name), getattr(right, column.name), f"{name}.{column.name}")
    elif isinstance(left, np.ndarray):
        assert left.dtype == right.dtype, name
        np.testing.assert_array_equal(left, right, err_msg=name)
    else:
        assert left == right, name


WRITTEN = (
    ("is_cpu_op", "bool_val", "is_cpu"),
    ("num_ops", "int64_val", "num_ops"),
    ("tensor_size", "uint64_val", "tensor_bytes"),
    ("comm_type", "int64_val", "comm_type"),
    ("comm_size", "int64_val", "comm_bytes"),
    ("comm_tag", "int32_val", "comm_tag"),
    ("comm_src", "int32_val", "comm_src"),
    ("comm_dst", "int32_val", "comm_dst"),
    ("comm_priority", "int32_val", "comm_priority"),
    ("duration_ns", "int64_val", "duration_ns"),
    ("concurrent", "bool_val", "is_concurrent"),
    ("comm_size_unknown", "bool_val", "is_unsized"),
    ("comm_size_estimated", "bool_val", "is_estimated"),
    ("gap", "bool_val", "is_gap"),
    ("launch", "bool_val", "is_launch"),
    ("copy", "bool_val", "is_copy"),
    ("cold", "bool_val", "is_cold"),
    ("launches", "int32_val", "launches"),
    ("memory_tier", "int32_val", "memory_tier"),
    ("stream", "int64_val", "stream"),
    ("tid", "int64_val", "thread"),
)


def written_by_library(trace: Trace) -> bytes:
    """Return the file of a trace, made with protobuf objects."""
    schema = messages()
    records = [schema.GlobalMetadata(version=trace.version).SerializeToString(deterministic=True)]
    for row in range(len(trace)):
        node = schema.Node(
            id=int(trace.node_id[row]),
            name=trace.node_name(row),
            type=int(trace.kind[row]),
            duration_micros=int(trace.duration_us[row]),
        )
        for kind in ("data", "ctrl"):
            start, items = getattr(trace, f"{kind}_start"), getattr(trace, f"{kind}_deps")
            wanted = trace.node_id[items[start[row] : start[row + 1]]].tolist()
            getattr(node, f"{kind}_deps").extend(wanted)
        if node.type == 1 and trace.metadata_text.get(row):
            node.inputs.values = trace.metadata_text[row]
        for name, member, column in WRITTEN:
            if trace.present[row] & (1 << BITS.index(name)):
                value = getattr(trace, column)[row].item()
                if member == "int32_val" and not -(2**31) <= value < 2**31:
                    member = "int64_val"
                node.attr.add(name=name, **{member: value})
        for name, (column, texts) in TEXTS.items():
            if trace.present[row] & (1 << BITS.index(name)):
                text = getattr(trace, texts)[getattr(trace, column)[row]]
                node.attr.add(name=name, string_val=text)
        if trace.present[row] & (1 << BITS.index("involved_dim")):
            flags = int(trace.involved_dims[row])
            dims = node.attr.add(name="involved_dim")
            dims.bool_list.SetInParent()
            dims.bool_list.values.extend(bool(flags >> bit & 1) for bit in range(trace.involved_count[row]))
        lists = trace.tensors
        for number in np.flatnonzero(lists.row == row).tolist():
            listed = node.attr.add(name="outputs" if lists.is_output[number] else "inputs")
            listed.string_list.SetInParent()
            words = lists.words[lists.start[number] : lists.start[number + 1]]
            listed.string_list.values.extend(lists.texts[word] for word in words.tolist())
        records.append(node.SerializeToString(deterministic=True))
    return framed(*records)
