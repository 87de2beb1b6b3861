"""The figures of docs/accuracy.md: `python docs/studies/accuracy.py` predicts all public measurements.

Writes the tables of the page and of the README, a picture, the widths of bands (`fit_bands`), and
docs/accuracy.json, whose errors a test compares with later ones. `--predict FILE` writes predictions alone,
and `--from FILE` makes all else from them. Not here: predictions (`et_sim.validation`), families
(`accuracy_lines`), causes (`unmet_families`), and the words of the page.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from accuracy_lines import APART, line_of, public_rows
from fit_bands import (
    BANDS,
    BARE,
    WIDE,
    Coverage,
    content,
    coverages,
    fitted,
    lines,
    mean_share,
)
from judged_rows import read_judged
from msgspec import structs
from msgspec.structs import replace
from study_page import table, write_study
from unmet_families import unmet_text

from et_sim.validation.predictions import predictions
from et_sim.validation.row import Row, TrainingStep
from et_sim.validation.rows import Errors, mape
from et_sim.views.drawing.planes import MeasuredKind, measured_picture

FOLDER = Path(__file__).parents[1]
PAGE, KEPT, PICTURE = FOLDER / "accuracy.md", FOLDER / "accuracy.json", "accuracy.svg"
README = FOLDER.parent / "README.md"
QUICK, EVERY = 64, 30  # the test predicts every thirtieth training step of fewer GPUs


def quick_rows() -> list[Row]:
    """Return measurements that the test predicts, too: of training steps, few of few GPUs."""
    return [row for row in public_rows() if _is_quick(row)]


def _is_quick(row: Row) -> bool:
    if not isinstance(row.job, TrainingStep):
        return row.job is not None
    return row.job.plan.ranks < QUICK and (row.number - 1) % EVERY == 0


def mapes(found: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Return the mean error of each family, in percent."""
    ratios: dict[str, list[float]] = {}
    for row in found:
        if row["predicted_us"] is not None:
            ratios.setdefault(row["family"], []).append(row["predicted_us"] / row["measured_us"])
    return {name: round(Errors.of(some).mape, 2) for name, some in ratios.items()}


def without_software(row: Row) -> Row:
    """Return a row as if its source did not name the software."""
    assert isinstance(row.job, TrainingStep)
    job = structs.replace(row.job, software="", plan=replace(row.job.plan, software=""))
    return structs.replace(row, job=job)


def predicted(rows: Sequence[Row], begin: str = "") -> Iterator[dict[str, Any]]:
    """Yield what is kept of each prediction."""
    for number, prediction in enumerate(predictions(rows), 1):
        sys.stderr.write(f"\r{number} of {len(rows)}")
        line = line_of(prediction.row)
        if line is not None:
            yield {
                "table": prediction.row.table,
                "row": prediction.row.number,
                "kind": prediction.row.kind,
                "family": begin + line.name,
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
    kinds = ((rows, ""), ([without_software(row) for row in steps], BARE))
    with path.open("w", encoding="utf-8") as file:
        for some, begin in kinds:
            file.writelines(json.dumps(each) + "\n" for each in predicted(some, begin))


def errors_table(found: Sequence[dict[str, Any]], judged: Sequence[Coverage]) -> str:
    """Return the table of the page, the furthest off first."""
    of_band = {each.family: each for each in judged}
    families: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        if not _is_bare(row):
            of_family = families.setdefault(row["family"], [])
            of_family += [row] if row["predicted_us"] is not None else []
    rows = []
    for family, some in families.items():
        if not some:
            rows.append((-math.inf, [f"**{family}**", "0", *["-"] * 7]))
            continue
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
    families = _listed(judged)
    known = [each for each in families if each.is_met is not None]
    met = sum(bool(each.is_met) for each in known)
    mean = 100 * mean_share(families)
    return (
        f"All {len(families)} families with equal weight: {mean:.0f} % of rows in the band. {met} of"
        f" {len(known)} families of 8 rows or more hold as many as a band of 80 % should, in a band no wider"
        " than a factor of 2."
    )


def _listed(judged: Sequence[Coverage]) -> list[Coverage]:
    """Return the families that count, as they were measured: with their software."""
    return [each for each in judged if not each.family.startswith((BARE, APART))]


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
        is_judged = not row["family"].startswith((BARE, APART)) and not row["is_fitted"]
        if row["predicted_us"] is not None and is_judged:
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


def counts_text(found: Sequence[dict[str, Any]], public: int) -> str:
    """Return how many rows the table has, and why others have no prediction."""
    rows = [row for row in found if not _is_bare(row)]
    why = Counter(row["how"] for row in rows if row["predicted_us"] is None)
    counts = [f"The table has {len(rows) - why.total():,} of {public:,} public rows."]
    return " ".join([*counts, *(f"Not predicted: {count:,}, as {reason}." for reason, count in why.items())])


def _is_bare(row: dict[str, Any]) -> bool:
    return bool(row["family"].startswith(BARE))


def _picture(found: Sequence[dict[str, Any]]) -> str:
    kinds: dict[str, list[tuple[float, float]]] = {}
    for row in found:
        if row["predicted_us"] is not None and not _is_bare(row):
            points = kinds.setdefault(row["kind"].replace("_", "-"), [])
            points.append((row["measured_us"], row["predicted_us"]))
    panels = [MeasuredKind(name, mape([p / m for m, p in points]), points) for name, points in kinds.items()]
    return measured_picture(sorted(panels, key=lambda panel: -panel.mape))


def write(path: Path) -> None:
    """Write the page, its picture, the widths of bands and the errors of the test from predictions."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = read_judged(path)
    judged = coverages(rows)
    sys.stdout.write("\n".join(lines(judged)) + "\n")
    BANDS.write_text(json.dumps(content(fitted(rows)), indent=2) + "\n", encoding="utf-8")
    paragraphs = (
        counts_text(found, len(public_rows())),
        coverage_text(judged),
        "Not met:",
        unmet_text(_listed(judged)),
    )
    texts = {"errors": errors_table(found, judged), "coverage": "\n\n".join(paragraphs)}
    write_study(PAGE, texts, {PICTURE: _picture(found)})
    write_study(README, {"range": range_text(found)}, {})
    quick = {(row.table, row.number) for row in quick_rows()}
    kept = mapes(row for row in found if (row["table"], row["row"]) in quick and not _is_bare(row))
    KEPT.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


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
