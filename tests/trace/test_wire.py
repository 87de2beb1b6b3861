"""The compiled decoder against the protobuf library, and against bytes that are not a trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_oracle import (
    BITS,
    TEXTS,
    RefusedError,
    as_rows,
    assert_same_trace,
    expected,
    framed,
    varint,
    written_by_library,
)

from et_sim.basics.errors import TraceError
from et_sim.trace import TraceBuilder, decode, encode_trace
from et_sim.trace.schema import ATTRIBUTE_KINDS, messages
from et_sim.trace.wire import decode_several

DATA = Path(__file__).parent / "data"
HEADER = b"\x0a\x050.0.4"


def delimited(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def node_bytes(**values: object) -> bytes:
    return messages().Node(**values).SerializeToString()


def attribute(name: str, **value: object) -> bytes:
    """Return a node with one attribute."""
    node = messages().Node(id=7, name="seven", type=4)
    node.attr.add(name=name, **value)
    return node.SerializeToString()


def decoded(*records: bytes):
    return decode(framed(HEADER, *records), "file.0.et")


def refusal(content: bytes) -> TraceError | None:
    """Return the error of decoding, if any; other errors pass through."""
    try:
        decode(content)
    except TraceError as error:
        return error
    return None


# ---- random traces, with the protobuf library as the oracle

numbers = st.one_of(
    st.integers(0, 3),
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([0, 1, -1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1]),
)
LIMITS = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (-(2**31), 2**31 - 1)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (-(2**63), 2**63 - 1)),
    **dict.fromkeys(("uint32", "fixed32"), (0, 2**32 - 1)),
    **dict.fromkeys(("uint64", "fixed64"), (0, 2**64 - 1)),
    "bool": (0, 1),
}


@st.composite
def member(draw: st.DrawFn, kinds: tuple[str, ...] = ATTRIBUTE_KINDS) -> bytes:
    """Draw the bytes of one member of an attribute's oneof."""
    kind = draw(st.sampled_from(kinds))
    if kind in LIMITS:
        low, high = LIMITS[kind]
        entry = numbers.map(lambda value: min(max(value, low), high))
    else:
        entry = {"string": st.sampled_from(["", "0", "tp", "ü"]), "bytes": st.binary(max_size=4)}.get(
            kind, st.floats(width=32)
        )
    proto = messages().AttributeProto()
    if draw(st.booleans()):
        setattr(proto, f"{kind}_val", bool(draw(entry)) if kind == "bool" else draw(entry))
    else:
        values = draw(st.lists(entry, max_size=4))
        target = getattr(proto, f"{kind}_list")
        target.SetInParent()
        if kind == "bool" and draw(st.booleans()):
            return delimited(28, b"".join(b"\x08" + bytes([bool(value)]) for value in values))
        target.values.extend(bool(value) if kind == "bool" else value for value in values)
    return proto.SerializeToString()


unknown_fields = st.sampled_from(
    [
        varint(100 << 3) + varint(5),
        varint(101 << 3 | 1) + bytes(8),
        varint(102 << 3 | 5) + bytes(4),
        delimited(103, b"anything"),
        varint(1 << 3 | 5) + bytes(4),  # a known field with another wire type
        varint(7 << 3 | 5) + bytes(4),
    ]
)
scalar_kinds = tuple(kind for kind in ATTRIBUTE_KINDS if kind in LIMITS)


