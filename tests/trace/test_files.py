"""Search, reading and writing of trace files; a set is complete or absent, whenever its writer is killed."""

from __future__ import annotations

import gzip
import hashlib
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trace_oracle import as_rows, assert_same_trace, expected

from et_sim.basics.errors import TraceError
from et_sim.basics.files import draft_folder
from et_sim.trace import (
    Trace,
    TraceBuilder,
    Workload,
    encode_trace,
    read_manifest,
    read_trace,
    read_workload,
    write_trace,
    write_workload,
)
from et_sim.trace.disk import replace_all
from et_sim.trace.files import files_of_ranks
from et_sim.trace.manifest import write_manifest

DATA = Path(__file__).parent / "data"


def small(micros: int = 5) -> Trace:
    build = TraceBuilder()
    build.collective("all_reduce", 1024, after=[build.compute("step", micros=micros)])
    return build.build()


def write_ranks(prefix: Path, *ranks: int) -> None:
    for rank in ranks:
        write_trace(small(rank + 1), f"{prefix}.{rank}.et")


def test_a_written_workload_reads_back(tmp_path: Path) -> None:
    workload = Workload.of([small(1), small(2), small(1)])
    write_workload(workload, tmp_path / "run" / "job")
    again = read_workload(tmp_path / "run" / "job")
    assert again.ranks == 3
    for rank in range(3):
        assert_same_trace(workload.trace(rank), again.trace(rank))


def test_identical_files_share_one_trace(tmp_path: Path) -> None:
    write_workload(Workload.of([small(1), small(2), small(1), small(1)]), tmp_path / "job")
    workload = read_workload(tmp_path / "job")
    assert workload.template_of_rank.tolist() == [0, 1, 0, 0]
    assert len(workload.templates) == 2


def test_compressed_and_plain_files_of_equal_content_share_one_trace(tmp_path: Path) -> None:
    write_trace(small(), tmp_path / "job.0.et")
    write_trace(small(), tmp_path / "job.1.et.gz")
    workload = read_workload(tmp_path / "job")
    assert workload.template_of_rank.tolist() == [0, 0]
    assert gzip.decompress((tmp_path / "job.1.et.gz").read_bytes()) == encode_trace(small())


def test_every_file_is_listed_with_its_hash(tmp_path: Path) -> None:
    write_ranks(tmp_path / "job", 0, 1)
    inputs = read_workload(tmp_path / "job").inputs
    paths = [tmp_path / "job.0.et", tmp_path / "job.1.et"]
    assert inputs == tuple((str(path), hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths)


def test_ranks_are_read_in_numeric_order(tmp_path: Path) -> None:
    write_ranks(tmp_path / "job", *range(11))
    workload = read_workload(tmp_path / "job")
    assert [int(workload.trace(rank).duration_us[0]) for rank in range(11)] == list(range(1, 12))


def test_a_missing_rank_is_named_with_the_counts(tmp_path: Path) -> None:
    write_ranks(tmp_path / "job", 0, 1, 3)
    with pytest.raises(
        TraceError, match=r"job\.2\.et is missing: 3 of 4 trace files found \(the last is rank 3\)"
    ):
        read_workload(tmp_path / "job")
    with pytest.raises(
        TraceError, match=r"job\.2\.et is missing: 3 of 8 trace files found \(8 ranks need one each"
    ):
        read_workload(tmp_path / "job", 8)


def test_files_beyond_the_requested_ranks_are_refused_or_noticed(tmp_path: Path) -> None:
    write_ranks(tmp_path / "job", 0, 1, 2)
    with pytest.raises(
        TraceError, match=r"up to rank 2 \(job\.2\.et\), but the machine has 2 NPUs .*of 3 NPUs"
    ):
        read_workload(tmp_path / "job", 2)
    workload = read_workload(tmp_path / "job", 2, may_be_more=True)
    assert workload.ranks == 2
    assert workload.notices == ("1 trace file beyond the 2 ranks is not used: job.2.et",)
    alone = read_workload(tmp_path / "job", 1, may_be_more=True)
    assert alone.notices == ("2 trace files beyond the 1 rank are not used, from job.1.et on",)


def test_a_rank_with_two_files_is_noticed(tmp_path: Path) -> None:
    write_ranks(tmp_path / "job", 0)
    write_trace(small(9), tmp_path / "job.0.et.gz")
    workload = read_workload(tmp_path / "job")
    assert workload.trace(0).duration_us[0] == 1
    assert "job.0.et" in workload.notices[0]


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ("jbo", "did you mean 'job'?"),
        ("zzzzzz", "trace prefixes in"),
        ("job.0.et", "not a trace prefix"),
        ("job.et", "give the prefix"),
        ("job.0.et.gz", "/job)"),
        ("nowhere/job", "there is no directory"),
        ("nothing.yaml", "there is no such file (check the path)"),
        ("reciep.yaml", "there is no such file (did you mean 'recipe.yaml'?)"),
    ],
)
def test_a_prefix_that_matches_nothing_is_explained(tmp_path: Path, prefix: str, words: str) -> None:
    write_ranks(tmp_path / "job", 0)
    (tmp_path / "recipe.yaml").touch()
    with pytest.raises(TraceError) as caught:
        read_workload(tmp_path / prefix)
    assert words in str(caught.value)


