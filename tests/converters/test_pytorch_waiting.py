"""Waits become dependencies if the recording shows them, and only then."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_pytorch_causality import COMPUTE, NCCL, OTHER, Timeline

from converters.pytorch.graph import Link
from converters.pytorch.late_work import find_reach


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    return Timeline(tmp_path)


def test_a_thread_that_goes_on_long_after_another_stopped_has_not_waited_for_it(timeline: Timeline) -> None:
    timeline.operator("here", 0, 100)
    timeline.operator("there", 150, 50, tid=OTHER)
    timeline.operator("later", 300, 50)
    converted = timeline.converted()
    assert not converted.comes_after("there", "here")
    assert not converted.comes_after("later", "there")


def test_a_thread_is_released_by_one_that_repeatedly_passes_the_same_place(timeline: Timeline) -> None:
    """Link the next batch of a loader to its delivery of the last one."""
    for step in range(4):
        begin = 1000 * step
        for part in range(9):
            timeline.operator(f"load {part}", begin + 100 * part, 95, tid=OTHER)
        timeline.operator("put", begin + 900, 95, tid=OTHER)
        timeline.operator(f"use {step}", begin + 1003, 400 - 50 * step)
        timeline.events[-1]["name"] = "use"
    converted = timeline.converted()
    assert converted.comes_after("use", "put")
    assert converted.rank.graph.kind.tolist().count(Link.CROSS_THREAD) == 4


def test_threads_that_resume_at_one_instant_have_not_released_each_other(timeline: Timeline) -> None:
    """Leave the time before both without an owner if neither thread released the other."""
    timeline.operator("here", 0, 1)
    timeline.operator("there", 0, 1, tid=OTHER)
    timeline.operator("here again", 50, 0)
    timeline.operator("there again", 50, 0, tid=OTHER)
    graph = timeline.converted().rank.graph
    assert Link.CROSS_THREAD not in graph.kind
    assert graph.replayed()[0].max() == graph.end_ns.max()


def test_nodes_of_autograd_on_two_threads_wait_for_each_other(timeline: Timeline) -> None:
    node = "autograd::engine::evaluate_function: "
    for number in range(4):
        timeline.operator(f"{node}{number}", 100 * number, 98, tid=OTHER)
    timeline.operator("forward", 0, 50)
    timeline.operator(f"{node}AccumulateGrad", 305, 20)
    converted = timeline.converted()
    assert converted.comes_after(f"{node}AccumulateGrad", f"{node}2")


def test_repeated_queries_are_waits(timeline: Timeline) -> None:
    timeline.operator("op", 0, 3)
    timeline.launch("kernel", 4, 10, 91)
    timeline.call("cudaEventRecord", 8, 1)
    for at in range(10, 106, 5):
        timeline.call("cudaEventQuery", at, 2)
    timeline.operator("next", 110, 10)
    converted = timeline.converted()
    assert converted.waits_directly("cudaEventQuery", "kernel", Link.SYNC)
    assert converted.span("cudaEventQuery") == (101, 107)


def test_queries_of_several_past_events_are_no_waits(timeline: Timeline) -> None:
    timeline.launch("kernel", 4, 10, 50)
    timeline.call("cudaEventRecord", 8, 1)
    for at in (100, 102, 104):
        timeline.call("cudaEventQuery", at, 1)
    timeline.operator("next", 110, 10)
    converted = timeline.converted()
    assert not converted.comes_after("next", "kernel")


def test_a_stream_waits_for_work_called_by_another_thread(timeline: Timeline) -> None:
    timeline.operator("main", 0, 5)
    timeline.launch("gradient", 20, 30, 30, tid=OTHER)
    timeline.call("cudaEventRecord", 24, 1, tid=OTHER)
    timeline.call("cudaStreamWaitEvent", 26, 1, tid=OTHER)
    timeline.launch("reduce", 28, 62, 40, stream=NCCL, tid=OTHER)
    timeline.call("cudaEventRecord", 31, 1, tid=OTHER)
    timeline.call("cudaStreamWaitEvent", 34, 1, tid=OTHER)
    timeline.launch("update", 38, 105, 5)
    converted = timeline.converted()
    assert converted.waits_directly("reduce", "gradient", Link.EVENT_WAIT)
    assert converted.waits_directly("update", "reduce", Link.EVENT_WAIT)


def test_collectives_in_flight_are_awaited_in_the_order_of_their_start(timeline: Timeline) -> None:
    for number, call in enumerate((0, 20)):
        timeline.launch(f"shard {number}", call, 10 + 20 * number, 5)
        timeline.operator(f"c10d::gather {number}", call + 4, 14)
        timeline.call("cudaEventRecord", call + 5, 1)
        timeline.call("cudaStreamWaitEvent", call + 7, 1)
        timeline.launch(f"gather {number}", call + 9, 50 * number + 40, 45, stream=NCCL)
        timeline.call("cudaEventRecord", call + 13, 1)
    timeline.call("cudaStreamWaitEvent", 45, 1)
    timeline.launch("first layer", 48, 87, 30)
    timeline.call("cudaStreamWaitEvent", 52, 1)
    timeline.launch("second layer", 55, 140, 30)
    converted = timeline.converted()
    assert converted.waits_directly("first layer", "gather 0", Link.EVENT_WAIT)
    assert not converted.comes_after("first layer", "gather 1")
    assert converted.waits_directly("second layer", "gather 1", Link.EVENT_WAIT)


def test_work_that_began_late_right_after_work_of_another_stream_awaited_it(timeline: Timeline) -> None:
    timeline.launch("long", 0, 10, 200, stream=NCCL)
    timeline.launch("before", 4, 12, 5)
    timeline.launch("late", 8, 213, 5)
    converted = timeline.converted()
    assert converted.waits_directly("late", "long", Link.EVENT_WAIT)
    assert converted.rank.tally.counts["waits of streams, concluded from when work began"] == 1


def _layers(timeline: Timeline, latencies: list[int]) -> None:
    """Add collectives and kernels in turn, each kernel at a latency after its collective, without calls for
    waits.
    """
    begin = 100
    for number, latency in enumerate(latencies):
        timeline.launch(f"gather {number}", 10 * number, begin, 500, stream=NCCL)
        timeline.launch(f"layer {number}", 10 * number + 4, begin + 500 + latency, 50)
        begin += 550 + latency + 3


def test_the_latency_after_awaited_work_follows_from_the_recording(timeline: Timeline) -> None:
    """Infer a latency of 14 to 19 us; the much later kernel waited for other work."""
    _layers(timeline, [14, 19, 16, 17, 15, 18, 16, 160])
    converted = timeline.converted()
    for number in range(7):
        assert converted.waits_directly(f"layer {number}", f"gather {number}", Link.EVENT_WAIT)
    assert not converted.waits_directly("layer 7", "gather 7", Link.EVENT_WAIT)
    (output,) = converted.rank.tally.examples["waits of streams, concluded from when work began"]
    assert output == "within 19 µs of the awaited work, as 14 that began late; 4 % by accident"


def test_a_recording_that_shows_little_is_taken_to_be_as_others(timeline: Timeline) -> None:
    _layers(timeline, [2])
    converted = timeline.converted()
    assert converted.waits_directly("layer 0", "gather 0", Link.EVENT_WAIT)
    (output,) = converted.rank.tally.examples["waits of streams, concluded from when work began"]
    assert output == "within 10 µs of the awaited work, the usual value, as the recording has too few samples"


def test_work_launched_before_the_recording_waits_too(timeline: Timeline) -> None:
    timeline.operator("op", 0, 5)
    timeline.kernel("reduce", 10, 300, NCCL, 1)  # no call has this correlation
    timeline.kernel("update", 313, 20, COMPUTE, 2)
    timeline.launch("later", 6, 340, 5)
    converted = timeline.converted()
    assert converted.waits_directly("update", "reduce", Link.EVENT_WAIT)
    assert converted.comes_after("later", "update")


@given(
    pile=st.lists(st.integers(1_000, 40_000), min_size=5, max_size=40),
    beyond=st.lists(st.integers(250_000, 1_000_000), max_size=3),
    rng=st.randoms(use_true_random=False),
)
def test_the_reach_covers_the_pile_in_any_order_and_nothing_far_from_it(
    pile: list[int], beyond: list[int], rng: random.Random
) -> None:
    distances = [*pile, *beyond]
    rng.shuffle(distances)
    ones = np.ones(len(distances), np.int64)
    reach = find_reach(np.array(distances), ones, 1_000_000 * ones)
    assert reach.ns == max(pile)
    assert reach.samples == len(pile)
    assert 0 <= reach.accidents < 0.25


def test_work_that_began_late_awaited_nothing_of_a_stream_that_ends_work_all_the_time(
    timeline: Timeline,
) -> None:
    for number in range(20):
        timeline.launch(f"short {number}", 2 + 3 * number, 100 + 10 * number, 9, stream=NCCL)
    timeline.launch("before", 62, 70, 5)
    timeline.launch("late", 66, 293, 5)
    converted = timeline.converted()
    assert Link.EVENT_WAIT not in converted.rank.graph.kind.tolist()


def test_a_copy_that_blocks_begins_after_its_stream_and_not_at_a_fixed_time(timeline: Timeline) -> None:
    for number in range(8):
        timeline.launch(f"kernel {number}", 100 * number, 100 * number + 6, 20)
    timeline.launch("long", 800, 806, 300)
    timeline.kernel("Memcpy DtoH", 1107, 10, COMPUTE, timeline.call("cudaMemcpy", 810, 310))
    timeline.operator("next", 1125, 10)
    converted = timeline.converted()
    assert converted.comes_after("next", "Memcpy DtoH")
    graph, copy = converted.rank.graph, converted.row("Memcpy DtoH")
    before = graph.before[graph.after == copy]
    launched = [row for row in before.tolist() if "launch" in converted.names[row]]
    assert [graph.end_ns[row] for row in launched] == [816_000]


def test_queued_work_could_have_begun_after_its_usual_latency(timeline: Timeline) -> None:
    for number in range(6):
        timeline.launch(f"kernel {number}", 100 * number, 100 * number + 7, 20)
    timeline.launch("long", 600, 607, 300)
    timeline.launch("queued", 610, 908, 20)
    converted = timeline.converted()
    graph, queued = converted.rank.graph, converted.row("queued")
    ends = {
        converted.names[row]: int(graph.end_ns[row]) for row in graph.before[graph.after == queued].tolist()
    }
    assert ends == {"launch gap of stream 7": 617_000, "stream gap of stream 7": 908_000}


def test_a_wait_for_a_stream_includes_the_waits_of_that_stream(timeline: Timeline) -> None:
    timeline.launch("gradient", 0, 8, 10)
    timeline.operator("c10d::allreduce_", 3, 20)
    timeline.call("cudaEventRecord", 4, 1)
    timeline.call("cudaStreamWaitEvent", 6, 1)
    timeline.launch("reduce", 9, 22, 90, stream=NCCL)
    timeline.call("cudaEventRecord", 14, 1)
    timeline.call("cudaStreamWaitEvent", 26, 1)
    timeline.call("cudaStreamSynchronize", 30, 85)
    timeline.launch("next", 120, 128, 10)
    converted = timeline.converted()
    assert converted.waits_directly("cudaStreamSynchronize", "reduce", Link.SYNC)
    assert converted.span("cudaStreamSynchronize") == (112, 115)


def test_a_recorded_wait_for_an_event_is_for_the_work_before_its_record(timeline: Timeline) -> None:
    """Ignore other work that ended just before the wait did, and the last record."""
    timeline.launch("meant", 0, 10, 40)
    recorded = timeline.call("cudaEventRecord", 4, 1)
    timeline.launch("later", 6, 60, 20)
    timeline.launch("elsewhere", 9, 15, 70, stream=NCCL)
    timeline.call("cudaEventRecord", 12, 1)
    waited = timeline.call("cudaEventSynchronize", 20, 72)
    output = {"wait_on_stream": COMPUTE, "wait_on_cuda_event_record_corr_id": recorded}
    timeline.sync("Event Sync", 20.5, -1, waited, **output, wait_on_cuda_event_id=1)
    timeline.operator("next", 100, 10)
    converted = timeline.converted()
    assert converted.waits_directly("cudaEventSynchronize", "meant", Link.SYNC)
    assert not converted.comes_after("next", "later")
    assert not converted.comes_after("next", "elsewhere")
