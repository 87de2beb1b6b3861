"""`benchmarks/fit_software.py`, on rows whose times follow from the figures in closed form."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "fit_software.py"
LAUNCH, COPIES = "host.launch=3e3:1e3:1e4", "shares.after-gather.values=2:1:8"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    """Return the program as a module."""
    import sys

    described = importlib.util.spec_from_file_location("fit_software", PROGRAM)
    assert described is not None
    assert described.loader is not None
    module = sys.modules["fit_software"] = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


def seconds(kernels: int, weights: float) -> Callable[[str], float]:
    """Return a function from a file of software to the time of a step with these kernels and weights."""

    def simulate(software: str) -> float:
        content = json.loads(Path(software).read_text(encoding="utf-8"))
        launch = content["host"]["launch"]
        return 10 + kernels * launch / 1e9 + weights * float(content["shares"]["after-gather"]["values"])

    return simulate


def rows(program: ModuleType, launch: float, copies: float) -> list[object]:
    jobs = ((10_000, 0.1), (100_000, 0.01), (200_000, 0.2), (1000, 0.3), (50_000, 0.05))
    return [
        program.Row("row", 10 + kernels * launch / 1e9 + weights * copies, seconds(kernels, weights))
        for kernels, weights in jobs
    ]


def test_figures_that_made_the_rows_are_found_and_predict_rows_left_out(program: ModuleType) -> None:
    figures = [program.Figure.of(text) for text in (LAUNCH, COPIES)]
    found = program.fit(rows(program, 8000, 5), figures, "torchtitan", 6)
    assert found.values == pytest.approx([8000, 5], rel=1e-3)
    assert np.abs(found.before).max() > 0.05
    assert np.abs(found.after).max() < 1e-4
    assert np.abs(found.left_out).max() < 1e-3


def test_a_figure_stays_at_its_limit_and_the_others_make_up_for_it(program: ModuleType) -> None:
    figures = [program.Figure.of(text) for text in (LAUNCH, COPIES)]
    found = program.fit(rows(program, 50_000, 3), figures, "torchtitan", 6)
    assert found.values[0] == 1e4
    assert found.values[1] > 3


def test_a_file_of_fitted_figures_has_all_keys_of_the_description(program: ModuleType) -> None:
    content = program.description([program.Figure.of(LAUNCH)], "fsdp2", [4321.0])
    assert content["host"] == {"launch": 4321.0}
    assert content["attention"] == "flash-2"
    assert "like" not in content


@pytest.mark.parametrize("text", ["host.launch=1:2:3", "host.launch=2:2:2", "host.launch=2:1:1.5"])
def test_a_figure_without_a_range_around_it_is_refused(program: ModuleType, text: str) -> None:
    with pytest.raises(SystemExit, match="give 0 <= LEAST"):
        program.Figure.of(text)


def test_rows_are_chosen_by_spans(program: ModuleType) -> None:
    assert program._numbers("1-3,7,10-20:5") == {1, 2, 3, 7, 10, 15, 20}
