"""Control characters in names are escaped on a terminal; files keep them."""

from __future__ import annotations

import io
import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import ring

import et_sim
from et_sim.basics.terminal import visible, visible_streams
from et_sim.cli import main
from et_sim.cli.styled import write_styled
from et_sim.timeline import write_run

EVIL = "gem\x1b]0;owned\x07m \u202eesrever\u2066 \x9b31m\x7f\r"
DIRECTIONS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


class Terminal(io.StringIO):
    """A text stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def obeyed(text: str) -> list[str]:
    """Return the characters that control a terminal."""
    return [
        character
        for character in text
        if (unicodedata.category(character) == "Cc" and character not in "\n\t")
        or unicodedata.bidirectional(character) in DIRECTIONS
    ]


@given(st.text(st.characters()))
def test_no_text_controls_the_terminal_and_json_means_the_same(text: str) -> None:
    assert not obeyed(visible(text))
    if "\\" not in text:
        assert json.loads(visible(json.dumps(text, ensure_ascii=False))) == text


def test_words_of_all_languages_and_tables_stay() -> None:
    text = "größer · 数据 · עברית · عربي · █▒ 👩‍🚀\n\tcell"
    assert visible(text) == text


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_terminals_get_escapes_and_files_get_all(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Terminal, io.StringIO):
        written = kind()
        monkeypatch.setattr(f"sys.{stream}", written)
        with visible_streams():
            import sys

            print(EVIL, file=getattr(sys, stream))
        assert getattr(sys, stream) is written
        assert written.getvalue() == (visible(EVIL) if kind is Terminal else EVIL) + "\n"


def test_drawn_text_is_escaped_except_for_its_colours() -> None:
    terminal = Terminal()
    write_styled(f"{EVIL} █████", terminal)
    left = terminal.getvalue().replace("\x1b[34m", "").replace("\x1b[0m", "")
    assert not obeyed(left)
    assert visible(EVIL) in left


@pytest.mark.parametrize("command", [["ops"], ["summary"], ["critical-path"], ["ranks"]])
def test_views_of_a_run_with_evil_names_show_them_escaped(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = et_sim.TraceBuilder()
    build.compute(EVIL, nanos=1000)
    network = ring(1, 1, 1)
    system = {f"{name}-implementation": ["ring"] for name in ("all-reduce", "all-gather")}
    system |= {f"{name}-implementation": ["ring"] for name in ("reduce-scatter", "all-to-all")}
    workload = et_sim.Workload.of([build.build()])
    write_run(et_sim.simulate(workload, system=system, network=network, detail="path"), tmp_path / "run")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert main(["inspect", str(tmp_path / "run"), *command]) == 0
    assert not obeyed(terminal.getvalue())
    if command == ["ops"]:
        assert "\\u001b" in terminal.getvalue()