@st.composite
def attributes(draw: st.DrawFn) -> bytes:
    """Draw an attribute field of a node; mostly acceptable."""
    name = draw(st.sampled_from([*BITS, "rf_id", "thread", "", "comm_sizes", "a" * 40]))
    if name in TEXTS:
        value = messages().AttributeProto(string_val=draw(st.sampled_from(["", "1", "dp"])))
        parts = [value.SerializeToString()]
    elif draw(st.integers(0, 9)) == 0:
        parts = [draw(member())]
    elif name in ("inputs", "outputs"):
        words = draw(st.lists(st.sampled_from(["x", "y", "ü", "1000", "", "nul\0inside"]), max_size=6))
        value = messages().AttributeProto()
        value.string_list.values.extend(words)
        parts = [value.SerializeToString()] * draw(st.integers(1, 2))
    elif name in BITS and name != "involved_dim":
        low, high = LIMITS[kind := draw(st.sampled_from(scalar_kinds))]
        value = messages().AttributeProto()
        chosen = min(max(draw(st.integers(0, 1 << 20)), low), high)
        setattr(value, f"{kind}_val", bool(chosen) if kind == "bool" else chosen)
        parts = [value.SerializeToString()]
    elif name == "involved_dim":
        value = messages().AttributeProto()
        value.bool_list.values.extend(draw(st.lists(st.booleans(), min_size=1, max_size=6)))
        parts = [value.SerializeToString()] * draw(st.integers(1, 2))
    else:
        parts = [draw(member())]
    if draw(st.integers(0, 5)) == 0:
        parts.insert(0, draw(member(("int64", "bool"))))
    parts += draw(st.lists(unknown_fields, max_size=1))
    parts.insert(draw(st.integers(0, len(parts))), delimited(1, name.encode()))
    return delimited(10, b"".join(parts))


@st.composite
def nodes(draw: st.DrawFn, ids: list[int], own: int) -> bytes:
    """Draw a node record: partial messages and raw fields, in random order, as protobuf may merge them."""
    kind = draw(st.integers(0, 12))
    some = st.lists(st.sampled_from(ids), max_size=5)
    parts = [
        node_bytes(id=own, type=kind),
        node_bytes(name=draw(st.sampled_from(["", "a", "matmul", "ünïcode", "x" * 100, "nul\0inside"]))),
        node_bytes(duration_micros=draw(st.integers(0, 2**40)), start_time_micros=3),
        node_bytes(data_deps=draw(some), ctrl_deps=draw(some)),
        *(varint(5 << 3) + varint(wanted) for wanted in draw(some)),
        *(varint(4 << 3) + varint(wanted) for wanted in draw(some)),
        *draw(st.lists(unknown_fields.filter(lambda part: part[0] != 0x0D), max_size=2)),
        *draw(st.lists(attributes(), max_size=6)),
        delimited(8, messages().IOInfo(values=draw(st.sampled_from(["", "[1, 2]"]))).SerializeToString()),
    ]
    if draw(st.booleans()):
        parts.append(delimited(8, messages().IOInfo(shapes="[[3]]").SerializeToString()))
    return b"".join(draw(st.permutations(parts)))


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """Draw a whole file."""
    id_range = draw(st.sampled_from([12, 2**33, 2**64 - 1]))
    ids = draw(st.lists(st.integers(0, id_range), min_size=1, max_size=8, unique=True))
    if draw(st.booleans()):
        ids.sort()
    records = [draw(nodes(ids, own)) for own in ids]
    header = draw(st.sampled_from([HEADER, b"", HEADER + delimited(2, b"\x0a\x03pid\x48\x05")]))
    return framed(header, *records)


@given(contents())
def test_every_column_equals_that_of_the_protobuf_library(content: bytes) -> None:
    try:
        wanted = expected(content)
    except RefusedError:
        with pytest.raises(TraceError):
            decode(content)
        return
    assert as_rows(decode(content)) == wanted


@given(contents())
def test_encoding_and_decoding_gives_the_same_columns(content: bytes) -> None:
    try:
        trace = decode(content)
    except TraceError:
        return
    again = encode_trace(trace)
    assert_same_trace(trace, decode(again), apart_from=("source", "ignored_attributes"))
    assert encode_trace(decode(again)) == again


@given(contents())
def test_the_bytes_written_are_those_that_the_protobuf_library_writes(content: bytes) -> None:
    try:
        trace = decode(content)
    except TraceError:
        return
    assert encode_trace(trace) == written_by_library(trace)


