"""Dead links of the packet model: packets are lost on them, and senders notice by their time-outs.

A port sends on a dead link as on any other, and the packets are lost when they would land. After the time of
a try without an acknowledgement, a sender sends again what was not acknowledged. By then switches may lead
around the link: if no packet of a message is under way, it takes the path of this time.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE
from et_sim.engine.observe import facade as observe
from et_sim.network.packet.flows import count_on_way, find_ways
from et_sim.network.packet.ports import release_packet
from et_sim.network.packet.repeats import restart_search


@works_on_tables
def lose(network: Any, port_row: int, packet_row: int) -> None:
    """Drop a packet at the end of a dead link."""
    state, flow_row = network.state[0], network.packets[packet_row].flow
    if flow_row != NONE and network.flows[flow_row].lost_on == NONE:
        network.flows[flow_row].lost_on, network.flows[flow_row].lost_ps = port_row, state.now_ps
    network.ports[port_row].drops += 1
    state.lost += 1
    observe.packet_lost(network, port_row, state.now_ps)
    release_packet(network, packet_row)
    restart_search(network)


@works_on_tables
def gets_through(network: Any, row: int) -> None:
    """Record that a message makes progress again."""
    flow = network.flows[row]
    if flow.lost_on != NONE:
        waited = network.state[0].now_ps - flow.lost_ps
        network.waits[flow.lost_on] = max(network.waits[flow.lost_on], waited)
        flow.lost_on = NONE


@works_on_tables
def try_ps(network: Any, tries: int) -> int:
    """Return the time until the next try after so many; NONE: the sender gives up."""
    recovery = network.recovery[0]
    if tries < recovery.tries:
        return 0
    if tries == recovery.tries and recovery.probe_ns != NONE:
        return int(recovery.probe_ns) * 1000
    return NONE


@works_on_tables
def finds_way(network: Any, row: int) -> bool:
    """Put a message on the path of this time if its own has a dead link; return whether its port changes."""
    flow = network.flows[row]
    if flow.packets > 0 or not _is_broken(network, row):
        return False
    before = flow.port
    count_on_way(network, row, -1)
    find_ways(network, row, network.walker[0])
    count_on_way(network, row, 1)
    return bool(flow.port != before)


@works_on_tables
def _is_broken(network: Any, row: int) -> bool:
    """Return whether a link of either way is dead."""
    first = row * network.stride[0]
    return _has_dead(network, first) or _has_dead(network, first + network.flows[row].back)


@works_on_tables
def _has_dead(network: Any, at: int) -> bool:
    """Return whether a link of the way that begins at this place is dead."""
    while network.ways[at] != NONE:
        if network.dead[network.ways[at]]:
            return True
        at += 1
    return False
