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
    assert program().band([large], "tpot", 80) == (1.0, 1.0)
    assert program().band([large, small], "tpot", 80) == (0.5, 1.5)
    assert program().band([large, small], "tpot", 40) == (1.0, 1.0)


def test_a_band_is_widened_until_it_holds_four_of_five_rows_of_cells_that_are_left_out() -> None:
    alike = {(str(number),): rows(*[1.0] * 20, 0.9, 1.1) for number in range(3)}
    assert program().bands(alike, "tpot") == "[1.000, 1.000] with 80 % of 3 cells; left out: 91 % of rows"
    unlike = {
        (str(number),): rows(*[1 + 0.01 * at + 0.03 * number for at in range(20)]) for number in range(4)
    }
    assert program().share_left_out(unlike, "tpot", 80) < 0.8
    text = program().bands(unlike, "tpot")
    share = int(text.partition(" with ")[2].partition(" %")[0])
    assert (
        program().share_left_out(unlike, "tpot", share)
        >= 0.8
        > program().share_left_out(unlike, "tpot", share - 1)
    )
    assert program().bands({("a",): rows(0.5, 1.5)}, "tpot") == "[0.500, 1.500] with 80 % of 1 cells"


def test_the_floor_of_factors_corrects_each_row_by_the_others_of_its_cell() -> None:
    cells = {("a",): rows(*[2.0] * 4), ("b",): rows(*[0.5] * 4)}
    assert program().floor(cells, "tpot", 1) < 1e-9
    assert 0 < program().floor({("a",): rows(1.0, 1.0, 1.0, 2.0)}, "tpot", 1) < 100
