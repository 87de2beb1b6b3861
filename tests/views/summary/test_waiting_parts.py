"""The bubble, imbalance, stragglers and messages of a pipeline: closed forms, and figures that add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machines import FIFO_RING, ring
from runs_to_show import pipeline, run_written, side_by_side
from training_jobs import transformer

import et_sim
from et_sim.views import open_run
from et_sim.views.summary.facts import facts
from et_sim.views.summary.waiting import WaitingParts, waiting_parts

pytestmark = pytest.mark.usefixtures("warm_engine")
STAGES, MICRO_BATCHES, REPLICAS = 4, 6, 2
FORWARD_NS, BACKWARD_NS, HEAD_NS = 100_000, 200_000, 60_000
FAST: dict[str, Any] = ring(STAGES * REPLICAS, 10**6, 0) | {"topology": ["FullyConnected"]}
FREE = FIFO_RING | {"endpoint-delay": 0}


def stage(place: int, replica: int, *, slower: float = 1.0, head_ns: int = 0) -> et_sim.Trace:
    """Return all forward passes, then all backward ones; the last stage may have a head."""
    build, before, rank = et_sim.TraceBuilder(), list[int](), place * REPLICAS + replica
    for way, nanos, step in (("forward", FORWARD_NS, 1), ("backward", BACKWARD_NS, -1)):
        for number in range(MICRO_BATCHES):
            source, target = place - step, place + step
            tag, after = number + MICRO_BATCHES * (step < 0), before
            if 0 <= source < STAGES:
                after = [*before, build.receive(rank - step * REPLICAS, 1, tag=tag, after=[])]
            kernel = build.compute(f"{way} {number} layers", nanos=round(nanos * slower), after=after)
            if head_ns and place == STAGES - 1 and step == 1:
                kernel = build.compute(f"{way} {number} head", nanos=head_ns, after=[kernel])
            if 0 <= target < STAGES:
                build.send(rank + step * REPLICAS, 1, tag=tag, after=[kernel])
            before = [kernel]
    return build.build()


def parts_of(folder: Path, *, slow: int | None = None, head_ns: int = 0, **options: Any) -> WaitingParts:
    """Return the parts of two replicas of a pipeline; one rank may take half as long again."""
    traces = [
        stage(*divmod(rank, REPLICAS), slower=1.5 if rank == slow else 1.0, head_ns=head_ns)
        for rank in range(STAGES * REPLICAS)
    ]
    run = open_run(run_written(folder, et_sim.Workload.of(traces), FAST, FREE, **options))
    parts = waiting_parts(run)
    assert parts is not None
    named = parts.bubble_ns, parts.imbalance_ns, parts.stragglers_ns, parts.messages_ns
    assert sum(named) == parts.total_ns
    assert min(named) >= 0
    waits = sum(
        (entry["waiting_ns"] + entry["early_ns"]) * len(entry["ranks"].split(","))
        for entry in run.summary["per_rank"]
        if "-" not in entry["ranks"]
    )
    if not any("-" in entry["ranks"] for entry in run.summary["per_rank"]):
        assert parts.total_ns == pytest.approx(waits / (STAGES * REPLICAS), abs=1)
    return parts


def test_equal_stages_wait_for_the_bubble_alone(tmp_path: Path) -> None:
    parts = parts_of(tmp_path / "run")
    assert parts.bubble_ns == (STAGES - 1) * (FORWARD_NS + BACKWARD_NS)
    assert (parts.imbalance_ns, parts.stragglers_ns, parts.slowest) == (0, 0, None)
    assert parts.messages_ns < 0.01 * parts.bubble_ns
    assert parts.stages == STAGES


def test_a_stage_with_more_operations_is_imbalance(tmp_path: Path) -> None:
    parts = parts_of(tmp_path / "run", head_ns=HEAD_NS)
    assert parts.imbalance_ns == pytest.approx(MICRO_BATCHES * HEAD_NS * (1 - 1 / STAGES), rel=0.01)
    assert (parts.stragglers_ns, parts.slowest) == (pytest.approx(0, abs=100), None)
    assert parts.most_work == "6-7"


def test_a_rank_that_is_slower_than_others_with_its_operations_is_a_straggler(tmp_path: Path) -> None:
    parts = parts_of(tmp_path / "run", slow=3)
    own = MICRO_BATCHES * (FORWARD_NS + BACKWARD_NS)
    assert parts.stragglers_ns == pytest.approx(own / 2 * (1 - 1 / (STAGES * REPLICAS)), rel=0.01)
    assert parts.imbalance_ns == pytest.approx(0, abs=100)
    assert parts.slowest == "3"
    assert parts.times_slower == pytest.approx(1.5, rel=0.01)


def test_folded_or_not_the_parts_are_the_same(tmp_path: Path) -> None:
    folded, unfolded = (
        waiting_parts(open_run(pipeline(tmp_path / str(fold), fold=fold))) for fold in (True, False)
    )
    assert folded is not None
    assert folded == unfolded


def test_the_summary_of_a_pipeline_has_them_and_no_rank_that_is_waited_for(tmp_path: Path) -> None:
    lines = facts(open_run(pipeline(tmp_path / "run")))
    assert any(line.startswith("waiting  ") and "bubble (2 equal stages" in line for line in lines)
    assert not any(line.startswith("waited for") for line in lines)


def test_a_job_without_stages_has_no_bubble(tmp_path: Path) -> None:
    assert waiting_parts(open_run(side_by_side(tmp_path / "run"))) is None
    alone = run_written(tmp_path / "alone", transformer(data=2), ring(2, "50GB/s"))
    assert waiting_parts(open_run(alone)) is None
