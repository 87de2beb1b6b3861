"""Ports that stay paused for ever, and the messages whose ways they close.

A paused port resumes when packets that came over it leave the device behind it. If all of these wait for
ports that stay paused, too, none of them moves again. Packets on a link, and an end of a pause that is on its
way, may change that: such ports count as open.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE

# States of a way, by the port of it that is worst off.
OPEN, PAUSED, CLOSED = range(3)


@works_on_tables
def gives_up(network: Any, row: int, sender: Any) -> bool:
    """Return whether a message's sender ends its tries, as none gets through.

    If acknowledgements alone are held up, a try may bring lost packets: one that brings none is the last.
    Where links fail, their ports end pauses, and recovery limits the tries.
    """
    if network.rules[0].pauses == 0 or len(network.fails) > 0:
        return False
    state, back = network.state[0], network.flows[row].back
    is_paused = PAUSED in (_state(network, row, 0), _state(network, row, back))
    if is_paused and state.searched_ps != state.now_ps:
        state.searched_ps = state.now_ps
        _find_closed(network)
    if _state(network, row, 0) == CLOSED:
        return True
    if _state(network, row, back) != CLOSED:
        return False
    is_last = sender.tried == sender.expected
    sender.tried = sender.expected
    return bool(is_last)


@works_on_tables
def _state(network: Any, row: int, hop: int) -> int:
    """Return the state of a message's way from a hop on."""
    found, at = OPEN, row * network.stride[0] + hop
    while network.ways[at] != NONE:
        port = network.ports[network.ways[at]]
        found = max(found, int(port.is_paused != 0) + int(port.is_closed != 0))
        at += 1
    return found


@works_on_tables
def _find_closed(network: Any) -> None:
    """Mark the ports that stay paused: first all that are paused, then without those that may resume."""
    for row in range(len(network.ports)):
        port = network.ports[row]
        port.is_closed = int(port.is_paused != 0 and port.pauses != 0 and port.flying.head == NONE)
    is_done = False
    while not is_done:
        is_done = True
        for row in range(len(network.ports)):
            if network.ports[row].is_closed == 0 and _opens_ports(network, row):
                is_done = False


@works_on_tables
def _opens_ports(network: Any, port_row: int) -> bool:
    """Unmark the ports over which packets came that wait for an open port; return whether there are any."""
    packet_row, found = network.ports[port_row].head, False
    while packet_row != NONE:
        packet = network.packets[packet_row]
        if packet.port != NONE and network.ports[packet.port].is_closed:
            network.ports[packet.port].is_closed = 0
            found = True
        packet_row = packet.next
    return found
