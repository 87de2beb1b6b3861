"""A run of tests with one module changed, in its own process, on a package that links to the working tree.

The folder of the package is rebuilt for a mutant: links to all unchanged files, and one changed file.
Nothing is compiled: machine code of the original must neither serve a mutant nor be replaced. Where the room
that compiles is changed itself, the deep tests of the room compile into a folder of the mutant's own. One
process imports the heavy packages, and forks for each mutant.

`python tests/mutation/trial.py [--count 30] [--seed 1] [--below et_sim/engine]` tries random mutants.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

from mutants import REPOSITORY, Mutant
from rooms import COMPILES, changes_to_try, files_for, modules, runs_for

HEAVY = (
    *(
        "_hypothesis_pytestplugin",
        "hypothesis",
        "msgspec",
        "networkx",
        "numba",
        "numpy",
        "pyarrow",
        "pytest",
        "sortedcontainers",
        "xdist",
    ),
)
NO_TESTS = 5
OPTIONS = (
    *("-x", "-q", "--no-header", "--tb=no", "-rfE"),
    *("-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin", "-p", "unshrunk"),
)
CPU_SECONDS, SECONDS = 240, 900  # of a mutant; beyond this processor time it is in an endless loop
MEMORY = 8 << 30
NO_RUNS = "none"  # of an unchanged package: its kept runs have tests of their own
ONE_IN = 1  # cases of a test: all of them; the short suite runs one in twenty


@contextmanager
def overlay(mutant: Mutant | None) -> Iterator[Path]:
    """Make a folder with the package, in which one module is changed."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder, there = Path(name), REPOSITORY
        parts = Path(mutant.module).parts if mutant else ()
        for part, following in pairwise(parts):
            folder, there = folder / part, there / part
            (folder / "__pycache__").mkdir(parents=True)
            for entry in there.iterdir():
                if entry.name not in (following, "__pycache__"):
                    (folder / entry.name).symlink_to(entry)
            for entry in (there / "__pycache__").glob("*.pyc"):
                if entry.name.split(".")[0] != Path(following).stem:
                    (folder / "__pycache__" / entry.name).symlink_to(entry)
        if mutant:
            (folder / parts[-1]).write_text(mutant.applied((REPOSITORY / mutant.module).read_text()))
        yield Path(name)


def trial(mutant: Mutant | None, tests: Sequence[str]) -> tuple[str, str]:
    """Return whether one of the tests notices a mutant, and which: `noticed`, `endless` or `survived`."""
    with overlay(mutant) as folder:
        log = folder / "log"
        child = os.fork()
        if not child:
            os.environ["ET_SIM_TESTS_RUNS"] = runs_for(mutant) if mutant else NO_RUNS
            options = OPTIONS
            if mutant and mutant.module.startswith(COMPILES):
                os.environ.update(ET_SIM_COMPILE="now", ET_SIM_CACHE_DIR=str(folder / "cache"))
                options += ("--deep",)
            _run_tests(folder, (*options, *tests), log)
        code = _exit_code(child)
        found = re.findall(r"^(?:FAILED|ERROR) (\S+)", log.read_text(errors="replace"), re.MULTILINE)
    if code == NO_TESTS:
        raise ValueError(f"no such tests: {', '.join(tests)}")
    outcome = "survived" if code == 0 else "endless" if code < 0 else "noticed"
    return outcome, found[0] if found else ""


def _exit_code(child: int) -> int:
    """Wait for a process; negative: it was ended."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run_tests(folder: Path, arguments: Sequence[str], log: Path) -> None:
    """Run pytest on the package in a folder, and end this process."""
    code = -1
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        output = os.open(log, os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.chdir(REPOSITORY)
        sys.path.insert(0, str(folder))
        paths = [str(folder), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        code = int(importlib.import_module("pytest").main([*arguments]))
        sys.stdout.flush()
    finally:
        os._exit(code & 0xFF)


def prepare() -> None:
    """Import the heavy packages of every trial, and disable compilation."""
    os.environ.update(ET_SIM_COMPILE="never", ET_SIM_TESTS_ONE_IN=f"{ONE_IN}")
    os.environ.update(PYTEST_ADDOPTS="", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    os.environ.pop("PYTEST_XDIST_WORKER", None)
    for name in HEAVY:
        importlib.import_module(name)


def drawn(seed: int, below: Sequence[str] = ("et_sim",)) -> Mutant:
    """Draw a mutant: first a module by its size, then one of its changes."""
    paths = [path for path in modules() if path.startswith(tuple(below))]
    generator = random.Random(seed)
    weights = [(REPOSITORY / path).stat().st_size for path in paths]
    while True:
        [path] = generator.choices(paths, weights)
        if changes := changes_to_try(path):
            return generator.choice(changes)


def main() -> None:
    """Try mutants, and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--below", nargs="*", default=["et_sim"], help="modules, or folders of them")
    parser.add_argument("--given", action="store_true", help="mutants with their tests as JSON on the input")
    chosen = parser.parse_args()
    pairs: list[tuple[Mutant | None, list[str]]]
    if chosen.given:
        request = json.load(sys.stdin)
        pairs = [(item["mutant"] and Mutant(**item["mutant"]), item["tests"]) for item in request]
    else:
        mutants = [drawn(seed, chosen.below) for seed in range(chosen.seed, chosen.seed + chosen.count)]
        pairs = [(mutant, files_for(mutant)) for mutant in mutants]
    prepare()
    for mutant, tests in pairs:
        begin = time.monotonic()
        outcome, test = trial(mutant, tests)
        seconds = round(time.monotonic() - begin, 1)
        report = {"outcome": outcome, "mutant": str(mutant), "line": mutant and mutant.line, "test": test}
        print(json.dumps(report | {"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
