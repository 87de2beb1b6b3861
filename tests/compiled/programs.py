"""Helpers that run `small_program` in a process of its own, with its own cache."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
REPOSITORY = FOLDER.parents[1]


@dataclass(frozen=True)
class Said:
    was_compiled: bool
    result: int
    is_compiled: bool
    directory: Path
    errors: str


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(FOLDER / "small_program.py"), *arguments]
    paths = os.pathsep.join([str(REPOSITORY), str(FOLDER)])
    inherited = {name: value for name, value in os.environ.items() if name != "ET_SIM_COMPILE"}
    variables = {**inherited, "PYTHONPATH": paths, **environment}
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> Said:
    printed, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    was, result, now, directory = printed.split()
    return Said(was == "True", int(result), now == "True", Path(directory), errors)


def run(*arguments: str, **environment: str) -> Said:
    return finish(start(*arguments, **environment))


def wait_until_made(directory: Path, pattern: str = "*.code") -> list[Path]:
    """Return the files of code that is being compiled in the background."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        if result := list(directory.glob(pattern)):
            return result
        time.sleep(0.1)
    raise AssertionError((directory / "worker.log").read_text())
