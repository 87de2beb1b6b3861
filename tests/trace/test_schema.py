"""`proto/et_def.proto` and the messages built at run time are equal; an attribute of nodes is one line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from et_sim.trace.columns import CollectiveKind, NodeKind
from et_sim.trace.schema import ENUMS, PACKAGE, Field, message_tables, messages

PROTO = Path(__file__).parents[2] / "proto" / "et_def.proto"


def parsed_proto() -> tuple[str, dict[str, tuple], dict[str, tuple]]:
    """Return package, messages and enums of the .proto text."""
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


LINE = '    shade: Annotated[IntColumn, Attribute("shade", "int64_val", least=0)]\n'
WITH_ONE_LINE_MORE = f"""
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import et_sim.trace

path = Path(et_sim.trace.__file__).with_name("columns.py")
before, line, after = path.read_text().partition("    is_concurrent: ")
module = module_from_spec(spec_from_file_location("et_sim.trace.columns", path))
sys.modules[module.__name__] = module
exec(compile(before + {LINE!r} + line + after, path, "exec"), vars(module))
"""
USE_IT = """
import numpy as np
from converters.editing.files import set_attributes
from converters.records import frame, parse, split
from et_sim.basics.errors import TraceError
from et_sim.trace import TraceBuilder, decode, encode_trace

build = TraceBuilder()
for shade in (7, 3):
    build.compute(micros=1, attributes={"shade": shade}, node_id=10 - shade)
build.compute(micros=1)
content = encode_trace(build.build())
trace = decode(content)
assert trace.shade.tolist() == [7, 3, 0]  # by ascending id
assert trace.has("shade").tolist() == [True, True, False]
assert encode_trace(trace) == content

records = list(parse(split(content), "rank 0"))
set_attributes(records[2], {"shade": 5})
assert decode(frame(records)).shade.tolist() == [7, 5, 0]

set_attributes(records[2], {"shade": -5})
for refused in (lambda: decode(frame(records)), lambda: build.compute(attributes={"shade": -5})):
    try:
        refused()
    except TraceError as error:
        assert "-5" in str(error) or "shade" in str(error)
    else:
        raise AssertionError
"""


def run_in_python(script: str) -> str:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    return done.stderr


def test_one_line_adds_an_attribute_to_builder_files_decoder_and_converters() -> None:
    assert run_in_python(WITH_ONE_LINE_MORE + USE_IT) == ""


@pytest.mark.deep
def test_without_the_line_the_attribute_is_unknown() -> None:
    assert "there is no attribute 'shade'" in run_in_python(USE_IT)
