"""Nodes drawn of a timeline, against a choice from all rows; and arrows, where most rows are left out."""

from __future__ import annotations

import shutil
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs_to_show import pipeline

from et_sim.views.drawing import blocks
from et_sim.views.drawing.blocks import InProportion, share_out, visible_nodes
from et_sim.views.drawing.nodes import ALWAYS, shown_ranks
from et_sim.views.export.contents import Contents, contents_of
from et_sim.views.report.times import exposed_by_group
from et_sim.views.run.directory import RunDirectory, open_run

STEP = 1_000_000  # ns; the run takes 66 of them
SPANS = st.tuples(st.integers(0, 40), st.integers(1, 40))  # begin and length, in steps
WINDOWS = st.one_of(st.just(ALWAYS), SPANS.map(lambda span: (span[0] * STEP, sum(span) * STEP)))
BATCHES = (1, 7, 64)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, RunDirectory]:
    """Return the same run with its timeline in batches of these numbers of rows, or in one."""
    folder = tmp_path_factory.mktemp("batches")
    whole = pipeline(folder / "whole", fold=False)
    opened = {0: open_run(whole)}
    for rows in BATCHES:
        target = folder / str(rows)
        shutil.copytree(whole, target)
        table = opened[0].table("timeline")
        name = str(target / "timeline.arrow")
        with pa.OSFile(name, "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
            out.write_table(table, max_chunksize=rows)
        opened[rows] = open_run(target)
    return opened


@pytest.fixture(scope="module")
def every_row(runs: dict[int, RunDirectory]) -> list[dict[str, Any]]:
    """Return all rows of the run."""
    return runs[0].table("timeline").to_pylist()


@pytest.fixture(scope="module")
def everything(runs: dict[int, RunDirectory]) -> Contents:
    """Return the whole content of an export of the run."""
    return contents_of(runs[0], None, ALWAYS)


def _key(row: dict[str, Any]) -> tuple[int, int]:
    return row["actor"], row["node"]


@pytest.mark.deep
@given(WINDOWS, st.integers(1, 400), st.sampled_from(BATCHES[1:]), st.sampled_from([None, "0-2", "5,1"]))
def test_nodes_under_way_in_the_window_are_drawn_in_proportion(
    runs: dict[int, RunDirectory],
    every_row: list[dict[str, Any]],
    window: tuple[int, int],
    limit: int,
    rows_per_batch: int,
    ranks: str | None,
) -> None:
    run = runs[rows_per_batch]
    shown = shown_ranks(run, ranks, 64)
    nodes, slices = visible_nodes(run, shown, window, limit)
    first, last = window
    rows = [row for row in every_row if row["actor"] in shown.actors]
    inside = [
        row
        for row in rows
        if row["start_ns"] < last and (row["end_ns"] > first or row["end_ns"] == row["start_ns"] >= first)
    ]
    every = {_key(row): row for row in inside}
    drawn = nodes.take(slices.row)
    keys = list(zip(drawn.actor.tolist(), drawn.node.tolist(), strict=True))
    assert len(set(keys)) == len(keys) == min(limit, len(inside))
    assert set(keys) <= set(every)
    assert [shown.actors[place] for place in slices.place.tolist()] == drawn.actor.tolist()
    assert bool(slices.left_out) is (len(inside) > limit)
    if limit >= len(groups := {(row["actor"], row["kind"]) for row in inside}):
        assert {(every[key]["actor"], every[key]["kind"]) for key in keys} == groups


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60), st.integers(1, 3000))
def test_shares_of_a_limit_are_in_proportion_and_nothing_is_forgotten(counts: list[int], limit: int) -> None:
    shares = share_out(np.array(counts), limit).tolist()
    total, there = sum(counts), sum(count > 0 for count in counts)
    assert sum(shares) == min(limit, total)
    assert all(0 <= share <= count for share, count in zip(shares, counts, strict=True))
    if limit >= there:
        assert all((share > 0) is (count > 0) for share, count in zip(shares, counts, strict=True))
        spare = max(limit - there, 0) / max(total - there, 1)
        for share, count in zip(shares, counts, strict=True):
            assert total <= limit or abs(share - min(count, 1) - (count - min(count, 1)) * spare) <= 1


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=80),
    st.lists(st.integers(0, 12), min_size=4, max_size=4),
    st.integers(1, 20),
)
def test_the_longest_of_each_stratum_are_kept_in_any_order(
    candidates: list[tuple[int, int]], quotas: list[int], each: int
) -> None:
    stratum, took = (np.array([entry[at] for entry in candidates], np.int64) for at in range(2))
    with patch.object(blocks, "AT_ONCE", 3):
        chosen = InProportion(np.array(quotas))
        for first in range(0, len(candidates), each):
            part = slice(first, first + each)
            rows = np.arange(len(candidates))[part]
            chosen.add(stratum[part], stratum[part], rows, took[part])
    kept = [row for _, rows in chosen.chosen() for row in rows.tolist()]
    expected = [
        row
        for stratum_number, quota in enumerate(quotas)
        for row in sorted(
            sorted(
                (row for row in range(len(candidates)) if candidates[row][0] == stratum_number),
                key=lambda row: (-candidates[row][1], row),
            )[:quota]
        )
    ]
    assert kept == sorted(expected)


@pytest.mark.deep
@given(WINDOWS, st.integers(1, 300), st.sampled_from(BATCHES[1:]))
def test_nodes_left_out_do_not_change_the_arrows_between_others(
    runs: dict[int, RunDirectory],
    everything: Contents,
    window: tuple[int, int],
    limit: int,
    rows_per_batch: int,
) -> None:
    every, part = everything, contents_of(runs[rows_per_batch], None, window, limit)

    def names(contents: Contents) -> list[tuple[int, int]]:
        drawn = contents.facts(np.arange(len(contents.slices))).nodes
        return list(zip(drawn.actor.tolist(), drawn.node.tolist(), strict=True))

    of_every, of_part = names(every), names(part)
    there = set(of_part)
    assert len(there) == len(of_part) <= limit

    def messages(contents: Contents, names: list[tuple[int, int]]) -> set[tuple[Any, Any]]:
        ends = contents.messages.send.tolist(), contents.messages.receive.tolist()
        return {(names[source], names[target]) for source, target in zip(*ends, strict=True)}

    assert messages(part, of_part) == {pair for pair in messages(every, of_every) if set(pair) <= there}
    members = [[of_every[member] for member in members] for members in every.collectives]
    kept = [[member for member in rows if member in there] for rows in members]
    assert sorted(sorted(of_part[member] for member in rows) for rows in part.collectives) == sorted(
        sorted(rows) for rows in kept if len(rows) > 1
    )


@pytest.mark.parametrize("rows_per_batch", BATCHES)
def test_exposed_communication_does_not_depend_on_the_blocks_of_the_timeline(
    runs: dict[int, RunDirectory], rows_per_batch: int
) -> None:
    groups = exposed_by_group(runs[rows_per_batch])
    assert groups == exposed_by_group(runs[0])
    assert len(groups) > 2
    assert all(0 <= group.exposed_ns <= group.active_ns for group in groups)
