"""The section that compares published plans with the best plans that searches find."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def program() -> Any:
    """Return the benchmark as a module, with the folder of benchmarks on the path while it is imported."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return import_module("published_front")
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_options_of_a_published_plan_are_its_keys(program: Any) -> None:
    assert program.keys_of("llm --model gpt2 --tp 8 --sequence-parallel --recompute selective --zero 1") == {
        "model": "gpt2",
        "tp": 8,
        "sequence-parallel": True,
        "recompute": "selective",
        "zero": 1,
    }


def test_the_page_has_the_searched_rows(program: Any) -> None:
    text = program.PAGE.read_text(encoding="utf-8")
    section = text.split(program.BEGIN)[1].split(program.END)[0]
    assert [line.split("**")[1] for line in section.strip().splitlines()] == [
        program.rows()[number - 1]["name"] for number in program.SEARCHED
    ]


@pytest.mark.deep
def test_a_published_plan_is_as_fast_as_the_same_plan_in_the_space(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    make = "llm --model gpt2 --sequence 128 --dp 2 --micro-batches 1 --zero 3"
    found = program.find({"name": "small", "make": make, "machine": "h100-dgx:2"})
    assert found.best["zero"] == 3
    assert found.published["makespan_ns"] == found.best["makespan_ns"]
    (line,) = program.lines_of({"name": "small"}, found)
    assert "The published plan takes +0.0 %" in line
