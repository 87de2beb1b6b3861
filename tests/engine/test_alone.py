"""Ranks simulated by themselves: their communication takes its recorded time, without other ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import RING_8, system

import et_sim
from et_sim.basics.errors import TraceError, UsageError
from et_sim.cli import main
from et_sim.trace import TraceBuilder, write_trace

SYSTEM = system(**{"peak-perf": 1, "local-mem-bw": 1})


def of_rank(rank: int) -> TraceBuilder:
    """Return a kernel, a collective with absent ranks, and a message to one of them."""
    build = TraceBuilder()
    build.process_groups({"2": [2, 7]})
    kernel = build.compute("kernel", nanos=100 * rank, num_ops=1, tensor_bytes=7)
    reduced = build.collective("all_reduce", 1 << 20, "2", nanos=1000, after=[kernel])
    sent = build.send(6, 64, after=[reduced])
    build.receive(5, 64, after=[sent])
    return build


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    for rank in (2, 3):
        write_trace(of_rank(rank).build(), tmp_path / f"job.{rank}.et")
    return tmp_path / "job"


@pytest.mark.parametrize("fold", [True, False])
def test_the_available_ranks_of_many_run_as_they_are(prefix: Path, fold: bool) -> None:
    result = et_sim.simulate(prefix, system=SYSTEM, network=RING_8, alone=True, fold=fold)
    assert result.finish_ns.tolist() == [200 + 1002, 300 + 1002]  # of messages, no time is recorded: 1 ns
    assert result.coverage["replayed_communication"] == 6
    output = [warning["text"] for warning in result.manifest["warnings"]]
    assert "ranks are renumbered: 0 is rank 2 of job.2.et, 1 is rank 3 of job.3.et" in output
    assert "every rank runs by itself: communication takes its recorded time" in output


def test_one_file_runs_as_one_rank_and_kernels_are_still_modelled(prefix: Path) -> None:
    file = prefix.with_name("job.3.et")
    modelled = SYSTEM | {"roofline-enabled": 1}
    result = et_sim.simulate(file, system=modelled, network=RING_8, alone=True)
    assert result.finish_ns.tolist() == [7 + 1002]  # 7 bytes at 1 GB/s


def test_without_it_missing_ranks_are_refused_and_the_remedy_names_it(prefix: Path) -> None:
    with pytest.raises(TraceError, match="--alone"):
        et_sim.simulate(prefix, system=SYSTEM, network=RING_8)


def test_check_and_run_agree_about_ranks_that_run_by_themselves(
    prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(prefix), "--alone"]) == 0
    assert "2 ranks, 10 nodes" in capsys.readouterr().out


def test_layer_files_record_no_times_of_communication(tmp_path: Path) -> None:
    layers = tmp_path / "layers.txt"
    layers.write_text("DATA\n1\nfirst -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1024 5\n")
    with pytest.raises(UsageError, match="records no times of communication"):
        et_sim.simulate(layers, system=SYSTEM, network=RING_8, alone=True)


def test_communication_without_any_recorded_time_does_not_run_alone(tmp_path: Path) -> None:
    build = TraceBuilder()
    build.collective("all_reduce", 1 << 20)
    write_trace(build.build(), tmp_path / "job.0.et")
    with pytest.raises(TraceError, match="has a recorded time, and --alone needs them"):
        et_sim.simulate(tmp_path / "job", system=SYSTEM, network=RING_8, alone=True)
    assert main(["check", str(tmp_path / "job"), "--alone"]) == 2
