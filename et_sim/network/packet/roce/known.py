"""Known messages: on a network without overload, the times of like messages are measured once.

No port is overloaded if the messages that cross it could all send at the rates of their hosts. Then none of
them delays another by more than some packets, and the time of a message depends on its size, on the speeds
and latencies of the links on its way, and on the acknowledgements that cross them. So messages are measured
by the kind of their way: the time until a part of their packets is there, and the time of a packet in the
second half of that. If enough measurements agree, the kind is known. If a host then sends
another message to the same target as several times before, no packet of it is simulated: it leaves and
arrives at the times that follow.

As soon as a port would be overloaded, the last bytes of a message would meet others, or a message of an
unknown kind begins, all known messages go on with packets from where they are. So all packets are simulated,
or none. Nothing is measured until the network is undisturbed. Messages that contend may turn an error of a
nanosecond into any other: a run in which a port is overloaded later is made again, with all packets.

The error of a known message is estimated as the spread of the measurements, and a wait at each port that its
end is spared: behind it, fewer packets cross the other way. Acknowledgements that cross its way are counted
while it is under way; as far as they are more or fewer than those in the measurements, the time that they
take is added. If that is too much, its kind is forgotten, and measured anew.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE
from et_sim.network.packet.flows import has_figures, message_arrives, message_leaves
from et_sim.network.packet.ports import ring_at, sending_ps, stop
from et_sim.network.packet.records import NEVER
from et_sim.network.packet.repeats import may_repeat
from et_sim.network.packet.roce.control import rate_stays
from et_sim.network.packet.roce.records import AGAIN, KINDS, TIMERS

MEASURED = 256  # packets of a message between two measurements; of a shorter one: all
LEAST = 16  # packets of a message that is measured
AGREE = 16  # measurements that have to agree
LIKE = 3  # messages that a host has sent to the target before, one after the other
SAFETY = 0.5  # part of the tolerance that estimates may use
FACTOR = 1_000_003  # of a key of kinds


@works_on_tables
def is_on(network: Any) -> bool:
    """Return whether messages are measured."""
    rules = network.rules[0]
    if rules.steady == 0 or rules.all_packets or rules.as_ns3 or network.state[0].logs:
        return False
    return bool(may_repeat(network) and not has_figures(network) and len(network.fails) == 0)


@works_on_tables
def crosses(network: Any, row: int) -> None:
    """Count a message that begins at the ports of its way; if one is overloaded, known messages go on."""
    watch, flow, now_ps = network.transport.watched[row], network.flows[row], network.state[0].now_ps
    steady, rate = network.steady[0], network.ports[flow.port].bits_per_s
    watch.is_known, watch.is_counted, watch.is_answered, watch.is_unknown = 0, 1, 1, 0
    packets = flow.size // network.rules[0].payload
    watch.mark = min(packets, MEASURED) if packets >= LEAST else NEVER
    watch.since_ps, watch.half_ps = now_ps, NONE
    key, reaches_ps, met_ps, at = watch.mark, now_ps, 0, row * network.stride[0]
    while network.ways[at] != NONE:
        port, share = network.ports[network.ways[at]], network.transport.shares[network.ways[at]]
        met_ps = max(met_ps, share.until_ps - reaches_ps)
        _add_load(network, network.ways[at], rate)
        reaches_ps += port.delay_ps + sending_ps(network, port, network.rules[0].payload)
        key = _mixed(_mixed(key, port.bits_per_s), port.delay_ps)
        at += 1
    at = row * network.stride[0] + flow.back
    while network.ways[at] != NONE:
        port = network.ports[network.ways[at]]
        _add_answers(network, network.ways[at], 1)
        key = _mixed(_mixed(key, port.bits_per_s), -port.delay_ps)
        at += 1
    watch.answers_before_ps = answers_ps(network, row)
    watch.kind, watch.key = _kind_of(network, key), key
    watch.met_ps = met_ps
    if foretold_ps(network, row) == 0:
        watch.is_unknown = 1
        steady.unknown += 1
    if met_ps > SAFETY * network.rules[0].steady * packets * _packet_ps(network, row):
        steady.disturbed_ps = max(steady.disturbed_ps, now_ps + met_ps)


@works_on_tables
def _packet_ps(network: Any, row: int) -> int:
    """Return how long a host sends a packet."""
    rules = network.transport.rules[0]
    return int(sending_ps(network, network.ports[network.flows[row].port], rules.payload + rules.header))


@works_on_tables
def _mixed(key: int, value: int) -> int:
    return (key * FACTOR + value) & ((1 << 40) - 1)


@works_on_tables
def _kind_of(network: Any, key: int) -> int:
    """Return the row of a kind; another one that had it is forgotten."""
    at = (key ^ key >> 14 ^ key >> 27) % KINDS
    kind = network.transport.kinds[at]
    if kind.key != key:
        kind.key, kind.count = key, 0
    return at


@works_on_tables
def _add_load(network: Any, port_row: int, rate: int) -> None:
    """Add a rate to the load of a port, and count the ports that are overloaded."""
    share, most = network.transport.shares[port_row], network.ports[port_row].bits_per_s
    steady, before = network.steady[0], share.load
    share.load += rate
    if before <= most < share.load:
        steady.overloads += 1
        steady.contends |= steady.messages > 0
    elif share.load <= most < before:
        steady.overloads -= 1
        steady.disturbed_ps = max(steady.disturbed_ps, network.state[0].now_ps)


@works_on_tables
def _add_answers(network: Any, port_row: int, change: int) -> None:
    """Change the number of messages whose acknowledgements cross a port."""
    share, now_ps = network.transport.shares[port_row], network.state[0].now_ps
    share.answers_ps += share.answers * (now_ps - share.since_ps)
    share.answers += change
    share.since_ps = now_ps


@works_on_tables
def answers_ps(network: Any, row: int) -> int:
    """Return the time of acknowledgements of other messages on a message's way so far, times their number."""
    total, at, now_ps = 0, row * network.stride[0], network.state[0].now_ps
    while network.ways[at] != NONE:
        share = network.transport.shares[network.ways[at]]
        total += share.answers_ps + share.answers * (now_ps - share.since_ps)
        at += 1
    return int(total)


