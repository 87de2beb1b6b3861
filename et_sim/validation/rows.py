"""Readers of measurements: each row has a subject, a place, and a time.

A file is a CSV of kernels (`table,shape,us`), with facts on each table in a JSON file of the same name; a CSV
of training steps (`steps`); or a JSON file of tables (`tables`). A row that cannot be read becomes a row with
a reason: it is counted, and later rows are read.

The time of a kernel may include others. A product in 8 bits or less that a framework runs on activations in
16 bits first converts these to its datatype. Attention of an inference engine writes keys and values of each
token into its cache, rows that an index names, as an embedding reads them. Both are kernels of their own,
with a launch: a training step has them, if any, as nodes beside the product.

Errors of predictions are in percent: E is 100 (exp(mean |ln(predicted / measured)|) - 1), G the geometric
mean of the relative errors, and bias the geometric mean of predicted / measured, less one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import InputError, UsageError, unreadable
from et_sim.documents.reading import csv_columns, csv_rows, parse_json
from et_sim.machine.datatypes import BITS, datatype_named
from et_sim.validation.engine_rows import engine_job
from et_sim.validation.row import SERVING_COLUMNS, KernelRow, Row, microseconds, refused, size_of_kernel
from et_sim.validation.steps import NEEDED, is_steps, read_steps
from et_sim.validation.tables import read_tables

KERNEL_COLUMNS = {"table", "shape", "us"}
MOST_SHOWN = 20  # columns of a file that is refused


def shipped() -> list[Path]:
    """Return the files of measurements that come with et-sim."""
    folder = Path(str(files("et_sim.validation") / "measurements"))
    names = ("kernels.csv", "collectives.json", "iterations.json", "b200_training.json")
    return [folder / name for name in names]


def text_of(path: Path) -> str:
    """Return the text of a file of measurements."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {unreadable(error)}", remedy="name a file of measurements"
        ) from error


def check_has_rows(path: Path, rows: Sequence[object]) -> None:
    """Refuse a file without rows."""
    if not rows:
        raise UsageError(f"{path} has no row", remedy="name a file of measurements")


def measured_rows(path: Path) -> list[Row]:
    """Return all rows of a file; rows that cannot be read have a reason."""
    text = text_of(path)
    rows = list(_of_csv(path, text) if path.suffix.lower() == ".csv" else read_tables(path, text))
    check_has_rows(path, rows)
    return rows


def read_rows(path: Path) -> list[Row]:
    """Return all rows of a file; raise InputError for the first one that has a time and cannot be read."""
    rows = measured_rows(path)
    for row in rows:
        if row.job is None and "no time of an iteration" not in row.why:
            raise InputError(row.why, place=str(path), remedy="docs/accuracy.md describes these files")
    return rows


def _of_csv(path: Path, text: str) -> Iterator[Row]:
    columns = csv_columns(text, str(path))
    if is_steps(columns):
        return read_steps(path, text)
    if {*columns} != KERNEL_COLUMNS:
        given = ", ".join(columns[:MOST_SHOWN]) + (", …" if len(columns) > MOST_SHOWN else "")
        cause = f"no kind of measurement has the columns {given}" if columns else "the file is empty"
        remedy = (
            f"kernels need table, shape and us; training steps need {', '.join(NEEDED)};"
            f" servings need {', '.join(SERVING_COLUMNS)}"
        )
        raise InputError(cause, place=str(path), remedy=remedy)
    return _kernels(path, text)


def _kernels(path: Path, text: str) -> Iterator[Row]:
    known: dict[str, Any] = {}
    about = path.with_suffix(".json")
    if about.exists():
        known = parse_json(about.read_text(encoding="utf-8", errors="replace"), str(about), InputError)
        if not isinstance(known, dict) or not all(isinstance(row, dict) for row in known.values()):
            remedy = 'write {"TABLE": {"gpu": …, "dtype": …}}'
            raise InputError("the file does not describe tables", place=str(about), remedy=remedy)
    numbers: dict[str, int] = {}
    for line, row in csv_rows(text, str(path)):
        table = row["table"] or path.stem
        number = numbers[table] = numbers.get(table, 0) + 1
        facts = known.get(table, {})
        hardware, datatype = str(facts.get("gpu", "")), str(facts.get("dtype", ""))
        try:
            if row.keys() != KERNEL_COLUMNS or None in row.values():
                raise ValueError("the line does not have the three values of table, shape and us")
            kind, shape, time = row["shape"].partition(" ")[0], row["shape"], microseconds(row["us"])
            job = engine_job(shape, facts) or KernelRow(shape, datatype, included_kernels(facts, shape))
        except ValueError as error:
            yield refused(table, number, f"{path.name}: line {line}: {error}", hardware)
            continue
        size_class = size_of_kernel(kind, shape)
        yield Row(table, number, hardware, "", kind, size_class, shape, time, job)


LEAST = 1e-6  # lower bound of a relative error in the geometric mean, which an error of 0 would make 0


def mape(ratios: Sequence[float]) -> float:
    """Return the mean absolute error, in percent, of ratios of predicted to measured times, at least one."""
    return 100 * sum(abs(ratio - 1) for ratio in ratios) / len(ratios)


def mean_error(ratios: Sequence[float]) -> float:
    """Return the mean error with its sign, in percent, of such ratios."""
    return 100 * sum(ratio - 1 for ratio in ratios) / len(ratios)


class Errors(Struct, frozen=True):
    """The errors of some rows."""

    rows: int
    e: float
    g: float
    mape: float
    bias: float
    largest: float

    @staticmethod
    def of(ratios: Sequence[float]) -> Errors:
        """Compute the errors from ratios of predicted to measured times, at least one."""
        count, logarithms = len(ratios), [math.log(ratio) for ratio in ratios]
        relative = [abs(ratio - 1) for ratio in ratios]
        return Errors(
            count,
            100 * math.expm1(sum(map(abs, logarithms)) / count),
            100 * math.exp(sum(math.log(max(error, LEAST)) for error in relative) / count),
            mape(ratios),
            100 * math.expm1(sum(logarithms) / count),
            100 * max(relative),
        )


QUANTISES = re.compile(r"quanti[sz]\w*\s+(?:of\s+)?(?:the\s+)?(?:activations|inputs)", re.IGNORECASE)
WRITES_CACHE = re.compile(r"writes\s+the\s+KV\s+cache", re.IGNORECASE)
WIDE = 16  # bits of activations before they are quantised


def included_kernels(facts: Mapping[str, Any], shape: str) -> tuple[str, ...]:
    """Return the shapes of the kernels that the time of a row includes, in the datatype of the row."""
    text = f"{facts.get('software', '')}; {facts.get('how', '')}"
    kind, *words = shape.split()
    if not all(word.isascii() and word.isdecimal() for word in words[:6]):
        return ()
    bits = BITS.get(datatype_named(str(facts.get("dtype", ""))) or "", WIDE)
    if kind == "gemm" and len(words) == 3 and bits < WIDE and QUANTISES.search(text):
        return (f"quantise {words[0]} {words[2]}",)
    if kind == "attention" and len(words) >= 6 and WRITES_CACHE.search(text):
        batch, _, key_heads, _, keys, width, *rest = words
        value_width = rest[0] if rest and rest[0].isdecimal() else width
        written = int(key_heads) * (int(width) + int(value_width))
        return (f"embedding {int(batch) * int(keys)} {written}",)
    return ()
