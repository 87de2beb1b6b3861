"""TCP's tables, and what the kernel asks of a transport."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import Tables
from et_sim.engine.containers import FREE, NONE, grow_pool, longer
from et_sim.machine.transports import Protocol
from et_sim.network.packet.rules import tcp_rules_of
from et_sim.network.packet.tcp import connections, counting, nic, receiver, timers
from et_sim.network.packet.tcp.records import BLOCK, CONNECTION, HOST, NIC, PIECE, RANGE
from et_sim.plan.tables import table

begin_flow, joins, flows_left = connections.begin_flow, connections.joins, connections.flows_left
received = receiver.received
next_packet, wants_port = nic.next_packet, nic.wants_port
timer_rings, sends_nothing = timers.timer_rings, timers.sends_nothing
ends_receives = counting.ends_receives

FLOWS_PER_MESSAGE = 2  # it may have a new connection besides


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
        rules=tcp_rules_of(protocol),
        connections=table(CONNECTION, 0),
        pieces=table(PIECE, 0),
        buckets=np.full(1, NONE, np.int32),
        nics=nics,
        hosts=table(HOST, ranks),
        blocks=table(BLOCK, 0),
        ranges=table(RANGE, 0),
        free_ranges=free_ranges,
    )


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