@works_on_tables
def leaves(network: Any, row: int, left_ps: int) -> None:
    """End the load by a message whose last byte is sent; a disturbed one loads ports until it arrives."""
    watch = network.transport.watched[row]
    if watch.is_counted and is_undisturbed(network, network.flows[row].begin_ps):
        _unload(network, row, left_ps)


@works_on_tables
def arrives(network: Any, row: int) -> None:
    """Stop to count a message whose last byte is there."""
    watch = network.transport.watched[row]
    if watch.is_counted:
        _unload(network, row, 0)


@works_on_tables
def answered(network: Any, row: int) -> None:
    """Stop to count the acknowledgements of a message."""
    watch = network.transport.watched[row]
    if watch.is_answered:
        watch.is_answered = 0
        _is_no_more_unknown(network, row)
        at = row * network.stride[0] + network.flows[row].back
        while network.ways[at] != NONE:
            _add_answers(network, network.ways[at], -1)
            at += 1


@works_on_tables
def _unload(network: Any, row: int, left_ps: int) -> None:
    """Subtract the rate of a message from the loads of its ports, and note when its last byte passes each."""
    watch, at = network.transport.watched[row], row * network.stride[0]
    rate, passes_ps = network.ports[network.flows[row].port].bits_per_s, left_ps
    watch.is_counted = 0
    while network.ways[at] != NONE:
        port, share = network.ports[network.ways[at]], network.transport.shares[network.ways[at]]
        _add_load(network, network.ways[at], -rate)
        share.until_ps = max(share.until_ps, passes_ps)
        passes_ps += port.delay_ps + sending_ps(network, port, network.rules[0].payload)
        at += 1


