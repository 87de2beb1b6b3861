"""Fixtures of the tests of converters."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test in a folder of its own."""
    monkeypatch.chdir(tmp_path)
