"""Records of RoCE, a pair for every message, and congestion control: how the rates of pairs change.

Rates are whole bits per second. DCQCN uses timers only, as Mellanox's NICs do; the first mark starts them.
The first timer updates alpha, the estimate of congestion. The second reduces the rate by half of alpha if
there were marks. The third raises the rate half the way to its target, the rate before the reduction, and
later the target as well.

HPCC: each acknowledgement reports how full the links of the path were, and the rate follows the fullest.
Every queue that a packet leaves records the time, and the bytes that its port has sent and that wait, in the
units of HPCC's header: nanoseconds (24 bits), 128 bytes (20 bits), 80 bytes (17 bits).

TIMELY: once per round, the rate rises below a low round-trip time, falls above a high one, and in between
follows the gradient of that time. As in ASTRA-sim's snapshot of ns-3, packets do not carry their send time,
so the time counts from the beginning of the run, and rates collapse.

DCTCP: once per round, alpha follows the fraction of marked packets. A mark reduces the rate by half of alpha,
once per round; a round without reduction raises it by a step.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import QUEUE
from et_sim.network.packet.ports import rate_ps, ring_at, stop, wake_at
from et_sim.plan.records import record

NO_CONTROL, DCQCN, HPCC, TIMELY, DCTCP = range(5)
MOST_HOPS = 5  # for which HPCC's headers have space
TIMERS = 4  # of a pair: three of DCQCN's, and one for retransmission
ALPHA, DECREASE, INCREASE, AGAIN = range(TIMERS)

PAIR = record(
    ("sent", "i8"),  # bytes; reset when some are sent again
    ("highest", "i8"),  # bytes ever sent
    ("acknowledged", "i8"),
    ("expected", "i8"),  # the receiver's next byte
    ("refused_ps", "i8"),  # until when it does not report missing bytes again
    ("refused", "i8"),  # the missing byte that it reported
    ("next_ps", "i8"),  # when it may send again
    ("free_ps", "i8"),  # when its last packet had left
    ("window", "i8"),  # bytes; 0: there is none
    ("base_ps", "i8"),  # the round-trip time without queues
    ("rate", "i8"),  # bits per second: the present rate; the line rate follows
    ("line_rate", "i8"),
    ("last_bytes", "i8"),  # on the wire, of the last packet
    ("next", "i4"),  # among the pairs of a port
    ("is_listed", "u1"),
    ("shrinks", "u1"),  # the window shrinks with the rate
    ("pictured", "i8"),  # its position in the last snapshot; its advance in a period follows
    ("advance", "i8"),
    # Congestion control
    ("has_begun", "u1"),  # it has received a mark
    ("marked_for_alpha", "u1"),
    ("marked_for_rate", "u1"),
    ("is_reducing", "u1"),
    ("stage", "i4"),
    ("marks", "i8"),
    ("batch", "i8"),
    ("update_at", "i8"),  # the byte whose acknowledgement begins the next round
    ("reduced_until", "i8"),
    ("target_rate", "i8"),  # DCQCN's; HPCC's and TIMELY's rate of the round
    ("alpha", "f8"),  # DCQCN's and DCTCP's; HPCC's utilisation
    ("last_rtt_ps", "i8"),
    ("rtt_difference", "f8"),
)
NIC = record(
    ("head", "i4"),  # pairs in the order of their beginning
    ("tail", "i4"),
    ("count", "i4"),
    ("last", "i4"),  # the position of the pair that sent last, and its row; NONE: to be searched
    ("last_row", "i4"),
    ("answers", QUEUE),  # acknowledgements that wait
)


ONE_NS = 1000  # rates are reduced after alpha was updated


@works_on_tables
def congested(network: Any, row: int) -> None:
    """Record a mark of a pair, and start its timers at the first one."""
    pair, rules, state = network.transport.pairs[row], network.transport.rules[0], network.state[0]
    pair.marked_for_alpha = pair.marked_for_rate = 1
    if pair.has_begun or pair.acknowledged >= network.flows[row].size:
        return
    pair.has_begun = 1
    pair.alpha = 1.0
    pair.marked_for_alpha = 0
    pair.target_rate = pair.rate
    ring_at(network, row * TIMERS + ALPHA, state.now_ps + rules.alpha_ps)
    ring_at(network, row * TIMERS + DECREASE, state.now_ps + rules.decrease_ps + ONE_NS)


@works_on_tables
def dcqcn_stops(network: Any, row: int) -> None:
    """Stop all timers of a pair."""
    for timer in (ALPHA, DECREASE, INCREASE):
        stop(network, row * TIMERS + timer)


@works_on_tables
def dcqcn_timer_rings(network: Any, timer: int) -> None:
    """Handle one of the three timers, and set it again."""
    row, which = timer // TIMERS, timer % TIMERS
    if which == ALPHA:
        _measure(network, row)
    elif which == DECREASE:
        _reduce(network, row)
    else:
        _raise(network, row)


@works_on_tables
def _measure(network: Any, row: int) -> None:
    pair, rules = network.transport.pairs[row], network.transport.rules[0]
    alpha = (1 - rules.gain) * pair.alpha
    pair.alpha = alpha + rules.gain if pair.marked_for_alpha else alpha
    pair.marked_for_alpha = 0
    ring_at(network, row * TIMERS + ALPHA, network.state[0].now_ps + rules.alpha_ps)


@works_on_tables
def _reduce(network: Any, row: int) -> None:
    pair, rules, now = network.transport.pairs[row], network.transport.rules[0], network.state[0].now_ps
    ring_at(network, row * TIMERS + DECREASE, now + rules.decrease_ps)
    if pair.marked_for_rate == 0:
        return
    if rules.clamps_target or pair.stage > 0:
        pair.target_rate = pair.rate
    pair.rate = max(rules.least_rate, int(pair.rate * (1 - pair.alpha / 2)))
    pair.stage = pair.marked_for_rate = 0
    ring_at(network, row * TIMERS + INCREASE, now + rules.increase_ps)


@works_on_tables
def _raise(network: Any, row: int) -> None:
    pair, rules = network.transport.pairs[row], network.transport.rules[0]
    ring_at(network, row * TIMERS + INCREASE, network.state[0].now_ps + rules.increase_ps)
    if pair.stage >= rules.recoveries:
        step = rules.step if pair.stage == rules.recoveries else rules.large_step
        pair.target_rate = min(pair.target_rate + step, pair.line_rate)
    pair.rate = pair.rate // 2 + pair.target_rate // 2
    pair.stage += 1


TIME_BITS, BYTES_BITS, QUEUE_BITS = 24, 20, 17
BYTES_UNIT, QUEUE_UNIT = 128, 80


@works_on_tables
def notes_port(network: Any, packet_row: int, port: Any) -> None:
    """Record the state of a port in a packet that leaves its queue."""
    at = network.packets[packet_row].hop - 1
    if at < MOST_HOPS:
        multiple = network.transport.rules[0].units
        time = (network.state[0].now_ps // 1000) & ((1 << TIME_BITS) - 1)
        sent = (port.bytes // (BYTES_UNIT * multiple)) & ((1 << BYTES_BITS) - 1)
        queue = (port.queued // (QUEUE_UNIT * multiple)) & ((1 << QUEUE_BITS) - 1)
        noted = time | (sent << TIME_BITS) | (queue << (TIME_BITS + BYTES_BITS))
        network.transport.noted[packet_row * MOST_HOPS + at] = noted


@works_on_tables
def hpcc_acknowledged(network: Any, row: int, packet_row: int) -> None:
    """Update the rate after an acknowledgement, and the rate of the round once per round."""
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
    """Store the recorded figures for the next acknowledgement."""
    transport = network.transport
    for at in range(hops):
        transport.known[row * MOST_HOPS + at] = transport.noted[packet_row * MOST_HOPS + at]


@works_on_tables
def _follow(network: Any, row: int, packet_row: int, hops: int, is_round: bool) -> None:
    """Set the rate that fills the fullest link to the target."""
    pair, rules = network.transport.pairs[row], network.transport.rules[0]
    fullest, of_ns, is_noted = 0.0, 0, False
    base = pair.base_ps // 1000
    for at in range(hops):
        noted = int(network.transport.noted[packet_row * MOST_HOPS + at])
        known = int(network.transport.known[row * MOST_HOPS + at])
        if rules.samples and not is_round and _queue(noted) == 0:
            continue
        is_noted = True
        length = (noted - known) & ((1 << TIME_BITS) - 1)
        use = _use(network, row, at, noted, known, max(length, 1))
        if use > fullest:
            fullest, of_ns = use, length
        network.transport.known[row * MOST_HOPS + at] = noted
    if not is_noted:
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
    """Return how full a link was: the bytes that it sent, and the queue."""
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
    """Set the rate, which also applies to the packet that was sent last."""
    pair, flow = network.transport.pairs[row], network.flows[row]
    before, after = rate_ps(network, pair.rate, pair.last_bytes), rate_ps(network, rate, pair.last_bytes)
    pair.next_ps += after - before
    pair.rate = rate
    port = network.ports[flow.port]
    if port.wakes and pair.next_ps < port.wakes_ps:
        wake_at(network, flow.port, max(pair.next_ps, network.state[0].now_ps))


STEPS_TO_LARGE = 5  # rises by small steps before larger ones


@works_on_tables
def timely_acknowledged(network: Any, row: int, packet_row: int) -> None:
    """Update the rate at the end of a round."""
    pair, packet = network.transport.pairs[row], network.packets[packet_row]
    if packet.sequence <= pair.update_at:
        return
    rtt = network.state[0].now_ps
    if network.transport.rules[0].as_ns3 == 0:
        rtt -= packet.sent_ps
    if pair.update_at != 0:
        _change(network, row, rtt)
    if pair.sent > pair.update_at:
        pair.update_at, pair.last_rtt_ps = pair.sent, rtt


@works_on_tables
def _change(network: Any, row: int, rtt: int) -> None:
    pair, rules = network.transport.pairs[row], network.transport.rules[0]
    difference = (rtt - pair.last_rtt_ps) / 1000  # ns, like all times below
    difference = (1 - rules.timely_alpha) * pair.rtt_difference + rules.timely_alpha * difference
    gradient = difference / (rules.least_rtt_ps / 1000)
    pair.rtt_difference = difference
    factor = 1.0
    if rtt > rules.high_ps:
        factor = 1 - rules.timely_beta * (1 - rules.high_ps / rtt)
    elif rtt >= rules.low_ps and gradient > 0:
        factor = max(1 - rules.timely_beta * gradient, 0.0)
    rises = rtt < rules.low_ps or (rtt <= rules.high_ps and gradient <= 0)
    if rises:
        step = rules.step if pair.stage < STEPS_TO_LARGE else rules.large_step
        pair.rate = min(pair.target_rate + step, pair.line_rate)
        pair.stage += 1
    else:
        pair.rate = max(rules.least_rate, int(pair.target_rate * factor))
        pair.stage = 0
    pair.target_rate = pair.rate


@works_on_tables
def dctcp_acknowledged(network: Any, row: int, packet_row: int) -> None:
    """Update alpha and the rate after an acknowledgement."""
    pair, rules, packet = (
        network.transport.pairs[row],
        network.transport.rules[0],
        network.packets[packet_row],
    )
    pair.marks += packet.is_marked
    is_round = packet.sequence > pair.update_at
    if is_round:
        in_flight = pair.sent - packet.sequence
        if pair.update_at == 0:
            in_flight = pair.sent
        else:
            part = min(1.0, pair.marks / pair.batch)
            pair.alpha = (1 - rules.gain) * pair.alpha + rules.gain * part
            pair.marks = 0
        pair.update_at = pair.sent
        pair.batch = in_flight // rules.payload + 1
    if pair.is_reducing and packet.sequence > pair.reduced_until:
        pair.is_reducing = 0
    if packet.is_marked and pair.is_reducing == 0:
        pair.rate = max(rules.least_rate, int(pair.rate * (1 - pair.alpha / 2)))
        pair.is_reducing = 1
        pair.reduced_until = pair.sent
    if is_round and pair.is_reducing == 0:
        pair.rate = min(pair.line_rate, pair.rate + rules.dctcp_step)


@works_on_tables
def begins(network: Any, row: int) -> None:
    """Initialise the congestion control of a pair."""
    pair = network.transport.pairs[row]
    pair.has_begun = pair.marked_for_alpha = pair.marked_for_rate = pair.is_reducing = 0
    pair.stage, pair.marks, pair.batch = 0, 0, 0
    pair.update_at = pair.reduced_until = pair.last_rtt_ps = 0
    pair.alpha, pair.rtt_difference = 1.0, 0.0
    pair.target_rate = pair.line_rate


@works_on_tables
def ends(network: Any, row: int) -> None:
    """End the congestion control of a pair whose bytes are all acknowledged."""
    if network.transport.rules[0].algorithm == DCQCN:
        dcqcn_stops(network, row)


@works_on_tables
def acknowledged(network: Any, row: int, packet_row: int) -> None:
    """Process an acknowledgement."""
    control = network.transport.rules[0].algorithm
    if control == DCQCN:
        if network.packets[packet_row].is_marked:
            congested(network, row)
    elif control == HPCC:
        hpcc_acknowledged(network, row, packet_row)
    elif control == TIMELY:
        timely_acknowledged(network, row, packet_row)
    elif control == DCTCP:
        dctcp_acknowledged(network, row, packet_row)


@works_on_tables
def passes(network: Any, packet_row: int, port: Any) -> None:
    """Process a data packet that leaves a queue."""
    if network.transport.rules[0].algorithm == HPCC:
        notes_port(network, packet_row, port)