@works_on_tables
def note_progress(network: Any, row: int, there: int) -> None:
    """Measure a message of which so many bytes are there, and end its packets if it is known."""
    watch, payload, now_ps = network.transport.watched[row], network.rules[0].payload, network.state[0].now_ps
    steady = network.steady[0]
    if watch.is_known or watch.mark == NEVER or network.transport.kinds[watch.kind].key != watch.key:
        return
    packets = there // payload
    if packets < watch.mark - (min(watch.mark, MEASURED) >> 1):
        return
    if watch.half_ps == NONE:
        watch.half_ps, watch.half_bytes = now_ps, there
    if packets < watch.mark:
        return
    is_whole = packets == watch.mark and there > watch.half_bytes  # no packets were skipped meanwhile
    is_real = steady.known == 0 and steady.known_ps <= watch.since_ps  # with packets of all messages
    if is_whole and is_real and is_undisturbed(network, watch.since_ps) and rate_stays(network, row):
        _measure(network, row, there, watch.since_ps == network.flows[row].begin_ps)
    watch.mark = packets + MEASURED
    watch.since_ps, watch.half_ps = now_ps, NONE


@works_on_tables
def _measure(network: Any, row: int, there: int, is_first: bool) -> None:
    """Add a measurement to a kind of messages."""
    watch, now_ps, begin_ps = (
        network.transport.watched[row],
        network.state[0].now_ps,
        network.flows[row].begin_ps,
    )
    kind, time_ps = network.transport.kinds[watch.kind], now_ps - begin_ps
    packet_ps = (now_ps - watch.half_ps) * network.rules[0].payload / (there - watch.half_bytes)
    answers = (answers_ps(network, row) - watch.answers_before_ps) / time_ps
    if kind.count == 0:
        kind.firsts = 0
        kind.sum_ps, kind.sum_packet_ps = 0.0, 0.0
        kind.least_ps, kind.most_ps = NEVER, 0
        kind.least_packet_ps = kind.most_packet_ps = packet_ps
        kind.least_answers = kind.most_answers = answers
    if is_first:
        kind.firsts += 1
        kind.sum_ps += time_ps
        kind.least_ps, kind.most_ps = min(kind.least_ps, time_ps), max(kind.most_ps, time_ps)
    kind.count += 1
    kind.sum_packet_ps += packet_ps
    kind.least_packet_ps = min(kind.least_packet_ps, packet_ps)
    kind.most_packet_ps = max(kind.most_packet_ps, packet_ps)
    kind.least_answers, kind.most_answers = min(kind.least_answers, answers), max(kind.most_answers, answers)


@works_on_tables
def foretold_ps(network: Any, row: int) -> float:
    """Return the time of a message that begins, by its kind; 0.0: its kind is not known."""
    watch, flow = network.transport.watched[row], network.flows[row]
    kind, rules = network.transport.kinds[watch.kind], network.rules[0]
    if watch.mark == NEVER or min(kind.count, kind.firsts) < AGREE:
        return 0.0
    beyond = flow.size / rules.payload - watch.mark
    time_ps = kind.sum_ps / kind.firsts + beyond * kind.sum_packet_ps / kind.count
    error_ps = kind.most_ps - kind.least_ps + beyond * (kind.most_packet_ps - kind.least_packet_ps)
    watch.error_ps = error_ps + watch.met_ps + _end_ps(network, row)
    return float(time_ps) if watch.error_ps <= SAFETY * rules.steady * time_ps else 0.0