@given(contents(), st.data())
def test_damaged_files_are_refused_or_read_but_never_crash(content: bytes, data: st.DataObject) -> None:
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, max(len(damaged) - 1, 0)))
        change = data.draw(st.sampled_from(["set", "cut", "insert", "remove"]))
        if change == "set" and damaged:
            damaged[place] = data.draw(st.integers(0, 255))
        elif change == "cut":
            del damaged[place:]
        elif change == "insert":
            damaged[place:place] = data.draw(st.binary(max_size=12))
        else:
            del damaged[place : place + 1]
    error = refusal(bytes(damaged))
    assert error is None or (error.place and error.remedy)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_crash(content: bytes) -> None:
    error = refusal(content)
    assert error is None or str(error).startswith("<bytes>")


# ---- real files

golden_files = sorted(DATA.glob("*.et"))


@pytest.mark.parametrize("path", golden_files, ids=lambda path: path.name)
def test_files_of_other_writers_decode_as_the_protobuf_library_reads_them(path: Path) -> None:
    content = path.read_bytes()
    assert as_rows(decode(content)) == expected(content)


def test_the_golden_files_are_there() -> None:
    assert len(golden_files) >= 10


# ---- framing and order


def test_an_empty_record_is_a_node_of_defaults_and_not_the_end_of_the_file() -> None:
    trace = decoded(node_bytes(id=1, name="one"), b"", node_bytes(id=2, name="two"))
    assert trace.node_id.tolist() == [0, 1, 2]
    assert [trace.node_name(row) for row in range(3)] == ["", "one", "two"]


def test_a_file_of_only_metadata_is_an_empty_trace() -> None:
    trace = decoded()
    assert len(trace) == 0
    assert trace.version == "0.0.4"


def test_rows_are_sorted_by_id_and_dependencies_follow() -> None:
    trace = decoded(
        node_bytes(id=9, name="nine", data_deps=[3, 5], type=1, inputs={"values": "text of nine"}),
        node_bytes(id=3, name="three"),
        node_bytes(id=5, name="five", ctrl_deps=[3]),
    )
    assert trace.node_id.tolist() == [3, 5, 9]
    assert trace.names == ("three", "five", "nine")
    assert trace.parents(2).tolist() == [0, 1]
    assert trace.parents(1).tolist() == [0]
    assert trace.metadata_text == {2: "text of nine"}


def test_many_nodes_with_long_dependency_lists_fit() -> None:
    records = [node_bytes(id=n, data_deps=range(max(0, n - 60), n), ctrl_deps=range(n)) for n in range(200)]
    trace = decoded(*records)
    assert trace.ctrl_start[-1] == 199 * 200 // 2
    assert trace.parents(199).tolist() == list(range(199))


def test_many_metadata_nodes_keep_their_texts() -> None:
    records = [node_bytes(id=n, type=1, inputs={"values": f"text {n}"}) for n in range(100)]
    assert decoded(*records).metadata_text == {n: f"text {n}" for n in range(100)}


def test_the_first_attribute_of_a_name_counts() -> None:
    node = messages().Node(id=1)
    node.attr.add(name="comm_size", int64_val=5)
    node.attr.add(name="comm_size", string_val="ignored")
    assert decoded(node.SerializeToString()).comm_bytes.tolist() == [5]


def test_lists_of_tensors_are_kept_as_written() -> None:
    records = []
    for number in (9, 3, 5):
        node = messages().Node(id=number)
        node.attr.add(name="outputs").string_list.values.extend([f"t{number}", "007"])
        if number != 5:
            node.attr.add(name="inputs").string_list.values.extend([])
        records.append(node.SerializeToString())
    lists = decoded(*records).tensors
    assert lists.texts == ("t3", "007", "t5", "t9")
    assert lists.row.tolist() == [0, 0, 1, 2, 2]
    assert lists.is_output.tolist() == [False, True, True, False, True]
    assert lists.start.tolist() == [0, 0, 2, 4, 4, 6]
    assert lists.words.tolist() == [0, 1, 2, 1, 3, 1]


