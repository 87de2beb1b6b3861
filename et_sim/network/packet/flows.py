"""Flows of the packet model: a message, the paths of its packets and acknowledgements, and its delays.

The records of ports and of causes need how long a flow's window, its rate, pauses of its port and queues
delay it. The time of a message then has consecutive parts. Until its last byte has left: its window and rate,
its own bytes, and as queueing the rest, which is other messages and pauses. Then, for its last packet: the
latencies of all links, by class, its serialisation on the links after the first, and the queues. The rest is
retransmission, if packets were sent again. With completion by acknowledgement, the way back counts too. All
parts are sums in a fixed order, although windows open and close while bytes are sent.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE, give_row, join, take_row
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.cause_tables import CauseKind
from et_sim.engine.state.run import Run
from et_sim.network.graph import next_ports, set_out, take_hop
from et_sim.network.packet.ports import sending_ps
from et_sim.network.routes import ports_back


@works_on_tables
def has_figures(network: Any) -> bool:
    """Return whether delays are recorded."""
    return len(network.figures) > 0


@works_on_tables
def clear_figures(flow: Any) -> None:
    """Reset the figures of a flow that has not begun."""
    flow.retransmitted = flow.timeouts = flow.received = 0
    flow.full_ps = flow.open_ps = flow.held = NONE
    flow.window_ps = flow.rate_ps = flow.paused_ps = flow.queued_ps = flow.last_queued_ps = 0


@works_on_tables
def flow_begins(network: Any, row: int) -> None:
    """Record that a message begins."""
    if observe.records_queues(network):
        flow = network.flows[row]
        flow.paused_ps = _paused_ps(network, network.ports[flow.port])
        count_on_way(network, row, 1)


@works_on_tables
def flow_ends(network: Any, row: int) -> None:
    """Record that a message has arrived."""
    if observe.records_queues(network):
        flow, stride = network.flows[row], network.stride[0]
        flow.paused_ps = _paused_ps(network, network.ports[flow.port]) - flow.paused_ps
        count_on_way(network, row, -1)
        observe.flow_ends(network, flow, network.ways, row * stride)


@works_on_tables
def count_on_way(network: Any, row: int, change: int) -> None:
    """Count a message in or out of the queues on its way, if these are recorded."""
    if not observe.records_queues(network):
        return
    at = row * network.stride[0]
    while network.ways[at] != NONE:
        observe.messages_cross(network, network.ways[at], change, network.state[0].now_ps)
        at += 1


@works_on_tables
def _paused_ps(network: Any, port: Any) -> int:
    """Return how long a port has been paused so far."""
    still = network.state[0].now_ps - port.paused_since_ps if port.is_paused else 0
    return int(port.paused_ps + still)


@works_on_tables
def window_is_full(network: Any, row: int, message: int, since_ps: int) -> None:
    """Record since when a full window holds back a message of a flow."""
    if has_figures(network):
        flow = network.flows[row]
        if flow.full_ps == NONE:
            flow.full_ps, flow.open_ps, flow.held = since_ps, NONE, message


@works_on_tables
def window_may_open(network: Any, row: int, is_open: bool) -> None:
    """Record whether the window is open after an acknowledgement."""
    if has_figures(network):
        flow = network.flows[row]
        if not is_open:
            flow.open_ps = NONE
        elif flow.open_ps == NONE:
            flow.open_ps = network.state[0].now_ps


@works_on_tables
def window_held(network: Any, row: int, rate_ps: int) -> None:
    """Add the delay by a full window, without the part that the rate caused."""
    if has_figures(network):
        flow = network.flows[row]
        if flow.full_ps != NONE:
            end = flow.open_ps if flow.open_ps != NONE else network.state[0].now_ps
            network.flows[flow.held].window_ps += max(end - max(flow.full_ps, rate_ps), 0)
            flow.full_ps = flow.open_ps = NONE


@works_on_tables
def rate_held(network: Any, row: int, begin_ps: int, end_ps: int) -> None:
    """Add the delay by a flow's rate until now."""
    if has_figures(network):
        network.flows[row].rate_ps += max(min(end_ps, network.state[0].now_ps) - begin_ps, 0)


@works_on_tables
def packet_is_there(network: Any, message: int, packet: Any) -> None:
    """Record how long a packet that has arrived was queued: its delay over an idle path."""
    if has_figures(network) and message != NONE:
        flow, at = network.flows[message], packet.flow * network.stride[0]
        idle_ps = 0
        while network.ways[at] != NONE:
            port = network.ports[network.ways[at]]
            idle_ps += port.delay_ps + sending_ps(network, port, packet.bytes)
            at += 1
        flow.received += 1
        flow.last_queued_ps = max(network.state[0].now_ps - packet.sent_ps - idle_ps, 0)
        flow.queued_ps += flow.last_queued_ps


@works_on_tables
def new_flow(run: Run, source: int, target: int, message_row: int) -> int:
    """Return a flow that has not begun."""
    network, message = run.network, run.messages[message_row]
    state = network.state[0]
    row = take_row(network.flows, state.free_flows)
    flow = network.flows[row]
    flow.source, flow.target, flow.message = source, target, message_row
    flow.size = max(message.bytes, 1)
    flow.padding = flow.size - message.bytes
    flow.packets = flow.is_reported = 0
    clear_figures(flow)
    flow.begin_ps = flow.left_ps = flow.arrived_ps = NONE
    flow.lost_on = NONE
    find_ways(network, row, message)
    join(network.flows, state, row)
    return row


