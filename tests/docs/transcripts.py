"""Console transcripts in Markdown pages: find them, run them, compare, and rewrite them.

    python tests/docs/transcripts.py README.md docs/running.md     # put today's output into these pages

A ```console block holds commands (`$ …`, continued with `> …`) and their output, stdout and stderr together.
A line `...` in the output represents any lines. Every page runs in one directory of its own, from top to
bottom; ```python blocks run as scripts in the same place. Installing commands are not run. Commands
that need no shell run in this process, which saves the start of another one; a shell filters their output.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from converters.cli import main as et_convert
from et_sim.cli import main as et_sim

REPOSITORY = Path(__file__).resolve().parents[2]
INSTALLING = re.compile(r"(git clone|python3? -m venv|pip install|\.venv/bin/pip|\. \.venv/bin/activate|cd )")
# Lines printed only if the machine is busy, or has not yet compiled.
PROGRESS = re.compile(
    r"et-sim: (?:\d+ s · |compiling|not compiled yet)|et-convert: (?:compiling|.* about \d+ s left)"
)
ANYTHING = "..."
SCRIPT = """#!/bin/sh
exec "{python}" {arguments} "$@"
"""  # of Python, too: by a link it would not find the packages that are installed beside it
MAIN = "-c 'import sys; from {module} import main; sys.exit(main())'"
TIMEOUT_S = 600
PROGRAMS: dict[str, Callable[[list[str]], int]] = {"et-sim": et_sim, "et-convert": et_convert}
QUOTED = re.compile(r"""'[^']*'|"(?:[^"$`\\]|\\")*\"""")  # within which a shell does nothing
SHELL = re.compile(r"[^\w\s./:=,@%+'\"-]|'|\"")
FILTERED = re.compile(r"((?:'[^']*'|[^'\"|<>&;])*)(\| .*|> .*)", re.DOTALL)


@dataclass(slots=True)
class Command:
    """One command of a page and the output the page shows; `python` blocks are commands without output."""

    line: int
    text: str
    shown: list[str] = field(default_factory=list)
    is_python: bool = False

    @property
    def is_installing(self) -> bool:
        """Return whether the command sets up a machine, which a test must not do."""
        return bool(INSTALLING.match(self.text))

    @property
    def words(self) -> list[str]:
        """Return the words of a command of our programs that needs no shell except as a filter, else none."""
        text = self._parts[0]
        bare = QUOTED.sub("", text)
        if self.is_python or "\n" in bare or SHELL.search(bare):
            return []
        words = shlex.split(text)
        return words if words[0] in PROGRAMS else []

    @property
    def filter(self) -> str:
        """Return the part of the command by which a shell filters the output; empty: no filter."""
        return self._parts[1]

    @property
    def _parts(self) -> tuple[str, str]:
        text = self.text.replace("\\\n", " ")
        if result := FILTERED.fullmatch(text):
            return result[1], result[2].removeprefix("|") if result[2][0] == "|" else f"cat {result[2]}"
        return text, ""


def commands_of(page: str) -> list[Command]:
    """Return the commands of a page, in order."""
    results: list[Command] = []
    fence = ""
    for number, line in enumerate(page.splitlines(), start=1):
        if line.startswith("```"):
            fence = "" if fence else line[3:].strip() or "text"
            if fence == "python":
                results.append(Command(number, "", is_python=True))
        elif fence == "python":
            results[-1].text += f"{line}\n"
        elif fence == "console":
            _take_console_line(results, number, line)
    return results


def _take_console_line(found: list[Command], number: int, line: str) -> None:
    if line.startswith("$ "):
        found.append(Command(number, line[2:]))
    elif (line == ">" or line.startswith("> ")) and not found[-1].shown:
        found[-1].text += f"\n{line[2:]}"
    else:
        found[-1].shown.append(line)


class Place:
    """A directory in which a page's commands run, with this checkout's programs on the path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "page"
        self._folder.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        commands = {
            "et-sim": MAIN.format(module="et_sim.entry"),
            "et-convert": MAIN.format(module="converters.entry"),
            "et-record": MAIN.format(module="recorder.entry"),
        }
        for name, arguments in {**commands, "python": ""}.items():
            program = programs / name
            program.write_text(SCRIPT.format(python=sys.executable, arguments=arguments))
            program.chmod(0o755)
        for name in ("traces", "tests", "docs"):  # as in a checkout
            if (REPOSITORY / name).is_dir():
                (self._folder / name).symlink_to(REPOSITORY / name)
        self._variables = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONUTF8": "1",
            "COLUMNS": "100",
        }

    def run(self, command: Command) -> tuple[int, list[str]]:
        """Exit status and output lines."""
        if words := command.words:
            status, text = self._within(lambda: PROGRAMS[words[0]](words[1:]), command.filter)
        elif command.is_python:
            code = compile(command.text, f"<line {command.line}>", "exec")
            status, text = self._within(lambda: exec(code, {"__name__": "__main__"}))
        else:
            status, text = self._in_a_shell(command.text)
        return status, [line for line in text.splitlines() if not PROGRESS.match(line)]

    def _within(self, call: Callable[[], Any], output_filter: str = "") -> tuple[int, str]:
        """Run in this process; a filter gets the standard output alone."""
        printed = io.StringIO()
        filtered = io.StringIO() if output_filter else printed
        with (
            _folder_and_variables(self._folder, self._variables),
            redirect_stdout(filtered),
            redirect_stderr(printed),
        ):
            try:
                status = call() or 0
            except SystemExit as end:  # of the parser of arguments
                status = end.code
        if not output_filter:
            return status, printed.getvalue()
        status, text = self._in_a_shell(output_filter, filtered.getvalue())
        return status, printed.getvalue() + text

    def _in_a_shell(self, text: str, given: str = "") -> tuple[int, str]:
        done = subprocess.run(
            ["sh", "-c", text],
            cwd=self._folder,
            env={**os.environ, **self._variables},
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
            encoding="utf-8",
        )
        return done.returncode, done.stdout


@contextmanager
def _folder_and_variables(folder: Path, variables: dict[str, str]) -> Iterator[None]:
    place, before = Path.cwd(), dict(os.environ)
    os.chdir(folder)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.chdir(place)
        os.environ.clear()
        os.environ.update(before)


def agrees(shown: list[str], printed: list[str]) -> bool:
    """Return whether output is as shown; a line `...` represents any lines."""
    pattern = "".join(r"(?:.*\n)*?" if line == ANYTHING else re.escape(f"{line}\n") for line in shown)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def rewritten(page: str, folder: Path) -> str:
    """Return the page with today's output; transcripts that agree stay, `...` included."""
    lines = page.splitlines()
    place = Place(folder)
    moved = 0
    for command in commands_of(page):
        if command.is_installing:
            continue
        printed = place.run(command)[1]
        if command.is_python or agrees(command.shown, printed):
            continue
        first = command.line + moved + command.text.count("\n")
        lines[first : first + len(command.shown)] = printed
        moved += len(printed) - len(command.shown)
    return "\n".join(lines) + "\n"


def main(pages: list[str]) -> None:
    """Rewrite pages in place, after the engine is compiled, so that no output mentions the compilation."""
    with tempfile.TemporaryDirectory() as folder:
        status, printed = Place(Path(folder)).run(Command(0, "et-sim demo"))
    if status:  # rather than writing its traceback into the pages
        sys.exit("\n".join(["et-sim does not work here:", *printed]))
    for name in pages:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(name)
            path.write_text(rewritten(path.read_text(encoding="utf-8"), Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
