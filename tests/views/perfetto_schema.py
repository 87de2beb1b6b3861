"""The part of Perfetto's trace schema that tests read with, for the protobuf library.

It is independent of the writer, so that a wrong number there shows."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SCHEMA = {
    "Trace": "1 packet *TracePacket",
    "TracePacket": "8 timestamp uint64; 10 trusted_packet_sequence_id uint32; 11 track_event TrackEvent; "
    "12 interned_data InternedData; 13 sequence_flags uint32; 60 track_descriptor TrackDescriptor",
    "TrackEvent": "3 category_iids *uint64; 4 debug_annotations *DebugAnnotation; 9 type int32; "
    "10 name_iid uint64; 11 track_uuid uint64; 22 categories *string; 23 name string; "
    "30 counter_value int64; 47 flow_ids *fixed64; 48 terminating_flow_ids *fixed64",
    "DebugAnnotation": "1 name_iid uint64; 3 uint_value uint64; 6 string_value string; 10 name string; "
    "17 string_value_iid uint64",
    "InternedData": "1 event_categories *Interned; 2 event_names *Interned; "
    "3 debug_annotation_names *Interned; 29 debug_annotation_string_values *Interned",
    "Interned": "1 iid uint64; 2 name string",
    "TrackDescriptor": "1 uuid uint64; 2 name string; 3 process ProcessDescriptor; "
    "4 thread ThreadDescriptor; 5 parent_uuid uint64; 8 counter CounterDescriptor",
    "ProcessDescriptor": "1 pid int32; 6 process_name string",
    "ThreadDescriptor": "1 pid int32; 2 tid int64; 5 thread_name string",
    "CounterDescriptor": "3 unit int32",
}


def trace_class() -> Any:
    """Return the class of a whole trace."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="tests_perfetto.proto", package="tests_perfetto", syntax="proto2"
    )
    for name, fields in SCHEMA.items():
        made = file.message_type.add(name=name)
        for number, label, kind in (entry.split() for entry in fields.split(";")):
            repeated, kind = kind.startswith("*"), kind.removeprefix("*")
            declared = made.field.add(name=label, number=int(number))
            declared.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            if kind in SCHEMA:
                declared.type, declared.type_name = field.TYPE_MESSAGE, f".tests_perfetto.{kind}"
            else:
                declared.type = getattr(field, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tests_perfetto.Trace"))
