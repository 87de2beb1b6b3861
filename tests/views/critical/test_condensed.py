"""Events left in a condensed record have the times of the whole record, for any change of durations."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.views.critical.condensed import Condensed, condensed
from et_sim.views.critical.events import KINDS
from et_sim.views.critical.kernels import latest_ends, times_and_slopes
from et_sim.views.run.columns import Words

LINKS = ("dimension 0", "dimension 1", None)
TIMED = ("latency", "serialisation", "endpoint", "reduction")
FAR = 1 << 50


class Drawn:
    """A random record in blocks, with many chains of events as in rings."""

    def __init__(self, seed: int, count: int, block: int) -> None:
        draw, self.block = random.Random(seed), block
        self.rows: list[dict[str, Any]] = []
        for row in range(count):
            by = row - 1 if draw.random() < 0.8 else draw.randrange(-1, row)
            also = draw.randrange(max(row - 8, -1), row) if draw.random() < 0.4 else -1
            start = max((self.rows[parent]["end_ns"] for parent in (by, also) if parent >= 0), default=0)
            kind = draw.choice((*TIMED, "receive", "endpoint_transfers", "node", "node_end"))
            spent = draw.choice((0, 5, 5, 9)) if kind in (*TIMED, "node") else 0
            place = {"critical_parent": by, "other_parent": also, "start_ns": start, "end_ns": start + spent}
            link = draw.randrange(len(LINKS)) if kind in TIMED else 2
            self.rows.append({**place, "kind": KINDS.index(kind), "link": link, "actor": 0, "node": row})
        self.rows.append({**self.rows[-1], "kind": KINDS.index("node_end"), "node": count})
        self.rows[-1]["start_ns"] = self.rows[-1]["end_ns"]
        self.rows[-1].update(critical_parent=count - 1, other_parent=-1)

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        for first in range(0, len(self), self.block):
            part = self.rows[first : first + self.block]
            arrays = {name: np.array([row[name] for row in part]) for name in columns}
            yield {**arrays, "link": Words(LINKS, arrays["link"])}

    @staticmethod
    def nodes_of(_: Any, node: Any) -> Any:
        return node

    def sort(self, row: int) -> tuple[Any, ...]:
        """Return the kind of duration of an event; a node has a kind of its own."""
        of = self.rows[row]
        own = row if KINDS[of["kind"]] == "node" else None
        return KINDS[of["kind"]], LINKS[of["link"]], of["end_ns"] - of["start_ns"], own

    def ends(self, takes: dict[tuple[Any, ...], float], rates: dict[tuple[Any, ...], float]) -> Any:
        """Return the ends of nodes, and their steepest rates of change, straight from the definition."""
        ends: list[tuple[float, float]] = []
        for row, of in enumerate(self.rows):
            before = [ends[parent] for parent in (of["critical_parent"], of["other_parent"]) if parent >= 0]
            came, rate = max(before, default=(0.0, 0.0))
            sort = self.sort(row)
            ends.append((came + takes.get(sort, 0.0), rate + rates.get(sort, 0.0)))
        return [end for row, end in enumerate(ends) if self.sort(row)[0] == "node_end"]


def _durations_of(events: Condensed) -> list[tuple[Any, ...]]:
    of, nodes = events.durations, iter(events.durations.node.tolist())
    rows = zip(of.kind.tolist(), of.link.codes.tolist(), of.spent_ns.tolist(), strict=True)
    return [
        (KINDS[kind], LINKS[link], spent, next(nodes) if KINDS[kind] == "node" else None)
        for kind, link, spent in rows
    ]


records = st.builds(Drawn, st.integers(0, 1 << 32), st.integers(1, 120), st.sampled_from((7, 1000)))


@given(records, st.integers(0, 1 << 32))
def test_ends_of_nodes_are_kept_for_any_change_of_durations(record: Any, seed: int) -> None:
    events, draw = condensed(record), random.Random(seed)
    sorts = _durations_of(events)
    takes = {sort: float(draw.choice((0, 1, 3, 700))) for sort in sorts}
    rates = {sort: float(draw.choice((0, 1))) if takes[sort] else 0.0 for sort in sorts}
    time, slope = np.zeros((2, len(events)))
    figures = [np.array([figure[sort] for sort in sorts]) for figure in (takes, rates)]
    parts = events.first_part, events.part, events.counts
    times_and_slopes(events.critical, events.other, *parts, *figures, 1.0, time, slope)
    expected = record.ends(takes, rates)
    assert list(zip(time[events.ends].tolist(), slope[events.ends].tolist(), strict=True)) == expected


@given(records)
def test_nodes_may_end_as_late_as_in_the_whole_record(record: Any) -> None:
    rows = record.rows
    latest = [
        record.rows[-1]["end_ns"] if record.sort(row)[0] == "node_end" else FAR for row in range(len(rows))
    ]
    for row in reversed(range(len(rows))):
        for parent in (rows[row]["critical_parent"], rows[row]["other_parent"]):
            if parent >= 0:
                latest[parent] = min(
                    latest[parent], latest[row] - rows[row]["end_ns"] + rows[row]["start_ns"]
                )
    events = condensed(record)
    own = np.full(len(events), FAR)
    own[events.ends] = rows[-1]["end_ns"]
    latest_ends(events.critical, events.other, events.spent_ns, own)
    ends = [row for row in range(len(rows)) if record.sort(row)[0] == "node_end"]
    assert events.ended_ns.tolist() == [rows[row]["end_ns"] for row in ends]
    assert own[events.ends].tolist() == [latest[row] for row in ends]


@pytest.mark.parametrize("steps", [100, 1000])
def test_a_ring_of_any_number_of_steps_is_a_handful_of_events(steps: int) -> None:
    record: Any = Drawn(0, 1, 1000)
    record.rows = []

    def add(kind: str, spent: int, by: int, also: int = -1) -> int:
        start = max([record.rows[parent]["end_ns"] for parent in (by, also) if parent >= 0], default=0)
        times = {"start_ns": start, "end_ns": start + spent, "kind": KINDS.index(kind), "link": 0}
        about = {"actor": 0, "node": len(record.rows)}
        record.rows.append({"critical_parent": by, "other_parent": also, **times, **about})
        return len(record.rows) - 1

    last = add("begin", 0, -1)
    for _ in range(steps):
        sent = add("serialisation", 655, add("latency", 1000, last))
        reduced = add("reduction", 489, add("endpoint", 10, add("receive", 0, sent, last)))
        last = add("endpoint_transfers", 0, reduced, last)
    add("node_end", 0, last)
    events = condensed(record)
    assert len(events) == 3  # the beginning, all steps, and the end
    assert sorted(events.counts.tolist()) == [steps] * 4
