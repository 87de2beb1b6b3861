"""Steady phases: while the rates of all messages stay, their packets are skipped, within a tolerance.

Where messages share links, states rarely repeat exactly, but rates often stay for long. So the advance of
each message is measured in windows of equal length: its rate from one to the next is that between the means
of all their acknowledgements, with smooth weights, since these come in bursts. If all windows agree, the
present state is moved to a later time at once: messages advance by what they would have sent at their rates,
in whole packets; queues, rates and timers stay as they are. Then the windows begin anew.

This is for networks without an overloaded port (`known`): elsewhere, an error of a nanosecond may change
which message waits. And it is for messages whose rate nothing adjusts: without congestion control, or with
DCQCN as long as no packet is marked. A control adjusts rates slowly or suddenly, and equal windows do not
show it.

A window is long enough for many acknowledgements of each message and for several round trips. No queue may
become deeper than ever in the windows, no port paused, and no packet lost or sent again. Otherwise, windows
of twice the length follow.

The spread of a message's rates, and that of its bytes in flight, times the time that is skipped, is an
estimate of the error of its end. The sum of these errors is limited to a part of the message's time so far.
As the time of a node is that of messages, one after the other, all its times then are as exact. This is an
estimate, no proof: messages that end later than they should may meet others.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE
from et_sim.network.packet.calendar import delay_all
from et_sim.network.packet.ports import sending_ps
from et_sim.network.packet.records import NEVER
from et_sim.network.packet.repeats import TALLIES, delay_port, may_repeat, pass_host
from et_sim.network.packet.roce.control import rate_stays

WINDOWS = 5  # that have to agree
LEAST_PACKETS, ROUND_TRIPS = 16, 2  # of each message in a window
GROWTH = 32  # most time that is skipped, in times since the last begin or end of a message
LONGER = 4  # most times by which a window is longer than the one before
WORTH = 1  # least time that is skipped, in times of all windows
MOST = 1e300
SAFETY = 0.5  # part of the tolerance that estimates may use
UNIT_PS = 1000  # of the time that is skipped: with `whole-ns`, all times are whole


@works_on_tables
def skip_steady(network: Any, until_ps: int) -> None:
    """End a window; after the last one, skip time if all agree."""
    steady = network.steady[0]
    if steady.window == NONE:
        _begin_windows(network, steady.length_ps)
        return
    factor = _longer_by(network)
    if factor == 0 and steady.window + 1 < WINDOWS:
        steady.window += 1
        steady.due_ps = network.state[0].now_ps + steady.length_ps
        return
    if factor == 0:
        time, factor = _time_to_skip(network, until_ps), 2
        if time > 0:
            _skip(network, time)
            factor = 1
    _begin_windows(network, steady.length_ps * factor)


@works_on_tables
def _begin_windows(network: Any, length_ps: int) -> None:
    """Begin the first window."""
    state, steady = network.state[0], network.steady[0]
    steady.window, steady.length_ps = 0, length_ps
    steady.begin_ps, steady.due_ps = state.now_ps, state.now_ps + length_ps
    steady.trouble = _trouble(network)
    for row in range(len(network.ports)):
        port, at = network.ports[row], row * TALLIES
        network.tallies[at], network.tallies[at + 1] = port.deepest, port.marks
        network.tallies[at + 2], network.tallies[at + 3] = port.paused, port.paused_ps
        pair_row = network.transport.nics[row].head if port.is_host else NONE
        while pair_row != NONE:
            pair, watch = network.transport.pairs[pair_row], network.transport.watched[pair_row]
            watch.begin_bytes = pair.acknowledged
            watch.slowest, watch.fastest = MOST, 0.0
            watch.least_flight, watch.most_flight = MOST, 0.0
            _begin_sums(watch)
            pair_row = pair.next


@works_on_tables
def _begin_sums(watch: Any) -> None:
    """Begin the sums of a window."""
    watch.count, watch.weights = 0, 0.0
    watch.sum_bytes, watch.sum_ps, watch.sum_flight = 0.0, 0.0, 0.0


@works_on_tables
def note_acknowledgement(network: Any, row: int) -> None:
    """Add an acknowledgement to the window of its message."""
    steady, now_ps = network.steady[0], network.state[0].now_ps
    if steady.window == NONE:
        return
    watch, pair = network.transport.watched[row], network.transport.pairs[row]
    left = (steady.due_ps - now_ps) / steady.length_ps
    weight = max(left * (1 - left), 0.0) ** 2
    watch.count += 1
    watch.weights += weight
    watch.sum_bytes += weight * (pair.acknowledged - watch.begin_bytes)
    watch.sum_ps += weight * (now_ps - steady.begin_ps)
    watch.sum_flight += weight * (pair.sent - pair.acknowledged)


@works_on_tables
def _trouble(network: Any) -> int:
    """Return how many packets were lost or sent again, and how many timeouts there were."""
    state = network.state[0]
    return int(state.lost + state.resent + state.timeouts)


@works_on_tables
def _is_active(network: Any, row: int) -> bool:
    """Return whether a message has bytes that are not acknowledged."""
    return bool(network.transport.pairs[row].acknowledged < network.flows[row].size)


@works_on_tables
def _longer_by(network: Any) -> int:
    """Measure the rates in a window that ends; return 0, or the factor by which windows have to be longer."""
    if _trouble(network) != network.steady[0].trouble:
        return 2
    factor = 0
    for port_row in range(len(network.ports)):
        row = network.transport.nics[port_row].head if network.ports[port_row].is_host else NONE
        while row != NONE:
            if _is_active(network, row):
                factor = max(factor, _measure(network, row))
            row = network.transport.pairs[row].next
    return factor


@works_on_tables
def _measure(network: Any, row: int) -> int:
    """Measure the rate of a message; return 0, or the factor by which its window was too short."""
    pair, watch = network.transport.pairs[row], network.transport.watched[row]
    if pair.sent >= network.flows[row].size:
        return 1
    least = max(LEAST_PACKETS, ROUND_TRIPS * (pair.sent - pair.acknowledged) // network.rules[0].payload)
    if watch.count < least or watch.weights == 0:
        return int(min(least // watch.count + 1, LONGER)) if watch.count > 0 else 2
    at_ps, at_bytes = watch.sum_ps / watch.weights, watch.sum_bytes / watch.weights
    if network.steady[0].window == 0:
        watch.first_ps, watch.first_bytes = at_ps, at_bytes
    else:
        rate = (at_bytes - watch.bytes) / (at_ps - watch.ps)
        watch.slowest, watch.fastest = min(watch.slowest, rate), max(watch.fastest, rate)
    watch.ps, watch.bytes = at_ps, at_bytes
    flight = watch.sum_flight / watch.weights
    watch.least_flight, watch.most_flight = min(watch.least_flight, flight), max(watch.most_flight, flight)
    _begin_sums(watch)
    return 0


@works_on_tables
def _stays(network: Any, row: int) -> bool:
    """Return whether nothing adjusts the rate of a message."""
    return bool(may_repeat(network) and rate_stays(network, row))


@works_on_tables
def _time_to_skip(network: Any, until_ps: int) -> int:
    """Return how much time is skipped; 0: none."""
    state, steady = network.state[0], network.steady[0]
    if steady.measures == 0 or not is_undisturbed(network, steady.begin_ps):
        return 0
    time = min(until_ps, NEVER // 4) - state.now_ps
    time = min(time, GROWTH * (state.now_ps - steady.since_ps))
    for port_row in range(len(network.ports)):
        if _was_hindered(network, port_row):
            return 0
        row = network.transport.nics[port_row].head if network.ports[port_row].is_host else NONE
        while row != NONE:
            if _is_active(network, row):
                if not _stays(network, row):
                    return 0
                time = min(time, int(_packets_left(network, row) * _packet_ps(network, row)))
            row = network.transport.pairs[row].next
    least = WORTH * WINDOWS * steady.length_ps
    while time >= least and not _all_fit(network, time):
        time //= 2
    return time // UNIT_PS * UNIT_PS if time >= least else 0


@works_on_tables
def is_undisturbed(network: Any, since_ps: int) -> bool:
    """Return whether no port has been overloaded since a time."""
    steady = network.steady[0]
    return bool(steady.overloads == 0 and steady.disturbed_ps <= since_ps)


@works_on_tables
def _was_hindered(network: Any, port_row: int) -> bool:
    """Return whether a port was paused in the windows, or its queue became deeper than ever."""
    port, at = network.ports[port_row], port_row * TALLIES
    is_paused = port.is_paused != 0 or port.paused > network.tallies[at + 2]
    return bool(is_paused or port.deepest > network.tallies[at])


@works_on_tables
def _packets_left(network: Any, row: int) -> int:
    """Return the packets of a message that may be skipped: all that are full but the last."""
    payload = network.rules[0].payload
    return int((network.flows[row].size - 1 - network.transport.pairs[row].sent) // payload)


@works_on_tables
def _packet_ps(network: Any, row: int) -> float:
    """Return the time in which a message advances by a packet, in all windows."""
    watch = network.transport.watched[row]
    rate = (watch.bytes - watch.first_bytes) / (watch.ps - watch.first_ps)
    return float(network.rules[0].payload / rate)


@works_on_tables
def _all_fit(network: Any, time: int) -> bool:
    """Return whether the errors of all messages stay small enough if a time is skipped."""
    most = SAFETY * network.rules[0].steady
    for port_row in range(len(network.ports)):
        row = network.transport.nics[port_row].head if network.ports[port_row].is_host else NONE
        while row != NONE:
            if _is_active(network, row) and _part(network, row, time) > most:
                return False
            row = network.transport.pairs[row].next
    return True


@works_on_tables
def _part(network: Any, row: int, time: int) -> float:
    """Return the errors of a message, if a time is skipped, as a part of its time until then."""
    errors = network.transport.pairs[row].error_ps + _error_ps(network, row, time)
    return float(errors / (network.state[0].now_ps + time - network.flows[row].begin_ps))


@works_on_tables
def _error_ps(network: Any, row: int, time: int) -> float:
    """Return the estimate of a message's error by skipping a time."""
    watch, packet_ps = network.transport.watched[row], _packet_ps(network, row)
    spread = (watch.fastest - watch.slowest) * packet_ps / network.rules[0].payload
    spread += (watch.most_flight - watch.least_flight) / (watch.bytes - watch.first_bytes)
    return float(spread * time + packet_ps / 2)


