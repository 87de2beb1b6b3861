"""TCP as a transport of the kernel: its tables and functions.

htsim's frontend adds a packet's bytes to each message, and counts them as received. The messages from one
rank to another in a collective then are one stream of bytes: message k ends the receives whose last byte is
in it. With short messages, later receives end early, and bytes after the last receive have no receiver.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.containers import FREE, NONE, grow_pool, longer
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import STEP
from et_sim.engine.state.records import PHASE_BITS, PROGRAM_MASK
from et_sim.engine.state.run import Run
from et_sim.engine.transport.network_seam import release_message
from et_sim.machine.transports import PS_PER_NS, PacketProtocol
from et_sim.network.packet.tcp import connections, receiver, sender
from et_sim.network.packet.tcp.records import (
    BLOCK,
    CONNECTION,
    HOST,
    NIC,
    PIECE,
    RANGE,
)
from et_sim.network.packet.tcp.records import TIMERS as TIMERS
from et_sim.network.settings import settings_row
from et_sim.plan.records import table

MOST_RECEIVES = 64  # limit of receives that one message ends


@works_on_tables
def ends_receives(network: Any, run: Run, row: int) -> int:
    """End the receives that a message fills; return its row for the first of them, or NONE if none ends."""
    rules, message = network.transport.rules[0], run.messages[row]
    if rules.pads == 0 or message.kind != STEP:
        return row
    padded = message.bytes + rules.payload
    program = run.plan.programs[(message.c >> PHASE_BITS) & PROGRAM_MASK]
    if program.tree_first != NONE or program.custom_first != NONE or padded > MOST_RECEIVES * message.bytes:
        return row
    index = message.b >> 1
    number = _number_of(run, program, index)
    first, end = number * padded // message.bytes, (number + 1) * padded // message.bytes
    own_sends, at, step = 0, 0, NONE
    distance = run.plan.steps[program.step_first + index % program.step_period].distance
    while at < program.sends and own_sends < end:
        if run.plan.steps[program.step_first + at % program.step_period].distance == distance:
            if own_sends == first:
                step = at
            elif own_sends > first:
                observe.next_event_flies(run, message.through, message.left_ns, NONE)
                schedule(run, run.clock[0].now, STEP, message.a, 2 * at + (message.b & 1), message.c)
            own_sends += 1
        at += 1
    if step == NONE:
        observe.message_arrives(run, row)
        release_message(run, row)
        return NONE
    message.b = 2 * step + (message.b & 1)
    return row


@works_on_tables
def _number_of(run: Run, program: Any, index: int) -> int:
    """Return how many messages the rank has sent to the same target before."""
    steps, count = run.plan.steps, 0
    distance = steps[program.step_first + index % program.step_period].distance
    for at in range(index):
        count += steps[program.step_first + at % program.step_period].distance == distance
    return count


begin_flow, joins, flows_left = connections.begin_flow, connections.joins, connections.flows_left
received, timer_rings, sends_nothing = receiver.received, receiver.timer_rings, receiver.sends_nothing
next_packet, wants_port = sender.next_packet, sender.wants_port

FLOWS_PER_MESSAGE = 2  # the second one is for a new connection


class TcpTables(Tables, Struct, frozen=True):
    """Tables of TCP for compiled code."""

    rules: Any  # one row
    connections: Any  # by flow
    pieces: Any  # by flow
    buckets: Any  # the first connection in each
    nics: Any  # by port
    hosts: Any  # by rank
    blocks: Any  # by packet
    ranges: Any
    free_ranges: Any  # one row


def new_tables(protocol: PacketProtocol, ports: int, ranks: int) -> TcpTables:
    """Return the tables before any message."""
    settings = protocol.packets.tcp
    assert settings is not None
    nics, free_ranges = table(NIC, ports), table(FREE, 1)
    nics["head"] = nics["tail"] = nics["answers"]["head"] = nics["answers"]["tail"] = NONE
    free_ranges["head"] = NONE
    return TcpTables(
        rules=settings_row(protocol, settings, copying=settings.copying_ns_per_byte * PS_PER_NS),
        connections=table(CONNECTION, 0),
        pieces=table(PIECE, 0),
        buckets=np.full(1, NONE, np.int32),
        nics=nics,
        hosts=table(HOST, ranks),
        blocks=table(BLOCK, 0),
        ranges=table(RANGE, 0),
        free_ranges=free_ranges,
    )


def grown(tables: TcpTables, packets: Any, flows: Any, spare: int) -> TcpTables:
    """Return the tables with space for these packets, flows and more ranges."""
    ranges, free = tables.ranges, tables.free_ranges[0]
    if free.rows < spare:
        ranges = grow_pool(ranges, free, spare)
    if len(flows) > len(tables.connections):
        tables = _with_flows(tables, flows)
    return replace(tables, ranges=ranges, blocks=longer(tables.blocks, len(packets)))


def _with_flows(tables: TcpTables, flows: Any) -> TcpTables:
    """Return the tables with space for these flows, and more buckets for connections."""
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
