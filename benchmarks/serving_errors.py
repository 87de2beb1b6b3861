"""Errors of measured servings, bands and the floor of factors, from results of `et-sim validate --json`.

    et-sim validate serving.csv --json > found.json
    python benchmarks/serving_errors.py found.json

A cell is a model on a GPU, by an engine, in a campaign. The band of an engine holds 80 % of the rows whose
cache is not full, where each cell counts as much as any other: rows of one kind cannot hide those of another.
It is tested on cells whose rows are left out of it. The floor is the error of a row that a factor, or a
factor and an exponent, fitted to the other rows of its cell corrects.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

LOW, HIGH = 0.1, 0.9
CLOSED_CAMPAIGN = "B"  # whose client is stated
LATENCIES = ("tpot", "ttft")
Row = Mapping[str, Any]
Cells = Mapping[tuple[str, ...], Sequence[Row]]


def engine_of(row: Row) -> str:
    """Return the engine of a row, without its version."""
    return str(row["engine"]).partition(":")[0]


def cell_of(row: Row) -> tuple[str, ...]:
    """Return the engine, the campaign, the model and the GPU of a row."""
    return engine_of(row), row["campaign"], row["model"].rpartition("/")[2], row["system"]


def grouped(rows: Iterable[Row], key: Callable[[Row], tuple[str, ...]]) -> dict[tuple[str, ...], list[Row]]:
    """Return rows by a key, in order."""
    found: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return dict(sorted(found.items()))


def ratios(rows: Iterable[Row], name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return measured by predicted times."""
    return np.array([row[f"{name}_ms"] / row[f"predicted_{name}_ms"] for row in rows])


def band(cells: Iterable[Sequence[Row]], name: str) -> tuple[float, float]:
    """Return the ratios between which 80 % of the rows lie, if every cell has the same weight."""
    of_cells = [ratios(rows, name) for rows in cells]
    values = np.concatenate(of_cells)
    weights = np.concatenate([np.full(len(each), 1 / len(each)) for each in of_cells])
    order = np.argsort(values)
    shares = np.cumsum(weights[order]) / weights.sum()
    low, high = (float(values[order][np.searchsorted(shares, at - 1e-12)]) for at in (LOW, HIGH))
    return low, high


def in_band(rows: Sequence[Row], name: str) -> float:
    """Return the percentage of rows in the printed band."""
    inside = [row[f"{name}_band_ms"][0] <= row[f"{name}_ms"] <= row[f"{name}_band_ms"][1] for row in rows]
    return float(100 * np.mean(inside))


def line(names: Sequence[str], rows: Sequence[Row]) -> str:
    """Return the line of a table: rows, MAPE with bias, and the share in the printed band."""
    cells = [*names, str(len(rows))]
    for name in LATENCIES:
        errors = 100 / ratios(rows, name) - 100
        cells += [f"{abs(errors).mean():.1f} ({errors.mean():+.1f})", f"{in_band(rows, name):.0f} %"]
    return f"| {' | '.join(cells)} |"


def bands(cells: Cells, name: str) -> str:
    """Return the band of an engine, and the share of rows in that of the other cells."""
    low, high = band(cells.values(), name)
    text = f"[{low:.3f}, {high:.3f}] of {len(cells)} cells"
    inside, shares = 0, list[float]()
    for left_out, rows in cells.items():
        others = [rows for key, rows in cells.items() if key != left_out]
        if not others:
            return text
        low, high = band(others, name)
        within = [low <= ratio <= high for ratio in ratios(rows, name)]
        inside, shares = inside + sum(within), [*shares, float(np.mean(within))]
    count = sum(map(len, cells.values()))
    return f"{text}; left out: {100 * inside / count:.0f} % of rows, {100 * np.mean(shares):.0f} % by cells"


def floor(cells: Cells, name: str, numbers: int) -> float:
    """Return the MAPE of rows corrected by as many numbers as are fitted to the other rows of their cell."""
    errors = []
    for rows in cells.values():
        if len(rows) < numbers + 2:
            continue
        predicted = np.log([row[f"predicted_{name}_ms"] for row in rows])
        measured = np.log([row[f"{name}_ms"] for row in rows])
        for out in range(len(rows)):
            kept = np.arange(len(rows)) != out
            fit = np.polynomial.polynomial.polyfit(predicted[kept], (measured - predicted)[kept], numbers - 1)
            corrected = predicted[out] + np.polynomial.polynomial.polyval(predicted[out], fit)
            errors.append(abs(np.expm1(corrected - measured[out])))
    return float(100 * np.mean(errors)) if errors else float("nan")


def main() -> None:
    """Print tables by engine and campaign and by cell, bands and floors."""
    parser = argparse.ArgumentParser()
    parser.add_argument("found", type=Path)
    rows = [row for row in json.loads(parser.parse_args().found.read_text())["rows"] if not row["why"]]
    for key in (lambda row: cell_of(row)[:2], cell_of):
        for names, each in grouped(rows, key).items():
            print(line(names, each))
    free = [row for row in rows if not row["cache_full"]]
    for (engine,), each in grouped(free, lambda row: (engine_of(row),)).items():
        closed = [row for row in each if row["campaign"] == CLOSED_CAMPAIGN]
        print(engine, "TPOT", bands(grouped(each, cell_of), "tpot"))
        print(engine, "TTFT", bands(grouped(closed, cell_of), "ttft"))
    for names, each in grouped(free, lambda row: cell_of(row)[:2]).items():
        cells = grouped(each, cell_of)
        print(*names, "floor:", *(f"{floor(cells, 'tpot', numbers):.1f} %" for numbers in (1, 2)))


if __name__ == "__main__":
    main()
