"""One converted rank: the graph, and for each of its rows where in the recordings more about it stands.

Columns of a graph that are looked up when they are wanted, not kept. What a node is called or how it is
described stands in the columns of its call or of its work; copying that to every node of a large graph would
take more memory than the graph.

Not here: making it (`timed`, `untimed`), writing it (`emission`), reporting on it (`report`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from converters.pytorch.columns import DeviceTrace, HostTrace
from converters.pytorch.communication import Communication
from converters.pytorch.graph import Column, Graph
from converters.pytorch.linking import Links
from converters.pytorch.nesting import NONE
from converters.pytorch.tally import Tally


class Lookup:
    """A column by row: `lookup[rows]` are its entries, NONE where there is nothing.

    Each part is a column by row that names an entry of the values beside it, or NONE; `like` is any column
    by row.
    """

    def __init__(self, like: Any, *parts: tuple[Any, Any]) -> None:
        self._like = like
        self._parts = [(index, values) for index, values in parts if len(values)]
        self._further: Any = None

    def __len__(self) -> int:
        return len(self._like)

    def __getitem__(self, rows: Any) -> Any:
        """Entries of some rows, given as a slice, as numbers or as one number."""
        found = np.full(np.shape(self._like[rows]), NONE, np.int64)
        for index, values in self._parts:
            which = index[rows]
            found = np.where(which != NONE, values[which], found)
        if self._further is not None:
            found = np.where(found != NONE, self._further[found], NONE)
        return found

    def then(self, values: Any) -> Lookup:
        """What stands in further values where this column says."""
        if not len(values):
            return Lookup(self._like)
        further = Lookup(self._like, *self._parts)
        further._further = values
        return further


def taken(values: Any, index: Any) -> Column:
    """Entries of a column, NONE where the index is."""
    found: Column = Lookup(index, (index, values))[:]
    return found


@dataclass(frozen=True, slots=True, eq=False)
class ConvertedRank:
    """Columns by row of the graph; -1 where a row has nothing of the kind."""

    graph: Graph
    host: HostTrace | None
    device: DeviceTrace | None
    links: Links | None
    is_timed: bool
    rank: int  # -1 if nobody says
    groups: Mapping[str, tuple[int, ...]]
    communications: tuple[Communication, ...]
    communication: Column  # index into `communications`
    event: Lookup  # row of the device trace
    operator_event: Lookup  # row of the device trace that holds the arguments: of work, its operator's
    described_by: Lookup  # row of the execution trace that holds the arguments
    numbers: Mapping[str, Lookup]  # attributes
    tally: Tally  # what was left out, concluded or unexpected, and how often
    measured_ns: int
    begin_ns: int  # when it begins, by the clock of the recording; 0 without times
    described_as: Mapping[str, str]  # what the file says about itself
    device_orphans: Column  # rows of the device trace: operators that the execution trace does not know
    left_out_events: Mapping[str, int]  # events that are no nodes, by reason
    words: Mapping[str, Lookup] = field(default_factory=dict)  # attributes that are text: index into `texts`
    texts: tuple[str, ...] = ()
