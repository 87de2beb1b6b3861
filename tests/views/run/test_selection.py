"""Selections of ranks and time count exactly their rows, as a count one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import ring
from runs_to_show import layered, run_written

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_ranks, parse_ranks
from et_sim.views import open_run
from et_sim.views.run.selection import Selection, _disjoint, _shared, selection
from et_sim.views.summary.operations import operations

RANGES = st.builds(
    lambda first, length, step: range(first, first + length, step),
    st.integers(0, 40),
    st.integers(1, 40),
    st.integers(1, 5),
)


@given(RANGES, RANGES)
def test_the_common_part_of_two_ranges_is_counted(first: range, second: range) -> None:
    assert _shared(first, second) == len(set(first) & set(second))


@given(st.lists(RANGES, min_size=1, max_size=4), st.sets(st.integers(0, 90), min_size=1))
def test_ranks_of_an_actor_are_counted_once_if_named_several_times(
    named: list[range], of_actor: set[int]
) -> None:
    part = Selection(_disjoint(named))
    assert part.count(format_ranks(sorted(of_actor))) == len(of_actor & set().union(*named))


@given(st.lists(RANGES, min_size=1, max_size=4), st.sets(st.integers(0, 90), min_size=1))
def test_the_ranks_of_an_actor_that_are_selected_are_named(named: list[range], of_actor: set[int]) -> None:
    text = Selection(_disjoint(named)).names(format_ranks(sorted(of_actor)))
    selected = [rank for ranks in parse_ranks(text) for rank in ranks] if text else []
    assert selected == sorted(of_actor & set().union(*named))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, warm_engine: None) -> Path:  # noqa: ARG001
    traces = [layered(10 + 5 * (rank == 2), names=("work {}", "sum {}"), size=1 << 18) for rank in range(4)]
    path = tmp_path_factory.mktemp("selection") / "run"
    return run_written(path, et_sim.Workload.of(traces), ring(4, "50GB/s"))


def _rows(folder: Path) -> list[dict[str, Any]]:
    """Return the timeline with a row for every rank."""
    run = open_run(folder)
    ranks = {row["actor"]: row["ranks"] for row in run.actors().to_pylist()}
    rows = []
    for row in run.table("timeline").to_pylist():
        for span in ranks[row["actor"]].split(","):
            first, _, last = span.partition("-")
            rows += [{**row, "rank": rank} for rank in range(int(first), int(last or first) + 1)]
    return rows


@pytest.mark.parametrize("ranks", [None, "0", "2", "0-1,3", "0-3/2"])
@pytest.mark.parametrize("window", [None, "0:10us", "12345ns:30us", "20us:", "1s:2s"])
def test_operations_of_a_part_are_those_of_its_rows(
    folder: Path, ranks: str | None, window: str | None
) -> None:
    part = selection(ranks, window)
    chosen = set().union(*part.ranks) if part.ranks else set(range(4))
    begin, end = part.window or (0, 2**62)
    count = total = 0
    for row in _rows(folder):
        if row["rank"] in chosen and row["start_ns"] < end and row["end_ns"] > begin:
            count += 1
            total += min(row["end_ns"], end) - max(row["start_ns"], begin)
    every = operations(open_run(folder), part)
    assert (sum(operation.count for operation in every), sum(operation.total_ns for operation in every)) == (
        count,
        total,
    )


@pytest.mark.parametrize(
    ("ranks", "window", "top"),
    [("x", None, None), (None, "5", None), (None, "3us:2us", None), (None, "a:b", None), (None, None, 0)],
)
def test_an_empty_selection_is_refused(ranks: str | None, window: str | None, top: int | None) -> None:
    with pytest.raises(UsageError):
        selection(ranks, window, top)


def test_a_rank_that_is_not_there_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="there is no rank 9"):
        operations(open_run(folder), selection("0-9"))
