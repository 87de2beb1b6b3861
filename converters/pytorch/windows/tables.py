"""Recordings out of rows that were put aside: all of them, or those that a window of time needs.

Not here: which rows a window needs (`parts`, `boundaries`).
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from converters.pytorch.columns import DeviceTrace, HostTrace, Tensors
from converters.pytorch.reading.device import EVENT_KIND, EVENTS
from converters.pytorch.reading.growing import narrow, starts_of
from converters.pytorch.reading.host import INPUTS, NODE_KIND, NODES, OUTPUTS
from converters.pytorch.reading.tensors import TENSOR_KIND
from converters.pytorch.row_file import Overflow, Table

_Details = TypeVar("_Details")
_NOT_OF_EVENTS = ("number",)


def events_aside(device: DeviceTrace, overflow: Overflow) -> DeviceTrace:
    """The timeline without its events, which are put aside if they are not there yet."""
    if EVENTS in overflow.tables:
        return device
    columns = {name: getattr(device, name) for name in EVENT_KIND.names or ()}
    overflow.table(EVENTS, EVENT_KIND).append(columns)
    return replace(device, **{name: column[:0].copy() for name, column in columns.items()})


def nodes_aside(host: HostTrace, overflow: Overflow) -> HostTrace:
    """The execution trace without its nodes, which are put aside if they are not there yet."""
    if NODES in overflow.tables:
        return host
    columns = {name: getattr(host, name) for name in NODE_KIND.names or () if name not in (INPUTS, OUTPUTS)}
    counts = {name: np.diff(getattr(host, name).start) for name in (INPUTS, OUTPUTS)}
    overflow.table(NODES, NODE_KIND).append({**columns, **counts})
    for name in (INPUTS, OUTPUTS):
        tensors = getattr(host, name)
        overflow.table(name, TENSOR_KIND).append(
            {one: getattr(tensors, one) for one in TENSOR_KIND.names or ()}
        )
    return replace(host, **{name: column[:0].copy() for name, column in columns.items()})


def device_of(head: DeviceTrace, rows: Table) -> DeviceTrace:
    """The timeline of some events, in the order of their numbers, which are a column of theirs."""
    numbers = rows["number"]
    return replace(
        head,
        **_columns(rows, _NOT_OF_EVENTS),
        waits=_of_rows(head.waits, numbers),
        transfers=_of_rows(head.transfers, numbers),
        collectives=_of_rows(head.collectives, numbers),
    )


def host_of(head: HostTrace, nodes: Table, inputs: Table, outputs: Table) -> HostTrace:
    """The execution trace of some nodes and all of their tensors."""
    return replace(
        head,
        **_columns(nodes, (INPUTS, OUTPUTS)),
        inputs=Tensors(starts_of(nodes[INPUTS]), **_columns(inputs)),
        outputs=Tensors(starts_of(nodes[OUTPUTS]), **_columns(outputs)),
    )


def _columns(rows: Table, without: tuple[str, ...] = ()) -> dict[str, Any]:
    names = [name for name in rows.dtype.names or () if name not in without]
    return {name: _column(name, rows[name]) for name in names}


def _column(name: str, values: Any) -> Any:
    if values.dtype == np.int64 and not name.endswith("_ns"):
        return narrow(values)
    return np.ascontiguousarray(values)


def _of_rows(table: _Details, numbers: Any) -> _Details:
    """The details of some events, which have new rows."""
    row = table.row  # type: ignore[attr-defined]
    at = np.minimum(np.searchsorted(numbers, row), max(len(numbers) - 1, 0))
    some = np.flatnonzero(numbers[at] == row) if len(numbers) else row[:0]
    columns = {one.name: getattr(table, one.name)[some] for one in fields(table)}  # type: ignore[arg-type]
    return type(table)(**{**columns, "row": at[some].astype(np.int32)})
