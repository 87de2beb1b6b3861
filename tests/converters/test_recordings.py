"""One door for recordings: formats are recognised by content, and all else is refused with the list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.cli import main
from converters.recordings.door import format_of_file, formats
from converters.recordings.format import REFUSED
from et_sim.trace import read_trace

HERE = Path(__file__).parent
DUMPS = HERE / "data" / "flight_recorder"
KINETO = HERE / "pytorch_traces" / "simple_add" / "kineto.json.gz"
HOSTS = HERE.parent / "machine" / "data" / "hosts"


def refusal(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the refusal of a file or folder."""
    assert main(["recording", str(path), "-o", "never"]) == 2
    return capsys.readouterr().err


def test_what_is_not_recognised_is_refused_with_all_formats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [known.name for known in formats() if known.name != REFUSED]
    assert len(names) >= 5
    for number, content in enumerate((b"", b"hello", b"\x1f\x8b\x08broken", b"{}", b"\x80\x02N.")):
        path = tmp_path / f"{number}.bin"
        path.write_bytes(content)
        text = refusal(path, capsys)
        assert all(name in text for name in names)
        assert ("the file is empty" in text) == (not content)


@pytest.mark.parametrize("name", ["dgx_a100_nccl_topo.xml", "infragraph_example.yaml"])
def test_a_description_of_a_host_names_the_command_that_takes_it(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "et-sim machine from" in refusal(HOSTS / name, capsys)


def test_a_name_has_no_say_in_the_format(tmp_path: Path) -> None:
    for number, source in enumerate((DUMPS / "missing" / "trace_rank_0", KINETO)):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(source.read_bytes())
        found, known = format_of_file(path), format_of_file(source)
        assert found is not None
        assert known is not None
        assert found.name == known.name


def test_a_folder_with_two_formats_is_refused_and_other_files_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (DUMPS / "missing").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "notes.txt").write_text("see below")
    assert main(["recording", str(tmp_path)]) == 0
    assert "notes.txt" in capsys.readouterr().out
    (tmp_path / "kineto.json.gz").write_bytes(KINETO.read_bytes())
    assert "holds several formats" in refusal(tmp_path, capsys)
    (tmp_path / "topo.xml").write_bytes((HOSTS / "dgx_a100_nccl_topo.xml").read_bytes())
    assert "1 file of other kinds" in refusal(tmp_path, capsys)


def test_traces_need_the_name_of_their_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recording", str(KINETO)]) == 2
    assert "-o is missing" in capsys.readouterr().err


def results(streams: tuple[int, ...]) -> dict[str, Any]:
    """Return results of rocprofv3: a kernel of 100, 200, … ns on each stream."""
    rows = [
        {
            "start_timestamp": 1000 * at,
            "end_timestamp": 1000 * at + 100 * (at + 1),
            "dispatch_info": {"agent_id": {"handle": 9}, "queue_id": {"handle": 4}, "kernel_id": 8},
            "stream_id": {"handle": stream},
        }
        for at, stream in enumerate(streams)
    ]
    symbols = [{"kernel_id": 8, "formatted_kernel_name": "gemm"}]
    return {
        "rocprofiler-sdk-tool": [{"kernel_symbols": symbols, "buffer_records": {"kernel_dispatch": rows}}]
    }


@pytest.mark.parametrize(
    ("streams", "sums"), [((1, 2, 1, 3), {1: 400, 2: 200, 3: 400}), ((0, 0, 0), {4: 600})]
)
def test_results_of_rocprof_keep_the_time_of_each_stream_or_queue(
    streams: tuple[int, ...], sums: dict[int, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(results(streams)))
    assert main(["recording", str(path), "-o", str(tmp_path / "job")]) == 0
    assert "no calls of HIP were recorded" in capsys.readouterr().out
    trace = read_trace(tmp_path / "job.0.et")
    chosen = ~trace.is_gap & (trace.stream > 0)
    found = {
        int(stream): int(trace.duration_ns[chosen & (trace.stream == stream)].sum())
        for stream in np.unique(trace.stream[chosen])
    }
    assert found == sums
    assert "gemm" in trace.names
