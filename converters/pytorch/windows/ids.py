"""By which ids the operators of the two recordings find each other, from rows that are looked at one after
another.

Not here: finding them (`linking`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from converters.pytorch.calls import Calls
from converters.pytorch.columns import ABSENT, DeviceTrace, EventSort, HostTrace
from converters.pytorch.linking import (
    EXTERNAL,
    RECORD_FUNCTIONS,
    Links,
    is_called,
    link_by,
    names_in_common,
    telling_names,
    usual_shift,
)
from converters.pytorch.row_file import RowFile, Table

_NOTHING = np.zeros(0, np.int64)
LINKED = (EventSort.OPERATOR, EventSort.ANNOTATION)


@dataclass(frozen=True, slots=True)
class Ids:
    """Record-function ids on both sides; or, with a shift, external ids, which are so much larger."""

    shift: int | None = None

    def of_events(self, rows: Table) -> Any:
        """The ids of operators and annotations, and 0 for everything else."""
        ids = rows["record_function" if self.shift is None else "external_id"]
        return np.where(np.isin(rows["sort"], LINKED) & (ids > 0), ids, 0)

    def of_nodes(self, rows: Table) -> Any:
        """The same of nodes."""
        ids = rows["record_function"]
        return np.where(is_called(rows["sort"]) & (ids > 0), ids + (self.shift or 0), 0)

    def link(self, host: HostTrace, device: DeviceTrace, calls: Calls, _events: Any) -> Links:
        """The pairs of a window."""
        if self.shift is None:
            ours, theirs = host.record_function, device.record_function[calls.row]
            return link_by(RECORD_FUNCTIONS, host, device, calls, ours, theirs)
        ours = np.where(host.record_function > 0, host.record_function.astype(np.int64) + self.shift, ABSENT)
        return link_by(EXTERNAL, host, device, calls, ours, device.external_id[calls.row])


def find_ids(host: HostTrace, nodes: RowFile, device: DeviceTrace, events: RowFile) -> Ids | None:
    """Record-function ids, if the timeline has them; else external ids, if they differ by the same."""
    if any((chunk["record_function"][np.isin(chunk["sort"], LINKED)] > 0).any() for chunk in events.chunks()):
        return Ids()
    common = names_in_common(host, device)
    count = [np.zeros(len(host.names), np.int64) for _ in range(2)]
    sides = ((nodes, Ids().of_nodes, np.arange(len(host.names))), (events, Ids(0).of_events, common))
    for total, (rows, ids_of, number) in zip(count, sides, strict=True):
        for chunk in rows.chunks():
            names = number[chunk["name"][ids_of(chunk) > 0]]
            total += np.bincount(names[names >= 0], minlength=len(total))
    chosen = telling_names(*count)
    found = []
    for rows, ids_of, number in sides:
        some = [(_NOTHING, _NOTHING)]
        for chunk in rows.chunks():
            ids = ids_of(chunk)
            at = np.flatnonzero((ids > 0) & np.isin(number[chunk["name"]], chosen))
            some.append((number[chunk["name"][at]], ids[at]))
        found.append((np.concatenate([one for one, _ in some]), np.concatenate([one for _, one in some])))
    shift = usual_shift(chosen, found[0], found[1])
    return Ids(shift) if shift is not None else None
