"""The section that compares published plans with the best plans that searches find."""

from __future__ import annotations

import pytest

from benchmarks.published_front import BEGIN, END, SEARCHED, find, keys_of, lines_of
from benchmarks.published_plans import PAGE, rows


def test_options_of_a_published_plan_are_its_keys() -> None:
    assert keys_of("llm --model gpt2 --tp 8 --sequence-parallel --recompute selective --zero 1") == {
        "model": "gpt2",
        "tp": 8,
        "sequence-parallel": True,
        "recompute": "selective",
        "zero": 1,
    }


def test_the_page_has_the_searched_rows() -> None:
    section = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert [line.split("**")[1] for line in section.strip().splitlines()] == [
        rows()[number - 1]["name"] for number in SEARCHED
    ]


@pytest.mark.deep
def test_a_published_plan_is_as_fast_as_the_same_plan_in_the_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    make = "llm --model gpt2 --sequence 128 --dp 2 --micro-batches 1 --zero 3"
    found = find({"name": "small", "make": make, "machine": "h100-dgx:2"})
    assert found.best["zero"] == 3
    assert found.published["makespan_ns"] == found.best["makespan_ns"]
    (line,) = lines_of({"name": "small"}, found)
    assert "The published plan takes +0.0 %" in line
