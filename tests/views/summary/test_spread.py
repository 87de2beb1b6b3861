"""Differences between ranks, against figures of each rank from the rows of an unfolded run."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
from runs_to_show import pipeline, written

import et_sim
from et_sim.basics.units import parse_ranks
from et_sim.views import open_run
from et_sim.views.drawing.bars import spread_picture
from et_sim.views.drawing.scene import NothingToDrawError
from et_sim.views.run.names import stems
from et_sim.views.run.selection import EVERYTHING, Selection, selection
from et_sim.views.summary.spread import spread_data, spread_lines, spreads

pytestmark = pytest.mark.usefixtures("warm_engine")
COMPUTATION = ("compute", "copy", "host", "gap", "memory_load", "memory_store", "metadata")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("spread")
    return pipeline(folder / "folded"), pipeline(folder / "unfolded", fold=False)


def _brute(path: Path, ranks: set[int], window: tuple[int, int]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the figures row by row, in Python's own arithmetic."""
    run = open_run(path)
    actors = {actor["actor"]: int(actor["ranks"]) for actor in run.actors().to_pylist()}
    rows = [row for row in run.table("timeline").to_pylist() if actors[row["actor"]] in ranks]
    every = sorted({row["name"] for row in run.table("timeline").to_pylist()})
    stem_of = dict(zip(every, stems(every), strict=True))
    named = {(group["actor"], group["group"]): group["name"] for group in run.table("groups").to_pylist()}
    times_of: dict[Any, dict[int, list[tuple[int, int, int]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        first, last = max(row["start_ns"], window[0]), min(row["end_ns"], window[1])
        if row["start_ns"] >= window[1] or max(row["end_ns"], row["start_ns"] + 1) <= window[0]:
            continue
        admitted = row["start_ns"] + (row["queued_ns"] or 0)
        moved = admitted + (row["waiting_ns"] or 0)
        admitted, moved = (min(max(at, first), last) for at in (admitted, moved))
        group = row["group"] and named[row["actor"], row["group"]]
        key = row["kind"], stem_of[row["name"]], group
        times_of[key][actors[row["actor"]]].append((last - moved, moved - admitted, first))
    return {key: _figures(key[0], by_rank) for key, by_rank in times_of.items() if len(by_rank) > 1}


def _figures(kind: str, by_rank: dict[int, list[tuple[int, int, int]]]) -> dict[str, Any]:
    durations = {rank: sum(node[0] for node in nodes) for rank, nodes in by_rank.items()}
    begins = {rank: round(fmean(node[2] for node in nodes)) for rank, nodes in by_rank.items()}
    waiting = fmean(sum(node[1] for node in nodes) for nodes in by_rank.values())
    cost = max(durations.values()) - fmean(durations.values()) if kind in COMPUTATION else waiting
    return {"duration_ns": durations, "begin_ns": begins, "waiting_ns": waiting, "cost_ns": cost}


def _check(path: Path, brute: dict[tuple[Any, ...], dict[str, Any]], part: Selection) -> None:
    every = spread_data(open_run(path), part)
    assert {(operation["kind"], operation["name"], operation["group"]) for operation in every} == set(brute)
    assert [operation["cost_ns"] for operation in every] == sorted(
        (operation["cost_ns"] for operation in every), reverse=True
    )
    for operation in every:
        truth = brute[operation["kind"], operation["name"], operation["group"]]
        assert operation["cost_ns"] == pytest.approx(truth["cost_ns"], abs=1e-3)
        assert operation["waiting_ns"] == pytest.approx(truth["waiting_ns"])
        for figure in ("duration_ns", "begin_ns"):
            of_rank, spread = truth[figure], operation[figure]
            values = sorted(of_rank.values())
            quantiles = [values[max(math.ceil(at * len(values) / 4) - 1, 0)] for at in range(5)]
            names = ("least", "quarter", "median", "three_quarters", "most")
            assert [spread[name] for name in names] == quantiles
            assert operation["ranks"] == len(values)
            assert spread["mean"] == pytest.approx(fmean(values))
            assert spread["deviation"] == pytest.approx(pstdev(values), abs=1e-6)
            most = {rank for span in parse_ranks(spread["most_ranks"]) for rank in span}
            assert most == {rank for rank, value in of_rank.items() if value == values[-1]}


@pytest.mark.parametrize(("ranks", "window"), [(None, None), ("1-6", None), (None, "5us:60us")])
def test_spreads_are_those_of_single_ranks_folded_or_not(
    runs: tuple[Path, Path], ranks: str | None, window: str | None
) -> None:
    folded, unfolded = runs
    part = selection(ranks, window)
    chosen = {rank for span in parse_ranks(ranks or "0-7") for rank in span}
    brute = _brute(unfolded, chosen, part.window or (0, 1 << 60))
    assert len(brute) > 4
    _check(unfolded, brute, part)
    _check(folded, brute, part)


def test_a_slow_rank_is_named_with_the_cost_of_waiting_for_it(tmp_path: Path) -> None:
    builders = [et_sim.TraceBuilder() for _ in range(4)]
    for rank, builder in enumerate(builders):
        work = builder.compute("work", nanos=5000 if rank == 2 else 1000)
        builder.collective("all_reduce", 4096, name="sum", after=[work])
    run = open_run(written(et_sim.Workload.of([builder.build() for builder in builders]), tmp_path / "run"))
    summed, work = sorted(spreads(run), key=lambda operation: operation.kind)
    assert (work.duration_ns.most_ranks, work.cost_ns, work.duration_ns.median) == ("2", 3000, 1000)
    assert (summed.begin_ns.most_ranks, summed.cost_ns) == ("2", 3000)
    assert summed.begin_ns.most - summed.begin_ns.least == 4000
    lines = spread_lines(run, EVERYTHING, 100)
    assert all("rank 2" in line for line in lines[1:3])
    drawn = spread_picture(run)
    assert drawn.count("+3 µs rank 2") == 2


def test_a_single_rank_has_no_spread(runs: tuple[Path, Path]) -> None:
    run, part = open_run(runs[0]), selection("3")
    assert spreads(run, part) == []
    with pytest.raises(NothingToDrawError, match="no operation"):
        spread_picture(run, part)
