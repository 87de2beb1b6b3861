"""Choice of the test files for changes of each function, by the lines that each test runs: `rooms.json`.

`pip install coverage`, then `python tests/mutation/choice.py FOLDER`: it runs the short suite in one process
without machine code, for about half an hour, keeps the lines of each test file in the folder, and writes the
choice. Files that the folder holds already are not run again. With `--runs` before the folder, it does the
same for the random runs whose tables are kept, and writes `runs.json`: those that run the lines of a module.
With `--commands` it does so for those of which views, services or outputs of commands are kept, and writes
`commands.json`.
"""

from __future__ import annotations

import heapq
import importlib
import json
import os
import pickle
import signal
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mutants import REPOSITORY
from rooms import (
    CHOICE,
    COMMANDS,
    LEFT_OUT,
    MOST_FILES,
    REST,
    ROOMS,
    RUNS,
    functions_of,
    imported,
    modules,
    tried_by_commands,
)

TESTS = REPOSITORY / "tests"
PACKAGE = f"{REPOSITORY / 'et_sim'}/"
LONG_SECONDS = 25  # a test that takes longer, with its lines noted, is not chosen
MOST_SECONDS = 12.0  # of processor time, for the files of a function together
ENOUGH = 3  # files that run a row
LOADING_SECONDS = 0.3  # of a file
SLOWER = 2.0  # a test whose lines are noted, than the test alone
# A test that runs few lines is near to each of them. The more tests run a row, the less another one adds.
FEW_LINES, FALLS = 50, 0.3
ONE_TEST = 0.002 / 4
WHOLE_OUTPUTS = {"views/test_views_shown.py"}  # files that compare all that comes out of the lines they run
OWN = 4  # times nearer to a module is a test file that imports it
# Random runs of a module: those that run a row, and the seconds of all.
RUNS_OF_ROW, SECONDS_OF_RUNS = 24, 20.0
RUNS_OF_KIND = 3  # for modules without functions
KEPT = {  # files of kept lines by option, and where the choice among them is
    "--runs": (("tables", "keys", "special"), RUNS),
    "--commands": (("services", "commands", "views", "texts"), COMMANDS),
}
OF_CONVERTERS = "conversions"  # a kind of commands that runs little of the package
OUTSIDE = 0  # the row of a module that stands for all outside of its functions: importing it runs them


class Ran(NamedTuple):
    """A test with the lines that it ran, as bits by module."""

    seconds: float
    lines: dict[str, int]
    failures: int