@works_on_tables
def _end_ps(network: Any, row: int) -> int:
    """Return how long packets may have waited where the end of a message does not: for an acknowledgement at
    each port, or, if acknowledgements end messages, for a packet at each of their ports.
    """
    rules, at, total = network.transport.rules[0], row * network.stride[0], 0
    size = rules.acknowledgement
    if rules.completion:
        at, size = at + network.flows[row].back, rules.payload + rules.header
    while network.ways[at] != NONE:
        total += sending_ps(network, network.ports[network.ways[at]], size)
        at += 1
    return int(total)


@works_on_tables
def needs_packets(network: Any, row: int) -> bool:
    """Return whether packets of a message that begins are simulated; if not, plan when it leaves."""
    watch, flow, steady = network.transport.watched[row], network.flows[row], network.steady[0]
    time_ps, now_ps = foretold_ps(network, row), network.state[0].now_ps
    is_like = _is_like_before(network, row)
    if time_ps == 0 or steady.unknown > 0 or not is_like or not _may_go_on(network, row):
        return True
    kind, packets = network.transport.kinds[watch.kind], flow.size / network.rules[0].payload
    watch.packet_ps = kind.sum_packet_ps / kind.count
    watch.arrives_ps = now_ps + int(time_ps)
    watch.left_ps = min(now_ps + int(packets * watch.packet_ps), watch.arrives_ps - 1)
    network.transport.pairs[row].error_ps += watch.error_ps
    _plan(network, row)
    return False


@works_on_tables
def _is_like_before(network: Any, row: int) -> bool:
    """Return whether a host sends to the same target as several times before, undisturbed since then."""
    flow, nic = network.flows[row], network.transport.nics[network.flows[row].port]
    if nic.target == flow.target and nic.size == flow.size and nic.like_ps >= network.steady[0].disturbed_ps:
        nic.like += 1
    else:
        nic.target, nic.size, nic.like, nic.like_ps = flow.target, flow.size, 0, network.state[0].now_ps
    return bool(nic.like >= LIKE and network.steady[0].overloads == 0)


@works_on_tables
def _may_go_on(network: Any, row: int) -> bool:
    """Return whether one more time of going on with packets is allowed by those before."""
    steady = network.steady[0]
    most_ps = SAFETY * network.rules[0].steady * network.state[0].now_ps
    error_ps = steady.goes_on_ps + network.transport.pairs[row].base_ps
    return bool(steady.goes_on_ps == 0 or error_ps <= most_ps)


@works_on_tables
def _is_no_more_unknown(network: Any, row: int) -> None:
    """Stop to count a message as one of an unknown kind."""
    watch = network.transport.watched[row]
    if watch.is_unknown:
        watch.is_unknown = 0
        network.steady[0].unknown -= 1


@works_on_tables
def _plan(network: Any, row: int) -> None:
    """Plan when a known message leaves; until it has arrived, nothing else is skipped."""
    steady, state = network.steady[0], network.state[0]
    network.transport.watched[row].is_known = 1
    steady.known += 1
    steady.messages += 1
    state.until_picture, state.anchor = 0, NONE
    ring_at(network, row * TIMERS + AGAIN, network.transport.watched[row].left_ps)


@works_on_tables
def passes_time(network: Any, row: int) -> bool:
    """Let a known message leave, or arrive, at its time; return whether it has arrived."""
    watch, flow, pair = network.transport.watched[row], network.flows[row], network.transport.pairs[row]
    if flow.left_ps == NONE:
        message_leaves(network, row, watch.left_ps, network.transport.rules[0].completion == 0)
        leaves(network, row, watch.left_ps)
        ring_at(network, row * TIMERS + AGAIN, watch.arrives_ps)
        return False
    stop(network, row * TIMERS + AGAIN)
    _count_until(network, row, flow.size)
    _check_answers(network, row)
    pair.sent = pair.highest = pair.acknowledged = pair.expected = flow.size
    arrives(network, row)
    answered(network, row)
    message_arrives(network, row)
    return True


