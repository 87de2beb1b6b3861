"""`et-convert unjson` and back: the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from others_files import PATHS, PYTORCH, REPOSITORY, content_of, without_dangling

from converters.cli import main
from converters.json_lines import as_lines
from converters.json_traces import convert
from converters.records import frame, frame_bytes
from et_sim.trace import Workload, decode, write_workload
from et_sim.trace.schema import messages

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


def test_what_json_lines_cannot_hold_is_counted() -> None:
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
