"""Congestion control: how the window of a connection grows, and what a loss or a mark leaves of it.

`newreno` as RFC 5681 has it; `reno` and `cubic` as Linux has them, the latter with hybrid slow start; `dctcp`
grows as `reno` and shrinks by how many packets were marked. Windows are bytes.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.network.packet.records import NEVER
from et_sim.network.packet.tcp import cubic
from et_sim.network.packet.tcp.records import CUBIC, DCTCP, NEWRENO


@works_on_tables
def begins(network: Any, row: int) -> None:
    """Nothing is known of the way."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    connection.window = rules.first_window * rules.payload
    connection.threshold = rules.first_threshold * rules.payload if rules.first_threshold > 0 else NEVER
    connection.count = connection.batch = connection.marked = connection.round_to = 0
    connection.alpha = 1.0
    cubic.begins(connection)


@works_on_tables
def grows(network: Any, row: int, packets: int) -> None:
    """So many packets' worth was acknowledged while nothing was missing."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    if packets <= 0:
        return
    if rules.control == NEWRENO:
        _grow_newreno(connection, rules.payload, packets)
    elif rules.control == CUBIC:
        cubic.grows(network, row, packets)
    else:
        _grow_reno(connection, rules.payload, packets)


@works_on_tables
def _grow_newreno(connection: Any, payload: int, packets: int) -> None:
    if connection.window < connection.threshold:
        connection.window += payload
        packets -= 1
    if connection.window >= connection.threshold and packets > 0:
        connection.window += max(payload * payload // connection.window, 1)


@works_on_tables
def _grow_reno(connection: Any, payload: int, packets: int) -> None:
    if connection.window < connection.threshold:
        connection.window = min(connection.window + packets * payload, connection.threshold)
        return
    size = max(connection.window // payload, 1)
    if connection.count >= size:
        connection.count = 0
        connection.window += payload
    connection.count += packets
    if connection.count >= size:
        steps = connection.count // size
        connection.count -= steps * size
        connection.window += steps * payload


@works_on_tables
def was_acknowledged(network: Any, row: int, packets: int, is_marked: bool) -> None:
    """An acknowledgement is back, for so many packets' worth."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    if rules.control == CUBIC:
        cubic.was_acknowledged(network, row)
    elif rules.control == DCTCP:
        connection.batch += packets
        connection.marked += packets if is_marked else 0
        if connection.round_to == 0:
            connection.round_to = connection.sent
        if connection.acknowledged >= connection.round_to:
            part = connection.marked / connection.batch if connection.batch > 0 else 0.0
            connection.alpha = (1.0 - rules.gain) * connection.alpha + rules.gain * part
            connection.batch = connection.marked = 0
            connection.round_to = connection.sent


@works_on_tables
def reduced(network: Any, row: int, flight: int) -> int:
    """What a loss, or a mark, makes of the window, where so many bytes are under way."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    if rules.control == NEWRENO:
        return max(2 * rules.payload, flight // 2)
    if rules.control == CUBIC:
        return cubic.reduced(connection, rules.payload)
    if rules.control == DCTCP:
        return max(rules.payload, int((1 - connection.alpha / 2) * connection.window))
    return max(2 * rules.payload, connection.window // 2)


@works_on_tables
def waited_in_vain(network: Any, row: int) -> None:
    """All is sent again."""
    if network.transport.rules[0].control == CUBIC:
        cubic.starts_again(network, row)