@works_on_tables
def _count_until(network: Any, row: int, sent: int) -> None:
    """Count the packets of a known message up to a byte, and its error."""
    watch, steady = network.transport.watched[row], network.steady[0]
    payload = network.rules[0].payload
    packets = sent // payload
    rest = sent - packets * payload
    _count_packets(network, row, packets, payload)
    if rest > 0:
        _count_packets(network, row, 1, rest)
    watch.is_known = 0
    steady.known -= 1
    steady.known_ps = network.state[0].now_ps


@works_on_tables
def _check_answers(network: Any, row: int) -> None:
    """Add an error for acknowledgements that were not measured; forget the kind if that is too much."""
    watch, flow, steady = network.transport.watched[row], network.flows[row], network.steady[0]
    kind, time_ps = network.transport.kinds[watch.kind], network.state[0].now_ps - flow.begin_ps
    answers = (answers_ps(network, row) - watch.answers_before_ps) / time_ps
    unlike = 0.0
    if kind.key == watch.key:
        unlike = max(answers - kind.most_answers, kind.least_answers - answers, 0.0)
    answer_ps = sending_ps(network, network.ports[flow.port], network.transport.rules[0].acknowledgement)
    error_ps = unlike * answer_ps * flow.size / network.rules[0].payload
    if kind.key == watch.key and error_ps > SAFETY * network.rules[0].steady * time_ps:
        kind.count = 0
    error_ps += network.transport.pairs[row].error_ps
    steady.bound = max(steady.bound, error_ps / time_ps)


@works_on_tables
def next_to_go_on(network: Any) -> int:
    """Return a known message that goes on with packets, as the network is disturbed; NONE: there is none."""
    steady = network.steady[0]
    if steady.known == 0 or (steady.unknown == 0 and is_undisturbed(network, network.state[0].now_ps)):
        return NONE
    for row in range(len(network.flows)):
        watch = network.transport.watched[row]
        if watch.is_known and network.flows[row].left_ps == NONE:
            _go_on(network, row)
            return row
    return NONE


@works_on_tables
def _go_on(network: Any, row: int) -> None:
    """Set the place from which a known message goes on."""
    watch, flow, pair = network.transport.watched[row], network.flows[row], network.transport.pairs[row]
    payload, now_ps = network.rules[0].payload, network.state[0].now_ps
    left = int(max(watch.left_ps - now_ps, 0) / watch.packet_ps) + 1
    last = (flow.size - 1) // payload * payload
    at = max(last + payload - left * payload, 0)
    _count_until(network, row, at)
    pair.sent = pair.highest = pair.acknowledged = pair.expected = at
    pair.next_ps = pair.free_ps = now_ps
    steady = network.steady[0]
    if steady.went_on_ps != now_ps:
        steady.went_on_ps = now_ps
        steady.goes_on_ps += pair.base_ps
        steady.bound = max(steady.bound, steady.goes_on_ps / now_ps)
    stop(network, row * TIMERS + AGAIN)
    watch.mark = at // payload + MEASURED
    watch.since_ps, watch.half_ps = now_ps, NONE


@works_on_tables
def is_undisturbed(network: Any, since_ps: int) -> bool:
    """Return whether no port has been overloaded since a time."""
    steady = network.steady[0]
    return bool(steady.overloads == 0 and steady.disturbed_ps <= since_ps)


@works_on_tables
def _count_packets(network: Any, row: int, packets: int, payload: int) -> None:
    """Count packets that a message sends, and their acknowledgements."""
    state, flow, rules = network.state[0], network.flows[row], network.transport.rules[0]
    state.sent += packets
    state.returned += packets
    network.steady[0].packets += packets
    at = row * network.stride[0]
    for way in range(2):
        size = rules.acknowledgement if way else payload + rules.header
        while network.ways[at] != NONE:
            port = network.ports[network.ways[at]]
            port.carried_packets += packets
            port.bytes += packets * size
            port.busy_ps += packets * sending_ps(network, port, size)
            at += 1
        at = row * network.stride[0] + flow.back
