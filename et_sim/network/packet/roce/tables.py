"""RoCE's tables, and what the kernel asks of a transport."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from et_sim.compiled.tables_by_reference import Tables
from et_sim.network.packet.roce import control, counting, nic, pairs

begin_flow, received, counts_as = pairs.begin_flow, pairs.received, counting.counts_as
next_packet, wants_port = nic.next_packet, nic.wants_port
passes, timer_rings, only_sets_rates = control.passes, pairs.timer_rings, pairs.only_sets_rates


@dataclass(frozen=True, slots=True)
class RoceTables(Tables):
    """What compiled code knows."""

    rules: Any  # one row
    pairs: Any  # by flow
    nics: Any  # by port
    noted: Any  # by packet and hop: what HPCC's headers say; empty without it
    known: Any  # by flow and hop: what they said last
