"""Tables of measurements, read: each row says what was measured, where, and how long it took.

A table is a CSV of kernels (`table,shape,us`), with what is known of it in a JSON file of the same name
beside it; or a JSON file of tables: of collectives (`collective`, rows of bytes and microseconds) or of
training iterations (`columns` of a model and a plan).

How far predictions are from measurements is given in percent: E is 100 (exp(mean |ln(predicted / measured)|)
- 1), G the geometric mean of the relative errors, and bias the geometric mean of predicted / measured, less
one.

Not here: what is predicted (`predictions`), and what the columns of an iteration mean (`iterations`).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import InputError, UsageError
from et_sim.documents.json_text import parse_json
from et_sim.machine.accuracy import LARGE_SIDE, LONG_SEQUENCE
from et_sim.validation.iterations import Iteration, iterations_of

MIB = 1 << 20
INFERRED = "inferred"  # of an algorithm that was not forced
NAMES = {"alltoall": "all_to_all", "sendrecv": "ring_send_receive"}  # of nccl-tests, and ours


class Kernel(Struct, frozen=True):
    """A kernel alone."""

    shape: str
    datatype: str


class Collective(Struct, frozen=True):
    """A collective by itself; nccl-tests counts its bytes."""

    kind: str
    bytes: int
    gpus: int
    nodes: int = 1
    datatype: str = ""
    algorithm: str = ""  # that the library was forced to take


class Row(Struct, frozen=True):
    """A measurement."""

    table: str
    number: int  # in the table, from 1
    hardware: str
    network: str  # between nodes, in words
    kind: str
    size_class: str
    what: str
    measured_us: float | None  # None: the table has no time, and there is nothing to predict
    job: Kernel | Collective | Iteration | None


def shipped() -> list[Path]:
    """The measurements that come with et-sim."""
    folder = Path(str(files("et_sim.validation") / "measurements"))
    return [folder / name for name in ("kernels.csv", "collectives.json", "iterations.json")]


def read_rows(path: Path) -> list[Row]:
    """All rows of a file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", remedy="name a file of measurements") from error
    rows = list(_kernels(path, text) if path.suffix.lower() == ".csv" else _tables(path, text))
    if not rows:
        raise UsageError(f"{path} has no row", remedy="name a file of measurements")
    return rows


def _kernels(path: Path, text: str) -> Iterator[Row]:
    known: dict[str, Any] = {}
    about = path.with_suffix(".json")
    if about.exists():
        known = parse_json(about.read_text(encoding="utf-8", errors="replace"), str(about), InputError)
        if not isinstance(known, dict) or not all(isinstance(row, dict) for row in known.values()):
            remedy = 'write {"TABLE": {"gpu": …, "dtype": …}}'
            raise InputError("this says nothing of tables", place=str(about), remedy=remedy)
    numbers: dict[str, int] = {}
    for row in csv.DictReader(io.StringIO(text)):
        if row.keys() != {"table", "shape", "us"} or None in row.values():
            remedy = "kernels have the columns table, shape and us"
            raise InputError("the columns are others", place=str(path), remedy=remedy)
        table, shape = row["table"], row["shape"]
        numbers[table] = numbers.get(table, 0) + 1
        facts = known.get(table, {})
        kind = shape.partition(" ")[0]
        yield Row(
            table,
            numbers[table],
            str(facts.get("gpu", "")),
            "",
            kind,
            size_of_kernel(kind, shape),
            shape,
            _time(row["us"], path, table, numbers[table]),
            Kernel(shape, str(facts.get("dtype", ""))),
        )


