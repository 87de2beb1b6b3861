"""Recordings of real runs, converted and then edited: replays keep their nanoseconds, and nothing dangles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import et_sim
from converters.cli import main
from converters.records import parse, split
from et_sim.trace import read_trace, read_workload
from et_sim.trace.preflight import find_problems

RECORDINGS = Path(__file__).parent / "pytorch_traces"
REPLAY = {
    "scheduling-policy": "FIFO",
    "all-reduce-implementation": ["ring"],
    "all-to-all-implementation": ["ring"],
    "local-mem-bw": 50,
    "replay-only": 1,
}
CASES = ("gloo_ddp_2r", pytest.param("megatron_tp8", marks=pytest.mark.deep), "dlrm_8r")


def finish_ns(named: str, ranks: int) -> list[int]:
    network = {"topology": ["Switch"], "npus_count": [ranks], "bandwidth": [50], "latency": [500]}
    result: list[int] = et_sim.simulate(named, system=REPLAY, network=network).finish_ns.tolist()
    return result


@pytest.fixture(scope="module", params=CASES)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the prefix of a converted recording of two ranks."""
    folder = tmp_path_factory.mktemp(request.param)
    prefix = str(folder / "job")
    assert main(["pytorch", str(RECORDINGS / request.param), "-o", prefix]) == 0
    return prefix


@pytest.mark.deep
@pytest.mark.usefixtures("warm_engine")
def test_without_the_host_but_with_its_time_every_rank_ends_as_before(recorded: str) -> None:
    assert main(["strip", recorded, "-o", f"{recorded}-timed", "--keep-delays"]) == 0
    assert len(read_trace(f"{recorded}-timed.0.et")) < len(read_trace(f"{recorded}.0.et")) / 3
    assert finish_ns(f"{recorded}-timed", 2) == finish_ns(recorded, 2)
    assert main(["strip", recorded, "-o", f"{recorded}-devices"]) == 0
    assert max(finish_ns(f"{recorded}-devices", 2)) < max(finish_ns(recorded, 2))


@pytest.mark.deep
def test_a_window_of_time_fits_together(recorded: str) -> None:
    call = ["slice", recorded, "-o", f"{recorded}-part", "--window", "5ms:15ms", "--drop-open"]
    assert main(call) == 0
    part = read_workload(f"{recorded}-part")
    assert 0 < len(part.trace(0)) < len(read_trace(f"{recorded}.0.et"))
    assert [problem.text for problem in find_problems(part) if problem.severity == "error"] == []
    old = {node.id: node for node in nodes(f"{recorded}.0.et")}
    for node in nodes(f"{recorded}-part.0.et"):
        assert node.attr == old[node.id].attr
        assert (node.name, node.inputs, node.outputs) == (
            old[node.id].name,
            old[node.id].inputs,
            old[node.id].outputs,
        )


@pytest.mark.deep
def test_json_lines_come_back_byte_for_byte(recorded: str) -> None:
    assert main(["unjson", f"{recorded}.0.et", "-o", f"{recorded}-lines"]) == 0
    assert main(["json", f"{recorded}-lines.0.jsonl", "-o", f"{recorded}-back"]) == 0
    assert Path(f"{recorded}-back.0.et").read_bytes() == Path(f"{recorded}.0.et").read_bytes()


@pytest.mark.deep
@pytest.mark.usefixtures("warm_engine")
def test_replicas_replay_like_the_recording(recorded: str) -> None:
    call = ["scale", recorded, "--replicas", "3", "--keep-groups", "-o", f"{recorded}-six"]
    assert main(call) == 0
    assert finish_ns(f"{recorded}-six.workload.json", 6) == finish_ns(recorded, 2) * 3


def test_an_iteration_of_a_recorded_loop_stands_alone(tmp_path: Path) -> None:
    prefix = str(tmp_path / "job")
    assert main(["pytorch", str(RECORDINGS / "gloo_ddp_2r"), "-o", prefix]) == 0
    assert main(["slice", prefix, "-o", f"{prefix}-3", "--iterations", "3"]) == 0
    part = read_workload(f"{prefix}-3")
    markers = [name for name in part.trace(0).names if name.startswith("ProfilerStep#")]
    assert markers == ["ProfilerStep#3"]
    assert find_problems(part) == []
    both = [len(read_trace(f"{prefix}.{rank}.et")) for rank in range(2)]
    assert main(["slice", prefix, "-o", f"{prefix}-2", "--iterations", "2"]) == 0
    other = read_workload(f"{prefix}-2")
    metadata = sum(1 for node in nodes(f"{prefix}.0.et") if node.type == 1)
    assert [len(part.trace(rank)) + len(other.trace(rank)) - metadata for rank in range(2)] == both


def nodes(path: str) -> list[Any]:
    _, *result = parse(split(Path(path).read_bytes()), path)
    return result
