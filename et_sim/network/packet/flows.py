"""Flows: a message, the ways of its packets and of what comes back, and what holds it up.

For the records of ports and of causes alone, it is noted how long a flow's window, its rate, pauses of its
port and queues hold it back. The time of a message then has parts, one after the other. Until its last byte
has left: its window and its rate, its own bytes, and as queueing the rest, which are other messages and
pauses. Then, of its last packet: the latencies of all links, by class, its time on those behind the first,
and the queues. What is left if packets were sent again is that. With completion by acknowledgement, its way
back counts. All are sums, in an order of their own: windows open and close while bytes are sent.

Not here: when packets are sent (the transports), and where the records go (`observe.queues`).
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
    """Return whether any of this is noted."""
    return len(network.figures) > 0


@works_on_tables
def clear_figures(flow: Any) -> None:
    """A flow that has not begun."""
    flow.retransmitted = flow.timeouts = flow.received = 0
    flow.full_ps = flow.open_ps = flow.held = NONE
    flow.window_ps = flow.rate_ps = flow.paused_ps = flow.queued_ps = flow.last_queued_ps = 0


@works_on_tables
def flow_begins(network: Any, row: int) -> None:
    """A message sets out."""
    if observe.records_queues(network):
        flow = network.flows[row]
        flow.paused_ps = _paused_ps(network, network.ports[flow.port])
        _count_on_way(network, row, 1)


@works_on_tables
def flow_ends(network: Any, row: int) -> None:
    """A message is there."""
    if observe.records_queues(network):
        flow, stride = network.flows[row], network.stride[0]
        flow.paused_ps = _paused_ps(network, network.ports[flow.port]) - flow.paused_ps
        _count_on_way(network, row, -1)
        observe.flow_ends(network, flow, network.ways, row * stride)


@works_on_tables
def _count_on_way(network: Any, row: int, change: int) -> None:
    at = row * network.stride[0]
    while network.ways[at] != NONE:
        observe.messages_cross(network, network.ways[at], change, network.state[0].now_ps)
        at += 1


@works_on_tables
def _paused_ps(network: Any, port: Any) -> int:
    """How long a port was to wait until now."""
    still = network.state[0].now_ps - port.paused_since_ps if port.is_paused else 0
    return int(port.paused_ps + still)


@works_on_tables
def window_is_full(network: Any, row: int, message: int, since_ps: int) -> None:
    """A sender may not send more from then on, and holds a message of its flow back."""
    if has_figures(network):
        flow = network.flows[row]
        if flow.full_ps == NONE:
            flow.full_ps, flow.open_ps, flow.held = since_ps, NONE, message


@works_on_tables
def window_may_open(network: Any, row: int, is_open: bool) -> None:
    """An acknowledgement is back: a sender may send more, or still may not."""
    if has_figures(network):
        flow = network.flows[row]
        if not is_open:
            flow.open_ps = NONE
        elif flow.open_ps == NONE:
            flow.open_ps = network.state[0].now_ps


@works_on_tables
def window_held(network: Any, row: int, rate_ps: int) -> None:
    """It sends, or has nothing to send; what its rate had it wait, until then, is not the window's."""
    if has_figures(network):
        flow = network.flows[row]
        if flow.full_ps != NONE:
            end = flow.open_ps if flow.open_ps != NONE else network.state[0].now_ps
            network.flows[flow.held].window_ps += max(end - max(flow.full_ps, rate_ps), 0)
            flow.full_ps = flow.open_ps = NONE


@works_on_tables
def rate_held(network: Any, row: int, begin_ps: int, end_ps: int) -> None:
    """A flow had to wait for its rate, as far as until now."""
    if has_figures(network):
        network.flows[row].rate_ps += max(min(end_ps, network.state[0].now_ps) - begin_ps, 0)


@works_on_tables
def packet_is_there(network: Any, message: int, packet: Any) -> None:
    """A packet with data is at its target, later than it would be if it had never waited."""
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
    _find_ways(run, row, message)
    join(network.flows, state, row)
    return row


@works_on_tables
def _find_ways(run: Run, row: int, message: Any) -> None:
    """Walk there and back, and write down the links; NONE ends each way."""
    network = run.network
    flow, ways, first = network.flows[row], network.ways, row * network.stride[0]
    ports = next_ports(network.hops, flow.source, flow.target)
    at = first
    set_out(network.hops, message, flow.source, ports)
    while message.at != flow.target:
        ways[at] = take_hop(network.hops, message)
        at += 1
    ways[at] = NONE
    at += 1
    flow.back = at - first
    target = message.target
    message.target = flow.source
    set_out(network.hops, message, target, ports_back(ports))
    while message.at != flow.source:
        ways[at] = take_hop(network.hops, message)
        at += 1
    ways[at] = NONE
    message.target = target
    flow.port, flow.back_port = ways[first], ways[first + flow.back]


@works_on_tables
def release_flow(network: Any, row: int) -> None:
    """Nothing is left of a flow."""
    give_row(network.flows, network.state[0].free_flows, row)


@works_on_tables
def message_arrives(network: Any, row: int) -> None:
    """The engine is to hear that a message is there."""
    state, flow = network.state[0], network.flows[row]
    flow.is_reported = 1
    flow.arrived_ps = state.now_ps
    state.arrived = row


@works_on_tables
def message_leaves(network: Any, row: int, time: int, is_reported: bool) -> None:
    """The last byte of a message is on the way for the first time."""
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
    """Return the parts until a message has left; returns the causal event at which it has."""
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
    """Return the parts from then on; returns the causal event at which the message is there."""
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
    """Return whether there is a link at a place of a flow's ways that it had to cross."""
    ways, first, back = network.ways, row * network.stride[0], network.flows[row].back
    if place < back:
        return bool(ways[first + place] != NONE)
    if network.transport.rules[0].completion == 0:
        return False
    while back < place and ways[first + back] != NONE:  # behind its end stands what was there before
        back += 1
    return bool(back == place and ways[first + place] != NONE)


@works_on_tables
def _is_new_class(network: Any, row: int, place: int) -> bool:
    """Return whether no link before has the class of the one at a place."""
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
    """What all links of one class take: latencies, or the last packet, and its acknowledgement, on them."""
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
    """On the wire, of the last packet of a message."""
    rules = network.transport.rules[0]
    before = (-(-flow.size // rules.payload) - 1) * rules.payload
    return int(flow.size - before - flow.padding + rules.header)


@works_on_tables
def _engine_time(network: Any, time: int) -> int:
    """Return the kernel's time as the engine's."""
    return time * network.units[0] // PS_PER_NS
