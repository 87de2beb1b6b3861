"""RoCE's tables, and what the kernel asks of a transport."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from et_sim.compiled.tables_by_reference import Tables
from et_sim.network.packet.roce import control, counting, nic, pairs, repeats

begin_flow, received, counts_as = pairs.begin_flow, pairs.received, counting.counts_as
next_packet, wants_port = nic.next_packet, nic.wants_port
may_repeat, describe_host, note_host = repeats.may_repeat, repeats.describe_host, repeats.note_host
periods_left, pass_host = repeats.periods_left, repeats.pass_host
position_of, advance_of = repeats.position_of, repeats.advance_of
passes, timer_rings, sends_nothing = control.passes, pairs.timer_rings, pairs.sends_nothing


@dataclass(frozen=True, slots=True)
class RoceTables(Tables):
    """What compiled code knows."""

    rules: Any  # one row
    pairs: Any  # by flow
    nics: Any  # by port
    noted: Any  # by packet and hop: what HPCC's headers say; empty without it
    known: Any  # by flow and hop: what they said last
