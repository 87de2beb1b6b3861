"""Tests for a change: files whose tests run the function that is changed, the nearest to it first.

`rooms.json` names them by module and function; `choice.py` writes it. A function without an entry takes those
of its module, a module without one those of its folder, and one of a room without any those that import it
or are named like it. Rows that few of these run have files of their own, by their distance from the
function's first row.
"""

from __future__ import annotations

import ast
import heapq
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from mutants import REPOSITORY, Mutant, mutants_of

NOT_NOTED = (  # rooms of which `rooms.json` has no lines
    *("basics", "cli", "collectives", "compiled", "doctor", "documents", "jobs", "layerfile"),
    *("machine", "recipes", "run", "samples", "sweeps", "tables", "trace", "workloads/training"),
)
ROOMS = (
    *("calibrate", "compute", "engine", "fold", "goodput", "memory", "network", "plan", "serving"),
    *("timeline", "validation", "views", "workloads/inference"),
    *NOT_NOTED,
)
FOLDER = Path(__file__).parent
CHOICE = FOLDER / "rooms.json"
RUNS, COMMANDS = FOLDER / "runs.json", FOLDER / "commands.json"
# Folders whose tests run other processes, read texts, or take long.
LEFT_OUT = {"compiled", "docs", "golden", "language", "mutation", "recorder"}
COMPILES = "et_sim/compiled/"  # modules whose changes are tried with machine code, by the tests of their room
REST = "*"  # of a module: all but its functions
MOST_FILES = 8  # of a function
MOST_CALLS = 4  # of a command, that make a file nearer to its module
NOT_LISTED = 3  # more, that are written after `rooms.json`
BY_NAME = 2  # more, whose names share words with the line
DECLARED = "tests/docs/test_generated_pages.py"  # defaults and limits of all declared keys
# Files that compare all results of random runs with kept ones, by kind; `views/late` is a kind of views.
OF_RUNS = "tests/views/test_random_tables.py"
OF_KINDS = {
    "views": "tests/views/test_random_views.py",
    "texts": "tests/views/test_random_views.py",
    "servings": "tests/serving/test_random_servings.py",
    "months": "tests/goodput/test_random_months.py",
    "steps": "tests/workloads/test_random_jobs.py",
    "jobs": "tests/workloads/test_random_jobs.py",
    "uses": "tests/cli/test_random_commands.py",
    "sweeps": "tests/sweeps/test_random_sweeps.py",
    "fits": "tests/calibrate/test_random_fits.py",
    "checks": "tests/validation/test_random_rows.py",
    "serves": "tests/serving/test_random_servings.py",
    "spans": "tests/goodput/test_random_months.py",
    "searches": "tests/sweeps/test_random_sweeps.py",
    "looks": "tests/cli/test_random_commands.py",
    "logs": "tests/calibrate/test_random_fits.py",
    "varied": "tests/calibrate/test_random_fits.py",
    "configs": "tests/workloads/test_random_jobs.py",
    "tools": "tests/cli/test_random_commands.py",
    "topologies": "tests/cli/test_random_commands.py",
    "mistakes": "tests/cli/test_random_commands.py",
}
# Rooms whose changes only runs try, by their tables.
OF_TABLES = tuple(
    f"et_sim/{room}/"
    for room in (
        *("collectives", "compiled", "compute", "engine", "fold", "memory", "network", "plan", "timeline"),
    )
)


def modules() -> list[str]:
    """Return the modules that may change."""
    paths = (path for room in ROOMS for path in (REPOSITORY / "et_sim" / room).rglob("*.py"))
    return sorted(str(path.relative_to(REPOSITORY)) for path in paths)


@cache
def files_by_function() -> dict[str, dict[str, list[str]]]:
    """Return test files by module and function."""
    written = json.loads(CHOICE.read_text())
    files = [f"tests/{file}" for file in written["files"]]
    return {
        module: {
            name: [files[int(number)] for number in numbers.split()]
            for names, numbers in found.items()
            for name in names.split()
        }
        for module, found in written["functions"].items()
    }


