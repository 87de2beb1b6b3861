"""Runs of Python in a process whose stdout and stderr are a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def on_a_terminal(program: str, *arguments: str, **environment: str) -> str:
    """Return all output of the process, control codes included."""
    leader, follower = pty.openpty()
    settings = termios.tcgetattr(follower)
    settings[1] &= ~termios.OPOST  # no carriage returns that the program did not write
    termios.tcsetattr(follower, termios.TCSANOW, settings)
    known: Mapping[str, str] = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=REPOSITORY,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**known, "TERM": "xterm-256color", "COLUMNS": "80", **environment},
    )
    os.close(follower)
    written = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # Linux raises this when no process has the terminal open
            piece = b""
        if not piece:
            break
        written += piece
    os.close(leader)
    assert process.wait() == 0, written.decode()
    return written.decode()
