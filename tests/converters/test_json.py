"""`et-convert json`, nothing left out silently, and `unjson` and back: the same bytes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from others_files import PATHS, PYTORCH, REPOSITORY, content_of, without_dangling

from converters.cli import main
from converters.json_lines import as_lines, node_object
from converters.json_traces import convert
from converters.records import frame, frame_bytes, parse, split
from et_sim.basics.errors import TraceError
from et_sim.trace import NodeKind, Workload, decode, read_trace, read_workload, write_workload
from et_sim.trace.schema import messages

DATA = Path(__file__).parent / "data"
LINES_HEADER = '{"et_sim_trace": 1}\n'

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(text: str) -> Path:
        path = tmp_path / "in.json"
        path.write_text(text, encoding="utf-8")
        return path

    return _write


def jsonized(content: bytes) -> str:
    from google.protobuf.json_format import MessageToJson

    return "".join(MessageToJson(message) for message in parse(split(content), "a file"))


# ---- protobuf JSON


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_protobuf_json_gives_the_file_it_was_made_from(path: Path, write: Write) -> None:
    content = content_of(path)
    converted = convert(write(jsonized(content)), drop_dangling=True)
    assert converted.flavour == "protobuf JSON"
    # Messages, not bytes: some of these writers put fields in an order of their own.
    assert list(parse(split(converted.content), "new")) == list(
        parse(split(without_dangling(content)), "old")
    )


def test_protobuf_json_may_be_an_array_or_lines_and_compressed(tmp_path: Path, write: Write) -> None:
    nodes = [{"version": "0.0.4"}, {"name": "a", "type": "COMP_NODE", "durationMicros": "5"}]
    expected = convert(write(json.dumps(nodes))).content
    assert convert(write("\n".join(map(json.dumps, nodes)))).content == expected
    packed = tmp_path / "in.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(nodes).encode()))
    assert convert(packed).content == expected


def test_defaults_that_protobuf_omits_are_defaults(write: Write) -> None:
    trace = convert_to_trace(write('{}{"name": "first"}{"id": "7", "dataDeps": ["0"]}'))
    assert trace.node_id.tolist() == [0, 7]
    assert trace.kind.tolist() == [NodeKind.INVALID] * 2
    assert trace.data_deps.tolist() == [0]


def test_a_missing_metadata_record_is_added_and_reported(write: Write) -> None:
    report = convert(write('{"name": "a", "type": "COMP_NODE"}')).report
    assert report.notes == (("added", "an empty GlobalMetadata record, which the file lacks"),)


def test_keys_that_the_schema_lacks_are_counted_at_any_depth(write: Write) -> None:
    odd = {"name": "a", "type": 4, "color": 1, "attr": [{"name": "x", "int64Val": "1", "unit": "B"}]}
    text = json.dumps({"version": ""}) + json.dumps(odd) + json.dumps({**odd, "id": 1, "dataDep": [0]})
    assert convert(write(text)).report.notes == (
        ("ignored", 'unknown key "color", 2 times, first in node 0 "a"'),
        ("ignored", 'unknown key "dataDep", in node 1 "a"; did you mean \'dataDeps\'?'),
        ("ignored", 'unknown key "unit", 2 times, first in node 0 "a"'),
        ("kept, unused", "x (2 nodes)"),
    )


def test_newer_node_types_are_read_by_name_and_number_in_every_flavour(write: Write) -> None:
    protobuf = """{}{"id": 1, "type": "STORAGE_NODE"}{"id": 2, "type": 9}{"id": 3, "type": "CHECKPOINT_NODE"}
        {"id": 4, "type": 77}"""
    numbered = [{"Id": at, "NodeType": number} for at, number in enumerate((8, 9, 10, 77), 1)]
    feeder = json.dumps({"workload_graph": numbered})
    ours = LINES_HEADER + "".join(
        f'{{"id": {at}, "kind": "{name}"}}' for at, name in enumerate(("STORAGE", "BATCH", "CHECKPOINT"), 1)
    )
    for text in (protobuf, feeder, ours + '{"id": 4, "kind": "TYPE_77"}'):
        converted = convert(write(text))
        assert converted.report.nodes == {"STORAGE": 1, "BATCH": 1, "CHECKPOINT": 1, "TYPE_77": 1}
        assert convert_to_trace(write(text)).kind.tolist() == [8, 9, 10, 77]


def test_json_lines_keep_the_content_of_a_storage_node(write: Write) -> None:
    node = messages().Node(id=3, type=8, storage_bytes=b"\x08\x01")
    line = json.dumps(node_object(node))
    assert json.loads(line) == {"id": 3, "kind": "STORAGE", "storage": "CAE="}
    [_, again] = parse(split(convert(write(LINES_HEADER + line)).content), "new")
    assert again == node


# ---- workload_graph


def test_the_feeders_sample_becomes_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    status = main(
        ["json", str(DATA / "workload_graph.json"), "--ranks", "8", "--drop-dangling", "-o", str(out)]
    )
    assert status == 0
    workload = read_workload(out)
    assert workload.ranks == 8
    assert len(workload.templates) == 1
    trace = workload.trace(7)
    assert trace.node_id.tolist() == [216, 217, 430, 432, 433, 435, 541]
    assert trace.duration_us.tolist() == [318, 28, 4, 85, 79, 28, 153]
    assert trace.is_cpu.tolist() == [True, True, False, True, True, False, True]
    assert trace.node_id[trace.parents(5)].tolist() == [216, 217, 432]
    printed = capsys.readouterr().out
    for words in (
        "7 in each file: 4 COMP, 3 COLL",
        "7 control dependencies on nodes that are not in the file: 3 (5), 429 (1), 434 (1)",
        "runtime taken as microseconds",
        "ngpus 8",
        "comm_type on 3 COLL nodes",
        "2 communication nodes with is_cpu_op set",
    ):
        assert words in printed


def test_all_attributes_of_the_feeders_flavour_arrive(write: Write) -> None:
    nodes = [
        {"Id": 1, "NodeType": 7, "comm_type": 2, "comm_size": 64, "comm_priority": 3, "is_cpu_op": False},
        {"Id": 2, "NodeType": 5, "comm_size": 8, "comm_dst": 1, "comm_tag": 4, "ctrlDeps": [1]},
        {"Id": 3, "NodeType": 6, "comm_size": 9, "comm_src": 0, "comm_tag": 5, "runtime": 2.6},
        {"Id": 4, "NodeType": 2, "tensor_size": 100, "is_cpu_op": 1},
    ]
    converted = convert(write(json.dumps({"workload_graph": nodes, "color": 1})))
    trace = to_trace(converted.content)
    assert trace.comm_type.tolist()[0] == 2
    assert trace.comm_bytes.tolist() == [64, 8, 9, 0]
    assert trace.comm_priority.tolist()[0] == 3
    assert trace.comm_tag.tolist() == [0, 4, 5, 0]
    assert (trace.comm_dst[1], trace.comm_src[2]) == (1, 0)
    assert trace.tensor_bytes.tolist() == [0, 0, 0, 100]
    assert trace.ctrl_deps.tolist() == [0]
    assert trace.duration_us.tolist() == [0, 0, 3, 0]
    assert converted.report.operations == {"all_gather": (1, 64), "send": (1, 8), "receive": (1, 9)}
    assert [note for note in converted.report.notes if note[0] != "units"] == [
        ("rounded", "runtime to whole microseconds, in node 3"),
        ("ignored", 'unknown key "color", in the file\'s own object'),
    ]


# ---- refusals


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["no JSON object"]),
        ('{"version": ""}{"name": ', ["line 1", "is not JSON"]),
        ("[1, 2]", ["holds 1 where an object"]),
        ("9" * 5000, ["usable JSON"]),
        ("[" * 200_000, ["JSON"]),
        ('{}{"name": "a", "\\ud800": 1}', ["half of a character"]),
        (LINES_HEADER + '{"id": 1, "kind": "' + "x" * 500 + '"}', ["node 1: unknown node type 'xxx", "…"]),
        ('{"traceEvents": []}', ["Kineto"]),
        ('{"schema": "1.1.1", "nodes": []}', ["PyTorch"]),
        ('{"graph": 1}', ["unknown flavour", "graph", "known flavours"]),
        (
            '{}{"id": 3, "name": "n", "type": "COMM_COL_NODE"}',
            ['node 3 "n"', "COMM_COL_NODE", "did you mean"],
        ),
        ('{}{"id": 3, "type": 900}', ["node 3", "unknown node type 900"]),
        ('{}{"id": "x"}', ["node x", "Failed to parse"]),
        ('{}{"id": 1}{"id": 1}', ["node id 1 occurs twice: records 1 and 2"]),
        ('{}{"id": 1, "dataDeps": [5]}', ["node 1", "data dependency on node 5", "--drop-dangling"]),
        (
            '{}{"id": 1, "attr": [{"name": "comm_size", "doubleVal": 1.5}]}',
            ["'comm_size'", "node 1", "double_val"],
        ),
        ('{"workload_graph": 1}', ["not a list"]),
        ('{"workload_graph": [1]}', ["nodes as objects"]),
        ('{"workload_graph": []}{}', ["another object"]),
        ('{"workload_graph": [{"Id": 1}]}', ["node 1", "NodeType is missing"]),
        ('{"workload_graph": [{"NodeType": 4}]}', ["Id is missing"]),
        ('{"workload_graph": [{"Id": 1, "NodeType": -1}]}', ["node 1", "unknown node type -1"]),
        ('{"workload_graph": [{"Id": -1, "NodeType": 4}]}', ["Id is -1", "between 0 and"]),
        ('{"workload_graph": [{"Id": 1, "NodeType": 4, "runtime": "soon"}]}', ["runtime is 'soon'"]),
        ('{"workload_graph": [{"Id": 1, "NodeType": 4, "data_deps": 3}]}', ["data_deps is 3", "list"]),
        ('{"workload_graph": [{"Id": 1, "NodeType": 7, "comm_type": "ALL_REDUCED"}]}', ["ALL_REDUCE'"]),
        ('{"workload_graph": [{"Id": 1, "NodeType": 7, "comm_size": -4}]}', ["comm_size", "-4"]),
        ('{"et_sim_trace": 2}', ["et_sim_trace is 2"]),
        (LINES_HEADER + '{"id": 1, "kind": "COMP", "attr": [["x", "int46_val", 1]]}', ["int64_val"]),
        (LINES_HEADER + '{"id": 1, "kind": "COMP", "attr": [["x", 1]]}', ["[name, kind, value]"]),
        (LINES_HEADER + '{"id": 1, "kind": "COMP", "name": 5}', ["name is 5", "text"]),
        (LINES_HEADER + '{"id": 1, "kind": "COMP", "inputs": 5}', ["inputs is 5"]),
        (LINES_HEADER + '{"id": 1, "kind": "COMP", "attr": [["x", "float_val", 1e300]]}', ["x is 1e+300"]),
        (LINES_HEADER + '{"id": 1, "kind": "COMP", "attr": [["x", "bytes_val", "?"]]}', ["base64"]),
    ],
)
def test_unsupported_input_is_refused_with_its_place(text: str, words: list[str], write: Write) -> None:
    with pytest.raises(TraceError) as caught:
        convert(write(text))
    message = str(caught.value)
    assert message.startswith(str(write(text)))
    assert caught.value.remedy
    for word in words:
        assert word in message


def test_no_file_is_written_if_an_input_is_refused(
    tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    good = str(DATA / "workload_graph.json")
    arguments = ["json", good, str(write("{")), "--drop-dangling", "-o", str(tmp_path / "out")]
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("et-convert: error: ")
    assert not list(tmp_path.glob("*.et"))


def test_ranks_must_fit_the_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = [str(DATA / "workload_graph.json")] * 2
    for ranks in ("3", "0"):
        assert main(["json", *inputs, "--ranks", ranks, "-o", str(tmp_path / "out")]) == 2
    assert "2 inputs for 3 ranks" in capsys.readouterr().err


def test_an_input_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.0.et"
    path.write_text('{}{"name": "n"}')
    assert main(["json", str(path), "-o", str(tmp_path / "a")]) == 2
    assert "would be overwritten" in capsys.readouterr().err
    assert path.read_text() == '{}{"name": "n"}'


# ---- reports


def test_inputs_with_equal_reports_share_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = []
    for rank, micros in enumerate((1, 2, 3)):
        path = tmp_path / f"in{rank}.json"
        node = {"Id": 1, "NodeType": 4, "runtime": micros}
        path.write_text(json.dumps({"workload_graph": [node]}))
        inputs.append(str(path))
    assert main(["json", *inputs, "-o", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0] == (
        f"{inputs[0]} to {inputs[2]} (3) (JSON workload_graph)"
        f" -> {tmp_path}/out.0.et to {tmp_path}/out.2.et (3)"
    )
    assert [read_trace(tmp_path / f"out.{rank}.et").duration_us[0] for rank in range(3)] == [1, 2, 3]


def test_the_report_is_also_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = str(DATA / "workload_graph.json")
    assert main(["json", sample, "--drop-dangling", "--json", "-o", str(tmp_path / "out")]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert file["nodes"] == {"COMP": 4, "COLL": 3}
    assert file["operations"] == {"no comm_type": {"nodes": 3, "bytes": 0}}
    assert file["outputs"] == [str(tmp_path / "out.0.et")]


# ---- any input at all

KEYS = [
    *("id", "name", "type", "kind", "attr", "dataDeps", "data_deps", "ctrl_deps", "version", "inputs"),
    *("workload_graph", "et_sim_trace", "Id", "NodeType", "runtime", "duration_us", "comm_type", "values"),
]
PLAIN = st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=3) | st.just("COMP")
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=2), inner)
    ),
    max_leaves=12,
)
FIRST = st.sampled_from([{}, {"version": "1"}, {"et_sim_trace": 1}, {"workload_graph": []}])


@given(st.tuples(FIRST, st.lists(st.dictionaries(st.sampled_from(KEYS), VALUES), max_size=3)))
def test_any_json_gives_a_trace_or_a_trace_error(
    tmp_path_factory: pytest.TempPathFactory, document: tuple[dict[str, Any], list[Any]]
) -> None:
    first, rest = document
    path = tmp_path_factory.mktemp("any") / "in.json"
    if "workload_graph" in first:
        path.write_text(json.dumps({"workload_graph": rest}))
    else:
        path.write_text("".join(map(json.dumps, [first, *rest])))
    try:
        converted = convert(path, drop_dangling=True)
    except TraceError:
        return
    to_trace(converted.content)


def to_trace(content: bytes) -> Any:
    from et_sim.trace import decode

    return decode(content)


def convert_to_trace(path: Path) -> Any:
    return to_trace(convert(path).content)


def test_names_in_messages_are_those_of_the_schema() -> None:
    from converters.json_values import node_kind

    descriptor = messages().Node.DESCRIPTOR.fields_by_name["type"].enum_type
    assert [node_kind(value.name) for value in descriptor.values] == list(range(11))


SAMPLES = [*PATHS, *sorted((REPOSITORY / "traces").rglob("*.et"))]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_every_sample_trace_comes_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    assert main(["unjson", str(path), "-o", str(tmp_path / "lines")]) == 0
    flags = ["--drop-dangling"] if path == PYTORCH else []
    assert main(["json", str(tmp_path / "lines.0.jsonl"), "-o", str(tmp_path / "back"), *flags]) == 0
    back = (tmp_path / "back.0.et").read_bytes()
    assert back == (without_dangling(content_of(path)) if path == PYTORCH else content_of(path))


def test_all_ranks_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_workload(Workload.of([decode(content_of(PATHS[0]))] * 3), tmp_path / "job")
    assert main(["unjson", str(tmp_path / "job"), "-o", str(tmp_path / "job")]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path}/job.0.et to {tmp_path}/job.2.et (3) (JSON lines)")
    lines = (tmp_path / "job.2.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["et_sim_trace"] == 1


def test_a_manifest_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.workload.json").write_text("{}", encoding="utf-8")
    assert main(["unjson", str(tmp_path / "x.workload.json"), "-o", str(tmp_path / "y")]) == 2
    assert "et-convert: error: " in capsys.readouterr().err


ATTRIBUTES = (
    ("is_cpu_op", "bool_val", st.booleans()),
    ("comm_type", "int64_val", st.integers(0, 12)),
    ("comm_size", "int64_val", st.integers(0, 2**40)),
    ("comm_size", "uint64_val", st.integers(0, 2**40)),
    ("duration_ns", "int64_val", st.integers(0, 2**60)),
    ("pg_name", "string_val", st.text(max_size=3)),
    ("rf_id", "int64_val", st.integers(-(2**63), 2**63 - 1)),
    ("weight", "float_val", st.floats(width=32, allow_nan=False)),
    ("other", "double_val", st.floats(allow_nan=False)),
    ("blob", "bytes_val", st.binary(max_size=3)),
)


@given(st.data())
def test_attributes_come_back_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    node = messages().Node(id=data.draw(st.integers(0, 2**64 - 1)), type=data.draw(st.integers(1, 7)))
    for name, member, values in data.draw(st.lists(st.sampled_from(ATTRIBUTES), max_size=6)):
        attribute = node.attr.add(name=name)
        setattr(attribute, member, data.draw(values))
        attribute.doc_string = data.draw(st.sampled_from(["", "", "why"]))
    content = frame([messages().GlobalMetadata(version="x"), node])
    text, spelling = as_lines(content, "random")
    file = tmp_path_factory.getbasetemp() / "random.jsonl"
    file.write_bytes(text)
    assert convert(file).content == content
    assert list(spelling.notes()) == []


def test_fields_that_json_lines_cannot_hold_are_counted() -> None:
    plain = messages().Node(id=1, type=4, name="a").SerializeToString(deterministic=True)
    turned = plain[2:] + plain[:2]  # the same fields, the name first
    unknown = plain + bytes([15 << 3, 1])
    header = b""
    _, spelling = as_lines(frame_bytes([header, plain]), "f")
    assert list(spelling.notes()) == []
    _, spelling = as_lines(frame_bytes([header, turned, unknown, unknown]), "f")
    assert (spelling.unusual, spelling.unknown) == (1, 2)
    assert [label for label, _ in spelling.notes()] == ["spelling", "lost"]


@pytest.mark.parametrize(
    ("attr", "sentence"),
    [
        ('["comm_size"]', "attr names the key 'comm_size', which is not there"),
        ('["is_cpu_op", "is_cpu_op"]', "attr names the key 'is_cpu_op', which comes twice"),
    ],
)
def test_names_of_keys_out_of_place_are_checked(
    attr: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = f'{{"id": 1, "kind": "COMP", "is_cpu_op": true, "attr": {attr}}}'
    (tmp_path / "a.jsonl").write_text(f'{{"et_sim_trace": 1}}\n{node}\n', encoding="utf-8")
    assert main(["json", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / "b")]) == 2
    assert sentence in capsys.readouterr().err
