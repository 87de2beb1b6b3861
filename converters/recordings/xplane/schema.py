"""The fields of XPlane and HLO that are read, as protobuf message classes; parsers skip all others."""

from __future__ import annotations

import functools
from typing import Any

PACKAGE = "et_sim.xplane"
# Each message: fields as (name, number, type), with * after the type of a repeated field.
FIELDS: dict[str, str] = {
    "Space": "planes 1 Plane*",
    "Plane": "name 2 string, lines 3 Line*, event_metadata 4 EventEntry*, stat_metadata 5 StatEntry*, "
    "stats 6 Stat*",
    "EventEntry": "key 1 int64, value 2 EventMetadata",
    "StatEntry": "key 1 int64, value 2 StatMetadata",
    "EventMetadata": "id 1 int64, name 2 string, display_name 4 string, stats 5 Stat*",
    "StatMetadata": "id 1 int64, name 2 string",
    "Line": "id 1 int64, name 2 string, timestamp_ns 3 int64, events 4 Event*",
    "Event": "metadata_id 1 int64, offset_ps 2 int64, duration_ps 3 int64, stats 4 Stat*",
    "Stat": "metadata_id 1 int64, uint64_value 3 uint64, int64_value 4 int64, str_value 5 string, "
    "bytes_value 6 bytes, ref_value 7 uint64",
    "Hlo": "module 1 Module",
    "Module": "name 1 string, computations 3 Computation*, devices 15 Devices",
    "Computation": "name 1 string, instructions 2 Instruction*, id 5 int64",
    "Instruction": "name 1 string, opcode 2 string, shape 3 Shape, channel_id 26 int64, id 35 int64, "
    "operand_ids 36 int64*, called_ids 38 int64*, groups 49 Group*, are_devices 71 bool, list 87 GroupList, "
    "iota 92 Iota, axes 93 MeshGroups",
    "Shape": "element_type 2 int32, dimensions 3 int64*, parts 4 Shape*",
    "Group": "ids 1 int64*",
    "GroupList": "groups 1 Group*, iota 2 Iota",
    "Iota": "groups 1 int64, size 2 int64, shape 3 int64*, order 4 int32*",
    "MeshGroups": "mesh 1 Mesh, axes 2 AxisRef*",
    "Mesh": "axes 1 MeshAxis*, device_ids 2 int64*, order 3 MeshOrder",
    "MeshAxis": "name 1 string, size 2 int64",
    "MeshOrder": "shape 1 int64*, order 2 int64*",
    "AxisRef": "axis 1 int64, part 2 AxisPart",
    "AxisPart": "before 1 int64, size 2 int64",
    "Devices": "replicas 1 int32, partitions 2 int32, of_partition 3 OfPartition*",
    "OfPartition": "devices 1 int64*",
}


@functools.cache
def message_class(name: str) -> Any:
    """Return a message class; the first call imports protobuf."""
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file_descriptor())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def _file_descriptor() -> Any:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

    file: Any = FileDescriptorProto(name="et_sim/xplane.proto", package=PACKAGE, syntax="proto3")
    for name, listed in FIELDS.items():
        message = file.message_type.add(name=name)
        for field in listed.split(", "):
            key, number, kind = field.split()
            plain = kind.rstrip("*")
            added = message.field.add(name=key, number=int(number), label=3 if kind != plain else 1)
            if plain in FIELDS:
                added.type = FieldDescriptorProto.TYPE_MESSAGE
                added.type_name = f".{PACKAGE}.{plain}"
            else:
                added.type = FieldDescriptorProto.Type.Value(f"TYPE_{plain.upper()}")
    return file