class LinesRun:
    """A plugin of pytest that notes the lines of each test, and writes them by test file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._coverage = importlib.import_module("coverage").Coverage(
            data_file=None, include=[f"{PACKAGE}*"], config_file=False
        )
        self._rooms = tuple(f"{PACKAGE}{room}/" for room in ROOMS)
        self._path = Path()
        self._found: dict[str, Ran] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if item.path != self._path:
            self.pytest_sessionfinish()
            self._path, self._found = item.path, {}
        self._coverage.erase()
        self._coverage.start()
        begin = time.process_time()
        yield
        seconds = time.process_time() - begin
        self._coverage.stop()
        test = item.name.partition("[")[0]
        before = self._found.get(test, Ran(0.0, {}, 0))
        lines = dict(before.lines)
        data = self._coverage.get_data()
        for path in data.measured_files():
            if path.startswith(self._rooms):
                module = f"et_sim/{path.removeprefix(PACKAGE)}"
                lines[module] = lines.get(module, 0) | sum(1 << line for line in data.lines(path))
        self._found[test] = Ran(before.seconds + seconds, lines, before.failures)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        def end(*_: object) -> None:
            raise TimeoutError(f"{item.name} takes more than {LONG_SECONDS} s")

        signal.signal(signal.SIGVTALRM, end)
        signal.setitimer(signal.ITIMER_VIRTUAL, LONG_SECONDS)
        yield
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            test = report.nodeid.rpartition("::")[2].partition("[")[0]
            before = self._found.get(test, Ran(0.0, {}, 0))
            self._found[test] = before._replace(failures=before.failures + 1)

    def pytest_sessionfinish(self) -> None:
        if self._found:
            kept_at(self._folder, self._path).write_bytes(pickle.dumps(self._found))


def kept_at(folder: Path, file: Path) -> Path:
    """Return where the lines of a test file are kept."""
    return folder / f"{str(file.relative_to(TESTS)).replace('/', '__')}.pickle"


def measure(folder: Path) -> None:
    """Run the test files whose lines the folder lacks."""
    found = sorted(path for path in TESTS.rglob("test_*.py") if path.parent.name not in LEFT_OUT)
    if missing := [str(path) for path in found if not kept_at(folder, path).is_file()]:
        os.environ["ET_SIM_COMPILE"] = "never"
        pytest.main(["-q", "--tb=no", "-p", "no:cacheprovider", *missing], plugins=[LinesRun(folder)])


class Runs(NamedTuple):
    """A test that runs a module: its file, how near it is to its lines, and these as bits."""

    file: str
    weight: float
    lines: int


def read(folder: Path) -> tuple[dict[str, float], dict[str, list[Runs]]]:
    """Return the seconds of each test file, and the tests that run or import each module."""
    seconds, by_module = {}, defaultdict(list)
    for path in sorted(folder.glob("*.pickle")):
        file = path.stem.replace("__", "/")
        tests = {test: Ran(*ran) for test, ran in pickle.loads(path.read_bytes()).items()}
        seconds[file] = LOADING_SECONDS + sum(ran.seconds for ran in tests.values()) / SLOWER
        by_name = imported(f"tests/{file}")
        for module in by_name:
            by_module[module].append(Runs(file, OWN / FEW_LINES, 1 << OUTSIDE))
        for ran in tests.values():
            others = 0 if file in WHOLE_OUTPUTS else sum(bits.bit_count() for bits in ran.lines.values())
            weight = 1 / (FEW_LINES + others)
            for module, lines in ran.lines.items() if not ran.failures else ():
                near = OWN if module in by_name else 1
                by_module[module].append(Runs(file, near * weight, lines & ~(1 << OUTSIDE)))
    return seconds, by_module


def chosen_files(
    runs: list[Runs], rows: int, seconds: Mapping[str, float], most_seconds: float = MOST_SECONDS
) -> list[str]:
    """Return files, the best first, whose tests run the given rows of a module."""
    near: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for file, weight, lines in runs:
        for row in _bits(lines & rows):
            near[file][row] += weight
    so_far: dict[int, float] = defaultdict(float)

    def worth(file: str) -> float:
        added = ((so_far[row] + ONE_TEST, weight) for row, weight in near[file].items())
        return sum((now + weight) ** FALLS - now**FALLS for now, weight in added) / (0.5 + seconds[file])

    chosen: list[str] = []
    left = most_seconds
    while len(chosen) < MOST_FILES:
        fitting = (file for file in near if file not in chosen and (seconds[file] <= left or not chosen))
        best = heapq.nlargest(1, fitting, key=lambda file: (worth(file), file))
        if not best:
            break
        chosen += best
        left -= seconds[best[0]]
        for row, weight in near[best[0]].items():
            so_far[row] += weight
    return chosen


def _of_rows(
    runs: list[Runs], rows: range, name: str, chosen: list[str], seconds: Mapping[str, float]
) -> dict[str, list[str]]:
    """Return files of the rows of a function that fewer than `ENOUGH` of the chosen files run."""
    ran: dict[str, int] = defaultdict(int)
    for file, _, lines in runs:
        ran[file] |= lines
    found = {}
    for row in rows:
        files = {file for file, lines in ran.items() if lines >> row & 1}
        if len(files & {*chosen}) < min(ENOUGH, len(files)):
            own = chosen_files(runs, 1 << row, seconds, MOST_SECONDS / 3)
            found[f"{name}@{row - rows.start}"] = own[:ENOUGH]
    return found


def _bits(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def choice(folder: Path) -> dict[str, dict[str, list[str]]]:
    """Return test files by module and function; `*` stands for the rest of a module."""
    seconds, by_module = read(folder)
    result = {}
    for module in modules():
        functions = {name: (1 << last + 1) - (1 << first + 1) for name, first, last in functions_of(module)}
        runs = by_module[module]
        found = {name: chosen_files(runs, rows, seconds) for name, rows in functions.items()}
        for name, first, last in functions_of(module):
            found |= _of_rows(runs, range(first, last + 1), name, found[name], seconds)
        importing = chosen_files(runs, 1 << OUTSIDE, seconds, MOST_SECONDS / 2)
        found[REST] = list(dict.fromkeys([*importing, *chosen_files(runs, -1, seconds, MOST_SECONDS / 2)]))
        result[module] = {name: files for name, files in found.items() if files}
    return {module: found for module, found in result.items() if found}


def text_of(chosen: Mapping[str, Mapping[str, list[str]]]) -> str:
    """Return the choice as JSON: files once, and their numbers by function, a module on a line."""
    files = sorted({file for found in chosen.values() for of in found.values() for file in of})
    numbers = {file: number for number, file in enumerate(files)}
    lines = []
    for module, found in chosen.items():
        alike: dict[str, list[str]] = defaultdict(list)
        for name, of in found.items():
            alike[" ".join(str(numbers[file]) for file in of)].append(name)
        by_functions = {" ".join(names): of for of, names in alike.items()}
        lines.append(f"  {json.dumps(module)}: {json.dumps(by_functions)}")
    listed = ",\n".join(f"  {json.dumps(file)}" for file in files)
    return f'{{\n "files": [\n{listed}\n ],\n "functions": {{\n' + ",\n".join(lines) + "\n }\n}\n"


def measure_runs(folder: Path, names: Collection[str]) -> dict[str, Ran]:
    """Return the lines of each random run of some kept files, by its name; a kind at a time is measured."""
    os.environ["ET_SIM_COMPILE"] = "never"
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    rooms = project["tool"]["pytest"]["ini_options"]["pythonpath"]
    sys.path[:0] = [str(REPOSITORY / room) for room in rooms]
    shown = importlib.import_module("random_shown")
    found: dict[str, Ran] = {}
    for name in names:
        of = shown.FILES[name]
        for kind, count in ((kind, count) for kind, count in of.counts.items() if kind != OF_CONVERTERS):
            path = folder / f"runs-{name}-{kind}.pickle"
            if not path.is_file():
                path.write_bytes(pickle.dumps(_ran(shown, name, kind, count)))
            found |= {run: Ran(*ran) for run, ran in pickle.loads(path.read_bytes()).items()}
    return found


def _ran(shown: Any, name: str, kind: str, count: int) -> dict[str, tuple[Any, ...]]:
    coverage = importlib.import_module("coverage").Coverage(
        data_file=None, include=[f"{PACKAGE}*"], config_file=False
    )
    found = {}
    for seed in range(count):
        coverage.erase()
        coverage.start()
        begin = time.process_time()
        shown.line(kind, seed, shown.FILES[name].of)
        seconds = time.process_time() - begin
        coverage.stop()
        data = coverage.get_data()
        lines = {
            f"et_sim/{file.removeprefix(PACKAGE)}": sum(1 << line for line in data.lines(file))
            for file in data.measured_files()
        }
        found[shown.run_name(name, kind, seed)] = tuple(Ran(seconds, lines, 0))
    return found


def chosen_runs(runs: Mapping[str, Ran], module: str, rows: int) -> list[str]:
    """Return runs, the quickest first, until enough of them run each of these rows of a module."""
    ran: dict[int, int] = defaultdict(int)
    chosen, left = [], SECONDS_OF_RUNS
    for name in sorted(runs, key=lambda name: (runs[name].seconds, name)):
        mine = [row for row in _bits(runs[name].lines.get(module, 0) & rows) if ran[row] < RUNS_OF_ROW]
        if mine and runs[name].seconds <= left:
            chosen.append(name)
            left -= runs[name].seconds
            for row in mine:
                ran[row] += 1
    return chosen


def choice_of_runs(runs: Mapping[str, Ran], of_modules: Sequence[str]) -> str:
    """Return the runs of each module as JSON, a module on a line; `*`: of those without functions."""
    by_kind = _by_kind(sorted(runs, key=lambda name: (runs[name].seconds, name)))
    found = {REST: {kind: seeds[:RUNS_OF_KIND] for kind, seeds in by_kind.items()}}
    for module in of_modules:
        rows = sum((1 << last + 1) - (1 << first + 1) for _, first, last in functions_of(module))
        found[module] = _by_kind(chosen_runs(runs, module, rows))
    lines = [
        f" {json.dumps(module)}: {json.dumps({kind: ' '.join(seeds) for kind, seeds in of.items()})}"
        for module, of in found.items()
        if of
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _by_kind(names: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name in names:
        kind, seed = name.split(":")
        found[kind].append(seed)
    return found


def main() -> None:
    """Measure what the folder lacks, and write the choice."""
    [*options, folder] = [*sys.argv[1:-1], Path(sys.argv[-1])]
    folder.mkdir(parents=True, exist_ok=True)
    for option in options:
        names, path = KEPT[option]
        of_modules = modules() if path == RUNS else tried_by_commands()
        path.write_text(choice_of_runs(measure_runs(folder, names), of_modules))
    if options:
        return
    measure(folder)
    CHOICE.write_text(text_of(choice(folder)))


if __name__ == "__main__":
    main()
