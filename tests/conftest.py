"""Setup for all tests: three suites with their numbers of random cases, and engines that are compiled once.

`pytest` runs a part of everything, `pytest --deep` all tests, `--deep-only` the tests that `--deep` adds, and
`pytest --exhaustive` all with thousands of random cases, and golden cases in every way. `--hypothesis-seed N`
draws other random cases.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from engines_ahead import simulate
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from in_turn import of_other_days, test_of

EXAMPLES = {"default": 4, "deep": 20, "exhaustive": 2000}
FIRST_SEED = 1_000_000  # of the random cases that `--deep` adds
# of a test with more than 2 cases, the short suite runs the first case and one in twenty
FEW_CASES, ONE_IN = 2, int(os.environ.get("ET_SIM_TESTS_ONE_IN", "20"))
IN_FULL = ("golden", "docs", "recorder")  # folders that choose for themselves
# As estimated, interpreted: a call that takes longer waits for machine code, which others need with --deep.
LONG_SECONDS = {False: 30.0, True: 15.0}
# A form of the engine whose calls take longer in all is ordered: it takes 25 s. The short suite has two forms
# made ahead; a third one would be made when the few calls that need it are over.
WORTH_SECONDS = {False: 60.0, True: 20.0}
SHORT_SECONDS = {False: 6.0, True: 3.0}  # of other code: a function whose calls take longer in all is ordered
AHEAD = pytest.StashKey[subprocess.Popen[bytes]]()
# Folders whose tests run no engine, or hardly any: they come first, while engines are compiled.
WITHOUT_ENGINE = (
    *("machine", "workloads", "trace", "collectives", "compute", "tables", "memory"),
    *("doctor", "explain", "converters"),
)
os.environ.setdefault("ET_SIM_COMPILE", "now")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--deep", action="store_true", help="run everything, also what takes long")
    parser.addoption("--deep-only", action="store_true", help="of it, what `pytest` does not run as well")
    parser.addoption("--exhaustive", action="store_true", help="the same with thousands of random cases")


def pytest_configure(config: pytest.Config) -> None:
    config.option.deep |= config.option.exhaustive or config.option.deep_only
    lines = (
        "deep: runs only with --deep, because it takes long",
        "exhaustive: runs only with --exhaustive: a release is worth it",
        "seeds(deep, exhaustive, at_a_time): the test gets ranges of so many `seeds` in all, with --deep",
        "in_turn(days, day): a case that only --deep runs has one seed in so many; by default cases in turn",
    )
    for line in lines:
        config.addinivalue_line("markers", line)
    # without a deadline: the time of one depends on the load of the machine
    for name, count in EXAMPLES.items():
        settings.register_profile(
            name,
            max_examples=count,
            derandomize=config.getoption("hypothesis_seed") is None,  # other cases: --hypothesis-seed=N
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile(_suite(config))
    if not config.option.deep:  # few cases draw none of the constants of modules, which are read for seconds
        providers._get_local_constants = lambda: providers._local_constants


def _suite(config: pytest.Config) -> str:
    return "exhaustive" if config.option.exhaustive else "deep" if config.option.deep else "default"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Split the seeds of random cases into several tests, so that processes share them."""
    if mark := metafunc.definition.get_closest_marker("seeds"):
        at_a_time, most = mark.kwargs["at_a_time"], mark.kwargs["exhaustive"]
        first = FIRST_SEED + most * int(metafunc.config.option.hypothesis_seed or 0)
        end = first + mark.kwargs.get(_suite(metafunc.config), at_a_time)
        ranges = [range(start, start + at_a_time) for start in range(first, end, at_a_time)]
        metafunc.parametrize(
            "seeds", [pytest.param(some, id=str(some[0]), marks=pytest.mark.deep) for some in ranges]
        )


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile ahead where many tests are going to run: in parallel, by the process that does not run any."""
    # Each process, and each program that tests start, would compile all modules that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if hasattr(session.config, "workerinput"):
        _import_a_part(session, session.config.workerinput)
    elif session.config.getoption("numprocesses", None):
        program = str(Path(__file__).with_name("engines_ahead.py"))
        seed = [str(session.config.option.hypothesis_seed or 0)] if session.config.option.deep else []
        command = [sys.executable, program, *seed]
        session.config.stash[AHEAD] = subprocess.Popen(command, stderr=subprocess.DEVNULL)


def _import_a_part(session: pytest.Session, worker: dict[str, Any]) -> None:
    """Begin at another file than other processes, so that each reads files that others have rewritten."""
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in files[number * len(files) // count :] if number else ():
        with suppress(Exception, pytest.skip.Exception):  # collection reports the error
            _ = pytest.Module.from_parent(session, path=path).obj


def pytest_sessionfinish(session: pytest.Session) -> None:
    if ahead := session.config.stash.get(AHEAD, None):
        ahead.terminate()
        ahead.wait()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.option.exhaustive:
        deselect(config, items, lambda item: not item.get_closest_marker("exhaustive"))
    short = _short_suite(items)
    if config.option.deep and not config.option.exhaustive:
        left_out = of_other_days(items, short, int(config.option.hypothesis_seed or 0))
        deselect(config, items, lambda item: id(item) not in left_out)
    order = {name: number for number, name in enumerate(WITHOUT_ENGINE)}
    items.sort(key=lambda item: order.get(item.path.parent.name, len(order)))
    if config.option.deep_only:
        deselect(config, items, lambda item: id(item) not in short or _grows(item))
    elif not config.option.deep:
        deselect(config, items, lambda item: id(item) in short)


def _short_suite(items: list[pytest.Item]) -> set[int]:
    """Return the ids of the tests that run without `--deep`."""
    shallow = [item for item in items if not item.get_closest_marker("deep")]
    cases = Counter(map(test_of, shallow))
    firsts = {test_of(item): id(item) for item in reversed(shallow)}
    return {
        id(item)
        for item in shallow
        if cases[test_of(item)] <= FEW_CASES or id(item) == firsts[test_of(item)] or _is_drawn(item)
    }


def _grows(item: pytest.Item) -> bool:
    """Return whether a test draws more cases with `--deep`."""
    return hasattr(getattr(item, "obj", None), "hypothesis")


def deselect(config: pytest.Config, items: list[pytest.Item], keeps: Callable[[pytest.Item], bool]) -> None:
    """Run only the tests for which `keeps` is true."""
    config.hook.pytest_deselected(items=[item for item in items if not keeps(item)])
    items[:] = [item for item in items if keeps(item)]


def _is_drawn(item: pytest.Item) -> bool:
    """Return whether one case of many belongs to the shorter suites; the choice is always the same."""
    return item.path.parent.name in IN_FULL or crc32(item.nodeid.encode()) % ONE_IN == 0


def pytest_collection_finish() -> None:
    """Look for cycles less often: among thousands of tests the search takes a tenth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


