"""On a terminal, progress is bars and views have colours; elsewhere all is plain text, without rich."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from terminals import REPOSITORY, on_a_terminal

WORK = """
import sys, time
from types import SimpleNamespace
from et_sim.cli import progress
if "rich" in sys.argv:
    import rich.progress  # ahead: how long it takes to load is not what is tested
progress.SILENT_SECONDS = progress.SECONDS_BETWEEN_UPDATES = progress.SECONDS_BETWEEN_LINES = 0.05
now = [0.0]
progress.time = SimpleNamespace(monotonic=lambda: now[0])
with progress.Progress() as shown:
    time.sleep(0.3)  # before there is a stage
    shown.stage("planning")
    time.sleep(0.3)
    shown.stage("simulating")
    for done in range(10):
        now[0] += 0.05
        shown.report(1000 * done, done, 10, 0, 0)
        time.sleep(0.05)
print("rich is loaded" if "rich" in sys.modules else "rich is not loaded")
"""
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|9\d|38;[0-9;]+)m")


def screen(written: str) -> str:
    """Return the output without control codes."""
    return SEQUENCE.sub("", written)


def test_a_terminal_gets_a_bar_for_each_stage_with_an_estimate() -> None:
    written = on_a_terminal(WORK, "rich")
    assert COLOUR.search(written)
    lines = screen(written).replace("\r", "\n").splitlines()
    assert any(re.match(r"planning +━+ +done", line) for line in lines)
    assert any(
        re.match(r"simulating +[━╸╺]+ +\d0% · 0 s · about 0 s left +simulated", line) for line in lines
    )
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "rich is loaded"


@pytest.mark.deep
def test_bars_are_gone_and_the_cursor_is_there_in_the_end() -> None:
    written = on_a_terminal(WORK, "rich")
    assert written.rfind("\x1b[?25h") > written.rfind("\x1b[?25l")
    bars = written.count("\x1b[2K")
    assert bars
    assert written.rstrip().endswith("\x1b[2Krich is loaded")


@pytest.mark.deep
def test_without_colour_a_terminal_gets_bars_without_any() -> None:
    written = on_a_terminal(WORK, "rich", NO_COLOR="1")
    assert "simulating ━" in screen(written)
    assert not COLOUR.search(written)


@pytest.mark.deep
def test_a_narrow_terminal_is_not_overrun() -> None:
    lines = screen(on_a_terminal(WORK, "rich", COLUMNS="50")).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= 50


@pytest.mark.deep
def test_a_terminal_that_moves_no_cursor_gets_plain_lines() -> None:
    written = on_a_terminal(WORK, TERM="dumb")
    assert "\x1b" not in written
    assert "et-sim: 0 s · planning\n" in written
    assert written.endswith("rich is not loaded\n")


@pytest.mark.deep
def test_a_pipe_gets_plain_lines_and_rich_is_not_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORK], cwd=REPOSITORY, capture_output=True, check=True, text=True
    )
    assert done.stdout == "rich is not loaded\n"
    assert "\x1b" not in done.stderr
    assert "et-sim: 0 s · planning\n" in done.stderr
    assert re.search(
        r"^et-sim: 0 s · simulating \d0% · simulated \d µs · \d of 10 messages", done.stderr, re.M
    )


COMPILING = """
import time
from et_sim.compiled.compile_status import CompileStatus
lines = CompileStatus("et-sim")
for tenth in range(0, 11):
    lines.waiting("the engine", tenth / 10, 10.0 + tenth)
lines.compiled()
"""
CONVERTING = """
from converters import files
files._SILENT_SECONDS = files._BETWEEN_UPDATES = 0.0
shown = files.ShareProgress("2 ranks", 100)
shown(40)
shown.close()
"""


@pytest.mark.parametrize(
    ("program", "bar"),
    [(COMPILING, "compiling the engine ━"), (CONVERTING, "converting 2 ranks ━")],
)
def test_compiling_and_converting_have_bars_too(program: str, bar: str) -> None:
    written = screen(on_a_terminal(program))
    assert bar in written
    assert "s left" in written


def test_a_view_on_a_terminal_is_the_same_text_with_colours() -> None:
    text = "makespan     52 ms\n[bold]:smile: 12 " + "x" * 100 + "\n" + "██▒▒░░ 5 %\n····\n"
    program = f"from et_sim.cli.styled import show; show({text!r})"
    piped = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, check=True)
    assert piped.stdout.decode() == text + "\n"
    painted = on_a_terminal(program)
    assert "\x1b[34m██\x1b[0m\x1b[33m▒▒\x1b[0m" in painted
    assert screen(painted) == text + "\n"
    assert on_a_terminal(program, NO_COLOR="1") == on_a_terminal(program, TERM="dumb") == text + "\n"
