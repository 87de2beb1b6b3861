"""The figures of docs/accuracy.md: `python docs/studies/accuracy.py` predicts all public measurements.

Writes the tables of the page and of the README, a picture, the widths of bands (`fit_bands`), and
docs/accuracy.json, whose errors a test compares with later ones. `--predict FILE` writes predictions alone,
and `--from FILE` makes all else from them. Not here: predictions (`et_sim.validation`), families
(`accuracy_lines`), and the words of the page.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from accuracy_lines import line_of, public_rows
from fit_bands import BANDS, WIDE, Coverage, content, coverages, fitted, lines, read_judged
from msgspec import structs
from study_page import table, write_study

from et_sim.validation.predictions import Prediction, predictions
from et_sim.validation.row import Iteration, Row
from et_sim.validation.rows import Errors, read_rows, shipped
from et_sim.views.drawing.planes import Kind, measured_picture
from et_sim.workloads import Plan

FOLDER = Path(__file__).parents[1]
PAGE, KEPT, PICTURE = FOLDER / "accuracy.md", FOLDER / "accuracy.json", "accuracy.svg"
README = FOLDER.parent / "README.md"
QUICK = 64  # GPUs: training steps of fewer are predicted by the test, too
ASSUMED = "training steps whose software is not stated"


def quick_rows() -> list[Row]:
    """Return the measurements that travel with et-sim, but the training steps of many GPUs."""
    return [
        row
        for path in shipped()
        for row in read_rows(path)
        if not isinstance(row.job, Iteration) or row.job.plan.ranks < QUICK
    ]


def mapes(found: Sequence[Prediction]) -> dict[str, float]:
    """Return the mean error of each line, in percent."""
    ratios: dict[str, list[float]] = {}
    for prediction in found:
        line = line_of(prediction.row)
        if prediction.ratio is not None and line is not None:
            ratios.setdefault(line.name, []).append(prediction.ratio)
    return {name: round(Errors.of(some).mape, 2) for name, some in ratios.items()}


def without_software(row: Row) -> Row:
    """Return a row as if its source did not name the software."""
    assert isinstance(row.job, Iteration)
    software = Plan.__dataclass_fields__.get("software")
    usual: dict[str, Any] = {} if software is None else {"software": software.default}
    job = structs.replace(row.job, software="", plan=replace(row.job.plan, **usual))
    return structs.replace(row, job=job)


def predicted(rows: Sequence[Row], family: str = "") -> Iterator[dict[str, Any]]:
    """Yield what is kept of each prediction."""
    for number, prediction in enumerate(predictions(rows), 1):
        sys.stderr.write(f"\r{number} of {len(rows)}")
        line = line_of(prediction.row)
        if line is not None:
            yield {
                "table": prediction.row.table,
                "row": prediction.row.number,
                "kind": prediction.row.kind,
                "family": family or line.name,
                "is_fitted": line.is_fitted,
                "measured_us": prediction.row.measured_us,
                "predicted_us": prediction.predicted_us,
                "how": prediction.how,
                "composition": prediction.composition,
            }


def predict(path: Path) -> None:
    """Write predictions of all public rows, and of today's training steps without their software."""
    rows = public_rows()
    steps = [row for row in rows if row.table in ("steps_today", "b200_training") and row.job is not None]
    kinds = ((rows, ""), ([without_software(row) for row in steps], ASSUMED))
    with path.open("w", encoding="utf-8") as file:
        for some, family in kinds:
            file.writelines(json.dumps(each) + "\n" for each in predicted(some, family))


def errors_table(found: Sequence[dict[str, Any]], judged: Sequence[Coverage]) -> str:
    """Return the table of the page, the furthest off first."""
    of_band = {each.family: each for each in judged}
    families: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        if row["predicted_us"] is not None and row["family"] != ASSUMED:
            families.setdefault(row["family"], []).append(row)
    rows = []
    for family, some in families.items():
        errors = Errors.of([row["predicted_us"] / row["measured_us"] for row in some])
        is_fitted, band = some[0]["is_fitted"], of_band.get(family)
        cells = [
            family if is_fitted else f"**{family}**",
            f"{errors.rows:,}",
            *(f"{value:.1f}" for value in (errors.mape, errors.e, errors.g)),
            f"{errors.bias:+.1f}",
            *_band_cells(band),
            "yes" if is_fitted else "no",
        ]
        rows.append((-errors.mape, cells))
    head = ("measured", "rows", "MAPE %", "E %", "G %", "bias %", "in band %", "width", "fitted to it")
    return table(head, [cells for _, cells in sorted(rows)])


