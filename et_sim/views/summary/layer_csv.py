"""The result files of ASTRA-sim 1.0, with its names and columns: times in µs, sizes in MiB.

Where 1.0 leaves a cell of all rows but the first empty, so do these. Not here: how anything is counted.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from et_sim.basics.errors import UsageError
from et_sim.basics.files import draft_folder
from et_sim.views.summary.layers import Layers

SHORT = (("fwd", "forward"), ("wg", "weight_gradient"), ("ig", "input_gradient"))
MIB = 1 << 20


def write_csv(layers: Layers, folder: Path) -> list[Path]:
    """Write all files into a folder; returns their paths."""
    tables = {
        "EndToEnd.csv": _end_to_end(layers),
        "detailed.csv": _detailed(layers),
        "dimension_utilization.csv": _utilisation(layers),
        "tutorial_result.csv": _result(layers),
        "backend_end_to_end.csv": _back_end(layers),
        "backend_dim_info.csv": _dimensions(layers),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with draft_folder(folder / next(iter(tables))) as drafts:
            for name, rows in tables.items():
                with (drafts / name).open("w", newline="", encoding="utf-8") as file:
                    csv.writer(file, lineterminator="\n").writerows(rows)
            written = [(drafts / name).replace(folder / name) for name in tables]
    except OSError as error:
        cause = f"cannot be written: {error.strerror or error}"
        raise UsageError(cause, place=str(folder), remedy="name another folder with --csv") from None
    return written


def _micros(nanos: float) -> str:
    return f"{nanos / 1000:.6f}"


def _end_to_end(layers: Layers) -> Iterable[list[str]]:
    columns = [
        (f"{short} {words}", f"{phase}_{figure}_ns")
        for words, figure in (("compute", "compute"), ("exposed comm", "exposed"), ("total comm", "total"))
        for short, phase in SHORT
    ]
    yield [
        "layer",
        *(name for name, _ in columns),
        "workload finished at",
        "total comp",
        "total exposed comm",
    ]
    whole = [_micros(layers.figures[name]) for name in ("finish_ns", "compute_ns", "exposed_ns")]
    for number, row in enumerate(layers.rows):
        yield [
            row["layer"],
            *(_micros(row[field]) for _, field in columns),
            *(whole if number == 0 else [""] * 3),
        ]


def _detailed(layers: Layers) -> Iterable[list[str]]:
    """Means per chunk: what it waits for in its queues, and what a message takes."""
    phases, dimensions = layers.phases, layers.dimensions
    count = int(phases["phase"].max(initial=-1)) + 1
    yield [
        "layer",
        *(f"queuing delay phase {phase}" for phase in range(count + 1)),
        *(f"network delay phase {phase + 1}" for phase in range(count)),
        *(f"avg chunk delay dimension {number + 1}" for number in range(len(dimensions))),
    ]
    delays = [_micros(entry["mean_chunk_ns"]) for entry in dimensions]
    per_message = phases["message_wait_ns"] / np.maximum(phases["messages"], 1)
    for number, row in enumerate(layers.rows):
        mine = [(phases["layer"] == number) & (phases["phase"] == phase) for phase in range(count)]
        queued = [_mean((phases["start_ns"] - phases["queued_ns"])[of]) for of in mine]
        network = [_mean(per_message[of]) for of in mine]
        first = "0.000000" if any(of.any() for of in mine) else ""
        yield [row["layer"], first, *queued, *network, *(delays if number == 0 else [""] * len(delays))]


def _mean(values: Any) -> str:
    return _micros(float(values.mean())) if len(values) else ""


def _utilisation(layers: Layers) -> Iterable[list[str]]:
    count = len(layers.figures["dimensions"])
    yield ["time (us)", *(f"dim{number + 1} util" for number in range(count))]
    for end_ns, shares in layers.use_of_windows():
        yield [str(end_ns // 1000), *(f"{100 * part:.6f}" for part in shares)]


def _result(layers: Layers) -> Iterable[list[str]]:
    figures = layers.figures
    yield ["name", "total", "compute", "exposed comm", "total message MiB"]
    times = [_micros(figures[name]) for name in ("finish_ns", "compute_ns", "exposed_ns")]
    yield [layers.run.path.name, *times, f"{sum(figures['sent_bytes']) / MIB:.6f}"]


def _back_end(layers: Layers) -> Iterable[list[str]]:
    """`DP` is what is exposed of the first layer's weight gradients, `MP` the rest."""
    figures, sent = layers.figures, layers.figures["sent_bytes"]
    data = layers.rows[0]["weight_gradient_exposed_ns"] if layers.rows else 0
    yield [
        *("CommsTime", "ComputeTime", "ExposedCommsTime", "Cost", "TotalPayloadSize"),
        *("DPCommsTime", "MPCommsTime", *(f"PayloadSize_Dim{number}" for number in range(len(sent)))),
    ]
    times = [_micros(figures[name]) for name in ("finish_ns", "compute_ns", "exposed_ns")]
    price = figures.get("dollars")  # early runs do not have it
    dollars = "" if price is None else f"{price:.6f}"
    split = [_micros(data), _micros(figures["exposed_ns"] - data)]
    yield [*times, dollars, f"{sum(sent) / MIB:.6f}", *split, *(f"{size / MIB:.6f}" for size in sent)]


def _dimensions(layers: Layers) -> Iterable[list[str]]:
    delays = [entry["mean_chunk_ns"] for entry in layers.dimensions]
    yield [f"avg chunk latency dimension {number + 1}" for number in range(len(delays))]
    yield [_micros(delay) for delay in delays]
