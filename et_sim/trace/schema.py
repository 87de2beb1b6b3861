"""The trace schema as protobuf message classes, built at run time from the tables below.

There is no generated module, so no generated code can disagree with the installed protobuf library. A private
descriptor pool avoids collisions with other packages that register the same names. `proto/et_def.proto` has
the same schema in the usual notation; a test compares the two.
"""

from __future__ import annotations

import functools
from typing import Any

from msgspec import Struct

PACKAGE = "ChakraProtoMsg"

# The value kinds an attribute may have, in field order: kind K owns `K_val` and `K_list`.
ATTRIBUTE_KINDS = (
    "double",
    "float",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "sint64",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
    "bool",
    "string",
    "bytes",
)
FIRST_ATTRIBUTE_FIELD = 3

ENUMS: dict[str, tuple[tuple[str, int], ...]] = {
    "NodeType": (
        ("INVALID_NODE", 0),
        ("METADATA_NODE", 1),
        ("MEM_LOAD_NODE", 2),
        ("MEM_STORE_NODE", 3),
        ("COMP_NODE", 4),
        ("COMM_SEND_NODE", 5),
        ("COMM_RECV_NODE", 6),
        ("COMM_COLL_NODE", 7),
        ("STORAGE_NODE", 8),
        ("BATCH_NODE", 9),
        ("CHECKPOINT_NODE", 10),
    ),
    "CollectiveCommType": (
        ("ALL_REDUCE", 0),
        ("REDUCE", 1),
        ("ALL_GATHER", 2),
        ("GATHER", 3),
        ("SCATTER", 4),
        ("BROADCAST", 5),
        ("ALL_TO_ALL", 6),
        ("REDUCE_SCATTER", 7),
        ("REDUCE_SCATTER_BLOCK", 8),
        ("BARRIER", 9),
    ),
}


class Field(Struct, frozen=True):
    """One field of a message; `type` is a scalar, an enum or a message of this schema."""

    number: int
    name: str
    type: str
    repeated: bool = False
    oneof: str = ""


class MessageClasses(Struct, frozen=True):
    """The message classes that programs use; each is an ordinary protobuf class."""

    GlobalMetadata: Any
    Node: Any
    AttributeProto: Any
    IOInfo: Any
    Tensor: Any


def message_tables() -> dict[str, tuple[Field, ...]]:
    """Return every message of the schema, in the order of the `.proto` file."""
    lists = {list_name(kind): (Field(1, "values", kind, repeated=True),) for kind in ATTRIBUTE_KINDS}
    return {
        **lists,
        "AttributeProto": (
            Field(1, "name", "string"),
            Field(2, "doc_string", "string"),
            *_attribute_values(),
        ),
        "Tensor": (
            Field(1, "tensor_id", "uint64"),
            Field(2, "storage_id", "uint64"),
            Field(3, "offset", "uint64"),
            Field(4, "num_elem", "uint64"),
            Field(5, "elem_bytes", "uint64"),
            Field(6, "device", "string"),
        ),
        "IOInfo": (Field(1, "values", "string"), Field(2, "shapes", "string"), Field(3, "types", "string")),
        "GlobalMetadata": (
            Field(1, "version", "string"),
            Field(2, "attr", "AttributeProto", repeated=True),
        ),
        "Node": (
            Field(1, "id", "uint64"),
            Field(2, "name", "string"),
            Field(3, "type", "NodeType"),
            Field(4, "ctrl_deps", "uint64", repeated=True),
            Field(5, "data_deps", "uint64", repeated=True),
            Field(6, "start_time_micros", "uint64"),
            Field(7, "duration_micros", "uint64"),
            Field(8, "inputs", "IOInfo"),
            Field(9, "outputs", "IOInfo"),
            Field(10, "attr", "AttributeProto", repeated=True),
            Field(11, "storage_bytes", "bytes"),
        ),
    }


def list_name(kind: str) -> str:
    """Return the name of the message for a list of a kind: `Sint32List` for `sint32`."""
    return f"{kind.capitalize()}List"


def _attribute_values() -> tuple[Field, ...]:
    fields: list[Field] = []
    for index, kind in enumerate(ATTRIBUTE_KINDS):
        number = FIRST_ATTRIBUTE_FIELD + 2 * index
        fields.append(Field(number, f"{kind}_val", kind, oneof="value"))
        fields.append(Field(number + 1, f"{kind}_list", list_name(kind), oneof="value"))
    return tuple(fields)


@functools.cache
def messages() -> MessageClasses:
    """Return the message classes; the first call imports protobuf."""
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file_descriptor())
    names = ("GlobalMetadata", "Node", "AttributeProto", "IOInfo", "Tensor")
    classes = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in names
    )
    return MessageClasses(*classes)


def _file_descriptor() -> Any:
    """Return the tables above as protobuf's own description of a `.proto` file."""
    from google.protobuf import descriptor_pb2

    file: Any = descriptor_pb2.FileDescriptorProto(
        name="et_sim/et_def.proto", package=PACKAGE, syntax="proto3"
    )
    for name, values in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for value_name, number in values:
            enum.value.add(name=value_name, number=number)
    tables = message_tables()
    for name, fields in tables.items():
        message = file.message_type.add(name=name)
        if any(field.oneof for field in fields):
            message.oneof_decl.add(name="value")
        for field in fields:
            _add_field(message, field, tables)
    return file


def _add_field(message: Any, field: Field, tables: dict[str, tuple[Field, ...]]) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Descriptor

    label = Descriptor.LABEL_REPEATED if field.repeated else Descriptor.LABEL_OPTIONAL
    added = message.field.add(name=field.name, number=field.number, label=label)
    if field.type in tables or field.type in ENUMS:
        added.type = Descriptor.TYPE_ENUM if field.type in ENUMS else Descriptor.TYPE_MESSAGE
        added.type_name = f".{PACKAGE}.{field.type}"
    else:
        added.type = Descriptor.Type.Value(f"TYPE_{field.type.upper()}")
    if field.oneof:
        added.oneof_index = 0