def test_zero_ranks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="at least one rank"):
        read_workload(tmp_path / "job", 0)


def test_damaged_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.0.et.gz"
    for content in (gzip.compress(encode_trace(small()))[:-9], b"\x1f\x8bgarbage", b"\x1f\x8b"):
        path.write_bytes(content)
        with pytest.raises(TraceError, match=r"job\.0\.et\.gz: the gzip data is damaged"):
            read_trace(path)


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read_trace(tmp_path / "none.0.et")
    (tmp_path / "job.0.et").mkdir()
    with pytest.raises(TraceError, match="cannot be read"):
        read_workload(tmp_path / "job")


def test_an_error_in_a_file_names_the_file(tmp_path: Path) -> None:
    write_ranks(tmp_path / "job", 0)
    (tmp_path / "job.1.et").write_bytes(encode_trace(small())[:-1])
    with pytest.raises(TraceError, match=r"job\.1\.et: byte \d+ \(record 2\): a record of"):
        read_workload(tmp_path / "job")


def test_writing_leaves_no_temporary_file_and_replaces_the_old_one(tmp_path: Path) -> None:
    for micros in (1, 2):
        write_trace(small(micros), tmp_path / "job.0.et")
    assert [path.name for path in tmp_path.iterdir()] == ["job.0.et"]
    assert read_trace(tmp_path / "job.0.et").duration_us[0] == 2
    write_trace(b"raw bytes", tmp_path / "job.0.et")
    assert (tmp_path / "job.0.et").read_bytes() == b"raw bytes"


def test_an_impossible_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match="cannot be written"):
        write_trace(small(), tmp_path / "file" / "job.0.et")
    (tmp_path / "job.0.et").mkdir()
    with pytest.raises(TraceError, match="cannot be written"):
        write_trace(small(), tmp_path / "job.0.et")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "job.0.et"]


def test_a_converted_trace_with_a_removed_root_reads_if_dangling_dependencies_are_dropped() -> None:
    path = DATA / "pytorch_linear_1gpu.0.et.gz"
    with pytest.raises(TraceError, match="control dependency on node 0, which is not in the file"):
        read_trace(path)
    trace = read_trace(path, drop_dangling=True)
    assert len(trace) == 1150
    assert trace.dropped_dependencies == 2
    content = encode_trace(trace)
    assert as_rows(read_trace(path, drop_dangling=True))["rows"] == expected(content)["rows"]


def cut_off(monkeypatch: pytest.MonkeyPatch, method: str, calls: int, end: BaseException) -> None:
    """Let a method of `Path` end with an exception after some calls."""
    real, seen = getattr(Path, method), []

    def cut(path: Path, *arguments: object, **more: object) -> object:
        seen.append(path)
        if len(seen) > calls:
            raise end
        return real(path, *arguments, **more)

    monkeypatch.setattr(Path, method, cut)