def test_many_long_lists_of_tensors_fit() -> None:
    records = []
    for number in range(200):
        node = messages().Node(id=number)
        names = [word for tensor in range(number) for word in (f"t{tensor}", "8")]
        node.attr.add(name="inputs").string_list.values.extend(names)
        records.append(node.SerializeToString())
    lists = decoded(*records).tensors
    assert len(lists.words) == 199 * 200
    assert [lists.texts[word] for word in lists.words[-4:]] == ["t197", "8", "t198", "8"]
    assert set(lists.texts) == {"8", *(f"t{tensor}" for tensor in range(199))}


# ---- refusals: cause, place, remedy


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (attribute("comm_size", double_val=1.5), ["'comm_size'", 'node 7 "seven"', "double_val", "integer"]),
        (attribute("num_ops", float_val=2.0), ["'num_ops'", "float_val"]),
        (attribute("comm_tag", string_val="3"), ["'comm_tag'", "string_val"]),
        (attribute("pg_name", int64_val=3), ["'pg_name'", "int64_val", "string_val"]),
        (attribute("involved_dim", bool_val=True), ["'involved_dim'", "bool_val", "bool_list"]),
        (attribute("inputs", string_val="x"), ["'inputs'", "string_val", "string_list"]),
        (attribute("outputs", int64_list={"values": [3]}), ["'outputs'", "int64_list", "string_list"]),
        (node_bytes(id=1) + delimited(10, b"\x0a\x06inputs\xf2\x01\x03\x0a\x01\xff"), ["tensor", "UTF-8"]),
        (node_bytes(id=1) + delimited(10, b"\x0a\x06inputs\xf2\x01\x03\x0a\x05x"), ["past the end"]),
        (attribute("comm_size"), ["'comm_size'", "no value"]),
        (attribute("comm_size", int64_val=-4), ["'comm_size'", "-4", "between 0 and 2^63 - 1"]),
        (attribute("tensor_size", uint64_val=2**63), ["'tensor_size'", str(2**63)]),
        (attribute("comm_src", int64_val=2**31), ["'comm_src'", str(2**31), "2^31 - 1"]),
        (attribute("involved_dim", bool_list={"values": [True] * 65}), ["'involved_dim'", "64"]),
        (node_bytes(id=1, name="odd", type=256), ['node 1 "odd"', "type 256"]),
        (node_bytes(id=1, name="long", duration_micros=2**63), ['node 1 "long"', "duration"]),
        (node_bytes(id=1, name="self", data_deps=[4]), ['node 1 "self"', "node 4", "not in the file"]),
        (node_bytes(id=1) + b"\x0b\x0c", ["group"]),
        (node_bytes(id=1) + b"\x0e", ["wire type"]),
        (node_bytes(id=1) + b"\x00", ["impossible number"]),
        (node_bytes(id=1) + b"\x3a\x05abc", ["past the end"]),
        (node_bytes(id=1) + b"\x38" + b"\xff" * 10, ["longer than 10 bytes"]),
        (node_bytes(id=1) + b"\x38\xff", ["cut off"]),
        (node_bytes(id=1) + b"\x12\x02\xff\xfe", ["node name", "UTF-8", "byte 13"]),
    ],
)
def test_a_bad_node_is_refused_with_its_place(record: bytes, words: list[str]) -> None:
    with pytest.raises(TraceError) as caught:
        decoded(record)
    message = str(caught.value)
    assert message.startswith("file.0.et")
    assert caught.value.remedy
    for word in words:
        assert word in message


def test_a_duplicate_id_is_refused() -> None:
    with pytest.raises(TraceError, match=r"node id 4 occurs twice: records 1 and 3"):
        decoded(node_bytes(id=4), node_bytes(id=2), node_bytes(id=4))


