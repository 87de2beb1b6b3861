"""TCP's tables, and what the kernel asks of a transport."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import Tables
from et_sim.engine.containers import FREE, NONE, grow_pool, longer
from et_sim.machine.transports import Completion, Protocol, TcpControl
from et_sim.network.packet.setup import PS_PER_NS
from et_sim.network.packet.tcp import connections, counting, nic, receiver, timers
from et_sim.network.packet.tcp.records import (
    BLOCK,
    CONNECTION,
    CUBIC,
    DCTCP,
    HOST,
    NEWRENO,
    NIC,
    PIECE,
    RANGE,
    RENO,
)
from et_sim.plan.tables import record, table

begin_flow, joins, flows_left = connections.begin_flow, connections.joins, connections.flows_left
received = receiver.received
next_packet, wants_port = nic.next_packet, nic.wants_port
timer_rings, sends_nothing = timers.timer_rings, timers.sends_nothing
ends_receives = counting.ends_receives

CODES = {
    TcpControl.NEWRENO: NEWRENO,
    TcpControl.RENO: RENO,
    TcpControl.CUBIC: CUBIC,
    TcpControl.DCTCP: DCTCP,
}
FLOWS_PER_MESSAGE = 2  # it may have a new connection besides
RULES = record(
    ("payload", "i8"),
    ("header", "i8"),
    ("answer", "i8"),
    ("opening", "i8"),
    ("control", "u1"),
    ("sack", "u1"),
    ("per_message", "u1"),
    ("handshake", "u1"),
    ("ends_acknowledged", "u1"),
    ("bypass", "u1"),
    ("pads", "u1"),
    ("takes_turns", "u1"),
    ("first_window", "i8"),
    ("first_threshold", "i8"),
    ("keeps", "i8"),
    ("answers_after", "i8"),
    ("delays_ps", "i8"),
    ("least_timeout_ps", "i8"),
    ("first_timeout_ps", "i8"),
    ("scan_ps", "i8"),
    ("clock_ps", "i8"),
    ("injection_ps", "i8"),
    ("copying", "f8"),  # picoseconds per byte
    ("gain", "f8"),
)


@dataclass(frozen=True, slots=True)
class TcpTables(Tables):
    """What compiled code knows."""

    rules: Any  # one row
    connections: Any  # by flow
    pieces: Any  # by flow
    buckets: Any  # the first connection in each
    nics: Any  # by port
    hosts: Any  # by rank
    blocks: Any  # by packet
    ranges: Any
    free_ranges: Any  # one row


def new_tables(protocol: Protocol, ports: int, ranks: int) -> TcpTables:
    """Nobody has sent anything."""
    nics, free_ranges = table(NIC, ports), table(FREE, 1)
    nics["head"] = nics["tail"] = nics["answers"]["head"] = nics["answers"]["tail"] = NONE
    free_ranges["head"] = NONE
    return TcpTables(
        rules=_rules_of(protocol),
        connections=table(CONNECTION, 0),
        pieces=table(PIECE, 0),
        buckets=np.full(1, NONE, np.int32),
        nics=nics,
        hosts=table(HOST, ranks),
        blocks=table(BLOCK, 0),
        ranges=table(RANGE, 0),
        free_ranges=free_ranges,
    )


def _rules_of(protocol: Protocol) -> Any:
    tcp = protocol.packets.tcp
    assert tcp is not None
    row = table(RULES, 1)
    row.payload, row.header, row.answer = protocol.payload, protocol.header, protocol.acknowledgement
    row.ends_acknowledged = protocol.completion is Completion.ACKNOWLEDGEMENT
    row.control = CODES[tcp.control]
    for name in ("opening", "sack", "per_message", "handshake", "bypass", "pads", "takes_turns"):
        row[name] = getattr(tcp, name)
    for name in ("first_window", "first_threshold", "keeps", "answers_after", "gain"):
        row[name] = getattr(tcp, name)
    for name in ("delays", "least_timeout", "first_timeout", "scan", "clock", "injection"):
        row[f"{name}_ps"] = round(getattr(tcp, f"{name}_ns") * PS_PER_NS)
    row.copying = tcp.copying_ns_per_byte * PS_PER_NS
    return row


def with_packets(tables: TcpTables, packets: int) -> TcpTables:
    """The same for so many packets."""
    return replace(tables, blocks=longer(tables.blocks, packets))


def with_ranges(tables: TcpTables, wanted: int) -> TcpTables:
    """The same with so many ranges left."""
    free = tables.free_ranges[0]
    if free.rows >= wanted:
        return tables
    return replace(tables, ranges=grow_pool(tables.ranges, free, wanted))


def with_flows(tables: TcpTables, flows: Any) -> TcpTables:
    """The same for so many flows; connections are put into more buckets."""
    larger = {name: longer(getattr(tables, name), len(flows)) for name in ("connections", "pieces")}
    buckets = np.full(1 << max(len(flows) - 1, 1).bit_length(), NONE, np.int32)
    grown = replace(tables, buckets=buckets, **larger)
    for first in tables.buckets.tolist():
        row = first
        while row != NONE:
            after = int(larger["connections"].chain[row])
            bucket = connections.bucket_of(grown, int(flows.source[row]), int(flows.target[row]))
            larger["connections"].chain[row] = buckets[bucket]
            buckets[bucket] = row
            row = after
    return grown
