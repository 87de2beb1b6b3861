"""One converted rank: the graph, and for each of its rows where in the recordings more about it stands.

Not here: making it (`timed`, `untimed`), writing it (`emission`), reporting on it (`report`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from converters.pytorch.columns import DeviceTrace, HostTrace
from converters.pytorch.communication import Communication
from converters.pytorch.graph import Column, Graph
from converters.pytorch.linking import Links
from converters.pytorch.lookup import Lookup
from converters.pytorch.tally import Tally


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
