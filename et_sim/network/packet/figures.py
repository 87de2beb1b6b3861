"""What holds a flow up: its window, its rate, pauses of its port, and the queues that its packets wait in.

All of it is for the records of ports and of causes, and nothing in a run without these. Not here: how often
packets are sent again (the transports), and where the records go (`observe.queues`, `message_parts`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.run import NONE
from et_sim.network.packet.ports import sending_ps


@works_on_tables
def has_figures(network: Any) -> bool:
    """Whether any of this is noted."""
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
