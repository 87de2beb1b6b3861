"""What all tests share: helpers beside the tests are importable by name, runs are compiled, and `--deep`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

for folder in ("golden", "engine", "trace", "fold", "conformance", "compiled"):
    sys.path.insert(0, str(Path(__file__).parent / folder))
os.environ.setdefault("ET_SIM_COMPILE", "now")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--deep", action="store_true", help="run everything, also what takes long")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "deep: runs only with --deep, because it takes long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--deep"):
        return
    deep = [item for item in items if item.get_closest_marker("deep")]
    if deep:
        config.hook.pytest_deselected(items=deep)
        items[:] = [item for item in items if not item.get_closest_marker("deep")]
