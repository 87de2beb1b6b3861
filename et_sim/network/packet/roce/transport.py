"""RoCE as a transport of the kernel: its tables and functions.

Snapshots for repeats are taken of messages that send at their full rate (`packet.repeats`).

ns-3's frontend counts the bytes that one rank has sent to another for a chunk of a collective. The first
receive ends when so many have arrived, whichever message they belong to. Where a message overtakes one of the
same size, the two change places: the receive of the first ends with the second, and vice versa.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.containers import longer
from et_sim.engine.repeats.description import put
from et_sim.engine.state.kinds import STEP
from et_sim.engine.state.records import PHASE_KEY_BITS
from et_sim.engine.state.run import NONE
from et_sim.machine.transports import PacketProtocol
from et_sim.network.packet.calendar import is_planned, order_of, time_of
from et_sim.network.packet.records import NEVER
from et_sim.network.packet.repeats import describe_packets, pass_packets
from et_sim.network.packet.roce import pairs, turns
from et_sim.network.packet.roce.control import rate_stays
from et_sim.network.packet.roce.pairs import timer_of
from et_sim.network.packet.roce.records import KIND, KINDS, NIC, PAIR, SHARE, WATCH
from et_sim.network.packet.roce.records import TIMERS as TIMERS
from et_sim.network.settings import settings_row
from et_sim.plan.records import table


@works_on_tables
def counts_as(network: Any, messages: Any, row: int) -> None:
    """Exchange the message of a flow that has arrived with that of the first flow counted with it."""
    flows, pairs = network.flows, network.transport.pairs
    flow = flows[row]
    if network.transport.rules[0].as_ns3 == 0 or messages[flow.message].kind != STEP:
        return
    other = network.transport.nics[flow.port].head
    while other != NONE and flows[other].begin_ps < flow.begin_ps:
        first = flows[other]
        if first.is_reported == 0 and _is_counted_with(messages[flow.message], messages[first.message]):
            flow.message, first.message = first.message, flow.message
            return
        other = pairs[other].next


@works_on_tables
def _is_counted_with(first: Any, second: Any) -> bool:
    """Return whether two messages of a rank have equal sizes, targets and chunks."""
    return bool(
        second.kind == STEP
        and second.target == first.target
        and second.a == first.a
        and second.c >> PHASE_KEY_BITS == first.c >> PHASE_KEY_BITS
        and second.bytes == first.bytes
    )


@works_on_tables
def position_of(network: Any, row: int) -> int:
    """Return the next byte of a message that is sent."""
    return int(network.transport.pairs[row].sent)


@works_on_tables
def advance_of(network: Any, row: int) -> int:
    """Return how many bytes of a message a period sends."""
    pair = network.transport.pairs[row]
    return int(pair.advance) if pair.is_listed else 0


@works_on_tables
def describe_host(network: Any, at: int, port_row: int) -> int:
    """Describe the pairs of a host's port; return the next entry, or NONE for no snapshot."""
    pairs, nic = network.transport.pairs, network.transport.nics[port_row]
    at = put(network, at, nic.count, nic.last, nic.last_row)
    row = nic.head
    while row != NONE and at != NONE:
        if not rate_stays(network, row):
            return NONE
        at = _describe_pair(network, at, row)
        row = pairs[row].next
    return describe_packets(network, at, nic.answers.head)


@works_on_tables
def _describe_pair(network: Any, at: int, row: int) -> int:
    """Describe the distances between the positions of a message; past events have no effect."""
    state, pair, flow = network.state[0], network.transport.pairs[row], network.flows[row]
    now, timer = state.now_ps, len(network.ports) + timer_of(row)
    refused_ps = max(pair.refused_ps - now, 0) if pair.refused == pair.expected else 0
    at = put(
        network, at, row, pair.highest - pair.sent, pair.acknowledged - pair.sent, pair.expected - pair.sent
    )
    at = put(network, at, max(pair.next_ps - now, 0), pair.window, pair.rate, pair.last_bytes, refused_ps)
    at = put(network, at, flow.packets, flow.retransmitted, int(pair.sent < flow.size), flow.is_reported)
    if not is_planned(network.calendar, timer):
        return put(network, at, NONE)
    calendar = network.calendar
    return put(network, at, time_of(calendar, timer) - now, order_of(calendar, timer) - state.order)


@works_on_tables
def note_host(network: Any, port_row: int) -> int:
    """Record the positions of the messages of a host."""
    pairs, row = network.transport.pairs, network.transport.nics[port_row].head
    while row != NONE:
        pairs[row].pictured = pairs[row].sent
        row = pairs[row].next
    return 0


@works_on_tables
def periods_left(network: Any, port_row: int) -> int:
    """Return for how many periods all packets of a host are full, and none is the last of its message."""
    pairs, row, count = network.transport.pairs, network.transport.nics[port_row].head, NEVER
    while row != NONE:
        pair = pairs[row]
        pair.advance = pair.sent - pair.pictured
        if pair.advance > 0:
            count = min(count, (network.flows[row].size - 1 - pair.sent) // pair.advance)
        elif pair.advance < 0:
            count = 0
        row = pair.next
    return int(count)


@works_on_tables
def pass_host(network: Any, port_row: int, count: int, time: int, events: int) -> None:
    """Advance a host by periods."""
    nic, pairs = network.transport.nics[port_row], network.transport.pairs
    pass_packets(network, nic.answers.head, count, time, events)
    row = nic.head
    while row != NONE:
        pair = pairs[row]
        advance = count * pair.advance
        if pair.refused == pair.expected:
            pair.refused += advance
        pair.sent += advance
        pair.highest += advance
        pair.acknowledged += advance
        pair.expected += advance
        pair.next_ps += time
        pair.refused_ps += time
        row = pair.next


begin_flow, received = pairs.begin_flow, pairs.received
next_packet, wants_port = pairs.next_packet, turns.wants_port
timer_rings, sends_nothing = pairs.timer_rings, pairs.sends_nothing


FLOWS_PER_MESSAGE = 1


class RoceTables(Tables, Struct, frozen=True):
    """Tables of RoCE for compiled code."""

    rules: Any  # one row
    pairs: Any  # by flow
    nics: Any  # by port
    watched: Any  # by flow
    shares: Any  # by port
    kinds: Any  # of messages that are known


def new_tables(protocol: PacketProtocol, ports: int, longest_ps: int, most_bytes: int) -> RoceTables:
    """Return the tables before any message; the last two arguments set a window that all pairs share."""
    packets, nics = protocol.packets, table(NIC, ports)
    nics["head"] = nics["tail"] = nics["last_row"] = NONE
    nics["answers"]["head"] = nics["answers"]["tail"] = NONE
    rules = settings_row(protocol, packets, longest_ps=longest_ps, most_bytes=most_bytes)
    kinds, shares = (KINDS, ports) if packets.steady > 0 else (1, 0)
    return RoceTables(rules, table(PAIR, 0), nics, table(WATCH, 0), table(SHARE, shares), table(KIND, kinds))


def grown(tables: RoceTables, _packets: Any, flows: Any, _spare: int) -> RoceTables:
    """Return the tables with space for these flows."""
    pairs, watched = longer(tables.pairs, len(flows)), longer(tables.watched, len(flows))
    return replace(tables, pairs=pairs, watched=watched)