def test_dangling_dependencies_can_be_dropped_and_are_counted() -> None:
    content = framed(
        HEADER, node_bytes(id=1, ctrl_deps=[0]), node_bytes(id=2, data_deps=[1, 8], ctrl_deps=[1])
    )
    with pytest.raises(TraceError, match=r"1 more dependencies like it\).*et-convert repair"):
        decode(content)
    trace = decode(content, drop_dangling=True)
    assert trace.dropped_dependencies == 2
    assert trace.data_start.tolist() == [0, 0, 1]
    assert trace.ctrl_deps.tolist() == [0]


def test_too_many_attribute_names_are_refused() -> None:
    node = messages().Node()
    for number in range(5000):
        node.attr.add(name=f"name{number}")
    with pytest.raises(TraceError, match="4096 different attribute names"):
        decoded(node.SerializeToString())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b'{"workload_graph": []}', "JSON"),
        (b"MICRO\n1\nlayer 0 -1 5 NONE\n", "plain text"),
        (b"PK\x03\x04" + bytes(30), "zip archive"),
        (b"\x7fELF" + bytes(300), "a program"),
        (framed(HEADER)[:-2], "longer than the 5 bytes left"),
        (framed(node_bytes(id=1, name="first", type=4)), "before schema 0.0.4"),
        (framed(node_bytes(name="first")), "before schema 0.0.4"),
        (framed(delimited(1, b"\x0a\x06schema\x48\x01")), "before schema 0.0.4"),
        (framed(delimited(1, b"\xff\xfe")), "before schema 0.0.4"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(TraceError) as caught:
        decode(content, "some/file.0.et")
    assert words in str(caught.value)
    assert str(caught.value).startswith("some/file.0.et")
    assert caught.value.remedy


# ---- modes of running

UNCOMPILED = """
import sys, pickle, dataclasses
from et_sim.trace.wire import decode
traces = [decode(open(path, "rb").read()) for path in sys.argv[1:]]
fields = type(traces[0]).__struct_fields__
assert "llvmlite" not in sys.modules
pickle.dump([{name: getattr(trace, name) for name in fields} for trace in traces], sys.stdout.buffer)
"""


@pytest.mark.deep
def test_uncompiled_code_gives_the_same_columns(tmp_path: Path) -> None:
    import pickle

    from et_sim.trace.columns import Trace

    build = TraceBuilder()
    ids = [build.compute(f"step {n} of a longer name", micros=n, num_ops=n << 40) for n in range(30)]
    build.collective("all_gather", 1 << 33, "tp", after=ids, involved_dims=[True, False], priority=-3)
    build.compute("with tensors", inputs={"x": 3, "y": 4}, outputs={"x": 3})
    own = tmp_path / "own.et"
    own.write_bytes(encode_trace(build.build()))
    paths = [own, *golden_files]
    environment = {**os.environ, "ET_SIM_COMPILE": "never"}
    command = [sys.executable, "-W", "error", "-c", UNCOMPILED, *map(str, paths)]
    output = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    for path, columns in zip(paths, pickle.loads(output), strict=True):
        assert_same_trace(decode(path.read_bytes()), Trace(**columns))


def test_importing_the_package_loads_neither_numba_nor_protobuf() -> None:
    code = "import sys, et_sim.trace; sys.exit('numba' in sys.modules or 'google.protobuf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_small_files_take_no_memory_for_unused_attributes() -> None:
    several = [TraceBuilder() for _ in range(3)]
    for micros, builder in enumerate(several):
        builder.compute("kernel", micros=micros, num_ops=7)
    traces = decode_several([encode_trace(builder.build()) for builder in several], ["a", "b", "c"]).traces
    assert [trace.num_ops.tolist() for trace in traces] == [[7]] * 3
    for trace in traces:
        assert np.shares_memory(trace.stream, trace.comm_bytes)
        assert not np.shares_memory(trace.stream, trace.num_ops)
        assert trace.num_ops.base.nbytes == 3 * 8