@pytest.mark.parametrize("end", [KeyboardInterrupt(), MemoryError(), OSError(28, "No space left on device")])
def test_an_interrupted_write_leaves_nothing_of_the_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    cut_off(monkeypatch, "open", 3, end)
    with pytest.raises(TraceError if isinstance(end, OSError) else type(end)):
        write_workload(Workload.of([small()] * 5), tmp_path / "job")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_keeps_the_files_that_were_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ranks(tmp_path / "job", 0, 1, 2)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with monkeypatch.context() as patch:
        cut_off(patch, "open", 2, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            write_workload(Workload.of([small(77)] * 3), tmp_path / "job")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_write_cut_off_while_renaming_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(monkeypatch, "replace", 1, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        write_workload(Workload.of([small()] * 3), tmp_path / "job")
    assert [path.name for path in tmp_path.iterdir()] == ["job.2.et"]  # refused: others are missing


def test_written_files_get_the_permissions_of_ordinary_files(tmp_path: Path) -> None:
    (tmp_path / "ordinary").write_text("")
    write_workload(Workload.of([small()]), tmp_path / "job")
    assert (tmp_path / "job.0.et").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


RANKS = 3


class Killed(BaseException):
    """The end of the process."""


def workload(nanos: int, ranks: int) -> Workload:
    builders = [TraceBuilder() for _ in range(ranks)]
    for rank, build in enumerate(builders):
        build.compute("kernel", nanos=nanos + rank)
    return Workload.of([build.build() for build in builders])


def write(kind: str, nanos: int, folder: Path, ranks: int = RANKS) -> None:
    if kind == "manifest":
        write_manifest(workload(nanos, ranks), folder / "job.workload.json")
    else:
        files = list(files_of_ranks(workload(nanos, ranks), folder / "job"))
        replace_all(files if kind == "ranks" else reversed(files), folder / "job")


def content(kind: str, folder: Path) -> set[tuple[int, int]]:
    """Return the times and the number of the files present; an incomplete set is refused."""
    if kind == "manifest":
        result = read_manifest(folder / "job.workload.json")
    else:
        result = read_workload(folder / "job")
    ranks = range(result.ranks)
    times = (int(result.templates[result.template_of_rank[rank]].duration_ns[0]) for rank in ranks)
    return {(time - rank, result.ranks) for rank, time in enumerate(times)}


@pytest.mark.parametrize("kind", ["ranks", "ranks in another order", "manifest"])
@pytest.mark.parametrize("before", [0, RANKS, RANKS + 2, 1])
def test_whenever_a_writer_is_killed_there_are_the_old_files_the_new_ones_or_an_incomplete_set(
    kind: str, before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str | tuple[int, int]] = set()
    for steps in range(2 * RANKS + 6):
        folder = tmp_path / str(steps)
        folder.mkdir()
        if before:
            write(kind, 100, folder, before)
        left = [steps]

        def counted(name: str, left: list[int] = left) -> Any:
            real = getattr(Path, name)

            def step(path: Path, *arguments: Any, **more: Any) -> Any:
                if not left[0]:
                    raise Killed
                left[0] -= 1
                return real(path, *arguments, **more)

            return step

        with monkeypatch.context() as patch:
            for name in ("replace", "unlink", "write_bytes"):
                patch.setattr(Path, name, counted(name))
            try:
                write(kind, 200, folder)
            except Killed:
                seen.add("killed")
        try:
            result = content(kind, folder)
            assert result in ({(100, before)}, {(200, RANKS)})
            seen |= result
        except TraceError:
            seen.add("refused")
    assert seen == {"killed", "refused", (200, RANKS)} | ({(100, before)} if before else set())


def test_a_set_of_one_rank_in_place_of_more_is_not_taken_for_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("ranks", 100, tmp_path)

    def killed(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(Killed):
        write("ranks", 200, tmp_path, 1)
    assert list(tmp_path.glob("job.*.et")) == []


def test_ranks_of_a_larger_set_go_and_a_single_rank_takes_none_away(tmp_path: Path) -> None:
    write("ranks", 100, tmp_path, 5)
    names = ["job.7.et.gz", "job.x.et", "jobs.4.et", "a.job.4.et", "job.4.json"]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    write("ranks", 200, tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"job.0.et", "job.1.et", "job.2.et", *names[1:]}
    replace_all([(tmp_path / "job.0.et", b"")])
    assert {path.name for path in tmp_path.iterdir()} == left


def test_the_next_writer_removes_drafts_of_killed_ones_and_leaves_held_ones(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from et_sim.basics.files import draft_folder\n"
        "with draft_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'half').write_text('x')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path / "job.0.et")], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    with draft_folder(tmp_path / "other") as held:
        assert [path.name for path in tmp_path.iterdir()] == [held.name]
        write("ranks", 100, tmp_path)
        assert held.is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"job.{rank}.et" for rank in range(RANKS)]
