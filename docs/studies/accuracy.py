"""The figures of docs/accuracy.md: `python docs/studies/accuracy.py` predicts all measurements of et-sim.

Writes the table of the page, its picture, and docs/accuracy.json, which says what a test holds later figures
against. Takes about ten minutes. Not here: predictions (`et_sim.validation`), and the words of the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from study_page import table, write_study

from et_sim.validation.predictions import Prediction, predictions
from et_sim.validation.row import Collective, Row
from et_sim.validation.rows import Errors, read_rows, shipped
from et_sim.views.drawing.planes import Kind, measured_picture

FOLDER = Path(__file__).parents[1]
PAGE, KEPT, PICTURE = FOLDER / "accuracy.md", FOLDER / "accuracy.json", "accuracy.svg"
WIDTH = (2, 8)  # GPUs whose collectives presets are fitted to
KERNELS = {
    "a100_gemm_bf16": "products on A100, vLLM",
    "h100_gemm_bf16": "products on H100, TensorRT-LLM",
    "a100_attention": "attention on A100, vLLM",
    "a100_pcie_memory": "norms, softmax, element-wise on A100 PCIe",
}
ITERATIONS = {
    "megatron_seqpar_table5": "iterations, Megatron-LM, 8 to 512 A100",
    "vtrain_multi": "iterations, vTrain, 64 to 512 A100",
    "llm_foundry_mpt": "iterations, MPT under FSDP, A100 and H100",
}
QUICK = 64  # GPUs: iterations of fewer are predicted by the test, too


@dataclass(frozen=True)
class Measured:
    """A line of the table: rows that were measured alike, and whether presets are fitted to them."""

    name: str
    is_fitted: bool


def line_of(row: Row) -> Measured:
    """Where a row belongs."""
    if row.table in ITERATIONS:
        return Measured(ITERATIONS[row.table], False)
    if row.table in KERNELS:
        short = row.kind == "attention" and "<" in row.size_class
        return Measured(KERNELS[row.table] + (", below 2,048 tokens" if short else ""), True)
    assert isinstance(row.job, Collective)
    gpu = next(one for one in ("A100", "H100", "H200", "B200", "V100") if one in row.hardware)
    kind = row.kind.replace("_", "-")
    by, fitted = "other labs", False
    if row.table.startswith("aic_"):
        fitted = row.job.gpus in WIDTH
        by = "2 and 8 GPUs" if fitted else "4 GPUs"
    size = ", from 64 MiB on" if row.size_class.startswith(">=") else ""
    return Measured(f"{kind} on {gpu}, {by}{size}", fitted)


def found_lines(found: Sequence[Prediction]) -> dict[Measured, list[Prediction]]:
    """Predictions by line; those without one are left out."""
    lines: dict[Measured, list[Prediction]] = {}
    for one in found:
        if one.ratio is not None:
            lines.setdefault(line_of(one.row), []).append(one)
    return lines


def errors_of(found: Sequence[Prediction]) -> Errors:
    """Of predictions."""
    return Errors.of([one.ratio for one in found if one.ratio is not None])


def mapes(found: Sequence[Prediction]) -> dict[str, float]:
    """The mean error of each line, in percent."""
    return {line.name: round(errors_of(some).mape, 2) for line, some in found_lines(found).items()}


def quick_rows() -> list[Row]:
    """All but the iterations of many GPUs."""
    return [
        row
        for path in shipped()
        for row in read_rows(path)
        if row.table not in ITERATIONS or int(row.size_class.split()[0]) < QUICK
    ]


def _table(lines: dict[Measured, list[Prediction]]) -> str:
    """The furthest off first."""
    rows = []
    for line, some in sorted(lines.items(), key=lambda pair: -errors_of(pair[1]).mape):
        errors = errors_of(some)
        inside = [held for one in some if (held := one.is_in_band) is not None]
        rows.append(
            [
                line.name if line.is_fitted else f"**{line.name}**",
                f"{errors.rows:,}",
                *(f"{value:.1f}" for value in (errors.mape, errors.e, errors.g)),
                f"{errors.bias:+.1f}",
                f"{100 * sum(inside) / len(inside):.0f}" if inside else "-",
                "yes" if line.is_fitted else "no",
            ]
        )
    return table(("measured", "rows", "MAPE %", "E %", "G %", "bias %", "in band %", "fitted to it"), rows)


def _picture(found: Sequence[Prediction]) -> str:
    kinds: dict[str, list[Prediction]] = {}
    for one in found:
        if one.ratio is not None:
            kinds.setdefault(one.row.kind.replace("_", "-"), []).append(one)
    panels = [
        Kind(
            name,
            errors_of(some).mape,
            [(one.row.measured_us or 0.0, one.predicted_us or 0.0) for one in some],
        )
        for name, some in kinds.items()
    ]
    return measured_picture(sorted(panels, key=lambda one: -one.mape))


def _told(found: Iterator[Prediction], total: int) -> Iterator[Prediction]:
    for at, one in enumerate(found, 1):
        sys.stderr.write(f"\r{at} of {total}")
        yield one


def main() -> None:
    """Predict all rows and write the page."""
    rows = [row for path in shipped() for row in read_rows(path)]
    found = list(_told(predictions(rows), len(rows)))
    write_study(PAGE, {"errors": _table(found_lines(found))}, {PICTURE: _picture(found)})
    quickly = {(row.table, row.number) for row in quick_rows()}
    quick = [one for one in found if (one.row.table, one.row.number) in quickly]
    KEPT.write_text(json.dumps(mapes(quick), indent=2) + "\n")


if __name__ == "__main__":
    main()
