"""`et-sim compare` of two workloads counts the operations of each, and shows differences."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import et_sim
from et_sim.cli import main

PLAN = [
    "--layers",
    "2",
    "--hidden",
    "256",
    "--sequence",
    "128",
    "--vocabulary",
    "1024",
    "--micro-batches",
    "1",
]


def _made(name: str, *more: str) -> str:
    assert main(["make", "transformer", *PLAN, "-o", name, "--manifest", *more]) == 0
    return f"{name}.workload.json"


def _compared(
    capsys: pytest.CaptureFixture[str], a: str, b: str
) -> dict[tuple[str, int | None], dict[str, dict[str, int]]]:
    capsys.readouterr()
    assert main(["compare", a, b, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    return {(work.pop("kind"), work.pop("members")): work for work in data["work"]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_workload_equals_itself(capsys: pytest.CaptureFixture[str]) -> None:
    made = _made("a", "--tp", "2")
    assert not _compared(capsys, made, made)
    assert main(["compare", made, made]) == 0
    assert "the same work: as many nodes, operations and bytes of every kind" in capsys.readouterr().out


def test_replicas_add_their_collectives_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    """Compare with twice the ranks and the same batch each: sums over ranks double, averages stay."""
    small, large = _made("a", "--tp", "2", "--dp", "1"), _made("b", "--tp", "2", "--dp", "2")
    result = _compared(capsys, small, large)
    reduced = result.pop(("all_reduce", 2))
    assert reduced["count"]["b"] > 2 * reduced["count"]["a"]
    assert all(work[figure]["b"] == 2 * work[figure]["a"] for work in result.values() for figure in work)
    assert main(["compare", small, large]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "→" in line and "average" not in line] == ["all_reduce"]


def test_deeper_models_have_the_operations_of_their_layers(capsys: pytest.CaptureFixture[str]) -> None:
    shallow, deep, deeper = (_made(str(layers), "--layers", str(layers)) for layers in (2, 3, 4))
    once, twice = (_compared(capsys, shallow, other)["gemm", None]["operations"] for other in (deep, deeper))
    assert twice["b"] - twice["a"] == 2 * (once["b"] - once["a"]) > 0


def test_the_size_of_groups_in_files_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    manifest = _made("a", "--tp", "2")
    assert main(["make", "transformer", *PLAN, "--tp", "2", "-o", "files", "--files"]) == 0
    result = _compared(capsys, manifest, "files")
    assert result.keys() == {("all_reduce", 2), ("all_reduce", None)}
    known, unknown = result["all_reduce", 2], result["all_reduce", None]
    assert {name: known[name]["a"] for name in known} == {name: unknown[name]["b"] for name in unknown}


def test_collectives_of_unknown_types_are_counted_by_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    build = et_sim.TraceBuilder()
    build.collective("all_reduce", 1024)
    known = build.build()
    unknown = replace(known, comm_type=np.full(len(known), 42, np.int32))
    for name, trace in (("known", known), ("unknown", unknown)):
        et_sim.write_workload(et_sim.Workload.of([trace] * 2), name)
    result = _compared(capsys, "known", "unknown")
    assert result["all_reduce", 2]["count"] == {"a": 2, "b": 0}
    assert result["collective type 42", 2]["count"] == {"a": 0, "b": 2}


def test_sums_above_64_bits_are_exact(capsys: pytest.CaptureFixture[str]) -> None:
    for name, count in (("one", 1), ("three", 3)):
        build = et_sim.TraceBuilder()
        for _ in range(count):
            build.compute(num_ops=2**63 - 1, tensor_bytes=1)
        et_sim.write_workload(et_sim.Workload.of([build.build()]), name)
    result = _compared(capsys, "one", "three")["kernel without a shape", None]
    assert result["operations"] == {"a": 2**63 - 1, "b": 3 * (2**63 - 1)}


def test_a_defect_is_not_taken_for_a_missing_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made = _made("a")
    monkeypatch.setattr(et_sim.Workload, "nodes", property(lambda _: [][0]))
    with pytest.raises(IndexError):
        main(["compare", made, made])


@pytest.mark.parametrize(
    ("others", "why"),
    [
        (["a.workload.json", "nothing"], "only one of the two is a workload"),
        (
            ["a.workload.json", "a.workload.json", "--threshold", "2%"],
            "--threshold requires times",
        ),
        (["a.workload.json", "a.workload.json", "--svg", "x.svg"], "--svg requires times"),
    ],
)
def test_incomparable_paths_are_refused(
    others: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _made("a")
    assert main(["compare", *others]) == 2
    assert why in capsys.readouterr().err