@works_on_tables
def _skip(network: Any, time: int) -> None:
    """Delay the whole state by a time, in which messages advance."""
    state, steady = network.state[0], network.steady[0]
    for row in range(len(network.ports)):
        if network.ports[row].is_host:
            _skip_messages(network, row, time)
    for row in range(len(network.ports)):
        _skip_at_port(network, row, time)
    for row in range(len(network.ports)):
        if network.ports[row].is_host:
            pass_host(network, row, 1, time, 0)
    delay_all(network.calendar, time, 0)
    state.now_ps += time
    steady.skips += 1
    steady.skipped_ps += time
    state.anchor = NONE


@works_on_tables
def _skip_messages(network: Any, port_row: int, time: int) -> None:
    """Set the advance of each message of a host, and count what its ports carry."""
    steady, row = network.steady[0], network.transport.nics[port_row].head
    while row != NONE:
        pair = network.transport.pairs[row]
        pair.advance = 0
        if _is_active(network, row):
            steady.bound = max(steady.bound, _part(network, row, time))
            pair.error_ps += _error_ps(network, row, time)
            packets = min(_packets_left(network, row), int(time / _packet_ps(network, row) + 0.5))
            pair.advance = packets * network.rules[0].payload
            count_packets(network, row, packets, network.rules[0].payload)
        row = pair.next


@works_on_tables
def count_packets(network: Any, row: int, packets: int, payload: int) -> None:
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


@works_on_tables
def _skip_at_port(network: Any, row: int, time: int) -> None:
    """Delay a port; its marks and pauses grow as in the windows."""
    port, at, steady = network.ports[row], row * TALLIES, network.steady[0]
    part = time / (network.state[0].now_ps - steady.begin_ps)
    port.marks += int((port.marks - network.tallies[at + 1]) * part + 0.5)
    port.paused += int((port.paused - network.tallies[at + 2]) * part + 0.5)
    port.paused_ps += int((port.paused_ps - network.tallies[at + 3]) * part + 0.5)
    delay_port(network, row, 1, time, 0)
