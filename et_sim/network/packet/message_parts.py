"""What the time of a message consists of, for the record of causes: each of its parts, one after the other.

Until its last byte has left: how long its window and its rate held it back, the time of its own bytes, and,
as queueing, the rest: other messages and pauses of its port. Then, of its last packet, the latencies of all
links, by class, and its time on those behind the first; as queueing, the rest. If packets were sent again,
what is more than the last packet's wait is that. With completion by acknowledgement, its way back counts.

All are sums, in an order of their own: windows open and close while bytes are sent. Not here: how long each
of it took (`figures`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.cause_tables import CauseKind
from et_sim.engine.state.run import NONE, Run
from et_sim.network.packet.ports import sending_ps

LATENCY, SERIALISATION = int(CauseKind.LATENCY), int(CauseKind.SERIALISATION)
WINDOW, PACKET_QUEUE, RESENDING = int(CauseKind.WINDOW), int(CauseKind.PACKET_QUEUE), int(CauseKind.RESENDING)
PS_PER_NS = 1000


@works_on_tables
def until_left(run: Run, row: int) -> int:
    """The parts until a message has left; returns the causal event at which it has."""
    if not observe.describes_causes(run):
        return NONE
    network = run.network
    flow, rules = network.flows[row], network.transport.rules[0]
    message_row = flow.message
    message = run.messages[message_row]
    begin, left = message.begin_ns, message.left_ns
    held = min(_engine_time(network, flow.begin_ps + flow.window_ps + flow.rate_ps), left)
    port, packets = network.ports[flow.port], -(-flow.size // rules.payload)
    own_ps = (packets - 1) * sending_ps(network, port, rules.payload + rules.header)
    own_ps += sending_ps(network, port, _last_bytes(network, flow))
    sends = min(max(_engine_time(network, flow.left_ps - own_ps), held), left)
    link_class = network.hops.fabric.speed_of[flow.port]
    event = observe.message_cause(run, message_row)
    event = observe.message_part(run, message_row, event, WINDOW, NONE, NONE, begin, held)
    event = observe.message_part(run, message_row, event, PACKET_QUEUE, link_class, NONE, held, sends)
    return observe.message_part(run, message_row, event, SERIALISATION, link_class, flow.port, sends, left)


@works_on_tables
def until_arrived(run: Run, row: int, arrives: int) -> int:
    """The parts from then on; returns the causal event at which the message is there."""
    if not observe.describes_causes(run):
        return NONE
    network = run.network
    flow, stride = network.flows[row], network.stride[0]
    message_row = flow.message
    event, time, at_ps = run.messages[message_row].through, run.messages[message_row].left_ns, flow.left_ps
    if time > arrives:  # it counts as there with the bytes of another one, while it is being sent
        event, begin = observe.message_cause(run, message_row), run.messages[message_row].begin_ns
        return observe.message_part(run, message_row, event, PACKET_QUEUE, NONE, NONE, begin, arrives)
    for place in range(stride):
        if _is_new_class(network, row, place):
            link_class = network.hops.fabric.speed_of[network.ways[row * stride + place]]
            for kind in (LATENCY, SERIALISATION):
                at_ps += _time_of_class(network, row, link_class, kind)
                end = min(max(_engine_time(network, at_ps), time), arrives)
                event = observe.message_part(run, message_row, event, kind, link_class, NONE, time, end)
                time = end
    waited = arrives
    if flow.retransmitted > 0:
        waited = min(max(_engine_time(network, at_ps + flow.last_queued_ps), time), arrives)
    event = observe.message_part(run, message_row, event, PACKET_QUEUE, NONE, NONE, time, waited)
    return observe.message_part(run, message_row, event, RESENDING, NONE, NONE, waited, arrives)


@works_on_tables
def _counts(network: Any, row: int, place: int) -> bool:
    """Whether there is a link at a place of a flow's ways that it had to cross."""
    ways, first, back = network.ways, row * network.stride[0], network.flows[row].back
    if place < back:
        return bool(ways[first + place] != NONE)
    if network.transport.rules[0].ends_acknowledged == 0:
        return False
    while back < place and ways[first + back] != NONE:  # behind its end stands what was there before
        back += 1
    return bool(back == place and ways[first + place] != NONE)


@works_on_tables
def _is_new_class(network: Any, row: int, place: int) -> bool:
    """Whether no link before has the class of the one at a place."""
    if not _counts(network, row, place):
        return False
    speed_of, first = network.hops.fabric.speed_of, row * network.stride[0]
    for before in range(place):
        if _counts(network, row, before) and (
            speed_of[network.ways[first + before]] == speed_of[network.ways[first + place]]
        ):
            return False
    return True


@works_on_tables
def _time_of_class(network: Any, row: int, link_class: int, kind: int) -> int:
    """What all links of one class take: latencies, or the last packet, and its acknowledgement, on them."""
    flow, rules, stride = network.flows[row], network.transport.rules[0], network.stride[0]
    last, found = _last_bytes(network, flow), 0
    for place in range(stride):
        link = network.ways[row * stride + place]
        if _counts(network, row, place) and network.hops.fabric.speed_of[link] == link_class:
            port = network.ports[link]
            if kind == LATENCY:
                found += port.delay_ps
            elif place > 0:
                found += sending_ps(network, port, last if place < flow.back else rules.answer)
    return int(found)


@works_on_tables
def _last_bytes(network: Any, flow: Any) -> int:
    """On the wire, of the last packet of a message."""
    rules = network.transport.rules[0]
    before = (-(-flow.size // rules.payload) - 1) * rules.payload
    return int(flow.size - before - flow.padding + rules.header)


@works_on_tables
def _engine_time(network: Any, time: int) -> int:
    """The kernel's time as the engine's."""
    return time * network.units[0] // PS_PER_NS
