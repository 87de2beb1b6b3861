"""`benchmarks/serving_errors.py`: bands of engines, and the floor of factors."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "serving_errors.py"


def program() -> Any:
    spec = spec_from_file_location("serving_errors", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def rows(*ratios: float) -> list[dict[str, float]]:
    return [{"tpot_ms": ratio, "predicted_tpot_ms": 1.0} for ratio in ratios]


def test_a_band_holds_rows_of_small_cells_as_those_of_large_ones() -> None:
    large, small = rows(*[1.0] * 100), rows(0.5, 1.5)
    assert program().band([large], "tpot") == (1.0, 1.0)
    assert program().band([large, small], "tpot") == (0.5, 1.5)


def test_the_floor_of_factors_corrects_each_row_by_the_others_of_its_cell() -> None:
    cells = {("a",): rows(*[2.0] * 4), ("b",): rows(*[0.5] * 4)}
    assert program().floor(cells, "tpot", 1) < 1e-9
    assert 0 < program().floor({("a",): rows(1.0, 1.0, 1.0, 2.0)}, "tpot", 1) < 100