def files_for(mutant: Mutant) -> list[str]:
    """Return paths of test files for a change: those that run it, of random cases, by name, and of keys."""
    found = _files_that_run(mutant)
    if mutant.module.startswith(COMPILES):
        return found
    others = [
        *files_that_import(mutant.module),
        *_of_random_cases(mutant.module),
        *files_by_name(mutant.line),
    ]
    return list(dict.fromkeys([*found[:BY_NAME], *others, *found[BY_NAME:], DECLARED]))


@cache
def runs_by_module(path: Path = RUNS) -> dict[str, dict[str, str]]:
    """Return seeds of random runs by module and kind."""
    written: dict[str, dict[str, str]] = json.loads(path.read_text())
    return written


def tried_by_commands() -> list[str]:
    """Return the modules whose changes are tried by commands, services and views, too."""
    return [module for module in modules() if not module.startswith(OF_TABLES)]


def _chosen(module: str) -> dict[str, str]:
    """Return seeds of random runs by kind: the quickest that run the lines of a module."""
    paths = [RUNS] if module.startswith(OF_TABLES) else [RUNS, COMMANDS]
    found = [of[module] for of in map(runs_by_module, paths) if module in of]
    return {kind: seeds for of in found or map(_of_rest, paths) for kind, seeds in of.items()}


def _of_rest(path: Path) -> dict[str, str]:
    return runs_by_module(path)[REST]


def runs_for(mutant: Mutant) -> str:
    """Return random runs whose results are compared, by name."""
    found = _chosen(mutant.module)
    return " ".join(f"{kind}:{seed}" for kind, seeds in found.items() for seed in seeds.split())


def _of_random_cases(module: str) -> list[str]:
    """Return the files that compare the random runs of a module, those of most runs first."""
    counts: Counter[str] = Counter()
    for kind, seeds in _chosen(module).items():
        counts[OF_KINDS.get(kind.partition("/")[0], OF_RUNS)] += len(seeds.split())
    return [file for file, _ in counts.most_common()]


def _files_that_run(mutant: Mutant) -> list[str]:
    found, of_module = files_by_function().get(mutant.module, {}), files_of_module(mutant.module)
    for name, first, last in functions_of(mutant.module) if found else ():
        if first <= mutant.row <= last:
            return list(
                dict.fromkeys([*found.get(f"{name}@{mutant.row - first}", ()), *found.get(name, of_module)])
            )
    return of_module


def files_of_module(module: str) -> list[str]:
    """Return the test files of a module outside of its functions, or else those of its folder."""
    found = files_by_function().get(module)
    if module.startswith(COMPILES):
        tests = sorted((REPOSITORY / "tests/compiled").glob("test_*.py"))
        return [str(path.relative_to(REPOSITORY)) for path in tests]
    if not found and module.removeprefix("et_sim/").startswith(NOT_NOTED):
        return _tests_near(module)
    return found[REST] if found else _tests_of_folder(module.rpartition("/")[0])


def files_by_name(line: str) -> list[str]:
    """Return two test files whose names share words with a line: a function may serve many subjects."""
    named, counts = _words_of_files()
    shared = {file: sum(1 / counts[word] for word in words & _words(line)) for file, words in named.items()}
    return heapq.nlargest(BY_NAME, (file for file in shared if shared[file]), key=lambda file: shared[file])


@cache
def _words_of_files() -> tuple[dict[str, set[str]], Counter[str]]:
    """Return the words in the names of the test files that are listed, and how often each is there."""
    every = {file for found in files_by_function().values() for of in found.values() for file in of}
    named = {file: _words(Path(file).stem) for file in sorted(every)}
    return named, Counter(word for words in named.values() for word in words)


@cache
def _words(text: str) -> set[str]:
    """Return the words of a text in lower case, without the last letters of plurals."""
    found = {word.lower() for word in re.findall("[A-Za-z]{3,}", text)}
    return {re.sub("(?<=[^s])e?s$", "", word) for word in found} - {"test"}


