"""Ways of a message: the ports of the first one between two ranks, and the tables of one that is split."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.compiled.tables_by_reference import Tables

NS3_SOURCE_PORT, NS3_TARGET_PORT = 10000, 100
FIRST_PORTS = NS3_SOURCE_PORT | NS3_TARGET_PORT << 16  # of the first message between two ranks


class SplitTables(Tables, Struct, frozen=True):
    """Links of the last message that was split, in the order of use."""

    link: Any  # empty: messages are not split
    share: Any  # of the message
    depth: Any  # links that the message took before
    queue: Any  # devices that have to forward it
    held: Any  # by device, the share of the message that it has to forward; 0: none
    away: Any  # by device, links from the source
    before: Any  # by device, sums of the caller


def no_split() -> SplitTables:
    """Return the tables of a network on which a message takes one path."""
    nothing = np.zeros(0, np.int32)
    return SplitTables(nothing, np.zeros(0), nothing, nothing, np.zeros(0), nothing, np.zeros(0))
