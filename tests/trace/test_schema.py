"""`proto/et_def.proto` and the messages built at run time say the same."""

from __future__ import annotations

import re
from pathlib import Path

from et_sim.trace.columns import CollectiveKind, NodeKind
from et_sim.trace.schema import ENUMS, PACKAGE, Field, message_tables, messages

PROTO = Path(__file__).parents[2] / "proto" / "et_def.proto"


def parsed_proto() -> tuple[str, dict[str, tuple], dict[str, tuple]]:
    """(package, messages, enums) of the .proto text."""
    text = re.sub(r"//[^\n]*", "", PROTO.read_text())
    package = re.search(r"package\s+(\w+);", text)
    enums = {
        match[1]: tuple((name, int(number)) for name, number in re.findall(r"(\w+)\s*=\s*(\d+);", match[2]))
        for match in re.finditer(r"enum\s+(\w+)\s*\{([^}]*)\}", text)
    }
    tables = {}
    for match in re.finditer(r"message\s+(\w+)\s*\{((?:[^{}]|\{[^{}]*\})*)\}", text):
        body = match[2]
        inside = re.search(r"oneof\s+(\w+)\s*\{([^}]*)\}", body)
        in_oneof = inside[2] if inside else ""
        tables[match[1]] = tuple(
            Field(int(number), name, kind, bool(repeated), inside[1] if inside and name in in_oneof else "")
            for repeated, kind, name, number in re.findall(
                r"(repeated\s+)?(\w+)\s+(\w+)\s*=\s*(\d+);", body.replace("oneof value {", "")
            )
        )
    return (package[1] if package else ""), tables, enums


def test_the_proto_text_and_the_tables_agree() -> None:
    package, tables, enums = parsed_proto()
    assert package == PACKAGE
    assert enums == ENUMS
    assert tables == {
        name: tuple(
            Field(field.number, field.name, field.type, field.repeated, field.oneof) for field in fields
        )
        for name, fields in message_tables().items()
    }


def test_the_message_classes_have_the_fields_of_the_tables() -> None:
    tables = message_tables()
    for name in ("GlobalMetadata", "Node", "AttributeProto", "IOInfo", "Tensor"):
        descriptor = getattr(messages(), name).DESCRIPTOR
        assert descriptor.full_name == f"{PACKAGE}.{name}"
        assert {(field.number, field.name) for field in descriptor.fields} == {
            (field.number, field.name) for field in tables[name]
        }


def test_deps_are_packed_on_the_wire() -> None:
    assert messages().Node(data_deps=[1, 300]).SerializeToString() == b"\x2a\x03\x01\xac\x02"


def test_enums_of_the_columns_have_the_numbers_of_the_wire() -> None:
    assert [int(kind) for kind in NodeKind] == [number for _, number in ENUMS["NodeType"]]
    assert [(kind.name, int(kind)) for kind in CollectiveKind] == list(ENUMS["CollectiveCommType"])


def test_another_registration_of_the_same_names_does_not_collide() -> None:
    from google.protobuf import descriptor_pb2, descriptor_pool

    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package=PACKAGE, syntax="proto3")
    file.message_type.add(name="Node").field.add(name="id", number=1, label=1, type=4)
    descriptor_pool.Default().Add(file)
    assert messages().Node(name="still ours").name == "still ours"
