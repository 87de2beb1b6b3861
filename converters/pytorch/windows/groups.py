"""The node that describes the process groups, after all windows: until then, groups may be learnt.

Not here: groups (`converters.pytorch.groups`).
"""

from __future__ import annotations

import numpy as np

from converters.pytorch.columns import DeviceTrace, HostTrace
from converters.pytorch.graph import Graph, Role
from converters.pytorch.groups import Groups
from converters.pytorch.lookup import Lookup
from converters.pytorch.nesting import NONE
from converters.pytorch.rank import ConvertedRank
from converters.pytorch.tally import Tally


def described_last(
    first: int, groups: Groups, host: HostTrace | None, device: DeviceTrace | None
) -> ConvertedRank:
    """A node with this number that says who is in which group."""
    zero, none, empty = np.zeros(1, np.int64), np.full(1, NONE, np.int64), np.zeros(0, np.int64)
    role = np.full(1, Role.METADATA, np.uint8)
    nothing = Lookup(role)
    return ConvertedRank(
        graph=Graph(role, zero, zero, none, none, empty, empty, empty.astype(np.uint8), first),
        host=host,
        device=device,
        links=None,
        is_timed=device is not None,
        rank=groups.rank,
        groups=groups.described(),
        communications=(),
        communication=none,
        event=nothing,
        operator_event=nothing,
        described_by=nothing,
        numbers=dict.fromkeys(("num_ops", "tensor_size"), nothing),
        tally=Tally(),
        measured_ns=0,
        described_as={},
        device_orphans=empty,
        left_out_events={},
    )