@works_on_tables
def find_ways(network: Any, row: int, message: Any) -> None:
    """Record the links of both ways, which a message walks; NONE ends each way."""
    flow, ways, first = network.flows[row], network.ways, row * network.stride[0]
    ports = next_ports(network.hops, flow.source, flow.target)
    at = first
    message.target = flow.target
    set_out(network.hops, message, flow.source, ports)
    while message.at != flow.target:
        ways[at] = take_hop(network.hops, message)
        at += 1
    ways[at] = NONE
    at += 1
    flow.back = at - first
    message.target = flow.source
    set_out(network.hops, message, flow.target, ports_back(ports))
    while message.at != flow.source:
        ways[at] = take_hop(network.hops, message)
        at += 1
    ways[at] = NONE
    message.target = flow.target
    flow.port, flow.back_port = ways[first], ways[first + flow.back]


@works_on_tables
def release_flow(network: Any, row: int) -> None:
    """Release the row of a flow."""
    give_row(network.flows, network.state[0].free_flows, row)


@works_on_tables
def message_arrives(network: Any, row: int) -> None:
    """Mark a message as arrived, for the engine."""
    state, flow = network.state[0], network.flows[row]
    flow.is_reported = 1
    flow.arrived_ps = state.now_ps
    state.arrived = row


@works_on_tables
def message_leaves(network: Any, row: int, time: int, is_reported: bool) -> None:
    """Record when the last byte of a message was first sent."""
    flow = network.flows[row]
    if flow.left_ps == NONE:
        flow.left_ps = time
        if is_reported:
            network.state[0].left = row


LATENCY, SERIALISATION = int(CauseKind.LATENCY), int(CauseKind.SERIALISATION)
WINDOW, PACKET_QUEUE, RESENDING = int(CauseKind.WINDOW), int(CauseKind.PACKET_QUEUE), int(CauseKind.RESENDING)
PS_PER_NS = 1000


@works_on_tables
def until_left(run: Run, row: int) -> int:
    """Describe the parts until a message has left; return the causal event at which it has."""
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
    link_class = network.hops.fabric.graph.speed_of[flow.port]
    event = observe.message_cause(run, message_row)
    event = observe.message_part(run, message_row, event, WINDOW, NONE, NONE, begin, held)
    event = observe.message_part(run, message_row, event, PACKET_QUEUE, link_class, NONE, held, sends)
    return observe.message_part(run, message_row, event, SERIALISATION, link_class, flow.port, sends, left)


@works_on_tables
def until_arrived(run: Run, row: int, arrives: int) -> int:
    """Describe the later parts; return the causal event at which the message arrives."""
    if not observe.describes_causes(run):
        return NONE
    network = run.network
    flow, stride = network.flows[row], network.stride[0]
    message_row = flow.message
    event, time, at_ps = run.messages[message_row].through, run.messages[message_row].left_ns, flow.left_ps
    if time > arrives:  # a message may complete while it is sent, with the bytes of another one
        event, begin = observe.message_cause(run, message_row), run.messages[message_row].begin_ns
        return observe.message_part(run, message_row, event, PACKET_QUEUE, NONE, NONE, begin, arrives)
    for place in range(stride):
        if _is_new_class(network, row, place):
            link_class = network.hops.fabric.graph.speed_of[network.ways[row * stride + place]]
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
    """Return whether a flow had to cross a link at this place of its ways."""
    ways, first, back = network.ways, row * network.stride[0], network.flows[row].back
    if place < back:
        return bool(ways[first + place] != NONE)
    if network.transport.rules[0].completion == 0:
        return False
    while back < place and ways[first + back] != NONE:  # later entries are of an earlier flow
        back += 1
    return bool(back == place and ways[first + place] != NONE)


@works_on_tables
def _is_new_class(network: Any, row: int, place: int) -> bool:
    """Return whether no earlier link has the class of the one at a place."""
    if not _counts(network, row, place):
        return False
    speed_of, first = network.hops.fabric.graph.speed_of, row * network.stride[0]
    for before in range(place):
        if _counts(network, row, before) and (
            speed_of[network.ways[first + before]] == speed_of[network.ways[first + place]]
        ):
            return False
    return True


@works_on_tables
def _time_of_class(network: Any, row: int, link_class: int, kind: int) -> int:
    """Return the time on the links of one class: latencies, or the last packet and its acknowledgement."""
    flow, rules, stride = network.flows[row], network.transport.rules[0], network.stride[0]
    last, time_ps = _last_bytes(network, flow), 0
    for place in range(stride):
        link = network.ways[row * stride + place]
        if _counts(network, row, place) and network.hops.fabric.graph.speed_of[link] == link_class:
            port = network.ports[link]
            if kind == LATENCY:
                time_ps += port.delay_ps
            elif place > 0:
                time_ps += sending_ps(network, port, last if place < flow.back else rules.acknowledgement)
    return int(time_ps)


@works_on_tables
def _last_bytes(network: Any, flow: Any) -> int:
    """Return the bytes on the wire of the last packet of a message."""
    rules = network.transport.rules[0]
    before = (-(-flow.size // rules.payload) - 1) * rules.payload
    return int(flow.size - before - flow.padding + rules.header)


@works_on_tables
def _engine_time(network: Any, time: int) -> int:
    """Convert a time of the kernel to the engine's unit."""
    return time * network.units[0] // PS_PER_NS
