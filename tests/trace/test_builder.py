"""Traces built in Python."""

from __future__ import annotations

import numpy as np
import pytest
from trace_oracle import assert_same_trace, written_by_library

from et_sim.basics.errors import TraceError
from et_sim.trace import CollectiveKind, NodeKind, Trace, TraceBuilder, decode, encode_trace
from et_sim.trace.columns import BIT


def everything() -> Trace:
    build = TraceBuilder(version="mine")
    build.metadata("{'groups': []}")
    first = build.compute(
        "first", micros=7, num_ops=10**12, tensor_bytes=4096, outputs={"x": 8, "weights": 9}
    )
    host = build.compute("host", cpu=True, micros=1, ctrl_after=[first])
    loaded = build.load(512, after=[first])
    reduced = build.collective(
        CollectiveKind.ALL_REDUCE, 1 << 20, "dp", involved_dims=[True, False, True], priority=3, after=[host]
    )
    build.send(3, 99, tag=5, after=[reduced, loaded])
    build.receive(source=2, bytes=98, tag=6, node_id=100)
    build.store(17, name="save", inputs={"weights": 17})
    build.invalid("nothing", after=[100])
    return build.build()


def test_each_method_makes_its_kind_of_node_with_its_attributes() -> None:
    trace = everything()
    kinds = [NodeKind(kind).name for kind in trace.kind]
    assert kinds == ["METADATA", "COMP", "COMP", "MEM_LOAD", "COLL", "SEND", "RECV", "MEM_STORE", "INVALID"]
    present = [{name for name, bit in BIT.items() if bits & bit} for bits in trace.present.tolist()]
    assert present[0] == set()
    assert present[1] == {"is_cpu_op", "num_ops", "tensor_size", "outputs"}
    assert present[7] == {"is_cpu_op", "tensor_size", "inputs"}
    assert trace.tensors.texts == ("x", "8", "weights", "9", "17")
    assert trace.tensors.words.tolist() == [0, 1, 2, 3, 2, 4]
    assert present[4] == {"is_cpu_op", "comm_type", "comm_size", "comm_priority", "pg_name", "involved_dim"}
    assert present[5] == {"is_cpu_op", "comm_size", "comm_tag", "comm_dst"}
    assert present[6] == {"is_cpu_op", "comm_size", "comm_tag", "comm_src"}
    assert trace.metadata_text == {0: "{'groups': []}"}
    assert trace.is_cpu.tolist() == [False, False, True] + [False] * 6
    assert (int(trace.involved_dims[4]), int(trace.involved_count[4])) == (0b101, 3)
    assert trace.group_names == ("", "dp")
    assert trace.comm_dst[5] == 3
    assert trace.comm_src[6] == 2


def test_ids_count_up_and_may_be_chosen() -> None:
    assert everything().node_id.tolist() == [0, 1, 2, 3, 4, 5, 100, 101, 102]
    assert everything().parents(5).tolist() == [3, 4]
    assert everything().parents(8).tolist() == [6]


def test_a_dependency_may_be_named_before_its_node_is_made() -> None:
    build = TraceBuilder()
    build.compute("late", node_id=5, after=[2])
    build.compute("early", node_id=2)
    trace = build.build()
    assert trace.node_id.tolist() == [2, 5]
    assert trace.parents(1).tolist() == [0]


def test_a_built_trace_survives_the_file_format() -> None:
    trace = everything()
    assert_same_trace(trace, decode(encode_trace(trace)))
    assert encode_trace(trace) == written_by_library(trace)


def test_empty_columns_have_the_types_of_decoded_ones() -> None:
    empty = TraceBuilder().build()
    assert len(empty) == 0
    assert_same_trace(empty, decode(encode_trace(empty)))


def test_extreme_values_survive_the_file_format() -> None:
    build = TraceBuilder()
    build.collective("barrier", 2**63 - 1, priority=-(2**63), node_id=2**64 - 1, micros=2**63 - 1)
    assert build.send(2**31 - 1, 0, tag=2**40) == 0
    trace = build.build()
    assert trace.node_id.tolist() == [0, 2**64 - 1]
    assert_same_trace(trace, decode(encode_trace(trace)))


def test_a_trace_with_a_negative_size_or_time_cannot_be_written() -> None:
    from msgspec.structs import replace

    trace = everything()
    negative = np.full(len(trace), -1, np.int64)
    with pytest.raises(TraceError, match="column tensor_bytes of node 1"):
        encode_trace(replace(trace, tensor_bytes=negative))
    with pytest.raises(TraceError, match="column duration_us of node 0"):
        encode_trace(replace(trace, duration_us=negative))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda build: build.compute("x", micros=1.5), "micros is 1.5"),
        (lambda build: build.compute("x", micros=-1), "micros is -1"),
        (lambda build: build.compute("x", num_ops=2**63), "num_ops is 9223372036854775808"),
        (lambda build: build.compute(3), "name is 3"),
        (lambda build: build.compute("\ud800"), "UTF-8"),
        (lambda build: build.compute("x", after=7), "after is 7"),
        (lambda build: build.compute("x", after="7"), "after is '7'"),
        (lambda build: build.compute("x", after=[-1]), "after is -1"),
        (lambda build: build.compute("x", node_id="7"), "node_id is '7'"),
        (lambda build: build.collective("all_reduc", 8), "did you mean 'all_reduce'?"),
        (lambda build: build.collective("all_reduce", -8), "comm_bytes is -8"),
        (lambda build: build.collective("all_reduce", 8, involved_dims=[True] * 65), "65 flags"),
        (lambda build: build.collective("all_reduce", 8, 3), "group is 3"),
        (lambda build: build.compute("x", inputs=["a", 1]), "inputs is ['a', 1]"),
        (lambda build: build.compute("x", outputs={"a": 1.5}), "outputs['a'] is 1.5"),
        (lambda build: build.compute("x", outputs={"a": -1}), "outputs['a'] is -1"),
        (lambda build: build.compute("x", outputs={3: 1}), "outputs is 3"),
        (lambda build: build.send(2**31, 8), "comm_dst is 2147483648"),
        (lambda build: (build.compute(node_id=3), build.compute(node_id=3)), "node id 3 is used twice"),
        (lambda build: (build.compute("x", after=[9]), build.build()), "after node 9, which was never made"),
    ],
)
def test_bad_arguments_are_refused(call, words: str) -> None:
    with pytest.raises(TraceError) as caught:
        call(TraceBuilder())
    assert words in str(caught.value)
    assert caught.value.remedy
