"""The kernel: events of packets, one after the other, in the order of time and of when they were planned.

It knows nothing of the engine: it goes on until a time, or until a message has arrived or left.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.run import NONE
from et_sim.network.packet.forwarding import packet_lands, send_next
from et_sim.network.packet.ports import set_plan
from et_sim.network.packet.repeats import look, looks_anew

EVENTS_AT_ONCE = 256
PACKETS_PER_EVENT = 8  # no event makes, or sends, more

# (network, timer): a timer of a transport rings.
timer_rings = chosen_by_tables("timer_rings", "transport")


@works_on_tables
def go_on(network: Any, until_ps: int) -> None:
    """Let what happens until then happen, or a part of it."""
    state = network.state[0]
    ports = len(network.ports)
    for _ in range(EVENTS_AT_ONCE):
        if state.moving == 0 or state.free_packets.rows < network.spare[0]:
            return
        if observe.queue_rows_left(network) == 0:
            return
        first = network.calendar.entries[0]
        if first.key > until_ps:
            return
        state.now_ps, state.now_order, source = first.key, first.tie, first.row
        if source < ports:
            state.current = source
            _port_event(network, source)
            state.current = NONE
            set_plan(network, source)
        else:
            timer_rings(network, source - ports)
        if state.arrived != NONE or state.left != NONE:
            looks_anew(network)
            return
        if state.until_picture > 0:
            look(network, source, until_ps)


@works_on_tables
def _port_event(network: Any, port_row: int) -> None:
    """A packet lands, the port is free again, or it wakes."""
    state, port = network.state[0], network.ports[port_row]
    if port.is_armed and port.free_order == state.now_order:
        port.is_armed = 0
        send_next(network, port_row)
    elif port.wakes and port.wakes_order == state.now_order:
        port.wakes = 0
        send_next(network, port_row)
    else:
        packet_lands(network, port_row)


@works_on_tables
def next_ps(network: Any) -> int:
    """When the next event is; NONE: never."""
    return network.calendar.entries[0].key if network.state[0].moving > 0 else NONE
