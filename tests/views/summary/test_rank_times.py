"""Lengths of intervals, and the parts of ranks' time in a window, against counting every nanosecond."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.intervals import (
    ACTIVITIES,
    COMPUTE,
    HOST,
    LONGEST_AXIS,
    MEMORY,
    TRANSFER,
    WAITING,
    Spent,
    together,
    union,
    union_with_first,
)
from et_sim.tables.arrow import schema_of
from et_sim.tables.registry import ACTORS, TIMELINE
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Selection
from et_sim.views.summary.parts import PARTS, used
from et_sim.views.summary.rank_table import rank_entries, ranks_named

END = 30
FIGURE_OF = {
    COMPUTE: "compute_ns",
    TRANSFER: "exposed_comm_ns",
    MEMORY: "exposed_memory_ns",
    WAITING: "waiting_ns",
    HOST: "host_ns",
}
# actor, start, length, kind, and wait before the transfer. Kinds: 0 kernel, 1 communication, 2 operator of
# the host, 3 memory, 4 a send by a CPU, 5 a gap
SPANS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, END - 1),
        st.integers(0, 12),
        st.integers(0, 5),
        st.integers(0, 12),
    ),
    max_size=14,
)
KINDS = ("compute", "all_reduce", "host", "memory_load", "send", "gap")
SORT_OF = np.array([COMPUTE, TRANSFER, HOST, MEMORY, HOST, HOST])
LANES = ("compute", "communication", "cpu", "memory", "cpu", "compute")
Span = tuple[int, int, int, int, int]


def _brute(spans: list[Span], actor: int, window: tuple[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """Return by nanosecond counts the time of each kind, and the time in which it comes first."""
    totals, parts = dict.fromkeys(ACTIVITIES, 0), dict.fromkeys(ACTIVITIES, 0)
    for now in range(*window):
        here = set()
        for owner, start, length, kind, wait in spans:
            if owner == actor and start <= now < start + length:
                waits = kind == 1 and now < start + wait
                here.add(WAITING if waits else int(SORT_OF[kind]))
        for sort in here:
            totals[sort] += 1
        if here:
            parts[next(sort for sort in (COMPUTE, TRANSFER, MEMORY, WAITING, HOST) if sort in here)] += 1
    return totals, parts


def _columns(spans: list[Span]) -> tuple[Any, ...]:
    actor, start, length, kind, wait = (np.array([span[n] for span in spans], np.int64) for n in range(5))
    return actor.astype(np.int32), start, start + length, kind, start + np.minimum(wait, length)


@given(SPANS, st.booleans(), st.integers(1, 15))
def test_time_is_split_as_counting_nanoseconds_splits_it(
    spans: list[Span], is_long: bool, at_once: int
) -> None:
    actor, start, end, kind, moved = _columns(sorted(spans, key=lambda span: span[0]))
    # Far along the axis, actors no longer fit side by side, and are measured one after the other.
    shift = LONGEST_AXIS // 2 if is_long else 0
    spent = Spent(4)
    for first in range(0, len(spans), at_once):
        piece = slice(first, first + at_once)
        times = (column[piece] + shift for column in (start, end, start, moved))
        spent.add(actor[piece], SORT_OF[kind[piece]], *times)
    spent.close()
    for owner_ in range(4):
        totals, parts = _brute(spans, owner_, (0, 2 * END))
        assert spent.totals[:, owner_].tolist() == [totals[sort] for sort in ACTIVITIES]
        assert spent.parts[:, owner_].tolist() == [parts[sort] for sort in ACTIVITIES]
        assert spent.covered_ns[owner_] == sum(parts.values())


@given(SPANS, st.lists(st.integers(-3, 2 * END), max_size=5), st.integers(0, 14))
def test_a_union_covers_every_nanosecond_with_an_open_span(
    spans: list[Span], times: list[int], cut: int
) -> None:
    actor, start, end, _, _ = _columns(spans)
    covered = union(actor, start, end)
    pieces = (
        union(*(column[part] for column in (actor, start, end))) for part in (slice(cut), slice(cut, None))
    )
    joined = together(pieces)
    for column in ("owner", "start", "end"):
        assert getattr(joined, column).tolist() == getattr(covered, column).tolist()
    for owner_ in range(4):
        is_open = [any(a == owner_ and s <= now < s + d for a, s, d, *_ in spans) for now in range(2 * END)]
        own = covered.split(owner_)[1].split(owner_ + 1)[0]
        spans_of_own = list(zip(own.start.tolist(), own.end.tolist(), strict=True))
        assert [any(s <= now < e for s, e in spans_of_own) for now in range(2 * END)] == is_open
        assert covered.lengths(4)[owner_] == sum(is_open)
        assert (own.start[1:] > own.end[:-1]).all()  # no two touch
        assert own.before(np.array(times, np.int64)).tolist() == [sum(is_open[: max(t, 0)]) for t in times]


@given(SPANS, st.booleans())
def test_each_interval_of_a_union_has_the_first_row_that_begins_with_it(
    spans: list[Span], is_long: bool
) -> None:
    actor, start, end, _, _ = _columns(spans)
    shift = LONGEST_AXIS // 2 if is_long else 0  # as above
    covered, first = union_with_first(actor, start + shift, end + shift)
    for owner_, begin, row in zip(covered.owner, covered.start - shift, first, strict=True):
        assert row == min(at for at, (a, s, d, *_) in enumerate(spans) if a == owner_ and s == begin and d)


def test_adjacent_intervals_are_kept_as_their_union() -> None:
    rows, pieces = 1 << 14, 200
    start, owner, sort = np.arange(rows) * 10, np.zeros(rows, np.int32), np.full(rows, COMPUTE)
    spent = Spent(1)
    tracemalloc.start()
    for number in range(pieces):
        begin = start + number * rows * 10
        spent.add(owner, sort, begin, begin + 10, begin, begin)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    spent.close()
    assert spent.parts[COMPUTE][0] == spent.covered_ns[0] == rows * pieces * 10
    assert peak < 16 * rows * pieces / 10  # bytes, of the 16 that each of them has


def _run(folder: Path, spans: list[Span], rows_per_batch: int) -> RunDirectory:
    spans = sorted(spans, key=lambda span: span[0])
    rows = [
        {
            "actor": a,
            "node": n,
            "kind": KINDS[w],
            "lane": LANES[w],
            "start_ns": s,
            "end_ns": s + d,
            "waiting_ns": min(wait, d) if w == 1 else None,
            "bytes": 0,
        }
        for n, (a, s, d, w, wait) in enumerate(spans)
    ]
    schema = schema_of(TIMELINE, "{}", {})
    table = pa.Table.from_pylist([{**dict.fromkeys(schema.names), **row} for row in rows], schema)
    with pa.OSFile(str(folder / "timeline.arrow"), "wb") as sink, pa.ipc.new_file(sink, schema) as out:
        out.write_table(table.unify_dictionaries(), max_chunksize=rows_per_batch)
    finish = [max([s + d for a, s, d, *_ in spans if a == actor], default=0) for actor in range(4)]
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
def test_a_window_shows_the_parts_that_counting_nanoseconds_finds(
    tmp_path_factory: Any, spans: list[Span], window: tuple[int, int], batch: int
) -> None:
    begin, end = window[0], window[0] + window[1]
    run = _run(tmp_path_factory.mktemp("window"), spans, batch)
    entries = rank_entries(run, Selection(window=(begin, end)))
    of_rank = {int(rank): entry for entry in entries for rank in ranks_named(entry["ranks"])}
    assert sorted(of_rank) == [0, 1, 2, 3]
    for actor, entry in of_rank.items():
        totals, parts = _brute(spans, actor, (begin, end))
        assert {name: entry[name] for name in FIGURE_OF.values()} == {
            figure: parts[sort] for sort, figure in FIGURE_OF.items()
        }
        assert entry["hidden_comm_ns"] == totals[TRANSFER] - parts[TRANSFER]
        assert entry["idle_ns"] == max(min(entry["finish_ns"], end) - begin, 0) - sum(parts.values())
        assert sum(entry[part.figure] for part in PARTS) == end - begin
        assert json.dumps(entry)


def test_a_part_is_used_if_some_of_the_entries_have_it() -> None:
    first, second, *_ = PARTS
    nothing = {part.figure: 0 for part in PARTS}
    assert used([nothing | {second.figure: 1}, nothing, nothing | {first.figure: 1}]) == (first, second)
    assert used([nothing]) == used([]) == ()
