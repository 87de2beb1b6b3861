"""Memory that the profiler recorded becomes tensors, whose peak in a run is the recorded one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_pytorch_causality import MAIN, Timeline

import et_sim
from converters.cli import main
from converters.pytorch.converting import convert_rank
from converters.pytorch.emission import trace_bytes
from converters.pytorch.reading import read_device
from converters.pytorch.report import lines, report_on
from et_sim.trace import decode

SAMPLE = Path(__file__).parent / "data/samples/h100_bert_small.json.gz"
RECORDED_PEAK = 101_305_344  # the largest "Total Allocated" of the file
TRACKED = {"track-local-mem": 1, "replay-only": 1}
ALONE = {"topology": ["Ring"], "npus_count": [1], "bandwidth": [50], "latency": [500]}


class Allocator:
    """A recorded allocator: changes of a device's memory, with its totals."""

    def __init__(self, timeline: Timeline, kept: int) -> None:
        self.timeline, self.allocated, self.peak = timeline, kept, kept
        self.sizes: dict[int, int] = {}

    def change(self, ts: float, address: int, size: int, device_type: int = 1) -> None:
        self.allocated += size if device_type else 0
        self.peak = max(self.peak, self.allocated)
        args: dict[str, Any] = {"Device Type": device_type, "Device Id": 0, "Addr": address, "Bytes": size}
        args |= {"Total Allocated": self.allocated, "Total Reserved": 1 << 20}
        event = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "ts": ts}
        self.timeline.events.append(event | {"pid": 1, "tid": MAIN, "args": args})


def peak_of(timeline: Timeline) -> int:
    """Return the peak of a run of the converted timeline."""
    rank = timeline.converted().rank
    workload = et_sim.Workload.of([decode(b"".join(trace_bytes(rank)), "converted")])
    result = et_sim.simulate(workload, system=TRACKED, network=ALONE)
    return int(result.statistics.peak_memory_bytes.max())


def reported(timeline: Timeline) -> dict[str, Any] | None:
    memory: dict[str, Any] | None = report_on(timeline.converted().rank, [], "", 0)["memory"]
    return memory


def test_the_peak_of_a_run_is_the_recorded_one(tmp_path: Path) -> None:
    timeline = Timeline(tmp_path)
    for at in range(4):
        timeline.operator(f"op{at}", 10 * at, 8)
    allocator = Allocator(timeline, 1000)
    allocator.change(1, 0x10, 64)
    allocator.change(11, 0x20, 512)
    allocator.change(21, 0x10, -64)
    allocator.change(31, 0x20, -512)
    assert peak_of(timeline) == allocator.peak == 1576
    figures = {"tensors": 5, "begin_bytes": 1000, "peak_bytes": 1576, "peak_ns": 11_000}
    assert reported(timeline) == figures | {"reserved_bytes": 1 << 20}


def test_a_release_of_memory_from_before_the_recording_ends_it(tmp_path: Path) -> None:
    timeline = Timeline(tmp_path)
    for at in range(3):
        timeline.operator(f"op{at}", 10 * at, 8)
    allocator = Allocator(timeline, 1000)
    allocator.change(1, 0x10, -600)
    allocator.change(21, 0x20, 100)
    assert peak_of(timeline) == 1000
    rank = timeline.converted().rank
    assert rank.memory is not None
    read = [words for words in rank.memory.reads.values() if words]
    assert ("allocation before 0", "600") in read
    assert ("kept from before the recording", "400") in read
    assert (rank.memory.peak_bytes, rank.memory.peak_ns) == (1000, 0)


def test_memory_of_the_host_is_left_out(tmp_path: Path) -> None:
    timeline = Timeline(tmp_path)
    timeline.operator("op", 0, 10)
    Allocator(timeline, 0).change(1, 0x10, 64, device_type=0)
    assert reported(timeline) is None
    assert report_on(timeline.converted().rank, [], "", 0)["not_converted"] == {"instants": 1}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 1000)), min_size=1, max_size=20))
def test_each_change_in_an_operator_of_its_own_gives_the_recorded_peak(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    timeline = Timeline(tmp_path_factory.mktemp("random"))
    allocator, alive = Allocator(timeline, 50), dict[int, int]()
    for at, (address, size) in enumerate(changes):
        timeline.operator(f"op{at}", 10 * at, 8)
        released = alive.pop(address, 0)
        if not released:
            alive[address] = size
        allocator.change(10 * at + 1, address, -released or size)
    memory = reported(timeline)
    assert memory is not None
    assert memory["peak_bytes"] == allocator.peak == peak_of(timeline)


def test_a_real_recording_has_the_peak_that_its_allocator_states() -> None:
    rank = convert_rank(None, read_device(SAMPLE))
    report = report_on(rank, [], "", 0)
    assert report["memory"]["peak_bytes"] == RECORDED_PEAK
    workload = et_sim.Workload.of([decode(b"".join(trace_bytes(rank)), "converted")])
    result = et_sim.simulate(workload, system=TRACKED, network=ALONE)
    assert int(result.statistics.peak_memory_bytes.max()) == RECORDED_PEAK


def test_a_recording_without_memory_says_how_to_record_it(tmp_path: Path) -> None:
    timeline = Timeline(tmp_path)
    timeline.operator("op", 0, 10)
    timeline.launch("kernel", 2, 6, 2)
    rank = timeline.converted().rank
    text = "\n".join(lines(report_on(rank, [], "", 0)))
    assert "memory           not recorded: record with profile_memory=True" in text
    assert main(["pytorch", "--device", str(timeline.path), "-o", str(tmp_path / "out.0.et")]) == 0
