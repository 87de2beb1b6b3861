"""What all tests share: `--deep`, how many random examples, and engines that are compiled once, if at all."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from engines_ahead import FOLDED, simulate
from hypothesis import HealthCheck, settings

EXAMPLES = {"default": 6, "deep": 400}
FEW_CASES, ONE_IN = 12, 3  # of a test with more cases than a few, the shorter tests run one in so many
IN_FULL = ("golden", "docs")  # folders that choose for themselves
COMMON_NETWORKS = ("et_sim.network.analytical", "et_sim.network.link")
LONG_SECONDS = (
    15.0  # compiling an engine takes as long: what takes longer interpreted is compiled, however rare
)
SHORT_SECONDS = 3.0  # the same for other code
AHEAD = pytest.StashKey[subprocess.Popen[bytes]]()
BYTECODE = pytest.StashKey["tempfile.TemporaryDirectory[str]"]()
# Folders whose tests run no engine, or hardly any: they come first, while engines are compiled.
WITHOUT_ENGINE = (
    *("machine", "workloads", "trace", "collectives", "compute", "tables", "memory"),
    *("doctor", "explain", "converters"),
)
os.environ.setdefault("ET_SIM_COMPILE", "now")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--deep", action="store_true", help="run everything, also what takes long")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "deep: runs only with --deep, because it takes long")
    for name, count in EXAMPLES.items():  # how long one takes depends on what else the machine does
        settings.register_profile(
            name,
            max_examples=count,
            derandomize=config.getoption("hypothesis_seed") is None,  # other cases: --hypothesis-seed=N
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile("deep" if config.getoption("--deep") else "default")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile ahead where many tests are going to run: in parallel, by the process that does not run any."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):  # a program would compile all its modules at each start
        session.config.stash[BYTECODE] = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        os.environ["PYTHONPYCACHEPREFIX"] = session.config.stash[BYTECODE].name
    if session.config.getoption("numprocesses", None):
        command = [sys.executable, str(Path(__file__).with_name("engines_ahead.py"))]
        session.config.stash[AHEAD] = subprocess.Popen(command, stderr=subprocess.DEVNULL)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if ahead := session.config.stash.get(AHEAD, None):
        ahead.terminate()
        ahead.wait()
    if bytecode := session.config.stash.get(BYTECODE, None):
        bytecode.cleanup()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--deep"):
        return
    order = {name: number for number, name in enumerate(WITHOUT_ENGINE)}
    items.sort(key=lambda item: order.get(item.path.parent.name, len(order)))
    short = [item for item in items if not item.get_closest_marker("deep")]
    cases = Counter(map(_test_of, short))
    kept = {item for item in short if cases[_test_of(item)] <= FEW_CASES or _is_drawn(item)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _test_of(item: pytest.Item) -> tuple[Path, str]:
    return item.path, getattr(item, "originalname", item.name)


def _is_drawn(item: pytest.Item) -> bool:
    """Whether a case of many is one that the shorter tests run, too: always the same."""
    return item.path.parent.name in IN_FULL or crc32(item.nodeid.encode()) % ONE_IN == 0


def pytest_collection_finish() -> None:
    """Looking for cycles among the thousands of tests again and again takes a tenth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def _is_rare(run: Any) -> bool:
    """Whether a kind of engine is one that few tests need, for runs that are small nearly always."""
    is_common = type(run.network).__module__ in COMMON_NETWORKS
    fabric = type(getattr(run.network, "fabric", None)).__name__
    is_rare_fabric = fabric == "GraphTables" or (fabric == "LevelTables" and not run.watch)
    return not is_common or bool(run.recording) or is_rare_fabric


@pytest.fixture(scope="session", autouse=True)
def rare_code_is_interpreted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compiling it takes longer than all that it would run; with `--deep`, all is compiled."""
    from et_sim.compiled.entry_points import Entry, choice

    run_entry, spent = Entry._run, defaultdict[Any, float](float)

    def run(self: Any, seconds: Callable[[], float] | None, *arguments: Any) -> Any:
        if seconds is not None:
            is_rare = _is_rare(arguments[0]) and seconds() < LONG_SECONDS
        else:
            spent[self] += self._seconds(*arguments)
            is_rare = choice() == "now" and 0 < spent[self] < SHORT_SECONDS and self._found(arguments) is None
        return self._interpret(arguments) if is_rare else run_entry(self, seconds, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        if not request.config.getoption("--deep"):
            patch.setattr(Entry, "_run", run)
        yield


@pytest.fixture(scope="session")
def warm_engine() -> None:
    """The engine is compiled, for all of the parallel test processes at once: no output says so."""
    simulate(**FOLDED)
