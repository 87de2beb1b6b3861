"""Every kind of public sample converts with its recorded span, or is refused for a stated reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from converters.cli import main

HERE = Path(__file__).parent
SAMPLES = HERE / "data" / "samples"
HOSTS = HERE.parent / "machine" / "data" / "hosts"
LOGS = HERE.parent / "validation" / "data" / "mlperf"
CONVERTED = {
    SAMPLES / "sglang_Qwen3-8B_decode.json.gz": 1,
    SAMPLES / "h100_bert_small.json.gz": 1,
    SAMPLES / "908_results.json.gz": 1,
    HERE / "data" / "xplane" / "tw003.xplane.pb.gz": 8,
    HERE / "data" / "xplane" / "934987a2fc2f.xplane.pb.gz": 1,
    HERE / "pytorch_traces" / "device_only" / "rocm_device_only.json.gz": 1,
}
STEPS = [HERE / "data" / "stragglers" / f"{name}.parquet" for name in ("ST", "SE", "AR")]
REFUSED = {
    SAMPLES / "nccl_inspector.json": "records hold the times of collectives",
    SAMPLES / "ms-AR.json": "figures of an analysis, and no operations",
    SAMPLES / "mw-AR.json": "figures of an analysis, and no operations",
    SAMPLES / "result-ST.json": "figures of an analysis, and no operations",
    HOSTS / "dgx_a100_nccl_topo.xml": "et-sim machine from FILE",
    HOSTS / "infragraph_example.yaml": "et-sim machine from FILE",
    LOGS / "result_0.txt": "et-sim validate FILE",
    HERE / "data" / "README.md": "the format is not recognised",
}


@pytest.mark.deep
@pytest.mark.parametrize("path", CONVERTED, ids=lambda path: path.name)
def test_samples_of_profilers_replay_their_recorded_span(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recording", str(path), "-o", str(tmp_path / "job"), "--json"]) == 0
    ranks = json.loads(capsys.readouterr().out)["ranks"]
    assert len(ranks) == CONVERTED[path]
    for rank in ranks:
        assert abs(rank["time"]["replayed_ns"] - rank["time"]["measured_ns"]) <= 1000
        assert rank["time"]["measured_ns"] > 0


@pytest.mark.deep
@pytest.mark.parametrize("path", STEPS, ids=lambda path: path.name)
def test_samples_of_steps_become_traces(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recording", str(path), "-o", str(tmp_path / "job")]) == 0
    assert "(recorded steps) ->" in capsys.readouterr().out


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path.name)
def test_samples_without_work_are_refused_with_the_reason(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recording", str(path), "-o", "never"]) == 2
    assert REFUSED[path] in capsys.readouterr().err


def test_records_without_traces_give_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recording", str(SAMPLES / "nccl_inspector.json")]) == 0
    assert "2 records of 2 operations in 2 communicators" in capsys.readouterr().out
