"""Flows: a message, the ways of its packets and of what comes back, and what the engine is to hear of it.

Not here: when packets are sent (the transports).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE, give_row, join, take_row
from et_sim.engine.state.run import Run
from et_sim.network.graph_links import next_ports, set_out, take_hop
from et_sim.network.packet.figures import clear_figures
from et_sim.network.routes import ports_back


@works_on_tables
def new_flow(run: Run, source: int, target: int, message_row: int) -> int:
    """A flow that has not begun."""
    network, message = run.network, run.messages[message_row]
    state = network.state[0]
    row = take_row(network.flows, state.free_flows)
    flow = network.flows[row]
    flow.source, flow.target, flow.message = source, target, message_row
    flow.size = max(message.bytes, 1)
    flow.padding = flow.size - message.bytes
    flow.packets = flow.told = 0
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
    flow.told = 1
    flow.arrived_ps = state.now_ps
    state.arrived = row


@works_on_tables
def message_leaves(network: Any, row: int, time: int, is_told: bool) -> None:
    """The last byte of a message is on the way for the first time."""
    flow = network.flows[row]
    if flow.left_ps == NONE:
        flow.left_ps = time
        if is_told:
            network.state[0].left = row
