"""A set of files is complete or absent, whenever its writer is killed, and nothing of a killed one stays."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from et_sim.basics.errors import TraceError
from et_sim.basics.files import draft_folder
from et_sim.trace import TraceBuilder, Workload, read_manifest, read_workload
from et_sim.trace.disk import replace_all
from et_sim.trace.files import files_of_ranks
from et_sim.trace.manifest import write_manifest

RANKS = 3


class Killed(BaseException):
    """As if the process were no more."""


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
    """Whose files there are, by what their kernels take, and how many; an incomplete set is refused."""
    if kind == "manifest":
        found = read_manifest(folder / "job.workload.json")
    else:
        found = read_workload(folder / "job")
    ranks = range(found.ranks)
    times = (int(found.templates[found.template_of_rank[rank]].duration_ns[0]) for rank in ranks)
    return {(time - rank, found.ranks) for rank, time in enumerate(times)}


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
            found = content(kind, folder)
            assert found in ({(100, before)}, {(200, RANKS)})
            seen |= found
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


def test_the_next_to_write_removes_what_killed_ones_left_and_leaves_what_is_held(tmp_path: Path) -> None:
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
