"""Times of layers of a layer file: the table of the ASTRA-sim 1.0 tutorials.

Figures are those of rank 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import UsageError, unreadable
from et_sim.basics.files import draft_folder
from et_sim.basics.intervals import Intervals, union
from et_sim.basics.units import format_bytes, format_ns, plural
from et_sim.views.run.columns import integers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.sheet import Sheet, SheetColumn, csv_blocks
from et_sim.views.text import share
from et_sim.views.view import Forms

PHASES = ("forward", "input_gradient", "weight_gradient")
FIGURES = ("compute", "exposed", "total")
MOST_LAYERS_SHOWN = 40
NAME_WIDTH = 14
WINDOW_NS = 10_000


class Layers(Struct, frozen=True, dict=True):
    """The layers of a run, as read from its directory."""

    run: RunDirectory

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Return a dict per layer."""
        rows: list[dict[str, Any]] = self._table.to_pylist()
        return rows

    @cached_property
    def figures(self) -> dict[str, Any]:
        """Return figures of the whole run."""
        figures: dict[str, Any] = json.loads(self._table.schema.metadata[b"figures"])
        return figures

    @cached_property
    def _table(self) -> Any:
        table = self.run.table("layers")
        if table is None:
            raise UsageError(
                "this run is not one of a layer file, so it has no layers",
                place=str(self.run.path),
                remedy="operations by name: et-sim inspect RUN ops",
            )
        return table

    @cached_property
    def phases(self) -> Any:
        """Return phases of the chunks of rank 0, as numpy columns."""
        table = self.run.table(
            "phases", ("actor", "dimension", "phase", "layer", "queued_ns", "start_ns", "end_ns")
        )
        messages = self.run.table("phases", ("messages", "message_wait_ns"))
        columns = {name: integers(table[name], missing=0) for name in table.column_names}
        columns |= {name: integers(messages[name], missing=0) for name in messages.column_names}
        is_of_rank = columns["actor"] == self.run.actor_of(0)
        return {name: column[is_of_rank] for name, column in columns.items()}

    @property
    def dimensions(self) -> list[dict[str, Any]]:
        """Return, by dimension of collectives: chunks, their mean time, and the time in use."""
        dimensions = []
        for number, name in enumerate(self.figures["dimensions"]):
            mine = self.phases["dimension"] == number
            start, end = self.phases["start_ns"][mine], self.phases["end_ns"][mine]
            dimensions.append(
                {
                    "dimension": name,
                    "chunk_phases": int(mine.sum()),
                    "mean_chunk_ns": float((end - start).mean()) if mine.any() else 0.0,
                    "busy_ns": int(_busy(start, end).lengths(1)[0]),
                }
            )
        return dimensions

    def use_of_windows(self) -> list[tuple[int, list[float]]]:
        """Return (end of a window of 10 µs, share of it that each dimension was in use) for whole windows."""
        windows = int(self.figures["finish_ns"]) // WINDOW_NS
        boundaries = np.arange(windows + 1) * WINDOW_NS
        shares = np.zeros((windows, len(self.figures["dimensions"])))
        for number in range(shares.shape[1]):
            mine = self.phases["dimension"] == number
            busy = _busy(self.phases["start_ns"][mine], self.phases["end_ns"][mine])
            shares[:, number] = np.diff(busy.before(boundaries)) / WINDOW_NS
        return list(zip(boundaries[1:].tolist(), shares.tolist(), strict=True))

    def as_dict(self) -> dict[str, Any]:
        """Return everything for `--json`."""
        return {**self.figures, "dimensions": self.dimensions, "layers": self.rows}


def layers_data(run: RunDirectory, _: Selection) -> Any:
    """Return everything for `--json`."""
    return Layers(run).as_dict()


def layers_lines(run: RunDirectory, _: Selection, width: int) -> list[str]:
    """Return the tables and totals on one screen."""
    layers = Layers(run)
    figures = layers.figures
    finish, sent = figures["finish_ns"], figures["sent_bytes"]
    lines = [
        f"finished at {format_ns(finish)}: {format_ns(figures['compute_ns'])} computing, "
        f"{format_ns(figures['exposed_ns'])} ({share(figures['exposed_ns'], finish)}) exposed",
        "",
        *_table_lines(layers.rows, width),
        "",
        "Exposed: the training loop waited. Total: from issue to completion, summed.",
        "",
        *_dimension_lines(layers, finish),
        "",
        f"rank 0 sent {format_bytes(sum(sent))} in collectives"
        + (f": {', '.join(format_bytes(size) for size in sent)} by dimension" if len(sent) > 1 else ""),
    ]
    passes = figures["pass_end_ns"]
    if len(passes) > 1:
        lines.append(f"{plural(len(passes), 'pass', 'passes')}, computed by {_some_times(passes)}")
    return lines


