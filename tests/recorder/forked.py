"""Processes that import PyTorch, forked from one that has imported it: this takes longer than most programs.

`Forked` takes the place of `subprocess.Popen` for the commands `python -m recorder.process.main …` and
`python SCRIPT …`. Commands of `et-record` that tests run as such still start processes of their own.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from multiprocessing import context, forkserver, get_context, reduction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recorder import launching

RECORDING = "recorder.process.main"
PRELOADED = ["torch", "torch.distributed", RECORDING]
AT_START = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}  # Python and PyTorch read them when they begin


@cache
def _server() -> context.ForkServerContext:
    """Start the process that imports PyTorch."""
    started: Any = get_context("forkserver")
    started.set_forkserver_preload(PRELOADED)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in AT_START.items():
            patch.setenv(name, value)
        forkserver.ensure_running()
    return started  # type: ignore[no-any-return]


class _Stream:
    """A stream of this process that a forked one writes to."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> Any:
        return _Stream, (reduction.DupFd(self._number),)

    def become(self, number: int) -> None:
        """Let a standard stream of the forked process be this one."""
        given: Any = self._number
        os.dup2(given.detach(), number)


class Forked:
    """A running command, as `subprocess.Popen`."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], stdout: int | None = None) -> None:
        with Path(os.devnull).open("wb") as nowhere:
            output = nowhere.fileno() if stdout == subprocess.DEVNULL else 1
            about = (list(command[1:]), dict(env), _Stream(output), _Stream(2))
            self._process = _server().Process(target=_run, args=about)
            self._process.start()

    def poll(self) -> int | None:
        """Return the exit status, or None while the command runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status when the command has ended."""
        self._process.join(timeout)
        status = self._process.exitcode
        if status is None:
            raise subprocess.TimeoutExpired([], timeout or 0)
        return status

    def kill(self) -> None:
        """End the command."""
        self._process.kill()


def _run(words: list[str], environment: dict[str, str], output: _Stream, errors: _Stream) -> None:
    """Run a command in this forked process, and end it."""
    output.become(1)
    errors.become(2)
    os.environ.clear()
    os.environ.update(environment)
    if words[:2] == ["-m", RECORDING]:
        from recorder.process.main import main

        sys.path.insert(0, str(Path.cwd()))
        status = main(words[2:])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).parent))
    runpy.run_path(words[0], run_name="__main__")


@contextmanager
def ranks_are_forked() -> Iterator[None]:
    """Make `et-record` fork its processes."""
    forking = SimpleNamespace(
        Popen=Forked, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launching, "subprocess", forking)
        yield
