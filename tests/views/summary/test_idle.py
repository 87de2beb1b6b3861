"""Causes of idle time of devices, streams and threads, against a search in every stretch of time."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs_to_show import pipeline, written

import et_sim
from et_sim.basics.units import parse_ranks
from et_sim.views import open_run
from et_sim.views.drawing.bars import idle_picture
from et_sim.views.run.selection import EVERYTHING, selection
from et_sim.views.summary import idle_nodes
from et_sim.views.summary.idle import DEVICE, FIGURES, idle_of
from et_sim.views.summary.idle_table import idle_data, idle_lines

pytestmark = pytest.mark.usefixtures("warm_engine")
COMMUNICATION = ("send", "receive", "all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def recorded(folder: Path, **options: Any) -> Path:
    """Write four ranks, alike in pairs, with recorded streams and threads that wait for each other."""

    def rank(nanos: int) -> Any:
        build = et_sim.TraceBuilder()
        on = {"tid": 11}
        load = build.compute("load", nanos=400, cpu=True, concurrent=True, attributes=on)
        gap = build.compute(
            "gap of thread 1", nanos=250, cpu=True, concurrent=True, attributes=on | {"gap": 1}, after=[load]
        )
        launch = build.compute("launch", nanos=70, cpu=True, concurrent=True, attributes=on, after=[gap])
        wait = build.compute(
            "launch gap",
            nanos=30,
            cpu=True,
            concurrent=True,
            attributes={"stream": 7, "gap": 1},
            after=[launch],
        )
        first = build.compute("gemm 1", nanos=nanos, concurrent=True, attributes={"stream": 7}, after=[wait])
        total = build.collective(
            "all_reduce", 4096, name="sum", concurrent=True, attributes={"stream": 20}, after=[first]
        )
        build.compute("gemm 2", nanos=90, concurrent=True, attributes={"stream": 7}, after=[first])
        build.compute("gemm 3", nanos=60, concurrent=True, attributes={"stream": 7}, after=[total])
        build.compute("other", nanos=35, cpu=True, concurrent=True, attributes={"tid": 12}, after=[total])
        return build.build()

    return written(et_sim.Workload.of([rank(500), rank(3000)] * 2), folder, **options)


def _brute(path: Path, window: tuple[int, int]) -> dict[int, dict[str, Counter[str]]]:
    """Return nanoseconds by rank, row and cause, with a search in each stretch between two events."""
    run = open_run(path)
    makespan = run.summary["makespan_ns"]
    figures_of: dict[int, dict[str, Counter[str]]] = {}
    for actor in run.actors().to_pylist():
        rows = [row for row in run.table("timeline").to_pylist() if row["actor"] == actor["actor"]]
        for row in rows:
            row["admitted"] = row["start_ns"] + (row["queued_ns"] or 0)
            row["moved"] = row["admitted"]
            if row["kind"] in COMMUNICATION:
                row["moved"] += row["waiting_ns"] or 0
            row["unit"] = row.get("recorded_on") or row["lane"]
        streams = {row["unit"] for row in rows if row["lane"] != "cpu"}
        times = {at for row in rows for at in (row["start_ns"], row["admitted"], row["moved"], row["end_ns"])}
        edges = sorted({*window, *(at for at in times if window[0] < at < window[1])})
        units = {unit: {unit} for unit in {row["unit"] for row in rows}} | {DEVICE: streams}
        here = {unit: Counter[str]() for unit in units}
        for first, last in pairwise(edges):
            for unit, names in units.items():
                works = [row for row in rows if row["unit"] in names and row["kind"] != "gap"]
                here[unit][_cause_of(rows, works, streams, first)] += last - first
        for span in parse_ranks(actor["ranks"]):
            figures_of |= dict.fromkeys(span, here)
    assert window[1] <= makespan
    return figures_of


def _cause_of(rows: list[dict[str, Any]], works: list[dict[str, Any]], streams: set[str], now: int) -> str:
    if any(row["moved"] <= now < row["end_ns"] for row in works):
        return "busy"
    coming = [row for row in works if now < row["moved"] < row["end_ns"]]
    if not coming:
        return "finished"
    by_id = {row["node"]: row for row in rows}
    awaited = min(coming, key=lambda row: (row["moved"], row["node"]))
    while now < awaited["start_ns"]:
        if awaited["start_cause"] == "begin":
            return "other"
        awaited = by_id[awaited["start_cause_node"]]
    if now >= awaited["end_ns"]:
        return "other"
    if now < awaited["admitted"]:
        return "streams"
    if now < awaited["moved"]:
        return "ranks"
    if awaited["kind"] == "gap":
        return "launch" if awaited["unit"] in streams else "gaps"
    return "host" if awaited["lane"] == "cpu" else "streams"


def _check(path: Path, brute: dict[int, dict[str, Counter[str]]], window: str | None) -> None:
    run, part = open_run(path), selection(window=window)
    length = part.window_of(run)[1] - part.window_of(run)[0]
    there = Counter[tuple[int, str]]()
    for row in idle_of(run, part).rows:
        assert sum(row.figures) == length
        for rank in (rank for span in parse_ranks(row.ranks) for rank in span):
            unit = row.row.partition(" (")[0]
            assert dict(zip(FIGURES, row.figures, strict=True)) == {n: brute[rank][unit][n] for n in FIGURES}
            there[rank, unit] += 1
    assert there == Counter((rank, unit) for rank, units in brute.items() for unit in units)


CASES = [
    (recorded, None, 1),
    (recorded, "500:2500", 1 << 16),
    pytest.param(pipeline, None, 1, marks=pytest.mark.deep),
    pytest.param(pipeline, "5us:60us", 1 << 16, marks=pytest.mark.deep),
]


@pytest.mark.parametrize(("made", "window", "at_once"), CASES)
def test_idle_time_counts_as_the_work_under_way_then_folded_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Any, window: str | None, at_once: int
) -> None:
    monkeypatch.setattr(idle_nodes, "MOST_ROWS", at_once)
    folded, unfolded = made(tmp_path / "folded"), made(tmp_path / "unfolded", fold=False)
    brute = _brute(unfolded, selection(window=window).window_of(open_run(unfolded)))
    _check(folded, brute, window)
    _check(unfolded, brute, window)


def test_streams_and_threads_of_recordings_are_rows_and_ranks_still_fold(tmp_path: Path) -> None:
    run = open_run(recorded(tmp_path / "run"))
    assert len(run.actors()) == 2
    names = run.table("timeline", ("name", "recorded_on")).to_pylist()
    assert {row["recorded_on"] for row in names} == {"stream 7", "stream 20", "thread 11", "thread 12"}
    assert all(row["recorded_on"] == "stream 20" for row in names if row["name"] == "sum")
    rows = [row.row for row in idle_of(run).rows[:5]]
    assert rows == [DEVICE, "stream 7 (kernels)", "stream 20 (communication)", "thread 11", "thread 12"]


def test_names_of_threads_do_not_keep_ranks_from_folding(tmp_path: Path) -> None:
    builders = [et_sim.TraceBuilder() for _ in range(4)]
    for rank, build in enumerate(builders):
        build.compute("work", nanos=100, attributes={"tid": 100 + rank, "stream": rank})
    run = open_run(written(et_sim.Workload.of([builder.build() for builder in builders]), tmp_path / "run"))
    assert len(run.actors()) == 1


def test_causes_and_pauses_are_named(tmp_path: Path) -> None:
    run = open_run(recorded(tmp_path / "run"))
    data = idle_data(run, EVERYTHING)
    causes = {(cause["what"], cause["name"]): cause["ns"] for cause in data["devices_wait_for"]}
    assert causes["host", "load"] == 4 * 400
    assert causes["host", "launch"] == 4 * 70
    assert causes["gaps", "gap of thread 1"] == 4 * 250
    assert causes["launch", "launch gap"] == 4 * 30
    devices = [device for device in data["rows"] if device["row"] == DEVICE]
    waited = sum(device["ranks_ns"] * len(list(parse_ranks(device["ranks"]))) for device in devices)
    assert causes["ranks", "sum"] >= waited > 0
    assert data["longest_pauses"][0]["waits_for"] == "ranks"
    text = "\n".join(idle_lines(run, EVERYTHING, 120))
    assert "stream 20 (communication)" in text
    drawn = idle_picture(run)
    assert "stream 7 (kernels)" in drawn
    assert "idle devices wait for another rank: sum" in drawn


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), min_size=1, unique=True), st.data())
def test_causes_are_the_nodes_of_the_rank_with_these_ids_with_gaps_between_ids_or_not(
    nodes: list[tuple[int, int]], data: st.DataObject
) -> None:
    nodes.sort()
    wanted = data.draw(st.lists(st.integers(0, 9), min_size=len(nodes), max_size=len(nodes)))
    has_cause = data.draw(st.lists(st.booleans(), min_size=len(nodes), max_size=len(nodes)))
    actor, node = np.array(nodes, np.int64).T
    columns = {"actor": actor, "node": node.astype(np.uint64), "cause": np.array(wanted, np.uint64)}
    found = idle_nodes._causes(columns | {"has_cause": np.array(has_cause)})
    keys = zip(actor.tolist(), wanted, has_cause, strict=True)
    assert found.tolist() == [nodes.index((a, w)) if has and (a, w) in nodes else -1 for a, w, has in keys]


def test_a_pause_of_one_nanosecond_is_one(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    first = build.compute("first", nanos=5, concurrent=True, attributes={"stream": 7})
    host = build.compute("host", nanos=1, cpu=True, concurrent=True, attributes={"tid": 1}, after=[first])
    build.compute("second", nanos=5, concurrent=True, attributes={"stream": 7}, after=[host])
    run = open_run(written(et_sim.Workload.of([build.build()] * 2), tmp_path / "run"))
    assert [(pause.length_ns, pause.waits_ns, pause.name) for pause in idle_of(run, EVERYTHING).pauses] == [
        (1, 1, "host")
    ]