def size_of_kernel(kind: str, shape: str) -> str:
    """The class of size of a kernel's shape; "all" where its kind has one only."""
    numbers = [
        int(word) for word in shape.split()[1:] if word.isascii() and word.isdigit() and len(word) < 20
    ]
    if kind == "gemm" and len(numbers) >= 3:
        is_large = min(numbers[:3]) >= LARGE_SIDE
        return f"sides >= {LARGE_SIDE}" if is_large else f"a side < {LARGE_SIDE}"
    if kind.startswith("attention") and len(numbers) >= 4:
        return f"tokens >= {LONG_SEQUENCE}" if numbers[3] >= LONG_SEQUENCE else f"tokens < {LONG_SEQUENCE}"
    return "all"


def _tables(path: Path, text: str) -> Iterator[Row]:
    content = parse_json(text, str(path), InputError)
    if isinstance(content, dict) and isinstance(content.get("meta"), dict):
        content = [{"id": path.stem, **content["meta"], "rows": content.get("rows", [])}]
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise InputError("this is no list of tables", place=str(path), remedy="name a file of measurements")
    for number, table in enumerate(content, 1):
        try:
            yield from _collectives(path, table) if "collective" in table else _iterations(path, table)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            place = f"{path}: table {table.get('id', number)}"
            raise InputError(problem, place=place, remedy="docs/accuracy.md says what tables hold") from error


def _collectives(path: Path, table: dict[str, Any]) -> Iterator[Row]:
    kind = NAMES.get(table["collective"], table["collective"])
    nodes = int(table.get("nodes", 1))
    network = str(table.get("interconnect") or "") if nodes > 1 else ""
    forced = str(table.get("algo_forced") or "").lower()
    forced = "" if INFERRED in forced else forced
    if table["gpus"] < 2:
        raise ValueError(f"gpus is {table['gpus']}")
    for number, (size, microseconds, *_) in enumerate(table["rows"], 1):
        if size <= 0:
            raise ValueError(f"row {number} moves {size} bytes")
        group = "< 1 MiB" if size < MIB else "< 64 MiB" if size < 64 * MIB else ">= 64 MiB"
        yield Row(
            table["id"],
            number,
            str(table.get("hardware") or ""),
            network,
            kind,
            group,
            f"{kind} of {size:,} B on {table['gpus']}",
            _time(microseconds, path, table["id"], number),
            Collective(kind, int(size), table["gpus"], nodes, str(table.get("dtype") or ""), forced),
        )


def _iterations(path: Path, table: dict[str, Any]) -> Iterator[Row]:
    for number, iteration in iterations_of(table):
        if iteration is None:
            yield Row(table["id"], number, str(table.get("hardware") or ""), "", "", "", "", None, None)
            continue
        yield Row(
            table["id"],
            number,
            iteration.hardware,
            str(table.get("interconnect") or ""),
            "iteration",
            f"{iteration.plan.ranks} GPUs",
            iteration.label,
            _time(iteration.measured_s * 1e6, path, table["id"], number),
            iteration,
        )


def _time(value: Any, path: Path, table: str, number: int) -> float:
    try:
        time = float(value)
    except (TypeError, ValueError):
        time = 0.0
    if not 0 < time < 1e15:
        raise InputError(
            f"the time is {value!r}",
            place=f"{path}: table {table}, row {number}",
            remedy="give microseconds, more than 0",
        )
    return time


LEAST = 1e-6  # of a relative error in the geometric mean: an exact one would make it nothing


class Errors(Struct, frozen=True):
    """Of some rows."""

    rows: int
    e: float
    g: float
    mape: float
    bias: float
    largest: float

    @staticmethod
    def of(ratios: Sequence[float]) -> Errors:
        """Of predicted by measured, one row at least."""
        count, logarithms = len(ratios), [math.log(ratio) for ratio in ratios]
        relative = [abs(ratio - 1) for ratio in ratios]
        return Errors(
            count,
            100 * math.expm1(sum(map(abs, logarithms)) / count),
            100 * math.exp(sum(math.log(max(error, LEAST)) for error in relative) / count),
            100 * sum(relative) / count,
            100 * math.expm1(sum(logarithms) / count),
            100 * max(relative),
        )
