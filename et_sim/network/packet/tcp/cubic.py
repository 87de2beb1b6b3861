"""CUBIC (RFC 8312) with hybrid slow start, counted in packets as Linux does.

The window is a cubic function of the time since the last loss, with the window of that loss as its plateau.
Slow start ends when acknowledgements have come closely for longer than the way there and back takes, or when
that time grows.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.network.packet.records import NEVER

SHRINKS_TO = 0.7
SCALE = 0.4
LEAST_PACKETS = 16  # before slow start may end early
SAMPLES = 8
CLOSE_PS = 2_000_000_000
LEAST_GROWTH_PS, MOST_GROWTH_PS = 4_000_000_000, 1_000_000_000_000
SETTLES_PS = 10_000_000_000  # after an epoch began, times are not taken
FEWEST, MOST, SLOWEST = 2, 20, 100  # acknowledged packets for one more in the window


@works_on_tables
def begins(connection: Any) -> None:
    """Nothing is known."""
    connection.largest = connection.origin = 0
    connection.plateau_s = 0.0
    connection.epoch_ps = connection.least_rtt_ps = connection.round_rtt_ps = NEVER
    connection.round_ps = connection.train_ps = 0
    connection.samples = connection.found = 0


@works_on_tables
def _new_round(network: Any, connection: Any) -> None:
    connection.round_ps = connection.train_ps = network.state[0].now_ps
    connection.round_to = connection.highest
    connection.round_rtt_ps = NEVER
    connection.samples = 0


@works_on_tables
def starts_again(network: Any, row: int) -> None:
    """After a timeout."""
    connection = network.transport.connections[row]
    connection.largest = connection.origin = connection.found = 0
    connection.plateau_s = 0.0
    connection.least_rtt_ps = NEVER
    _new_round(network, connection)


@works_on_tables
def grows(network: Any, row: int, packets: int) -> None:
    """So many packets were acknowledged."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    if connection.window < connection.threshold:
        if connection.acknowledged > connection.round_to:
            _new_round(network, connection)
        connection.window += packets * rules.payload
        return
    connection.count += packets
    wanted = _packets_for_one(network, connection, connection.window // rules.payload)
    if connection.count >= wanted:
        connection.window += rules.payload
        connection.count -= wanted


@works_on_tables
def _packets_for_one(network: Any, connection: Any, size: int) -> int:
    """How many packets are acknowledged before the window grows by one."""
    now = network.state[0].now_ps
    if connection.epoch_ps == NEVER:
        connection.epoch_ps = now
        if connection.largest <= size:
            connection.plateau_s, connection.origin = 0.0, size
        else:
            connection.plateau_s = ((connection.largest - size) / SCALE) ** (1 / 3)
            connection.origin = connection.largest
    least = connection.least_rtt_ps if connection.least_rtt_ps != NEVER else 0
    passed = (now + least - connection.epoch_ps) / 1e12
    away = abs(passed - connection.plateau_s)
    change = int(SCALE * away * away * away)
    target = connection.origin + (change if passed >= connection.plateau_s else -change)
    wanted = size // (target - size) if target > size else SLOWEST * size
    if connection.largest == 0:
        wanted = min(wanted, MOST)
    return max(int(wanted), FEWEST)


@works_on_tables
def was_acknowledged(network: Any, row: int) -> None:
    """Look at the time there and back."""
    connection, rules, now = (
        network.transport.connections[row],
        network.transport.rules[0],
        network.state[0].now_ps,
    )
    if connection.epoch_ps != NEVER and now - connection.epoch_ps < SETTLES_PS:
        return
    connection.least_rtt_ps = min(connection.least_rtt_ps, connection.rtt_ps)
    if (
        connection.found
        or connection.window > connection.threshold
        or connection.window < LEAST_PACKETS * rules.payload
    ):
        return
    if now - connection.train_ps <= CLOSE_PS:
        connection.train_ps = now
        if now - connection.round_ps > connection.least_rtt_ps:
            connection.found = 1
    if connection.samples < SAMPLES:
        connection.round_rtt_ps = min(connection.round_rtt_ps, connection.rtt_ps)
        connection.samples += 1
    else:
        growth = min(max(connection.least_rtt_ps, LEAST_GROWTH_PS), MOST_GROWTH_PS)
        if connection.round_rtt_ps > connection.least_rtt_ps + growth:
            connection.found = 1
    if connection.found:
        connection.threshold = connection.window


@works_on_tables
def reduced(connection: Any, payload: int) -> int:
    """After a loss; a window that had not come back to where it was gives way to others."""
    size = connection.window // payload
    if size < connection.largest:
        connection.largest = int(size * (1 + SHRINKS_TO) / 2)
    else:
        connection.largest = size
    connection.epoch_ps = NEVER
    return max(int(size * SHRINKS_TO), 2) * payload
