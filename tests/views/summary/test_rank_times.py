"""Lengths of intervals, and what ranks did in a window, against counting every nanosecond."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from et_sim.intervals import COMMUNICATION, COMPUTE, CPU, LONGEST_AXIS, MEMORY, Spent, together, union
from et_sim.tables.arrow import schema_of
from et_sim.tables.registry import ACTORS, TIMELINE
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Selection
from et_sim.views.summary.rank_times import rank_entries

END = 30
# actor, start, length, what: 0 kernel, 1 communication, 2 CPU operation, 3 memory, 4 a send by a CPU
SPANS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, END - 1), st.integers(0, 12), st.integers(0, 4)), max_size=14
)
KINDS = ("compute", "all_reduce", "compute", "memory_load", "send")
SORTS = np.array([COMPUTE, COMMUNICATION, CPU, MEMORY, CPU])
LANES = ("compute", "communication", "cpu", "memory", "cpu")


def _brute(spans: list[tuple[int, int, int, int]], actor: int, window: tuple[int, int]) -> dict[str, int]:
    """Nanosecond by nanosecond."""
    found = dict.fromkeys(("compute", "communication", "overlap", "exposed", "covered"), 0)
    for now in range(*window):
        here = {
            what for owner, start, length, what in spans if owner == actor and start <= now < start + length
        }
        found["compute"] += 0 in here
        found["communication"] += 1 in here
        found["overlap"] += {0, 1} <= here
        found["exposed"] += here == {1}
        found["covered"] += bool(here)
    return found


def _columns(spans: list[tuple[int, int, int, int]]) -> tuple[Any, Any, Any, Any]:
    actor, start, length, what = (np.array([span[n] for span in spans], np.int64) for n in range(4))
    return actor.astype(np.int32), start, start + length, what


@given(SPANS, st.booleans(), st.integers(1, 15))
def test_time_is_split_as_counting_nanoseconds_splits_it(
    spans: list[tuple[int, int, int, int]], is_long: bool, at_once: int
) -> None:
    actor, start, end, what = _columns(sorted(spans, key=lambda span: span[0]))
    # Far along the axis, actors no longer fit side by side, and are measured one after the other.
    shift = LONGEST_AXIS // 2 if is_long else 0
    found = Spent(4)
    for first in range(0, len(spans), at_once):
        piece = slice(first, first + at_once)
        found.add(actor[piece], SORTS[what[piece]], start[piece] + shift, end[piece] + shift)
    found.close()
    for one in range(4):
        brute = _brute(spans, one, (0, 2 * END))
        assert {name: int(getattr(found, f"{name}_ns")[one]) for name in brute} == brute


@given(SPANS, st.lists(st.integers(-3, 2 * END), max_size=5), st.integers(0, 14))
def test_a_union_is_what_is_open_at_any_nanosecond(
    spans: list[tuple[int, int, int, int]], times: list[int], cut: int
) -> None:
    actor, start, end, _ = _columns(spans)
    found = union(actor, start, end)
    pieces = (
        union(*(column[part] for column in (actor, start, end))) for part in (slice(cut), slice(cut, None))
    )
    joined = together(pieces)
    for column in ("owner", "start", "end"):
        assert getattr(joined, column).tolist() == getattr(found, column).tolist()
    for one in range(4):
        is_open = [any(a == one and s <= now < s + d for a, s, d, _ in spans) for now in range(2 * END)]
        own = found.split(one)[1].split(one + 1)[0]
        spans_of_own = list(zip(own.start.tolist(), own.end.tolist(), strict=True))
        assert [any(s <= now < e for s, e in spans_of_own) for now in range(2 * END)] == is_open
        assert found.lengths(4)[one] == sum(is_open)
        assert (own.start[1:] > own.end[:-1]).all()  # no two touch
        assert own.before(np.array(times, np.int64)).tolist() == [sum(is_open[: max(t, 0)]) for t in times]


def test_of_intervals_that_follow_each_other_nothing_but_their_union_is_kept() -> None:
    rows, pieces = 1 << 14, 200
    start, owner, sort = np.arange(rows) * 10, np.zeros(rows, np.int32), np.full(rows, COMPUTE)
    found = Spent(1)
    tracemalloc.start()
    for number in range(pieces):
        begin = start + number * rows * 10
        found.add(owner, sort, begin, begin + 10)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    found.close()
    assert found.compute_ns[0] == found.covered_ns[0] == rows * pieces * 10
    assert peak < 16 * rows * pieces / 10  # bytes, of the 16 that each of them has


def _run(folder: Path, spans: list[tuple[int, int, int, int]], rows_per_batch: int) -> RunDirectory:
    spans = sorted(spans, key=lambda span: span[0])
    rows = [
        {
            "actor": a,
            "node": n,
            "kind": KINDS[w],
            "lane": LANES[w],
            "start_ns": s,
            "end_ns": s + d,
            "bytes": 0,
        }
        for n, (a, s, d, w) in enumerate(spans)
    ]
    schema = schema_of(TIMELINE, "{}", {})
    table = pa.Table.from_pylist([{**dict.fromkeys(schema.names), **row} for row in rows], schema)
    with pa.OSFile(str(folder / "timeline.arrow"), "wb") as sink, pa.ipc.new_file(sink, schema) as out:
        out.write_table(table.unify_dictionaries(), max_chunksize=rows_per_batch)
    finish = [max([s + d for a, s, d, _ in spans if a == actor], default=0) for actor in range(4)]
    actors = [
        {"actor": actor, "ranks": str(actor), "rank_count": 1, "finish_ns": at}
        for actor, at in enumerate(finish)
    ]
    schema = schema_of(ACTORS, "{}", {})
    content = pa.Table.from_pylist([{**dict.fromkeys(schema.names), **actor} for actor in actors], schema)
    with pa.OSFile(str(folder / "actors.arrow"), "wb") as sink, pa.ipc.new_file(sink, schema) as out:
        out.write_table(content)
    return RunDirectory(folder, {"makespan_ns": max(finish), "ranks": 4}, {}, None)


@given(SPANS, st.tuples(st.integers(0, END), st.integers(1, END)), st.integers(1, 5))
def test_a_window_shows_what_counting_nanoseconds_finds_in_it(
    tmp_path_factory: Any, spans: list[tuple[int, int, int, int]], window: tuple[int, int], batch: int
) -> None:
    begin, end = window[0], window[0] + window[1]
    run = _run(tmp_path_factory.mktemp("window"), spans, batch)
    entries = rank_entries(run, Selection(window=(begin, end)))
    assert [entry["ranks"] for entry in entries] == ["0", "1", "2", "3"]
    for actor, entry in enumerate(entries):
        brute = _brute(spans, actor, (begin, end))
        assert entry["compute_ns"] == brute["compute"]
        assert entry["exposed_comm_true_ns"] == brute["exposed"]
        assert entry["other_ns"] == brute["covered"] - brute["compute"] - brute["exposed"]
        assert entry["idle_ns"] == max(min(entry["finish_ns"], end) - begin, 0) - brute["covered"]
        assert json.dumps(entry)
