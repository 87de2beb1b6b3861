"""Congestion control: how the window of a connection grows, and shrinks after a loss or a mark.

`newreno` follows RFC 5681, `reno` and `cubic` (RFC 8312) follow Linux. `dctcp` grows like `reno` and shrinks
by the fraction of marked packets. Windows are bytes.

CUBIC's window, in packets, is a cubic function of the time since the last loss, with the window at that loss
as its plateau. Its slow start ends when closely spaced acknowledgements last longer than the round-trip time,
or when that time grows.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.network.packet.records import NEVER
from et_sim.network.packet.tcp.records import CUBIC, DCTCP, NEWRENO

SHRINKS_TO = 0.7
SCALE = 0.4
LEAST_PACKETS = 16  # before slow start may end early
SAMPLES = 8
CLOSE_PS = 2_000_000_000
LEAST_GROWTH_PS, MOST_GROWTH_PS = 4_000_000_000, 1_000_000_000_000
SETTLES_PS = 10_000_000_000  # times right after an epoch began are ignored
FEWEST, MOST, SLOWEST = 2, 20, 100  # acknowledged packets per packet of growth


@works_on_tables
def cubic_begins(connection: Any) -> None:
    """Reset the state of CUBIC."""
    connection.largest = connection.origin = 0
    connection.plateau_s = 0.0
    connection.epoch_ps = connection.least_rtt_ps = connection.round_rtt_ps = NEVER
    connection.round_ps = connection.train_ps = 0
    connection.samples = connection.is_past_slow_start = 0


@works_on_tables
def _new_round(network: Any, connection: Any) -> None:
    connection.round_ps = connection.train_ps = network.state[0].now_ps
    connection.round_to = connection.highest
    connection.round_rtt_ps = NEVER
    connection.samples = 0


@works_on_tables
def starts_again(network: Any, row: int) -> None:
    """Reset the state of CUBIC after a timeout."""
    connection = network.transport.connections[row]
    connection.largest = connection.origin = connection.is_past_slow_start = 0
    connection.plateau_s = 0.0
    connection.least_rtt_ps = NEVER
    _new_round(network, connection)


@works_on_tables
def cubic_grows(network: Any, row: int, packets: int) -> None:
    """Grow the window after acknowledged packets."""
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
    """Return how many acknowledged packets grow the window by one."""
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
def cubic_acknowledged(network: Any, row: int) -> None:
    """Evaluate the round-trip time."""
    connection, rules, now = (
        network.transport.connections[row],
        network.transport.rules[0],
        network.state[0].now_ps,
    )
    if connection.epoch_ps != NEVER and now - connection.epoch_ps < SETTLES_PS:
        return
    connection.least_rtt_ps = min(connection.least_rtt_ps, connection.rtt_ps)
    if (
        connection.is_past_slow_start
        or connection.window > connection.threshold
        or connection.window < LEAST_PACKETS * rules.payload
    ):
        return
    if now - connection.train_ps <= CLOSE_PS:
        connection.train_ps = now
        if now - connection.round_ps > connection.least_rtt_ps:
            connection.is_past_slow_start = 1
    if connection.samples < SAMPLES:
        connection.round_rtt_ps = min(connection.round_rtt_ps, connection.rtt_ps)
        connection.samples += 1
    else:
        growth = min(max(connection.least_rtt_ps, LEAST_GROWTH_PS), MOST_GROWTH_PS)
        if connection.round_rtt_ps > connection.least_rtt_ps + growth:
            connection.is_past_slow_start = 1
    if connection.is_past_slow_start:
        connection.threshold = connection.window


@works_on_tables
def cubic_reduced(connection: Any, payload: int) -> int:
    """Return the threshold after a loss; a window below its last maximum releases more bandwidth."""
    size = connection.window // payload
    if size < connection.largest:
        connection.largest = int(size * (1 + SHRINKS_TO) / 2)
    else:
        connection.largest = size
    connection.epoch_ps = NEVER
    return max(int(size * SHRINKS_TO), 2) * payload


@works_on_tables
def begins(network: Any, row: int) -> None:
    """Initialise congestion control."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    connection.window = rules.first_window * rules.payload
    connection.threshold = rules.first_threshold * rules.payload if rules.first_threshold > 0 else NEVER
    connection.count = connection.batch = connection.marked = connection.round_to = 0
    connection.alpha = 1.0
    cubic_begins(connection)


@works_on_tables
def grows(network: Any, row: int, packets: int) -> None:
    """Grow the window after acknowledged packets while none is missing."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    if packets <= 0:
        return
    if rules.control == NEWRENO:
        _grow_newreno(connection, rules.payload, packets)
    elif rules.control == CUBIC:
        cubic_grows(network, row, packets)
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
    """Process an acknowledgement of packets."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    if rules.control == CUBIC:
        cubic_acknowledged(network, row)
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
    """Return the window after a loss or a mark, with these bytes in flight."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    if rules.control == NEWRENO:
        return max(2 * rules.payload, flight // 2)
    if rules.control == CUBIC:
        return cubic_reduced(connection, rules.payload)
    if rules.control == DCTCP:
        return max(rules.payload, int((1 - connection.alpha / 2) * connection.window))
    return max(2 * rules.payload, connection.window // 2)


@works_on_tables
def timed_out(network: Any, row: int) -> None:
    """Process a timeout, after which all bytes are sent again."""
    if network.transport.rules[0].control == CUBIC:
        starts_again(network, row)
