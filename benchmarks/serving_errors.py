"""Errors of measured servings, bands and the floor of factors, from results of `et-sim validate --json`.

    et-sim validate serving.csv --json > found.json
    python benchmarks/serving_errors.py found.json

A cell is a model on a GPU, by an engine, in a campaign. A band holds a share of the rows whose cache is not
full, where each cell counts as much as any other: rows of one kind cannot hide those of another. The share is
the smallest one of at least 80 % with which a band made of the other cells holds 80 % of the rows of a cell
that is left out. The floor is the error of a row that a factor, or a factor and an exponent, fitted to the
other rows of its cell corrects.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SHARES = range(80, 100)  # percent of the rows of which a band is made
SHARE_LEFT_OUT = 0.8
# Rows of vLLM in campaign A which leave their prompts no time to be computed: no band is made of them.
NOT_COMPUTED = frozenset({379, *range(441, 453)})
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


def band(cells: Iterable[Sequence[Row]], name: str, share: int) -> tuple[float, float]:
    """Return the ratios between which a percentage of the rows lies, if every cell has the same weight."""
    of_cells = [ratios(rows, name) for rows in cells]
    values = np.concatenate(of_cells)
    weights = np.concatenate([np.full(len(each), 1 / len(each)) for each in of_cells])
    order = np.argsort(values)
    shares = np.cumsum(weights[order]) / weights.sum()
    ends = (0.5 - share / 200, 0.5 + share / 200)
    low, high = (float(values[order][np.searchsorted(shares, at - 1e-12)]) for at in ends)
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


def share_left_out(cells: Cells, name: str, share: int) -> float:
    """Return the share of the rows that lie in the band of the other cells."""
    inside = 0
    for left_out, rows in cells.items():
        low, high = band([each for key, each in cells.items() if key != left_out], name, share)
        inside += sum(low <= ratio <= high for ratio in ratios(rows, name))
    return inside / sum(map(len, cells.values()))


def bands(cells: Cells, name: str) -> str:
    """Return the band of an engine, and the share of rows in those of the other cells."""
    share, found = SHARES[0], None
    if len(cells) > 1:
        tried = [(share, share_left_out(cells, name, share)) for share in SHARES]
        share, found = next((each for each in tried if each[1] >= SHARE_LEFT_OUT), tried[-1])
    low, high = band(cells.values(), name, share)
    text = f"[{low:.3f}, {high:.3f}] with {share} % of {len(cells)} cells"
    return text if found is None else f"{text}; left out: {100 * found:.0f} % of rows"


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
    free = [row for row in rows if not row["cache_full"] and row["row"] not in NOT_COMPUTED]
    for (engine,), each in grouped(free, lambda row: (engine_of(row),)).items():
        closed = [row for row in each if row["campaign"] == CLOSED_CAMPAIGN]
        print(engine, "TPOT", bands(grouped(each, cell_of), "tpot"))
        print(engine, "TTFT", bands(grouped(closed, cell_of), "ttft"))
    for names, each in grouped(free, lambda row: cell_of(row)[:2]).items():
        cells = grouped(each, cell_of)
        print(*names, "floor:", *(f"{floor(cells, 'tpot', numbers):.1f} %" for numbers in (1, 2)))


if __name__ == "__main__":
    main()
