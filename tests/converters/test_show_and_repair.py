"""`et-convert show` and `repair`: all content is shown; only dangling dependencies go; sizes become equal."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from others_files import PATHS, PYTORCH, REPOSITORY, content_of, without_dangling

import et_sim
from converters.cli import main
from converters.json_lines import header_object, node_object
from converters.json_traces import convert
from converters.records import frame, parse, split
from et_sim.basics.errors import TraceError
from et_sim.trace import (
    TraceBuilder,
    Workload,
    decode,
    read_trace,
    read_workload,
    write_trace,
    write_workload,
)
from et_sim.trace.preflight import find_problems
from et_sim.trace.schema import ATTRIBUTE_KINDS, messages


@pytest.fixture
def step(tmp_path: Path) -> Path:
    """Write two ranks whose traces use every kind of node."""
    traces = []
    for rank in range(2):
        build = TraceBuilder(version="0.0.4")
        load = build.load(1 << 20, name="weights")
        forward = build.compute("forward", micros=1200, num_ops=5000, tensor_bytes=4096, after=[load])
        host = build.compute("log", micros=3, cpu=True, ctrl_after=[forward])
        build.collective(
            "all_reduce",
            3 << 20,
            "2",
            name="gradients",
            involved_dims=[True, False],
            priority=4,
            after=[forward, load],
            ctrl_after=[host],
        )
        build.send(1 - rank, 512, 7)
        build.receive(1 - rank, 512, 7)
        build.metadata("groups: all")
        traces.append(build.build())
    write_workload(Workload.of(traces), tmp_path / "step")
    return tmp_path / "step"


def test_every_node_is_one_readable_line(step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(step), "--rank", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{step}.1.et, one of 2 ranks: 7 nodes, schema version 0.0.4",
        "id  kind      name         duration  details, dependencies",
        ' 0  MEM_LOAD  "weights"           -  1 MiB',
        ' 1  COMP      "forward"      1.2 ms  4 KiB; operations 5,000; after 0',
        ' 2  COMP      "log"            3 µs  on the CPU; control after 1',
        ' 3  COLL      "gradients"         -  all_reduce 3 MiB in group 2; priority 4; dimensions 1,0;'
        " after 1, 0; control after 2",
        ' 4  SEND      "send"              -  512 B to rank 0; tag 7',
        ' 5  RECV      "receive"           -  512 B from rank 0; tag 7',
        ' 6  METADATA  "metadata"          -  groups: all',
    ]


def test_a_limit_reports_the_number_of_hidden_nodes(step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", f"{step}.0.et", "--limit", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{step}.0.et: 7 nodes, schema version 0.0.4"
    assert len(lines) == 5
    assert lines[-1] == "… 5 more"


def test_long_names_lists_and_strange_characters_stay_on_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = TraceBuilder()
    firsts = [build.compute(f"n{number}") for number in range(10)]
    build.compute("line\nbreak " + "x" * 100, after=firsts)
    write_trace(build.build(), tmp_path / "odd.0.et")
    assert main(["show", str(tmp_path / "odd")]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith('10  COMP  "line\\nbreak xxx')
    assert line.endswith("after 0, 1, 2, 3, 4, 5 and 4 more")
    assert len(line) < 150


def test_dangling_dependencies_are_shown_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = messages().Node(id=1, type=4, ctrl_deps=[0], data_deps=[9])
    node.attr.add(name="rf_id", int64_val=3)
    (tmp_path / "a.0.et").write_bytes(frame([messages().GlobalMetadata(), node]))
    assert main(["show", str(tmp_path / "a")]) == 0
    expected = "1 other attribute; after 9 (not in the file); control after 0 (not in the file)"
    assert capsys.readouterr().out.splitlines()[-1].endswith(expected)


def test_a_trace_that_is_not_there_is_refused(step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        ([f"{step}s"], "did you mean 'step'"),
        ([str(step), "--rank", "2"], "there is no trace of rank 2 (there is one of 2 ranks: 0 to 1)"),
        ([f"{step}.0.et", "--rank", "1"], "is a file, which has no ranks"),
        ([str(step), "--limit", "-1"], "--limit is -1"),
    ):
        assert main(["show", *arguments]) == 2
        assert words in capsys.readouterr().err


# ---- JSON lines


@pytest.mark.parametrize("rank", [0, 1])
def test_json_lines_give_the_same_bytes_back(
    step: Path, rank: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(step), "--rank", str(rank), "--json"]) == 0
    lines = tmp_path / "lines.jsonl"
    lines.write_text(capsys.readouterr().out, encoding="utf-8")
    assert main(["json", str(lines), "-o", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again.0.et").read_bytes() == Path(f"{step}.{rank}.et").read_bytes()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_json_lines_keep_all_content_of_other_writers_files(path: Path, tmp_path: Path) -> None:
    content = content_of(path)
    again = through_lines(content, tmp_path)
    # The JSON form holds attributes in an order of its own.
    assert sorted_attributes(again) == sorted_attributes(without_dangling(content))


def test_a_line_has_the_documented_keys(step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(step), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == {"et_sim_trace": 1, "version": "0.0.4"}
    assert lines[4] == {
        "id": 3,
        "kind": "COLL",
        "name": "gradients",
        "data_deps": [1, 0],
        "ctrl_deps": [2],
        "is_cpu_op": False,
        "comm_type": "ALL_REDUCE",
        "comm_size": 3 << 20,
        "comm_priority": 4,
        "pg_name": "2",
        "involved_dim": [True, False],
    }
    page = (REPOSITORY / "docs" / "converting.md").read_text(encoding="utf-8")
    for key in {key for line in lines for key in line} | {"start_us", "inputs", "outputs", "attr"}:
        assert f"`{key}`" in page


VALUES: dict[str, Any] = {
    # Not a number is not a number: JSON has no place for which one.
    "double": st.floats(allow_nan=False) | st.just(float("nan")),
    "float": st.floats(width=32, allow_nan=False) | st.just(float("nan")),
    "bool": st.booleans(),
    "string": st.text(max_size=4),
    "bytes": st.binary(max_size=4),
    **{f"{sign}{bits}": st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
       for sign in ("int", "sint", "sfixed") for bits in (32, 64)},
    **{f"{sign}{bits}": st.integers(0, 2**bits - 1) for sign in ("uint", "fixed") for bits in (32, 64)},
}  # fmt: skip
UNUSED = st.sampled_from(["rf_id", "shapes", "x"])


@st.composite
def attributes(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(ATTRIBUTE_KINDS))
    attribute = messages().AttributeProto(name=draw(UNUSED), doc_string=draw(st.sampled_from(["", "why"])))
    form = draw(st.sampled_from(["val", "list", "none"]))
    if form == "val":
        setattr(attribute, f"{kind}_val", draw(VALUES[kind]))
    elif form == "list":
        held = getattr(attribute, f"{kind}_list")
        held.SetInParent()
        held.values.extend(draw(st.lists(VALUES[kind], max_size=3)))
    return attribute


@given(st.lists(attributes(), max_size=4), st.integers(0, 2**64 - 1), st.sampled_from([None, 1, 0]))
def test_json_lines_keep_attributes_of_every_kind(
    tmp_path_factory: pytest.TempPathFactory, held: list[Any], start: int, comm_type: int | None
) -> None:
    node = messages().Node(id=2**64 - 1, name="n", start_time_micros=start, outputs={"types": "[]"})
    if comm_type is not None:
        node.attr.add(name="comm_type", uint32_val=comm_type)  # not the kind other tools expect
        node.attr.add(name="comm_type", int64_val=3)  # the first one counts
    node.attr.extend(held)
    header = messages().GlobalMetadata(version="v", attr=held)
    content = frame([header, node])
    assert through_lines(content, tmp_path_factory.mktemp("any")) == content


def test_json_lines_keep_lists_of_tensors(tmp_path: Path) -> None:
    node = messages().Node(id=1, type=4, inputs={"values": "[5]"})
    node.attr.add(name="outputs").string_list.values.extend(["ü", "12", "x", "7.0"])
    node.attr.add(name="inputs").string_list.SetInParent()
    content = frame([messages().GlobalMetadata(version="v"), node])
    assert through_lines(content, tmp_path) == content


def through_lines(content: bytes, folder: Path) -> bytes:
    records = parse(split(content), "a file")
    lines = [json.dumps(header_object(next(records)))]
    lines += [json.dumps(node_object(node)) for node in records]
    path = folder / "lines.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return convert(path, drop_dangling=True).content


def sorted_attributes(content: bytes) -> list[bytes]:
    results = []
    for message in parse(split(content), "a file"):
        held = sorted(message.attr, key=lambda attribute: attribute.SerializeToString())
        del message.attr[:]
        message.attr.extend(held)
        results.append(message.SerializeToString(deterministic=True))
    return results


# ---- repair


def test_a_converted_pytorch_trace_is_repaired_and_keeps_its_attributes(tmp_path: Path) -> None:
    shutil.copy(PYTORCH, tmp_path / "in.0.et.gz")
    assert main(["repair", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    repaired = (tmp_path / "out.0.et").read_bytes()
    assert repaired == without_dangling(content_of(PYTORCH))
    trace = read_trace(tmp_path / "out.0.et")
    assert trace.dropped_dependencies == 0
    assert trace.ignored_attributes["rf_id"] == 1150


def test_control_and_data_dependencies_are_counted_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [messages().Node(id=number, type=4, ctrl_deps=[0], data_deps=[number + 1]) for number in (1, 2)]
    (tmp_path / "in.0.et").write_bytes(frame([messages().GlobalMetadata(), *nodes]))
    arguments = ["repair", str(tmp_path / "in"), "-o", str(tmp_path / "out")]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "2 control and 1 data dependencies on nodes that are not in the file: 0 (2), 3 (1)" in printed
    assert main([*arguments, "--json"]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert file["format"] == "repaired"


def test_a_sound_trace_is_copied_byte_for_byte(
    step: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["repair", str(step), "-o", str(tmp_path / "out")]) == 0
    for rank in range(2):
        assert (tmp_path / f"out.{rank}.et").read_bytes() == Path(f"{step}.{rank}.et").read_bytes()
    assert "(nothing to repair)" in capsys.readouterr().out


def test_traces_are_not_repaired_in_place(step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["repair", str(step), "-o", str(step)]) == 2
    assert "would be overwritten" in capsys.readouterr().err


def test_the_readers_remedy_leads_to_repair() -> None:
    content = frame([messages().GlobalMetadata(), messages().Node(id=1, ctrl_deps=[0])])
    with pytest.raises(TraceError, match="et-convert repair PREFIX -o REPAIRED"):
        decode(content)


# ---- the command line and its page


def test_the_page_shows_the_output_of_repair_for_a_pytorch_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (REPOSITORY / "docs" / "converting.md").read_text(encoding="utf-8")
    match = re.search(r"```text\n\$ et-convert (repair linear -o linear-fixed)\n(.*?)```", page, re.DOTALL)
    assert match
    shutil.copy(PYTORCH, tmp_path / "linear.0.et.gz")
    monkeypatch.chdir(tmp_path)
    assert main(match[1].split()) == 0
    assert capsys.readouterr().out == match[2]


def test_help_loads_neither_numpy_nor_protobuf() -> None:
    code = (
        "import sys; from converters.cli import _parser; _parser().format_help();"
        "print([name for name in ('numpy', 'numba', 'google.protobuf') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.deep
def test_a_reader_that_stops_early_is_no_error(step: Path) -> None:
    command = f'"{sys.executable}" -c "from converters.cli import main; main()" show "{step}" | head -n 1'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_an_uneven_size_is_shown_to_the_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = TraceBuilder()
    build.collective("all_reduce", (1 << 40) + 7)
    write_workload(Workload.of([build.build()]), tmp_path / "odd")
    assert main(["show", f"{tmp_path}/odd.0.et"]) == 0
    assert "all_reduce 1099511627783 B" in capsys.readouterr().out


SIZES = ((100, 300, 7), (200, 300, 9), (150, 300, 8), (50, 300, 9))


@pytest.fixture
def uneven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write four ranks: collectives of all of them, then of halves; only one of the halves has different
    sizes.
    """
    monkeypatch.chdir(tmp_path)
    traces = []
    for rank, (first, second, third) in enumerate(SIZES):
        build = TraceBuilder()
        build.process_groups({"a": [0, 1], "b": [2, 3]})
        build.collective("all_to_all", first)
        build.collective("all_reduce", second)
        build.collective("all_gather", third if rank < 2 else 9, "ab"[rank // 2])
        build.collective("barrier", rank)
        traces.append(build.build())
    write_workload(Workload.of(traces), "uneven")


@pytest.mark.usefixtures("uneven")
def test_the_largest_size_is_everybodys(capsys: pytest.CaptureFixture[str]) -> None:
    assert any(problem.kind == "collective-size" for problem in find_problems(read_workload("uneven")))
    assert main(["repair", "uneven", "-o", "even", "--even-sizes"]) == 0
    printed = capsys.readouterr().out
    assert (
        "note: members gave different sizes to 1 all_gather, 1 all_to_all: now all give the largest"
        in printed
    )
    assert "made even      sizes of 2 collectives" in printed
    even = read_workload("even")
    assert [even.trace(rank).comm_bytes.tolist() for rank in range(4)] == [
        [0, 200, 300, 9, rank] for rank in range(4)
    ]
    assert [problem for problem in find_problems(even) if problem.severity == "error"] == []
    assert Path("even.1.et").read_bytes() == Path("uneven.1.et").read_bytes()


@pytest.mark.usefixtures("uneven")
def test_sizes_alone_are_made_even() -> None:
    assert main(["repair", "uneven", "-o", "even", "--even-sizes"]) == 0
    for rank in range(4):
        pairs = zip(
            parse(split(Path(f"uneven.{rank}.et").read_bytes()), "old"),
            parse(split(Path(f"even.{rank}.et").read_bytes()), "new"),
            strict=True,
        )
        for old, new in pairs:
            for node in (old, new):
                for attribute in node.attr:
                    if attribute.name == "comm_size":
                        attribute.int64_val = 0
            assert old == new


@pytest.mark.usefixtures("uneven")
def test_without_the_option_sizes_stay(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["repair", "uneven", "-o", "same"]) == 0
    assert "(nothing to repair)" in capsys.readouterr().out
    for rank in range(4):
        assert Path(f"same.{rank}.et").read_bytes() == Path(f"uneven.{rank}.et").read_bytes()


@pytest.mark.usefixtures("warm_engine", "uneven")
def test_equalised_collectives_run() -> None:
    assert main(["repair", "uneven", "-o", "even", "--even-sizes"]) == 0
    system = {
        "scheduling-policy": "FIFO",
        "all-reduce-implementation": ["ring"],
        "all-gather-implementation": ["ring"],
        "all-to-all-implementation": ["direct"],
        "local-mem-bw": 50,
        "profile": "corrected",
    }
    network = {"topology": ["Switch"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
    assert et_sim.simulate("even", system=system, network=network).makespan_ns > 0
