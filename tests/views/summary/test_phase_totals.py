"""Totals of phases and groups are those of the rows, added up one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machines import network

import et_sim
from et_sim.cli import main
from et_sim.run.result import Result
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.compare.changes import compare
from et_sim.views.drawing.network import dimensions
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection, selection
from et_sim.views.summary.groups import group_totals
from et_sim.views.summary.phase_totals import phase_totals

pytestmark = pytest.mark.usefixtures("warm_engine")

SYSTEM = {
    "scheduling-policy": "LIFO",
    "all-reduce-implementation": ["ring", "direct"],
    "preferred-dataset-splits": 3,
    "local-mem-bw": 50,
}
NETWORK = network(["Ring", "FullyConnected"], [3, 2], ["50GB/s", "25GB/s"], [500, 900])
GROUPS = {"1": [0, 1, 2], "2": [3, 4, 5]}


def _simulated(chunks_at_once: int) -> Result:
    """Return two groups side by side, and all ranks together, with a slow rank 4."""
    traces = []
    for rank in range(6):
        build = et_sim.TraceBuilder()
        for _ in range(3):
            work = build.compute("work", micros=20 + 9 * (rank == 4))
            build.collective("all_reduce", 1 << 19, after=[work])
            build.collective("all_reduce", 1 << 18, after=[work], group="1" if rank < 3 else "2")
        traces.append(build.build())
    machine: dict[str, Any] = {
        "system": {**SYSTEM, "active-chunks-per-dimension": chunks_at_once},
        "network": NETWORK,
        "groups": GROUPS,
    }
    return et_sim.simulate(et_sim.Workload.of(traces), detail="phases", **machine)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    path = tmp_path_factory.mktemp("phases") / "run"
    write_run(_simulated(1), path)
    return open_run(path)


def _weights(run: RunDirectory, part: Selection) -> dict[int, int]:
    return dict(enumerate(part.weights(run).tolist()))


@pytest.mark.parametrize("ranks", [None, "4", "0-4/2"])
@pytest.mark.parametrize("window", [None, "30us:90us"])
def test_phases_add_up(run: RunDirectory, ranks: str | None, window: str | None) -> None:
    part = selection(ranks, window)
    begin, end = part.window or (0, 2**62)
    expected: dict[tuple[int, str], list[int]] = {}
    weights = _weights(run, part)
    for row in run.table(
        "phases", ("actor", "dimension", "operation", "bytes", "queued_ns", "start_ns", "end_ns")
    ).to_pylist():
        if row["queued_ns"] >= end or row["end_ns"] <= begin or not weights[row["actor"]]:
            continue
        total = expected.setdefault((row["dimension"], row["operation"]), [0, 0, 0])
        inside = {name: min(max(row[name], begin), end) for name in ("queued_ns", "start_ns", "end_ns")}
        total[0] += weights[row["actor"]]
        total[1] += weights[row["actor"]] * (inside["start_ns"] - inside["queued_ns"])
        total[2] += weights[row["actor"]] * (inside["end_ns"] - inside["start_ns"])
    totals = phase_totals(run, part)
    assert totals is not None
    assert {(o.dimension, o.operation): [o.count, o.queued_ns, o.running_ns] for o in totals} == expected
    assert len(expected) >= 2


def test_groups_add_up(run: RunDirectory) -> None:
    rows, weights = run.table("timeline").to_pylist(), _weights(run, EVERYTHING)
    for group in group_totals(run):
        of_group = [row for row in rows if (row["group"], row["kind"]) == (group.group, group.kind)]
        assert group.count == sum(weights[row["actor"]] for row in of_group)
        assert group.total_ns == sum(
            weights[row["actor"]] * (row["end_ns"] - row["start_ns"]) for row in of_group
        )
        assert group.ranks == sum(weights[actor] for actor in {row["actor"] for row in of_group})
    assert {(group.group, group.ranks) for group in group_totals(run)} == {("all", 6), ("1", 3), ("2", 3)}


def test_runs_with_phases_are_compared_by_dimension(run: RunDirectory) -> None:
    comparison = compare(run, run)
    assert comparison.is_identical
    assert comparison.dimensions is not None
    assert [change.name for change in comparison.dimensions] == [("0",), ("1",)]


def test_ranks_in_phases_are_counted_once_however_rows_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = _simulated(3)
    write_run(result, tmp_path / "whole")
    for block in ("rows.ROWS_AT_ONCE", "spool.AT_A_TIME"):
        monkeypatch.setattr(f"et_sim.timeline.{block}", 3)
    write_run(result, tmp_path / "blocks")
    in_blocks, whole = (dimensions(open_run(tmp_path / name)) for name in ("blocks", "whole"))
    assert in_blocks is not None
    assert whole is not None
    assert in_blocks.names == whole.names
    assert in_blocks.shares == pytest.approx(whole.shares)


@pytest.mark.parametrize("view", ["phases", "groups"])
def test_both_views_fit_80_columns(
    run: RunDirectory, view: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["inspect", str(run.path), view]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
