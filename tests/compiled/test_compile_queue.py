"""Orders of machine code are processed in the order of their arrival, and their progress is recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from et_sim.compiled import compile_queue, worker
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
from et_sim.compiled.store import read_code

REPOSITORY = str(Path(__file__).parents[2])


def place(file: Path) -> None:
    """Write an order that only its owner can change."""
    file.write_bytes(Order(file.with_suffix(".code"), "module", "function", (), ()).as_bytes())
    file.chmod(0o600)


def test_the_oldest_order_comes_first_and_waits_for_no_later_one(tmp_path: Path) -> None:
    placed = [("second", URGENT, 20), ("first", URGENT, 10), ("last", PATIENT, 5), ("afterwards", URGENT, 30)]
    for name, ending, seconds in placed:
        file = (tmp_path / name).with_suffix(ending)
        place(file)
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


def test_a_call_waits_no_longer_than_interpreting_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, shares = [0.0], list[float]()
    monkeypatch.setattr(compile_queue, "_start_worker", lambda *_: None)
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr("time.sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    wanted = Order(tmp_path / "sum.code", "module", "function", (), ())
    with compile_queue.locked(tmp_path):
        assert wait_for(wanted, lambda _, seconds: shares.append(seconds), 2.0) is None
    assert clock[0] == pytest.approx(2.0, abs=2 * compile_queue.PAUSE_SECONDS)
    assert shares[-1] < 2.0


@pytest.mark.parametrize("lock", [compile_queue.LOCK, compile_queue.SECOND_LOCK])
def test_a_call_waits_as_long_as_any_process_compiles(
    lock: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, made = [0.0], tmp_path / "sum.code"

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        if clock[0] > 100:
            made.touch()

    monkeypatch.setattr(compile_queue, "_start_worker", lambda *_: pytest.fail("one is working"))
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr("time.sleep", sleep)
    with compile_queue.locked(tmp_path, lock):
        assert wait_for(Order(made, "module", "function", (), ()), None) is None
    assert made.exists()


def test_urgent_orders_are_taken_while_another_process_works_on_patient_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = list[str]()
    monkeypatch.setattr(worker, "_is_dealt_with", lambda file, _: taken.append(file.name) or True)
    for name in ("first.ordered", "second.urgent", "claimed.urgent"):
        place(tmp_path / name)
    with compile_queue.locked(tmp_path), compile_queue.locked(tmp_path, "claimed.making"):
        worker.main(tmp_path)
    assert taken == ["second.urgent"]
    worker.main(tmp_path)
    assert taken == ["second.urgent", "claimed.urgent", "first.ordered"]
    assert [path.name for path in tmp_path.iterdir() if path.suffix] == []


def test_a_process_that_is_killed_while_it_compiles_leaves_an_order_and_no_code(tmp_path: Path) -> None:
    place(tmp_path / "sum.urgent")
    kill = (
        "import os, signal, sys; from pathlib import Path; from et_sim.compiled import worker\n"
        "def begun(file, _):\n"
        "    worker.note_progress(file.with_suffix('.code'), 0.5); os.kill(os.getpid(), signal.SIGKILL)\n"
        "worker._is_dealt_with = begun; worker.main(Path(sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONPATH": REPOSITORY}
    ended = subprocess.run([sys.executable, "-c", kill, str(tmp_path)], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert read_code(tmp_path / "sum.code") is None
    assert not (tmp_path / "sum.code").exists()
    with compile_queue.locked(tmp_path) as is_free, compile_queue.locked(tmp_path, "sum.making") as is_mine:
        assert is_free
        assert is_mine
    assert [path.stem for path, _ in orders(tmp_path)] == ["sum"]


def test_the_share_that_was_noted_is_read_for_the_file_in_the_making_only(tmp_path: Path) -> None:
    note_progress(tmp_path / "simulate-1.code", 0.25)
    assert noted_progress(tmp_path / "simulate-1.code") == 0.25
    assert noted_progress(tmp_path / "simulate-2.code") == 0.0


def test_a_share_read_while_another_is_noted_is_whole(tmp_path: Path) -> None:
    note_progress(tmp_path / "simulate-1.code", 0.25)
    with (tmp_path / "simulate-1").with_suffix(PROGRESS).open() as reader:
        note_progress(tmp_path / "simulate-1.code", 0.5)
        assert reader.read() == "0.25"
