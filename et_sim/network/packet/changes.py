"""Changes of links within a run on the packet model (`broken`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_ns
from et_sim.compiled.interpreted import interpret
from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE, free_rows
from et_sim.engine.state.run import Run
from et_sim.engine.transport.network_seam import LostMessages
from et_sim.machine.model import GraphFabric, Network
from et_sim.machine.transports import PS_PER_NS, PacketProtocol
from et_sim.network import outages
from et_sim.network.graph_of_grid import with_single_ways
from et_sim.network.outages import LinkState, longest_by_failure, rows_of
from et_sim.network.packet import setup
from et_sim.network.packet.kernel import send_next
from et_sim.network.packet.ports import is_set
from et_sim.network.packet.repeats import restart_search
from et_sim.network.packet.roce.pairs import timer_of, wait_again
from et_sim.network.route_tables import route_tables


def check_failures(network: Network, protocol: PacketProtocol) -> None:
    """Refuse failures with TCP, and a watchdog that ends tries."""
    if not network.failures:
        return
    if protocol.packets.tcp is not None:
        raise UsageError(
            'the network file has "failures", and TCP keeps connections for longer than their time-outs',
            remedy="give a protocol of RoCE, or take --network-model flow or link",
        )
    recovery = network.recovery
    last_ns = recovery.last_try_ns
    if recovery.watchdog_ns < last_ns:
        raise UsageError(
            f"the watchdog of the network file ends a wait after {format_ns(int(recovery.watchdog_ns))},"
            f" before the last try, after {format_ns(last_ns)}: the packet model has no watchdog",
            remedy="give fewer retries or a longer watchdog, or take --network-model flow or link",
        )


def link_states(network: Network) -> list[LinkState]:
    """Return the states of all links in the order of time; in dimensions, nothing leads around dead ones."""
    states = outages.link_states(with_single_ways(network))
    if isinstance(network.fabric, GraphFabric):
        return states
    return [replace(state, avoided=np.zeros(len(state.left), bool)) for state in states]


def in_state(tables: Any, network: Network, protocol: PacketProtocol, state: LinkState) -> Any:
    """Return the tables with the links in a state."""
    wired = with_single_ways(network)
    tables.ports["bits_per_s"] = np.rint(setup.ports_of(wired, protocol)["bits_per_s"] * state.weights)
    tables.dead[:] = state.left == 0
    if tables.dead.any():  # until then, senders wait as without failures
        tables.state["has_died"] = 1
        tables.transport.rules["timeout_ps"] = int(network.recovery.detection_ns) * PS_PER_NS
    fabric = tables.hops.fabric
    graph = replace(fabric.graph, routes=route_tables(wired, state.avoided, state.weights))
    return replace(tables, hops=replace(tables.hops, fabric=replace(fabric, graph=graph)))


def in_next_state(run: Run, network: Network, protocol: PacketProtocol, state: LinkState) -> Run:
    """Return the run in a new state of the links, from the present time on."""
    dead, had_died = run.network.dead.copy(), bool(run.network.state[0].has_died)
    run = replace(run, network=in_state(run.network, network, protocol, state))
    kernel, units = run.network.state, run.network.units
    now_ps = int(run.clock[0].now) * int(units[1]) // int(units[0])
    kernel["now_ps"], kernel["now_order"] = max(int(kernel[0].now_ps), now_ps), kernel["order"]
    interpret(_take_effect, (run.network, np.flatnonzero((run.network.dead > 0) & (dead == 0))))
    if kernel[0].has_died and not had_died:
        interpret(_begin_tries, (run.network, _flows_in_use(run)))
    return run


@works_on_tables
def _take_effect(network: Any, rows: Any) -> None:
    """End the pauses at both ends of links that die: their ends would be lost."""
    for at in range(len(rows)):
        back = network.ports[int(rows[at])].back
        for port_row in (int(rows[at]), back):
            if port_row != NONE:
                _end_pause(network, port_row)
    restart_search(network)


@works_on_tables
def _end_pause(network: Any, port_row: int) -> None:
    port = network.ports[port_row]
    port.pauses = 0
    if port.is_paused:
        port.paused_ps += network.state[0].now_ps - port.paused_since_ps
        port.is_paused = 0
        send_next(network, port_row)


@works_on_tables
def _begin_tries(network: Any, rows: Any) -> None:
    """Start the time of a try, now that a link has died, of senders that wait for acknowledgements."""
    for at in range(len(rows)):
        pair = network.transport.pairs[int(rows[at])]
        pair.tries = 0
        if pair.sent > pair.acknowledged or is_set(network, timer_of(int(rows[at]))):
            wait_again(network, int(rows[at]))


def _flows_in_use(run: Run) -> Any:
    """Return the flows that have messages."""
    in_use = np.ones(len(run.network.flows), bool)
    in_use[free_rows(run.network.flows, run.network.state[0].free_flows)] = False
    return np.flatnonzero(in_use)


def _waiting(run: Run) -> Any:
    """Return the flows whose messages have lost packets and have not arrived."""
    rows, flows = _flows_in_use(run), run.network.flows
    return rows[(flows["is_reported"][rows] == 0) & (flows["lost_on"][rows] != NONE)]


def longest_waits(run: Run, network: Network) -> list[int]:
    """Return the longest wait of messages for each failure, in ns; 0: none lost packets there."""
    waited, flows = run.network.waits.copy(), run.network.flows
    rows = _waiting(run)
    np.maximum.at(waited, flows["lost_on"][rows], run.network.state[0].now_ps - flows["lost_ps"][rows])
    return longest_by_failure(with_single_ways(network), waited // PS_PER_NS)


def lost_messages(run: Run, network: Network) -> LostMessages | None:
    """Return the messages whose senders have given up; None if there are none."""
    rows, flows, wired = _waiting(run), run.network.flows, with_single_ways(network)
    if not len(rows):
        return None
    first = int(rows[np.lexsort((rows, flows["lost_ps"][rows]))][0])
    flow = flows[first]
    links = tuple(rows_of(wired, failure) for failure in wired.failures)
    lost_ns = (int(flow["lost_ps"]) // PS_PER_NS) << network.fraction_bits
    tries = int(run.network.transport.pairs[first].tries)
    ends = int(flow["source"]), int(flow["target"])
    return LostMessages(flows["message"][rows].tolist(), int(flow["lost_on"]), links, ends, lost_ns, tries)
