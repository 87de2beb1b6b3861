"""Records of NCCL's Inspector that a run exports calibrate the machine of the run, and have its groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from et_sim.calibrate.inspector import read_inspector
from et_sim.cli import main
from et_sim.trace import TraceBuilder, Workload
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.manifest import write_manifest
from et_sim.views.export.inspector import members_of

KINDS = ("all_reduce", "all_gather", "reduce_scatter")
SIZES = [1 << power for power in range(13, 29)]


def exported(folder: Path, workload: Workload, *more: str) -> Path:
    """Run a workload and return the folder with its records."""
    write_manifest(workload, folder / "job.workload.json")
    job = str(folder / "job.workload.json")
    assert main(["run", job, *more, "--out", str(folder / "run")]) == 0
    assert main(["export", str(folder / "run"), "--inspector", str(folder / "records")]) == 0
    return folder / "records"


def records_of(path: Path) -> list[dict[str, Any]]:
    """Return the records of a rank."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.deep
def test_exported_records_calibrate_the_machine_that_made_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = TraceBuilder(source="job")
    last: list[int] = []
    for kind in KINDS:
        for size in SIZES:
            own = size // 8 if kind == "all_gather" else size
            last = [build.collective(kind, own, after=last)]
    workload = Workload.of([build.build()] * 8)
    records = exported(tmp_path, workload, "--machine", "h100-dgx:8")
    capsys.readouterr()
    assert main(["calibrate", "nccl", str(records), "--machine", "h100-dgx", "--json"]) == 0
    fitted = json.loads(capsys.readouterr().out)["fitted"]["all"]
    assert fitted["rows"] >= len(SIZES) * 2
    assert fitted["e"] <= 1.0


NAMES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
SYSTEM = {
    **{f"{name}-implementation": ["ring"] for name in NAMES},
    "endpoint-delay": 10,
    "profile": "corrected",
}
NETWORK = '{"topology": ["Ring"], "npus_count": [8], "bandwidth": [50.0], "latency": [500.0]}'


def test_records_have_groups_numbers_bytes_and_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    (tmp_path / "network.yml").write_text(NETWORK)
    (tmp_path / "system.json").write_text(json.dumps(SYSTEM))
    build = TraceBuilder(source="job")
    first = build.collective("all_reduce", 1 << 14, "far")
    second = build.collective("all_reduce", 4096, "far", after=[first])
    third = build.collective("all_to_all", 1 << 16, "far", after=[second])
    build.collective("all_gather", 1 << 13, after=[third])
    workload = Workload.of([build.build()] * 8)
    workload = Workload(workload.templates, workload.template_of_rank, group_rules={"far": GroupRule(2, 4)})
    records = exported(
        tmp_path,
        workload,
        "--network",
        str(tmp_path / "network.yml"),
        "--system",
        str(tmp_path / "system.json"),
    )
    printed = capsys.readouterr().out
    assert "24 records of 8 ranks" in printed
    assert "left out: 8 collectives of less than 8,192 bytes" in printed
    assert "all ranks are taken as one node" in printed
    own = records_of(records / "node0-pid5.log")
    heads = [record["header"] for record in own]
    assert [(head["rank"], head["n_ranks"], head["comm_name"]) for head in heads] == [
        (1, 2, "far"),
        (1, 2, "far"),
        (5, 8, "all"),
    ]
    done = [record["coll_perf"] for record in own]
    assert [(one["coll"], one["coll_msg_size_bytes"]) for one in done] == [
        ("AllReduce", 1 << 14),
        ("AlltoAll", 1 << 15),
        ("AllGather", 1 << 13),
    ]
    rate = (1 << 14) / done[0]["coll_exec_time_us"] / 1000
    assert done[0]["coll_algobw_gbs"] == pytest.approx(rate, rel=1e-5)
    partner, other = (records_of(records / f"node0-pid{rank}.log")[0]["header"]["id"] for rank in (1, 2))
    assert (heads[0]["id"] == partner, heads[0]["id"] == other) == (True, False)
    log = read_inspector(sorted(records.iterdir()))
    sizes = {(key[0], key[1], key[3]) for key, _ in log.table()}
    assert sizes == {("all_reduce", 2, 1 << 14), ("all_to_all", 2, 1 << 16), ("all_gather", 8, 1 << 16)}
    assert all(times.is_complete.all() for _, times in log.table())


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"members": "0-14/2,3"}, [0, 2, 4, 6, 8, 10, 12, 14, 3]),
        ({"size": 4, "stride": 1}, [4, 5, 6, 7]),
        ({"size": 2, "stride": 4}, [2, 6]),
        ({"rule": '{"size": [2, 2], "stride": [1, 8]}'}, [6, 7, 14, 15]),
    ],
)
def test_members_follow_from_lists_strides_and_rules(row: dict[str, Any], expected: list[int]) -> None:
    row = {"members": None, "rule": None, "size": 0, "stride": None, **row}
    assert members_of(6, row) == expected
    if row["rule"]:
        rule = GroupRule(size=(2, 2), stride=(1, 8))
        assert members_of(6, row) == list(rule.members(6))


def test_options_of_timelines_do_not_go_with_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "run", "--inspector", str(tmp_path), "--ranks", "0"]) == 2
    assert "--ranks does not go with --inspector" in capsys.readouterr().err
    assert main(["export", "run", "--node", "8"]) == 2
    assert "--node belongs to --inspector" in capsys.readouterr().err


def test_records_of_two_runs_do_not_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = TraceBuilder(source="job")
    build.collective("all_reduce", 1 << 20)
    records = exported(tmp_path, Workload.of([build.build()] * 2), "--machine", "h100-dgx:2")
    before = {path.name: path.read_bytes() for path in records.iterdir()}
    assert main(["export", str(tmp_path / "run"), "--inspector", str(records)]) == 2
    assert "is not an empty directory (name another one" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in records.iterdir()} == before
    (tmp_path / "file").write_bytes(b"")
    assert main(["export", str(tmp_path / "run"), "--inspector", str(tmp_path / "file")]) == 2
    assert main(["export", str(tmp_path / "run"), "--inspector", str(tmp_path / "file" / "deep")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
