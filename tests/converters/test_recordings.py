"""One door for recordings: formats are recognised by content, and all else is refused with the list."""

from __future__ import annotations

import gzip
import json
import random
import tarfile
from collections.abc import Callable
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


def test_what_lies_beside_recordings_does_not_hinder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Add the report that was exported, an archive, and traces of an earlier conversion."""
    for path in (DUMPS / "missing").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    own_form_of_nsight(tmp_path)
    an_archive(tmp_path)
    a_trace(tmp_path)
    assert main(["recording", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "rank 1 never came" in printed
    assert "not read, as no flight-recorder dumps" in printed


def test_files_of_no_format_beside_a_folder_for_each_rank_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, path in enumerate(sorted((DUMPS / "missing").iterdir())):
        (tmp_path / f"host{number}").mkdir()
        (tmp_path / f"host{number}" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "notes.txt").write_text("see below")
    assert main(["recording", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "rank 1 never came" in printed
    assert printed.endswith(": notes.txt\n")


def test_traces_need_the_name_of_their_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recording", str(KINETO)]) == 2
    assert "-o is missing" in capsys.readouterr().err


def packed(folder: Path, length: int | None = None) -> Path:
    """Write gzipped dumps, cut off after some bytes."""
    for path in (DUMPS / "missing").iterdir():
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes())[:length])
    return folder


def test_a_damaged_gzipped_log_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = '{"metadata": {"inspector_output_format_version": "v4.0", "hostname": "%x"}, "coll_sn": %d}\n'
    chance = random.Random(1)
    text = "".join(line % (chance.getrandbits(800), number) for number in range(4000))
    content = bytearray(gzip.compress(text.encode()))
    content[-3000:] = b"\xff" * 3000
    (tmp_path / "n0-pid1.log.gz").write_bytes(content)
    assert main(["recording", str(tmp_path)]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_gzipped_dumps_give_the_report_of_the_plain_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recording", str(DUMPS / "missing")]) == 0
    plain = capsys.readouterr().out
    assert main(["recording", str(packed(tmp_path))]) == 0
    assert capsys.readouterr().out == plain


def empty(folder: Path) -> Path:
    return folder


def nested(folder: Path) -> Path:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "trace_rank_0").write_bytes((DUMPS / "missing" / "trace_rank_0").read_bytes())
    return folder


def own_form_of_nsight(folder: Path) -> Path:
    (folder / "report.nsys-rep").write_bytes(b"\x00own form")
    return folder / "report.nsys-rep"


def no_events(folder: Path) -> Path:
    (folder / "timeline.json").write_text('{"traceEvents": []}')
    return folder / "timeline.json"


def no_rank(folder: Path) -> Path:
    (folder / "dump").write_bytes((DUMPS / "missing" / "trace_rank_0").read_bytes())
    return folder


def one_rank_twice(folder: Path) -> Path:
    for name in ("trace_rank_0", "old_rank_0"):
        (folder / name).write_bytes((DUMPS / "missing" / "trace_rank_0").read_bytes())
    return folder


def a_rank_is_missing(folder: Path) -> Path:
    for rank in (0, 2):
        (folder / f"rank_{rank}").write_bytes((DUMPS / "missing" / f"trace_rank_{rank}").read_bytes())
    return folder


def cut_off(folder: Path) -> Path:
    return packed(folder, 400)


def an_archive(folder: Path) -> Path:
    with tarfile.open(folder / "dumps.tgz", "w:gz") as archive:
        archive.add(DUMPS / "missing" / "trace_rank_0", "trace_rank_0")
    return folder / "dumps.tgz"


def a_trace(folder: Path) -> Path:
    (folder / "job.0.et").write_bytes(b"\x08\x00")
    return folder


def a_log_of_mlperf(folder: Path) -> Path:
    (folder / "result_0.txt").write_text(':::MLLOG {"key": "run_start"}\n')
    return folder


@pytest.mark.parametrize(
    ("made", "cause"),
    [
        (empty, "neither the folder nor those directly in it have a file (name the folder that holds"),
        (nested, "neither the folder nor those directly in it have a file (name the folder that holds"),
        (own_form_of_nsight, "only Nsight Systems can read it (export it: nsys export --type sqlite FILE"),
        (no_events, "holds no events"),
        (no_rank, "does not state its rank (name it after its rank, as in trace_rank_3)"),
        (one_rank_twice, "are both of rank 0, as their names state"),
        (a_rank_is_missing, "rank 1 left no dump (a job needs the dump of each rank: add them)"),
        (cut_off, "cannot be read: Compressed file ended before the end-of-stream marker was reached"),
        (an_archive, "unpack it (tar xf FILE, or unzip FILE), and name what it held"),
        (a_trace, "name the beginning of the files of all ranks: et-sim run PREFIX"),
        (a_log_of_mlperf, "compare its step with a prediction: et-sim validate FILE"),
    ],
)
def test_wrong_uses_are_refused_with_what_to_do(
    made: Callable[[Path], Path], cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = refusal(made(tmp_path), capsys)
    assert cause in text
    assert len(text) < 800


@pytest.mark.parametrize("output", [".", "out/", "out/."])
def test_an_output_without_a_name_is_refused(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recording", str(DUMPS / "missing"), "-o", output]) == 2
    text = capsys.readouterr().err
    assert "names a folder (add the beginning of the names: -o " in text
    assert "/job)" in text


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