def _band_cells(band: Coverage | None) -> tuple[str, str]:
    if band is None:
        return "-", "-"
    width = f"{band.width:.2f}" if band.width <= WIDE else f"{band.width:.2f}, too wide"
    return f"{100 * band.share:.0f}", width


def coverage_text(judged: Sequence[Coverage]) -> str:
    """Return how many families are met, in a sentence."""
    known = [each for each in judged if each.is_met is not None]
    met = sum(bool(each.is_met) for each in known)
    mean = 100 * math.fsum(each.share for each in judged) / len(judged)
    return (
        f"All {len(judged)} families with equal weight: {mean:.0f} % of rows in the band. Of {len(known)}"
        f" families of 8 rows or more, {met} hold as many as a band of 80 % should, in a band no wider than a"
        " factor of 2."
    )


GROUPS = (  # how names of families begin, and what stands for them in the README
    ("training steps", "training steps"),
    ("collectives between nodes", "collectives between nodes"),
    (("products", "attention", "norms"), "single kernels"),
    ("", "collectives on a node"),
)


def range_text(found: Sequence[dict[str, Any]]) -> str:
    """Return the least and the largest mean error of families that nothing was fitted to, as a table."""
    ratios: dict[str, list[float]] = {}
    for row in found:
        if row["predicted_us"] is not None and row["family"] != ASSUMED and not row["is_fitted"]:
            ratios.setdefault(row["family"], []).append(row["predicted_us"] / row["measured_us"])
    groups: dict[str, list[tuple[float, str, int]]] = {}
    for family, some in ratios.items():
        group = next(name for begin, name in GROUPS if family.startswith(begin))
        groups.setdefault(group, []).append((Errors.of(some).mape, family, len(some)))
    rows = []
    for _, name in GROUPS:
        if name in groups:
            (least, nearest, _), *_, (most, furthest, _) = sorted(groups[name] * 2)
            count = sum(each for _, _, each in groups[name])
            rows.append([name, f"{count:,}", f"{least:.0f}", f"{most:.0f}", f"{nearest}; {furthest}"])
    return table(("measured", "rows", "nearest family, MAPE %", "furthest", "which"), rows)


def _picture(found: Sequence[dict[str, Any]]) -> str:
    kinds: dict[str, list[tuple[float, float]]] = {}
    for row in found:
        if row["predicted_us"] is not None and row["family"] != ASSUMED:
            points = kinds.setdefault(row["kind"].replace("_", "-"), [])
            points.append((row["measured_us"], row["predicted_us"]))
    mape = {name: Errors.of([p / m for m, p in points]).mape for name, points in kinds.items()}
    panels = [Kind(name, mape[name], points) for name, points in kinds.items()]
    return measured_picture(sorted(panels, key=lambda panel: -panel.mape))


def write(path: Path) -> None:
    """Write the page, its picture, the widths of bands and the errors of the test from predictions."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = read_judged(path)
    judged = coverages(rows)
    sys.stdout.write("\n".join(lines(judged)) + "\n")
    BANDS.write_text(json.dumps(content(fitted(rows)), indent=2) + "\n", encoding="utf-8")
    texts = {"errors": errors_table(found, judged), "coverage": coverage_text(judged)}
    write_study(PAGE, texts, {PICTURE: _picture(found)})
    write_study(README, {"range": range_text(found)}, {})
    KEPT.write_text(json.dumps(mapes(list(predictions(quick_rows()))), indent=2) + "\n")


def main() -> None:
    """Predict all rows and write the page, or do one of both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--predict", type=Path, metavar="FILE", help="write predictions there, and no page")
    parser.add_argument(
        "--from", type=Path, metavar="FILE", dest="source", help="take predictions from there"
    )
    options = parser.parse_args()
    if options.predict:
        predict(options.predict)
        return
    with tempfile.TemporaryDirectory() as folder:
        source = options.source or Path(folder) / "predictions.jsonl"
        if options.source is None:
            predict(source)
        write(source)


if __name__ == "__main__":
    main()
