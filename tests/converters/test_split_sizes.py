"""Bytes that an all-to-all sends to each member, through the converters."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pytorch_cases import FOLDER

from converters.cli import main
from converters.pytorch.communication import ArgumentValues, Communication, from_nccl, from_record
from et_sim.trace import GroupRule, TraceBuilder, Workload, read_trace, read_workload, write_manifest
from et_sim.trace import write_workload as write
from et_sim.trace.group_attributes import split_text
from et_sim.trace.preflight import find_problems

ROWS = ([0, 96, 1664], [5, 0, 0], [240, 240, 240])


pytestmark = pytest.mark.usefixtures("in_a_folder")


def record(in_splits: list[int], out_splits: list[int], in_bytes: int, out_bytes: int = 64) -> Communication:
    """Return a communication as execution traces hold it."""
    values = [[1], 150, 0, 0, "all_to_allv", in_splits, out_splits]
    types = ["Tensor(int)", "Int", "Int", "Int", "String", "GenericList[Int]", "GenericList[Int]"]
    result = from_record(ArgumentValues(values, types, {0: in_bytes}, out_bytes), {"pg_size": 3})
    assert result is not None
    return result


def test_split_sizes_of_a_record_are_bytes_by_the_size_of_its_tensor() -> None:
    assert record([96, 224, 288], [96, 96, 96], 4 * 608).split_bytes == (384, 896, 1152)
    assert record([3, 0, 1], [2, 1, 1], 4 * 128 * 2).split_bytes == (768, 0, 256)  # rows of 64 floats
    assert record([], [7, 1, 1], 3000).split_bytes == (1000, 1000, 1000)  # in equal parts


def test_a_rank_may_send_zero_bytes() -> None:
    recording = record([0, 0, 0], [4, 0, 0], 0)
    assert recording.split_bytes == (0, 0, 0)
    assert (recording.comm_bytes, recording.is_unsized) == (0, False)


def test_split_sizes_that_do_not_add_up_are_left_out() -> None:
    assert record([1, 2], [1, 1], 12).split_bytes == ()  # of a group of three
    assert record([1, 2, 4], [1, 1, 1], 12).split_bytes == ()
    assert record([], [], 12).split_bytes == ()
    cut_short = {
        "operation": "all_to_allv", "dtype": "Int", "in_elements": 8, "out_elements": 8, "group_size": 3,
        "group_name": "", "group_ranks": "", "rank_start": -1, "rank_stride": -1, "source": -1,
        "destination": -1, "in_splits": "[1, 2, ...]", "out_splits": "[1, 2, ...]",
    }  # fmt: skip
    result = from_nccl(cut_short)
    assert result is not None
    assert result.split_bytes == ()


def test_a_recorded_all_to_all_keeps_its_splits() -> None:
    assert main(["pytorch", str(FOLDER / "dlrm_8r" / "et_0.json.gz"), "-o", "rank.0.et"]) == 0
    trace = read_trace("rank.0.et")
    assert "384 896 1152 6656 2368 384 768 960" in trace.split_texts  # ints
    uneven = trace.splits == trace.split_texts.index("384 896 1152 6656 2368 384 768 960")
    assert trace.comm_bytes[uneven].tolist() == [13_568]


def exchange(group: str = "") -> list[TraceBuilder]:
    builders = [TraceBuilder() for _ in ROWS]
    for build, row in zip(builders, ROWS, strict=True):
        build.collective("all_to_all", splits=row, group=group)
    return builders


def test_splits_survive_json_repair_and_expansion(capsys: pytest.CaptureFixture[str]) -> None:
    workload = Workload.of([build.build() for build in exchange()])
    write(workload, "step")
    assert find_problems(workload) == []
    assert main(["repair", "step", "-o", "even", "--even-sizes"]) == 0
    for rank, row in enumerate(ROWS):
        capsys.readouterr()
        assert main(["show", f"step.{rank}.et"]) == 0
        assert f"in shares of {split_text(row)} bytes" in capsys.readouterr().out
        assert main(["show", f"step.{rank}.et", "--json"]) == 0
        lines = capsys.readouterr().out
        assert json.loads(lines.splitlines()[1])["comm_split_sizes"] == split_text(row)
        Path(f"{rank}.jsonl").write_text(lines)
        assert Path(f"even.{rank}.et").read_bytes() == Path(f"step.{rank}.et").read_bytes()
    assert main(["json", "0.jsonl", "1.jsonl", "2.jsonl", "-o", "again"]) == 0
    assert Path("again.2.et").read_bytes() == Path("step.2.et").read_bytes()


def test_groups_by_rule_expand_with_splits() -> None:
    traces = tuple(build.build() for build in exchange("experts"))
    workload = Workload(
        traces, np.arange(6, dtype=np.int32) % 3, group_rules={"experts": GroupRule(3)}, profile="corrected"
    )
    write_manifest(workload, "experts.workload.json")
    assert main(["expand", "experts.workload.json", "-o", "all"]) == 0
    whole = read_workload("all")
    assert [whole.trace(rank).split_texts[1] for rank in range(6)] == [split_text(row) for row in ROWS] * 2


def test_a_group_with_splits_does_not_grow(capsys: pytest.CaptureFixture[str]) -> None:
    write(Workload.of([build.build() for build in exchange()]), "step")
    assert main(["scale", "step", "--replicas", "2", "-o", "bigger"]) == 2
    err = capsys.readouterr().err
    assert "comm_split_sizes" in err
    assert "--replicas with --keep-groups" in err
    assert main(["scale", "step", "--replicas", "2", "--keep-groups", "-o", "kept"]) == 0