LAYERS = Forms(layers_lines, layers_data)


def _table_lines(rows: list[dict[str, Any]], width: int) -> list[str]:
    most = max((row[f"{p}_{f}_ns"] for row in rows for p in PHASES for f in FIGURES), default=0)
    unit, size = next(
        ((u, s) for u, s in (("s", 10**9), ("ms", 10**6), ("µs", 1000)) if most >= 10 * s), ("ns", 1)
    )
    columns = [
        SheetColumn(
            f"{figure * (phase == PHASES[0])}\n{short}",
            partial(_figure, f"{phase}_{figure}_ns", unit, size),
            key=f"{figure} {short}",
        )
        for figure in FIGURES
        for phase, short in zip(PHASES, ("forward", "input", "weight"), strict=True)
    ]
    sheet = Sheet(
        (SheetColumn(f"{unit}\nlayer", "layer", "<", key="layer"), *columns),
        cut={"layer": NAME_WIDTH},
        names=("layer",),
        gap=" ",
        rows=MOST_LAYERS_SHOWN,
        more="more layer",
        hint=" (all with --json or --csv)",
    )
    return sheet.shown(rows, EVERYTHING, width)


def _figure(name: str, unit: str, size: int, row: dict[str, Any]) -> str:
    value = row[name] / size
    if value == 0:
        return "-"
    return f"{value:.0f}" if unit == "ns" or value >= 1000 else f"{value:.4g}"


def _dimension_lines(layers: Layers, finish: int) -> list[str]:
    sheet = Sheet(
        (
            SheetColumn("dimension", side="<"),
            SheetColumn("chunk phases", "chunk_phases"),
            SheetColumn("mean chunk", lambda entry: format_ns(round(entry["mean_chunk_ns"]))),
            SheetColumn("in use", "busy_ns"),
            SheetColumn("", lambda entry: share(entry["busy_ns"], finish)),
        )
    )
    return sheet.lines(layers.dimensions)


def _some_times(times: list[int]) -> str:
    shown = [format_ns(time) for time in (times if len(times) <= 4 else (*times[:2], times[-1]))]
    if len(times) > 4:
        shown.insert(2, "…")
    return ", ".join(shown)


def _busy(start: Any, end: Any) -> Intervals:
    """Return the intervals in which any of these was under way."""
    return union(np.zeros(len(start), np.int64), start, end)


SHORT = (("fwd", "forward"), ("wg", "weight_gradient"), ("ig", "input_gradient"))
MIB = 1 << 20


def write_csv(layers: Layers, folder: Path) -> list[Path]:
    """Write all files into a folder; return their paths."""
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
                    file.writelines(csv_blocks(rows))
            written = [(drafts / name).replace(folder / name) for name in tables]
    except OSError as error:
        cause = f"cannot be written: {unreadable(error)}"
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
    """Yield mean waits per chunk in its queues, and mean times of a message."""
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
    """Yield `DP`, the exposed time of the first layer's weight gradients, and `MP`, the rest."""
    figures, sent = layers.figures, layers.figures["sent_bytes"]
    data = layers.rows[0]["weight_gradient_exposed_ns"] if layers.rows else 0
    yield [
        *("CommsTime", "ComputeTime", "ExposedCommsTime", "Cost", "TotalPayloadSize"),
        *("DPCommsTime", "MPCommsTime", *(f"PayloadSize_Dim{number}" for number in range(len(sent)))),
    ]
    times = [_micros(figures[name]) for name in ("finish_ns", "compute_ns", "exposed_ns")]
    price = figures.get("dollars")  # runs of early versions lack it
    dollars = "" if price is None else f"{price:.6f}"
    split = [_micros(data), _micros(figures["exposed_ns"] - data)]
    yield [*times, dollars, f"{sum(sent) / MIB:.6f}", *split, *(f"{size / MIB:.6f}" for size in sent)]


def _dimensions(layers: Layers) -> Iterable[list[str]]:
    delays = [entry["mean_chunk_ns"] for entry in layers.dimensions]
    yield [f"avg chunk latency dimension {number + 1}" for number in range(len(delays))]
    yield [_micros(delay) for delay in delays]
