"""CUBIC (RFC 8312) as in Linux: the window is a cubic function of the time since the last loss.

Its plateau is the window at that loss, in packets. Slow start ends when closely spaced acknowledgements last
longer than the round-trip time, or when that time grows.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.network.packet.controls import ControlTables
from et_sim.network.packet.records import NEVER
from et_sim.plan.records import record

SHRINKS_TO = 0.7
SCALE = 0.4
LEAST_PACKETS = 16  # before slow start may end early
SAMPLES = 8
CLOSE_PS = 2_000_000_000
LEAST_GROWTH_PS, MOST_GROWTH_PS = 4_000_000_000, 1_000_000_000_000
SETTLES_PS = 10_000_000_000  # times right after an epoch began are ignored
FEWEST, MOST, SLOWEST = 2, 20, 100  # acknowledged packets per packet of growth


SENDER = record(
    ("count", "i8"),  # packets acknowledged since the window grew
    ("largest", "i8"),  # packets: the window at the last loss, the target
    ("origin", "i8"),
    ("plateau_s", "f8"),
    ("epoch_ps", "i8"),
    ("least_rtt_ps", "i8"),
    ("round_to", "i8"),
    ("round_rtt_ps", "i8"),
    ("round_ps", "i8"),
    ("train_ps", "i8"),
    ("samples", "i4"),
    ("is_past_slow_start", "u1"),
)


class Senders(ControlTables, frozen=True):
    """Senders with CUBIC."""


@works_on_tables
def begins(network: Any, row: int) -> None:
    """Initialise a connection."""
    sender = network.control.senders[row]
    sender.count = sender.round_to = sender.largest = sender.origin = 0
    sender.plateau_s = 0.0
    sender.epoch_ps = sender.least_rtt_ps = sender.round_rtt_ps = NEVER
    sender.round_ps = sender.train_ps = 0
    sender.samples = sender.is_past_slow_start = 0


@works_on_tables
def _new_round(network: Any, row: int) -> None:
    sender = network.control.senders[row]
    sender.round_ps = sender.train_ps = network.state[0].now_ps
    sender.round_to = network.transport.connections[row].highest
    sender.round_rtt_ps = NEVER
    sender.samples = 0


@works_on_tables
def timed_out(network: Any, row: int) -> None:
    """Reset the state after a timeout."""
    sender = network.control.senders[row]
    sender.largest = sender.origin = sender.is_past_slow_start = 0
    sender.plateau_s = 0.0
    sender.least_rtt_ps = NEVER
    _new_round(network, row)


@works_on_tables
def grows(network: Any, row: int, packets: int) -> None:
    """Grow the window after acknowledged packets."""
    connection, payload = network.transport.connections[row], network.control.rules[0].payload
    sender = network.control.senders[row]
    if connection.window < connection.threshold:
        if connection.acknowledged > sender.round_to:
            _new_round(network, row)
        connection.window += packets * payload
        return
    sender.count += packets
    wanted = _packets_for_one(network, sender, connection.window // payload)
    if sender.count >= wanted:
        connection.window += payload
        sender.count -= wanted


@works_on_tables
def _packets_for_one(network: Any, sender: Any, size: int) -> int:
    """Return how many acknowledged packets grow the window by one."""
    now = network.state[0].now_ps
    if sender.epoch_ps == NEVER:
        sender.epoch_ps = now
        if sender.largest <= size:
            sender.plateau_s, sender.origin = 0.0, size
        else:
            sender.plateau_s = ((sender.largest - size) / SCALE) ** (1 / 3)
            sender.origin = sender.largest
    least = sender.least_rtt_ps if sender.least_rtt_ps != NEVER else 0
    passed = (now + least - sender.epoch_ps) / 1e12
    away = abs(passed - sender.plateau_s)
    change = int(SCALE * away * away * away)
    target = sender.origin + (change if passed >= sender.plateau_s else -change)
    wanted = size // (target - size) if target > size else SLOWEST * size
    if sender.largest == 0:
        wanted = min(wanted, MOST)
    return max(int(wanted), FEWEST)


@works_on_tables
def was_acknowledged(network: Any, row: int, _packets: int, _is_marked: bool) -> None:
    """Evaluate the round-trip time."""
    connection, sender = network.transport.connections[row], network.control.senders[row]
    now = network.state[0].now_ps
    if sender.epoch_ps != NEVER and now - sender.epoch_ps < SETTLES_PS:
        return
    sender.least_rtt_ps = min(sender.least_rtt_ps, connection.rtt_ps)
    if (
        sender.is_past_slow_start
        or connection.window > connection.threshold
        or connection.window < LEAST_PACKETS * network.control.rules[0].payload
    ):
        return
    if now - sender.train_ps <= CLOSE_PS:
        sender.train_ps = now
        if now - sender.round_ps > sender.least_rtt_ps:
            sender.is_past_slow_start = 1
    if sender.samples < SAMPLES:
        sender.round_rtt_ps = min(sender.round_rtt_ps, connection.rtt_ps)
        sender.samples += 1
    else:
        growth = min(max(sender.least_rtt_ps, LEAST_GROWTH_PS), MOST_GROWTH_PS)
        if sender.round_rtt_ps > sender.least_rtt_ps + growth:
            sender.is_past_slow_start = 1
    if sender.is_past_slow_start:
        connection.threshold = connection.window


@works_on_tables
def reduced(network: Any, row: int, _flight: int) -> int:
    """Return the threshold after a loss; a window below its last maximum releases more bandwidth."""
    connection, payload = network.transport.connections[row], network.control.rules[0].payload
    sender = network.control.senders[row]
    size = connection.window // payload
    if size < sender.largest:
        sender.largest = int(size * (1 + SHRINKS_TO) / 2)
    else:
        sender.largest = size
    sender.epoch_ps = NEVER
    return max(int(size * SHRINKS_TO), 2) * payload