@cache
def imported(file: str) -> set[str]:
    """Return the modules that a test file imports by name."""
    names = set()
    for node in ast.walk(ast.parse((REPOSITORY / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    paths = [name.replace(".", "/") for name in names]
    return {f"{path}{ending}" for path in paths for ending in (".py", "/__init__.py")}


@cache
def not_listed() -> list[str]:
    """Return the test files that `rooms.json` does not name, such as those written after it."""
    listed_ones = {file for found in files_by_function().values() for of in found.values() for file in of}
    paths = (path for path in _tests() if path.parent.name not in LEFT_OUT)
    return sorted({str(path.relative_to(REPOSITORY)) for path in paths} - listed_ones)


def files_that_import(module: str) -> list[str]:
    """Return test files that `rooms.json` does not name and that import a module, those of its room first."""
    found = [file for file in not_listed() if module in imported(file)]
    room = module.split("/")[1]
    return sorted(found, key=lambda file: (file.split("/")[1] != room, len(imported(file))))[:NOT_LISTED]


def _tests_of_folder(folder: str) -> list[str]:
    """Return the files that most modules of a folder have."""
    counts: Counter[str] = Counter()
    for module, found in files_by_function().items():
        if module.startswith(f"{folder}/"):
            counts.update(found[REST])
    if counts:
        return [file for file, _ in counts.most_common(MOST_FILES)]
    return _tests_of_folder(folder.rpartition("/")[0])


@cache
def _tests_near(module: str) -> list[str]:
    """Return test files that import a module, or call its command, or of whose room it is, if they have its
    words in their names and texts; without any, those that import its folder.
    """
    name, words = module.removesuffix(".py").replace("/", "."), _words(Path(module).stem)
    found: dict[str, float] = {}
    rooms = (module.split("/")[1], Path(module).stem.split("_")[0])
    folders = tuple(f"{REPOSITORY / 'tests' / room}/" for room in rooms)
    call = f'main(["{Path(module).stem.split("_")[0]}"'
    for path, text in _tests().items():
        calls = min(text.count(call), MOST_CALLS) if module.startswith("et_sim/cli/") else 0
        imports = name in text and bool(re.search(rf"\b{name}\b", text))
        is_near = calls or imports or str(path).startswith(folders)
        if path.parent.name in LEFT_OUT or not is_near:
            continue
        shared = calls + len(words & _words(path.stem)) + len(words & _words(text)) / 2
        found[str(path.relative_to(REPOSITORY))] = shared + 2 * imports
    if not found:
        return _tests_near(module.rpartition("/")[0])
    return heapq.nlargest(
        MOST_FILES, [file for file in found if found[file] or not any(found.values())], key=found.__getitem__
    )


@cache
def _tests() -> dict[Path, str]:
    """Return the texts of all test files."""
    return {
        path: path.read_text(encoding="utf-8") for path in sorted((REPOSITORY / "tests").rglob("test_*.py"))
    }


@cache
def functions_of(module: str) -> list[tuple[str, int, int]]:
    """Return name, first and last row of each function and method; those inside one are a part of it."""
    found = []
    left: list[tuple[str, ast.AST]] = [("", ast.parse((REPOSITORY / module).read_text()))]
    while left:
        prefix, node = left.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                found.append((prefix + child.name, child.lineno, child.end_lineno or 0))
            else:
                name = f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix
                left.append((name, child))
    return sorted(found, key=lambda function: function[1])


def listed(name: str) -> list[dict[str, Any]]:
    """Return the entries of a committed list: `noticed` or `equivalent`."""
    entries: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text())
    return entries


def mutant_of(entry: dict[str, Any]) -> Mutant:
    """Return the change that an entry of a list describes."""
    number = entry.get("number", 0)
    for mutant in mutants_of(entry["module"]):
        if mutant.key == (entry["module"], entry["line"], entry["change"], number):
            return mutant
    raise LookupError(f"{entry['module']} has no line {entry['line']!r} with the change {entry['change']!r}")


@cache
def equivalents() -> set[tuple[str, str, str, int]]:
    """Return keys of changes that change no result."""
    return {
        (entry["module"], entry["line"], entry["change"], entry.get("number", 0))
        for entry in listed("equivalent")
    }


def changes_to_try(module: str) -> list[Mutant]:
    """Return the changes of a module that may change a result."""
    return [mutant for mutant in mutants_of(module) if mutant.key not in equivalents()]
