"""The end of a program: at once, after everything that the interpreter would do for others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import atexit, sys, threading, time
sys.path.insert(0, {folder!r})
from et_sim.basics.starting import started

class Last:
    def __del__(self):
        print("taken apart", file=sys.stderr)

kept = Last()
atexit.register(lambda: print("exit function", file=sys.stderr))
sys.exit(started("toy", "toy", ends_at_once={at_once!r}))
"""
COMMAND = """
import sys, threading, time
def main():
    print("x" * 100_000)
    {more}
    return 3
"""
LATER = "threading.Thread(target=lambda: (time.sleep(0.1), print('thread', file=sys.stderr))).start()"


def _ended(folder: Path, *, at_once: bool, more: str = "pass", to: str = "") -> tuple[int, int, list[str]]:
    """Return the exit status, the characters on stdout, and what was written to stderr."""
    (folder / "toy.py").write_text(COMMAND.format(more=more))
    program = PROGRAM.format(folder=str(folder), at_once=at_once)
    sink = open(to, "wb") if to else subprocess.PIPE  # noqa: PTH123, SIM115
    done = subprocess.run([sys.executable, "-c", program], stdout=sink, stderr=subprocess.PIPE, check=False)
    return done.returncode, len(done.stdout or b""), done.stderr.decode().splitlines()


@pytest.mark.parametrize("at_once", [True, False])
def test_output_is_written_and_exit_functions_run_once(tmp_path: Path, at_once: bool) -> None:
    status, written, said = _ended(tmp_path, at_once=at_once)
    assert (status, written) == (3, 100_001)
    assert said == ["exit function", *([] if at_once else ["taken apart"])]


def test_other_threads_are_waited_for(tmp_path: Path) -> None:
    _, _, said = _ended(tmp_path, at_once=True, more=LATER)
    assert "thread" in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_that_cannot_be_written_is_reported_as_ever(tmp_path: Path) -> None:
    ends = [_ended(tmp_path, at_once=at_once, to="/dev/full") for at_once in (True, False)]
    assert ends[0] == ends[1]
    assert ends[0][0] != 0
    assert any("No space left" in line for line in ends[0][2])


STREAMS = """
import os, sys
def main():
    print("x")
    sys.stdout.flush()
    sys.stderr.write("y")
    file = os.open({file!r}, os.O_WRONLY | os.O_CREAT)
    os.write(file, b"whole")
    return 3 if file > 2 else 4
"""


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (1, 2), (0, 1, 2)])
def test_a_closed_stream_takes_no_output_and_its_number_no_file(
    tmp_path: Path, closed: tuple[int, ...]
) -> None:
    (tmp_path / "toy.py").write_text(STREAMS.format(file=str(tmp_path / "file")))
    program = PROGRAM.format(folder=str(tmp_path), at_once=True)
    ends = " ".join(f"{number}>&-" for number in closed)
    done = subprocess.run(["sh", "-c", f'exec "$0" -c "$1" {ends}', sys.executable, program], check=False)
    assert done.returncode == 3
    assert (tmp_path / "file").read_text() == "whole"


LATE = """
import atexit, os, signal, sys
def main():
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
    return 3
"""


def test_an_interrupt_while_the_process_ends_leaves_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(LATE)
    # A shell starts background processes with SIGINT ignored.
    usual = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program = usual + PROGRAM.format(folder=str(tmp_path), at_once=True)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "toy: interrupted\n")
