"""Collectives that one process launches on all GPUs of a node: repetitions wait for the host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from et_sim.validation.launching import LAUNCH_US, PAIR_US, launches_us
from et_sim.validation.predictions import predictions
from et_sim.validation.row import Collective
from et_sim.validation.tables import read_tables

TABLE: dict[str, Any] = {
    "id": "t",
    "hardware": "8xA100-SXM4-40GB",
    "nodes": 1,
    "gpus": 8,
    "collective": "all_reduce",
    "rows": [[8, 30.0], [1 << 30, 8000.0]],
}


def rows(**changes: Any) -> list[Any]:
    return list(read_tables(Path("t.json"), json.dumps([{**TABLE, **changes}])))


def test_launches_of_one_process_follow_each_other() -> None:
    """Check against the run on 2 to 8 GPUs that they are from (NVIDIA/nccl-tests issue 123)."""
    measured = {2: 10.0, 3: 13.76, 4: 16.88, 5: 20.8, 6: 25.2, 7: 29.5, 8: 33.7}
    for gpus, time_us in measured.items():
        assert launches_us("all_reduce", gpus, gpus) == pytest.approx(time_us, rel=0.2 if gpus < 4 else 0.1)
    assert launches_us("all_reduce", 8, 1) == launches_us("all_to_all", 8, 1) == 0
    assert launches_us("all_to_all", 8, 8) == pytest.approx(8 * (LAUNCH_US + 16 * PAIR_US))
    assert launches_us("all_to_all", 16, 8) == pytest.approx(8 * (LAUNCH_US + 32 * PAIR_US))


def test_a_table_or_its_program_states_the_gpus_of_a_process() -> None:
    def per_process(**changes: Any) -> list[int]:
        return [row.job.gpus_per_process for row in rows(**changes) if isinstance(row.job, Collective)]

    assert per_process() == per_process(source="VIA-Research/vTrain@f8dda8473a") == [1, 1]
    assert per_process(gpus_per_process=4) == [4, 4]
    log = "microsoft/superbenchmark@700d6501f1:tests/data/nccl_allreduce.log"
    assert per_process(source=log) == [8, 8]
    assert per_process(source=log, nodes=2, gpus=8) == [4, 4]
    assert per_process(source=log, gpus_per_process=1) == [1, 1]


@pytest.mark.parametrize(("given", "part"), [(3, "does not divide the 8 GPUs"), (0, "is 0"), ("8", 'is "8"')])
def test_a_wrong_number_of_gpus_of_a_process_is_a_reason(given: Any, part: str) -> None:
    read = rows(gpus_per_process=given)
    assert [row.job for row in read] == [None, None]
    assert all("gpus_per_process" in row.why and part in row.why for row in read)


def test_each_collective_waits_for_what_launches_take_beyond_the_shortest_one() -> None:
    own, shared = (list(predictions(rows(gpus_per_process=count))) for count in (1, 8))
    times = [
        (one.predicted_us or 0.0, other.predicted_us or 0.0) for one, other in zip(own, shared, strict=True)
    ]
    waits = [other - one for one, other in times]
    assert times[0][1] == pytest.approx(8 * LAUNCH_US)
    assert 0 < waits[0] == pytest.approx(waits[1], abs=0.01)
    for (_, time_us), wait_us, prediction in zip(times, waits, shared, strict=True):
        assert prediction.composition is not None
        shares = {part["class"]: part["share"] for part in prediction.composition["parts"]}
        assert shares["host"] == pytest.approx(wait_us / time_us, abs=1e-5)
        assert sum(shares.values()) == pytest.approx(1)


def test_one_process_adds_as_much_as_on_a_machine_that_was_measured_both_ways() -> None:
    """Check against the two runs that `launching` names: a process for each GPU, and one for all."""
    measured = {32: 18.3, 1 << 19: 20.2, 1 << 20: 14.7, 1 << 22: 22.1}  # us more
    table = [[size, 1.0] for size in measured]
    own, shared = (list(predictions(rows(gpus_per_process=count, rows=table))) for count in (1, 8))
    for one, other, more_us in zip(own, shared, measured.values(), strict=True):
        assert (other.predicted_us or 0) - (one.predicted_us or 0) == pytest.approx(more_us, abs=12)


def test_one_process_has_the_gpus_of_one_node() -> None:
    """Check 16 GPUs on machines of 8: two nodes, whether the table states them or not."""
    of_two, not_stated = (
        list(predictions(rows(gpus=16, source="microsoft/superbenchmark@1", **stated)))
        for stated in ({"nodes": 2}, {"nodes": None})
    )
    assert [row.predicted_us for row in of_two] == [row.predicted_us for row in not_stated]
    assert 8 * LAUNCH_US <= (of_two[0].predicted_us or 0) < 16 * LAUNCH_US
