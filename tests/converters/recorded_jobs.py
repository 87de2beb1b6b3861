"""Recordings of steps that are made here: pipelines that alternate forward and backward passes (1F1B)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from et_sim.api import simulate
from et_sim.trace import Workload
from et_sim.trace.recorded_steps.program import Program
from et_sim.trace.recorded_steps.work import Work

DATA = Path(__file__).parent / "data" / "stragglers"
Row = dict[str, Any]


def step_ends(program: Program, work: Work) -> list[int]:
    """Simulate on a machine whose messages take no time, and return when each step ends."""
    traces = tuple(program.traces(work))
    network = {
        "topology": ["FullyConnected"],
        "npus_count": [len(traces)],
        "bandwidth": [1e6],
        "latency": [0],
    }
    result = simulate(
        Workload(traces, np.arange(len(traces), dtype=np.int32)),
        network=network,
        system={"profile": "corrected", "endpoint-delay": 0},
    )
    table = result.timeline.select(["actor", "name", "ready_ns"]).to_pylist()
    names = {row["name"] for row in table if row["name"].startswith("step ")} | {"end"}
    ready = [(row["ready_ns"], row["name"]) for row in table if row["name"] in names]
    latest = sorted(max(time for time, name in ready if name == wanted) for wanted in names)
    return latest[1:]


def order_of(stage: int, stages: int, count: int) -> list[tuple[str, int]]:
    """Return the passes of a stage in their order."""
    first = min(stages - stage - 1, count)
    passes = [("forward", number) for number in range(first)]
    for number in range(count - first):
        passes += [("forward", first + number), ("backward", number)]
    return passes + [("backward", number) for number in range(count - first, count)]


class MadeJob:
    """A step of one replica, whose times are found by going over all operations until none changes.

    `forward`, `backward` and `message` are durations: of passes by stage and micro-batch, and of a message.
    """

    def __init__(self, forward: Any, backward: Any, message: int) -> None:
        self.stages, self.count = forward.shape
        self.took = {"forward": forward, "backward": backward}
        self.message = message
        self.begin: dict[tuple[str, int, int], int] = {}
        while self._sweep():
            pass

    def _sweep(self) -> bool:
        before = dict(self.begin)
        for stage in range(self.stages):
            free = 0
            for way, number in order_of(stage, self.stages, self.count):
                self.begin[way, stage, number] = max(free, self._came(way, stage, number))
                free = self.end(way, stage, number)
        return before != self.begin

    def end(self, way: str, stage: int, number: int) -> int:
        """Return the end of a pass."""
        begin = self.begin.get((way, stage, number), 0)
        return int(begin + self.took[way][stage, number])

    def partner(self, way: str, stage: int) -> int:
        """Return the stage that a pass receives from."""
        return stage - 1 if way == "forward" else stage + 1

    def posted(self, way: str, stage: int, number: int) -> int:
        """Return when a pass begins to receive."""
        earlier = self.end(way, stage, number - 1) if number else 0
        order = order_of(stage, self.stages, self.count)
        first = order.index(("backward", 0))
        if (way, number) == ("backward", 0) and first >= 2:
            earlier = self.end(order[first - 2][0], stage, order[first - 2][1])
        if number:
            earlier = max(earlier, self._came(way, stage, number - 1))
        return earlier

    def _came(self, way: str, stage: int, number: int) -> int:
        """Return when the message for a pass has come."""
        sender = self.partner(way, stage)
        if not 0 <= sender < self.stages:
            return 0
        sent = self.end(way, sender, number)
        if number:
            sent = max(sent, self._came(way, stage, number - 1))
        return max(sent, self.posted(way, stage, number)) + self.message

    def rows(self, step: int, replica: int, update: int) -> list[Row]:
        """Return the rows of a recording in nanoseconds; the update begins when the last rank has ended."""
        rows = []

        def add(kind: str, stage: int, number: int, begin: int, end: int) -> None:
            place = {"dp_rank": replica, "stage": stage, "rank": 10 * replica + stage, "step": step}
            rows.append(place | {"optype": kind, "seq_id": number, "mc": 0, "begin": begin, "end": end})

        for (way, stage, number), begin in self.begin.items():
            add(f"{way}-compute", stage, number, begin, self.end(way, stage, number))
            sender = self.partner(way, stage)
            if 0 <= sender < self.stages:
                came = self._came(way, stage, number)
                sent = self.end(way, sender, number)
                if number:
                    sent = max(sent, self._came(way, stage, number - 1))
                add(f"{way}-recv", stage, number, self.posted(way, stage, number), came)
                add(f"{way}-send", sender, number, sent, came)
        for stage in range(self.stages):
            last = max(
                self.end(way, stage, number) for way, number in order_of(stage, self.stages, self.count)
            )
            add("optimizer-clip-main-grad", stage, 0, last, last)  # its end follows when all are known
            add("optimizer", stage, 0, last, last + update)
        return rows


def written(path: Path, rows: list[Row]) -> Path:
    """Write a recording whose updates begin together, and return its path."""
    for step in {row["step"] for row in rows}:
        clips = [row for row in rows if (row["step"], row["optype"]) == (step, "optimizer-clip-main-grad")]
        last = max(row["begin"] for row in clips)
        for row in clips:
            row["end"] = last
        for row in rows:
            if (row["step"], row["optype"]) == (step, "optimizer"):
                row["begin"], row["end"] = last, row["end"] - row["begin"] + last
    columns = {name: [row[name] for row in rows] for name in rows[0] if name not in ("begin", "end")}
    columns["start_ts"] = [row["begin"] / 1e9 for row in rows]
    columns["duration"] = [(row["end"] - row["begin"]) / 1e9 for row in rows]
    pq.write_table(pa.table(columns), path)
    return path