@pytest.fixture(scope="session", autouse=True)
def nothing_short_waits_for_machine_code(request: pytest.FixtureRequest) -> Iterator[None]:
    """Order code for calls that take longer in all than to compile it, and interpret meanwhile."""
    from et_sim.compiled.entry_points import CompiledEntry, choice

    run_entry, is_deep = CompiledEntry._run, request.config.option.deep

    def run(self: Any, seconds: Any, *arguments: Any) -> Any:
        if choice() != "now" or self._failed:
            return run_entry(self, seconds, *arguments)
        if native := self._found(arguments):
            return native(*arguments)
        so_far = self._so_far(seconds, arguments)
        if (so_far if seconds is None else seconds()) > LONG_SECONDS[is_deep]:
            return run_entry(self, seconds, *arguments)
        if so_far > (SHORT_SECONDS if seconds is None else WORTH_SECONDS)[is_deep]:
            self.ordered(arguments, True)
        return self._interpret(arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledEntry, "_run", run)
        yield


@pytest.fixture(scope="session")
def warm_engine() -> None:
    """Compile the engine for all parallel test processes, so that no output mentions the compilation."""
    simulate()


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the demo's run, which tests only read; its traces lie beside it."""
    from et_sim.cli import main

    folder = tmp_path_factory.mktemp("demo") / "demo"
    assert main(["demo", "--out", str(folder)]) == 0
    return folder / "run"
