"""HPCC: each acknowledgement says how full the links on the way were, and the rate follows the fullest.

Every queue that a packet leaves writes down the time, how many bytes its port has sent and how many wait, in
the units that HPCC's header has for them: nanoseconds (24 bits), 128 bytes (20 bits), 80 bytes (17 bits).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.network.packet.ports import wake_at
from et_sim.network.packet.roce.nic import rate_ps
from et_sim.network.packet.roce.records import MOST_HOPS

TIME_BITS, BYTES_BITS, QUEUE_BITS = 24, 20, 17
BYTES_UNIT, QUEUE_UNIT = 128, 80


@works_on_tables
def notes_port(network: Any, packet_row: int, port: Any) -> None:
    """A packet leaves a queue."""
    at = network.packets[packet_row].hop - 1
    if at < MOST_HOPS:
        multiple = network.transport.rules[0].units
        time = (network.state[0].now_ps // 1000) & ((1 << TIME_BITS) - 1)
        sent = (port.bytes // (BYTES_UNIT * multiple)) & ((1 << BYTES_BITS) - 1)
        queue = (port.queued // (QUEUE_UNIT * multiple)) & ((1 << QUEUE_BITS) - 1)
        noted = time | (sent << TIME_BITS) | (queue << (TIME_BITS + BYTES_BITS))
        network.transport.noted[packet_row * MOST_HOPS + at] = noted


@works_on_tables
def acknowledged(network: Any, row: int, packet_row: int) -> None:
    """An acknowledgement is back: the rate follows it, and the rate of the round once per round."""
    pair, rules, packet = (
        network.transport.pairs[row],
        network.transport.rules[0],
        network.packets[packet_row],
    )
    is_round = packet.sequence > pair.update_at
    if not is_round and rules.reacts_fast == 0:
        return
    hops = network.flows[row].back - 2
    if pair.update_at == 0:
        _keep(network, row, packet_row, min(hops, MOST_HOPS))
        pair.update_at = pair.sent
        return
    if hops <= MOST_HOPS:
        _follow(network, row, packet_row, hops, is_round)
    if is_round:
        pair.update_at = max(pair.update_at, pair.sent)


@works_on_tables
def _keep(network: Any, row: int, packet_row: int, hops: int) -> None:
    """What was noted, for the next time."""
    transport = network.transport
    for at in range(hops):
        transport.known[row * MOST_HOPS + at] = transport.noted[packet_row * MOST_HOPS + at]


@works_on_tables
def _follow(network: Any, row: int, packet_row: int, hops: int, is_round: bool) -> None:
    """The rate that fills the fullest link as far as is wanted."""
    pair, rules = network.transport.pairs[row], network.transport.rules[0]
    fullest, of_ns, found = 0.0, 0, False
    base = pair.base_ps // 1000
    for at in range(hops):
        noted = int(network.transport.noted[packet_row * MOST_HOPS + at])
        known = int(network.transport.known[row * MOST_HOPS + at])
        if rules.samples and not is_round and _queue(noted) == 0:
            continue
        found = True
        length = (noted - known) & ((1 << TIME_BITS) - 1)
        use = _use(network, row, at, noted, known, max(length, 1))
        if use > fullest:
            fullest, of_ns = use, length
        network.transport.known[row * MOST_HOPS + at] = noted
    if not found:
        return
    of_ns = min(of_ns, base)
    pair.alpha = (pair.alpha * (base - of_ns) + fullest * of_ns) / base
    part, stage, rate = pair.alpha / rules.wanted_use, pair.stage + 1, pair.target_rate
    if part >= 1 or pair.stage >= rules.most_steps:
        rate, stage = int(rate / part), 0
    rate = min(max(rate + rules.step, rules.least_rate), pair.line_rate)
    _set_rate(network, row, rate)
    if is_round:
        pair.target_rate, pair.stage = rate, stage


@works_on_tables
def _use(network: Any, row: int, at: int, noted: int, known: int, length: int) -> float:
    """How full a link was: what it sent, and what waits for it."""
    pair, multiple = network.transport.pairs[row], network.transport.rules[0].units
    port = network.ports[network.ways[row * network.stride[0] + 1 + at]]
    sent = ((noted >> TIME_BITS) - (known >> TIME_BITS)) & ((1 << BYTES_BITS) - 1)
    sent_rate = sent * BYTES_UNIT * multiple * 8 / (length * 1e-9)
    queue = min(_queue(noted), _queue(known)) * QUEUE_UNIT * multiple
    return sent_rate / port.bits_per_s + queue * pair.line_rate / port.bits_per_s / max(pair.window, 1)


@works_on_tables
def _queue(noted: int) -> int:
    return noted >> (TIME_BITS + BYTES_BITS)


@works_on_tables
def _set_rate(network: Any, row: int, rate: int) -> None:
    """A new rate also holds for the packet that was sent last."""
    pair, flow = network.transport.pairs[row], network.flows[row]
    before, after = rate_ps(network, pair.rate, pair.last_bytes), rate_ps(network, rate, pair.last_bytes)
    pair.next_ps += after - before
    pair.rate = rate
    port = network.ports[flow.port]
    if port.wakes and pair.next_ps < port.wakes_ps:
        wake_at(network, flow.port, max(pair.next_ps, network.state[0].now_ps))
