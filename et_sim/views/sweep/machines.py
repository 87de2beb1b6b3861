"""One plan on several machines: time, throughput, price, energy and memory on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from textwrap import wrap
from types import MappingProxyType
from typing import Any

from et_sim.views.bands import BAND, band_text
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.sweep.directory import COMPLETE, SweepDirectory
from et_sim.views.sweep.scales import SweepQuantity, band_of_points, quantity_named

Row = Mapping[str, Any]
MACHINE = "machine"
COLUMNS = MappingProxyType(
    {
        "makespan_ns": "makespan",
        "tokens_per_s": "tokens/s",
        "price_per_million_tokens": "price of 1M tokens",
        "joules_per_million_tokens": "energy of 1M tokens",
        "peak_memory_bytes": "memory",
    }
)
UNKNOWN = "not known"


def machine_lines(sweep: SweepDirectory, price_sources: Mapping[str, str | None], width: int) -> list[str]:
    """Return a table of the machines, reasons why others cannot run the plan, and the sources of prices."""
    rows = sweep.table.to_pylist()
    done = [row for row in rows if row["status"] == COMPLETE]
    lines = [f"the same plan on {len(rows):,} machines"]
    if done:
        lines += Sheet(_columns(done), drop=(BAND,)).lines(done, width)
    for row in rows:
        if row["status"] != COMPLETE:
            lines += ["", *wrap(f"{row[MACHINE]} cannot run it: {row['error']}", width)]
    return [*lines, "", *_sources(price_sources, width)]


def machine_rows(sweep: SweepDirectory, price_sources: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """Return the figures of each machine, or the reason why it cannot run the plan, as JSON values."""
    names = (MACHINE, "status", "error", *COLUMNS)
    return [
        {**{name: row[name] for name in names}, "price_source": price_sources[row[MACHINE]]}
        for row in sweep.table.to_pylist()
    ]


def _columns(done: Sequence[Row]) -> tuple[SheetColumn, ...]:
    columns = [SheetColumn(head, partial(_shown, quantity_named(name))) for name, head in COLUMNS.items()]
    first = done[0]
    band = SheetColumn(BAND, lambda row: band_text(None if row is first else band_of_points(first, row)))
    time, *others = columns
    return (SheetColumn(MACHINE, lambda row: row[MACHINE], "<"), time, band, *others)


def _shown(quantity: SweepQuantity, row: Row) -> str:
    value = row[quantity.column]
    if value is None:
        return UNKNOWN
    return f"{value:.4g} {row['currency']}" if quantity.is_price else quantity.shown(value)


def _sources(sources: Mapping[str, str | None], width: int) -> list[str]:
    lines = ["prices of an hour of a NPU, each of its own place and date:"]
    for machine, source in sources.items():
        text = source or f"{UNKNOWN}; give it, as in {machine},price=7.4"
        lines += wrap(f"{machine}: {text}", width, initial_indent="  ", subsequent_indent="    ")
    return lines
