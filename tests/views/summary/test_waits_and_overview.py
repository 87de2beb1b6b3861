"""The ranks that groups wait for equal those of single nodes; the parts of a rank's time are complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from machines import FIFO_RING, RING_2
from runs_to_show import pipeline, side_by_side

import et_sim
from et_sim.basics.units import parse_ranks
from et_sim.execution import execute
from et_sim.run.options import RunOptions
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.summary.parts import NAMES, parts_of
from et_sim.views.summary.waits import waits_of

pytestmark = pytest.mark.usefixtures("warm_engine")
COLUMNS = ("actor", "group", "waiting_ns", "waits_for")


@pytest.mark.parametrize("fold", [True, False])
def test_groups_wait_for_those_that_their_nodes_wait_for(fold: bool, tmp_path: Path) -> None:
    run = open_run(pipeline(tmp_path / "run", fold=fold))
    ranks, count = run.actors()["ranks"].to_pylist(), run.rank_counts()
    alike = {
        rank: entry["ranks"]
        for entry in run.summary["per_rank"]
        for span in parse_ranks(entry["ranks"])
        for rank in span
    }
    whom: dict[str, Counter[str]] = {}
    for batch in run.batches("timeline", COLUMNS):
        for row in batch.to_pylist():
            if row["waiting_ns"] and row["waits_for"] is not None:
                ns_of = whom.setdefault(row["group"] or "sends and receives", Counter())
                first = parse_ranks(ranks[row["waits_for"]])[0].start
                ns_of[alike[first]] += int(count[row["actor"]]) * row["waiting_ns"]
    groups = {line.name: line for line in waits_of(run).groups}
    assert whom
    for name, line in groups.items():
        expected = whom.get(name, Counter())
        assert line.waiting_ns == line.nodes_waiting_ns == expected.total()
        most = max(expected.values(), default=0)
        assert line.waits_for_ns == most
        assert line.waits_for in ([name for name in expected if expected[name] == most] or [None])


def _stalled(folder: Path) -> Path:
    first, second = et_sim.TraceBuilder(), et_sim.TraceBuilder()
    first.compute("work", nanos=1000)
    second.compute("work", nanos=400)
    second.receive(0, 64, tag=7)
    result = execute(
        et_sim.Workload.of([first.build(), second.build()]), RunOptions(system=FIFO_RING, network=RING_2)
    )
    assert not result.is_complete
    write_run(result, folder)
    return folder


@pytest.mark.parametrize("make", [pipeline, side_by_side, _stalled])
def test_the_bars_of_the_overview_add_up_to_the_makespan(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    run = open_run(make(tmp_path / "run"))
    for entry in run.summary["per_rank"]:
        parts = parts_of(entry)
        assert set(parts) == {key for key, _ in NAMES}
        assert min(parts.values()) >= 0
        assert sum(parts.values()) == run.summary["makespan_ns"]
