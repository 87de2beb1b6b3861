"""Orders of machine code are processed in the order of their arrival, and their progress is recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from et_sim.compiled.compile_queue import (
    PATIENT,
    PROCESSES,
    PROGRESS,
    URGENT,
    Order,
    note_progress,
    noted_progress,
    orders,
    wait_for,
)

REPOSITORY = str(Path(__file__).parents[2])


def test_the_oldest_order_comes_first_and_waits_for_no_later_one(tmp_path: Path) -> None:
    placed = [("second", URGENT, 20), ("first", URGENT, 10), ("last", PATIENT, 5), ("afterwards", URGENT, 30)]
    for name, ending, seconds in placed:
        file = (tmp_path / name).with_suffix(ending)
        file.write_bytes(Order(tmp_path / f"{name}.code", "module", "function", (), ()).as_bytes())
        file.chmod(0o600)
        os.utime(file, (seconds, seconds))
    made = [Order.from_bytes(content).path.stem for _, content in orders(tmp_path)]
    assert made == ["first", "second", "afterwards", "last"]
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not PROCESSES.is_dir(), reason="needs the state of processes in /proc")
def test_no_call_waits_for_a_process_that_is_stopped(tmp_path: Path) -> None:
    hold = (
        "import os, signal, sys; from pathlib import Path; from et_sim.compiled.compile_queue import locked\n"
        "with locked(Path(sys.argv[1])) as is_free:\n"
        "    assert is_free; os.kill(os.getpid(), signal.SIGSTOP)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)], env={**os.environ, "PYTHONPATH": REPOSITORY}
    )
    try:
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED)
        reason = wait_for(Order(tmp_path / "sum.code", "module", "function", (), ()), None)
    finally:
        holder.kill()
        holder.wait()
    assert (
        reason == f"process {holder.pid}, which compiles, is stopped: kill -CONT {holder.pid} lets it go on"
    )


def test_the_share_that_was_noted_is_read_for_the_file_in_the_making_only(tmp_path: Path) -> None:
    note_progress(tmp_path / "simulate-1.code", 0.25)
    assert noted_progress(tmp_path / "simulate-1.code") == 0.25
    assert noted_progress(tmp_path / "simulate-2.code") == 0.0


def test_a_share_read_while_another_is_noted_is_whole(tmp_path: Path) -> None:
    note_progress(tmp_path / "simulate-1.code", 0.25)
    with (tmp_path / PROGRESS).open() as reader:
        note_progress(tmp_path / "simulate-1.code", 0.5)
        assert reader.read() == "simulate-1.code 0.25"
