"""Operators of a large recording that have no ids in common: numbers for those that find each other by name.

All names are looked at together, in the order of both recordings; that takes about a hundred bytes for each
operator, which is a small part of what the recordings say about it.

Not here: aligning names (`converters.pytorch.alignment`), and recordings with ids (`ids`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from converters.pytorch.calls import Calls
from converters.pytorch.columns import DeviceTrace, HostTrace
from converters.pytorch.linking import (
    NAMES,
    Links,
    Named,
    is_called,
    link_by,
    names_in_common,
    pairs_by_names,
)
from converters.pytorch.row_file import RowFile, Table
from converters.pytorch.windows.ids import LINKED


@dataclass(frozen=True, slots=True, eq=False)
class Paired:
    """Numbers of pairs, in the order of time: by number of the event, and by id of the node."""

    events: Any  # ascending, with their pairs beside them
    pair_of_event: Any
    nodes: Any
    pair_of_node: Any

    def of_events(self, rows: Table) -> Any:
        """The pairs of events, and 0 for those that have none."""
        return _found(self.events, self.pair_of_event, rows["number"])

    def of_nodes(self, rows: Table) -> Any:
        """The same of nodes."""
        return _found(self.nodes, self.pair_of_node, rows["node_id"])

    def link(self, host: HostTrace, device: DeviceTrace, calls: Calls, events: Any) -> Links:
        """The pairs of a window, whose events have these numbers by row."""
        ours = _found(self.nodes, self.pair_of_node, host.node_id)
        theirs = _found(self.events, self.pair_of_event, events[calls.row])
        return link_by(NAMES, host, device, calls, ours, theirs)


def pair_by_names(host: HostTrace, nodes: RowFile, device: DeviceTrace, events: RowFile) -> Paired:
    """Find out who belongs together."""
    common = names_in_common(host, device).astype(np.int32)
    ours = _gathered(nodes, lambda rows: is_called(rows["sort"]), "node_id", "thread", "name", "sequence")
    ours = ours[np.argsort(ours["node_id"], kind="stable")]
    names = "number", "lane", "name", "sequence", "ts_ns", "dur_ns", "external_id"
    theirs = _gathered(events, lambda rows: np.isin(rows["sort"], LINKED), *names)
    theirs["name"] = common[theirs["name"]]
    order = np.lexsort((-theirs["dur_ns"], theirs["external_id"], theirs["ts_ns"], theirs["lane"]))
    theirs = theirs[order]
    here, there = pairs_by_names(
        Named(ours["thread"], ours["name"].astype(np.int64), ours["sequence"]),
        Named(theirs["lane"], theirs["name"].astype(np.int64), theirs["sequence"]),
    )
    by_time = np.argsort(theirs["ts_ns"][there], kind="stable")
    sides = []
    for values in (theirs["number"][there[by_time]], ours["node_id"][here[by_time]]):
        ascending = np.argsort(values)
        sides += [values[ascending], (ascending + 1).astype(np.int32)]
    return Paired(*sides)


def _gathered(rows: RowFile, wanted: Any, *names: str) -> Table:
    """Some columns of the rows that are wanted; `number` is the place in the file."""
    kinds = [(name, rows.kind[name] if name != "number" else np.dtype(np.int64)) for name in names]
    parts = [np.zeros(0, kinds)]
    first = 0
    for chunk in rows.chunks():
        some = np.flatnonzero(wanted(chunk))
        part = np.empty(len(some), kinds)
        for name in names:
            part[name] = chunk[name][some] if name != "number" else some + first
        parts.append(part)
        first += len(chunk)
    return np.concatenate(parts)


def _found(values: Any, pairs: Any, wanted: Any) -> Any:
    if not len(values):
        return np.zeros(len(wanted), np.int64)
    at = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return np.where(values[at] == wanted, pairs[at], 0).astype(np.int64)
