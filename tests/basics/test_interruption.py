"""Ctrl-C ends a command even if its code drops the exception; code that cleans up is not interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_sweeps import write

import converters.cli
import et_sim.cli
from converters.commands import show
from et_sim.basics.command_line import interruptible
from et_sim.sweeps.evaluate import Evaluator

REPOSITORY = Path(__file__).resolve().parents[2]
# A program whose import of a module is interrupted.
INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

class Pressed:
    def find_spec(self, name, *_):
        if name == {imported!r}:
            signal.raise_signal(signal.SIGINT)

from {module} import main
sys.meta_path.insert(0, Pressed())
sys.argv = [{program!r}, "--help"]
sys.exit(main())
"""
DROPPING = """
class Dropping:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
"""
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _ctrl_c_interrupts() -> Iterator[None]:
    """Handle SIGINT during the test: a shell starts background processes with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def _press() -> None:
    signal.raise_signal(signal.SIGINT)


class _Destructor:
    def __del__(self) -> None:
        _press()


class _Asked(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__array"):
            _press()
        raise AttributeError(name)


class _Number(int, metaclass=_Asked):
    """A number whose class is read by NumPy, which drops exceptions raised there."""


def _in_a_destructor() -> None:
    _Destructor()


def _while_numpy_asks() -> None:
    _ = np.arange(2) == _Number()


def _where_all_is_caught() -> None:
    try:
        _press()
    except BaseException:
        return


DROPPED = [_in_a_destructor, _while_numpy_asks, _where_all_is_caught]


@pytest.mark.parametrize("drop", DROPPED)
def test_a_dropped_interruption_is_repeated_while_the_command_works(drop: Callable[[], None]) -> None:
    def work() -> None:
        drop()
        while True:
            signal.pause()

    with pytest.raises(KeyboardInterrupt), interruptible():
        work()


@pytest.mark.parametrize("drop", DROPPED)
def test_an_interruption_dropped_at_the_very_end_still_interrupts(drop: Callable[[], None]) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        drop()


def test_cleaning_up_is_interrupted_by_the_second_ctrl_c_only() -> None:
    steps = []

    def work() -> None:
        try:
            try:
                _press()
            finally:
                signal.raise_signal(signal.SIGALRM)
                steps.append("first")
                _press()
                steps.append("not reached")
        finally:
            signal.raise_signal(signal.SIGALRM)
            steps.append("second")

    with pytest.raises(KeyboardInterrupt), interruptible():
        work()
    assert steps == ["first", "second"]


def test_generators_that_close_are_left_alone() -> None:
    steps = []

    def generated() -> Iterator[None]:
        try:
            yield
        finally:
            signal.raise_signal(signal.SIGALRM)
            steps.append("closed")

    def work() -> None:
        for _ in generated():
            _press()

    with pytest.raises(KeyboardInterrupt), interruptible():
        work()
    assert steps == ["closed"]


def test_where_ctrl_c_is_ignored_it_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruptible():
        _press()
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is signal.SIG_IGN


@pytest.mark.parametrize("drop", DROPPED)
def test_a_sweep_keeps_finished_points_when_it_was_interrupted_during_a_point(
    drop: Callable[[], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    row, points = Evaluator.row, []

    def dropping(self: Evaluator, task: Any) -> dict[str, Any]:
        points.append(task)
        if len(points) == 3:
            drop()
            signal.pause()
        return row(self, task)

    monkeypatch.setattr(Evaluator, "row", dropping)
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    out = tmp_path / "out"
    assert et_sim.cli.main(["sweep", str(write(tmp_path)), "--out", str(out), "--workers", "1"]) == 130
    err = capsys.readouterr().err
    assert f"what is finished is in {out}, and the same command goes on from there" in err
    assert len(points) == 3


def test_either_program_is_interrupted_where_it_was_dropped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def drops(_: object) -> Iterator[str]:
        _in_a_destructor()
        yield "done"

    monkeypatch.setattr(show, "run", drops)
    assert converters.cli.main(["show", "x"]) == 130
    assert capsys.readouterr().err == "et-convert: interrupted\n"


def test_without_timers_ctrl_c_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check a system without interval timers, such as Windows."""
    monkeypatch.delattr(signal, "setitimer")
    monkeypatch.delattr(signal, "SIGALRM")
    with interruptible():
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("program", ["et-sim", "et-convert", "et-record"])
@pytest.mark.parametrize("imported", ["{package}.cli", "et_sim.basics.declared_options"])
def test_ctrl_c_ends_a_program_that_imports_its_commands(program: str, imported: str) -> None:
    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts[program].partition(":")
    assert function == "main"
    name = imported.format(package=module.partition(".")[0])
    text = INTERRUPTED.format(imported=name, module=module, program=program)
    done = subprocess.run([sys.executable, "-c", text], cwd=REPOSITORY, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"{program}: interrupted\n")


@pytest.mark.parametrize("imported", ["numpy", "et_sim.cli.run", "msgspec"])
def test_ctrl_c_that_python_would_drop_ends_a_command_that_imports_its_libraries(
    imported: str,
) -> None:
    text = INTERRUPTED.format(imported=imported, module="et_sim.entry", program="et-sim")
    text = text.replace("            signal.raise_signal(signal.SIGINT)", "            Dropping()")
    text = text.replace('"--help"', '"run", "nothing"')
    done = subprocess.run(
        [sys.executable, "-c", DROPPING + text], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "et-sim: interrupted\n")


def test_a_program_that_ignores_ctrl_c_still_ignores_it_when_it_starts() -> None:
    text = INTERRUPTED.format(imported="et_sim.cli", module="et_sim.entry", program="et-sim")
    text = text.replace("signal.default_int_handler", "signal.SIG_IGN")
    done = subprocess.run([sys.executable, "-c", text], cwd=REPOSITORY, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: et-sim" in done.stdout
