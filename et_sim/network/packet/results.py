"""Results of the packet model: bytes, packets, pauses and losses of ports, and ports in a cycle of pauses."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
from msgspec import structs
from msgspec.structs import replace

from et_sim.engine.state.resources import ResourceTable
from et_sim.engine.state.run import NONE
from et_sim.machine.model import GridFabric, Network
from et_sim.machine.transports import PS_PER_NS
from et_sim.network import graph
from et_sim.network.graph_of_grid import with_single_ways
from et_sim.network.packet.setup import protocol_of
from et_sim.plan.records import LoweredPlan


def ports_in_a_circle(tables: Any) -> list[int]:
    """Return the paused ports that wait for each other in a cycle, in its order; empty if there are none.

    A port is paused because packets from it fill a buffer; these wait for other ports of the same device. If
    those are paused in turn, and so on back to the first, no packet can move.
    """
    ports, packets = tables.ports, tables.packets
    paused = ports["is_paused"] == 1
    if not paused.any():
        return []
    waits: nx.DiGraph[int] = nx.DiGraph()
    for port in paused.nonzero()[0].tolist():
        row = int(ports["head"][port])
        while row != NONE:
            came = int(packets["port"][row])
            if came != NONE and paused[came]:
                waits.add_edge(came, port)
            row = int(packets["next"][row])
    try:
        return [int(before) for before, _ in nx.find_cycle(waits)]
    except nx.NetworkXNoCycle:
        return []


def resources(network: Network, _plan: LoweredPlan) -> ResourceTable:
    """Return every link."""
    wired = network.fabric.dimensions if isinstance(network.fabric, GridFabric) else ()
    links = graph.link_resources(with_single_ways(network))
    sizes = tuple(dimension.npus for dimension in wired) or links.sizes
    return structs.replace(links, are_shared=True, sizes=sizes)


def carried(tables: Any) -> Any:
    """Return the bytes that each link has carried."""
    return tables.ports["bytes"]


def payload_of_packets(network: Network) -> int:
    """Return the payload of a packet, in bytes."""
    return protocol_of(network).payload


def packets_sent(tables: Any) -> int:
    """Return the number of data packets, without retransmissions."""
    return int(tables.state[0].sent - tables.state[0].resent)


def ports_counted(tables: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the counts of each port and of the network, times in nanoseconds."""
    ports, state = tables.ports, tables.state[0]
    still = np.where(ports["is_paused"], state.now_ps - ports["paused_since_ps"], 0)
    columns = {
        "packets": ports["carried_packets"],
        "bytes": ports["bytes"],
        "busy_ns": ports["busy_ps"] // PS_PER_NS,
        "deepest_bytes": ports["deepest"],
        "deepest_at_ns": np.where(ports["deepest"] > 0, ports["deepest_ps"] // PS_PER_NS, -1),
        "pauses": ports["paused"],
        "paused_ns": (ports["paused_ps"] + still) // PS_PER_NS,
        "marked": ports["marks"],
        "lost": ports["drops"],
    }
    totals = {
        "sent": int(state.sent),
        "acknowledgements": int(state.returned),
        "sent_again": int(state.resent),
        "timeouts": int(state.timeouts),
        "lost": int(state.lost),
        "marked": int(ports["marks"].sum()),
        "pauses": int(ports["paused"].sum()),
    }
    return columns, totals | _steady_phases(tables)


def again(tables: Any, network: Network) -> Network | None:
    """Return the network with all packets if messages contend after some were skipped; else None."""
    if not tables.steady[0].contends:
        return None
    protocol = protocol_of(network)
    return replace(network, protocol=replace(protocol, packets=replace(protocol.packets, all_packets=True)))


def _steady_phases(tables: Any) -> dict[str, Any]:
    """Return what was skipped of steady phases, if that is allowed."""
    tolerance, steady = float(tables.rules[0].steady), tables.steady[0]
    if tolerance == 0:
        return {}
    skipped = {"messages": int(steady.messages), "packets": int(steady.packets)}
    found = {"tolerance": tolerance, **skipped, "error": float(steady.bound)}
    return {"steady": {**found, "contends": bool(tables.rules[0].all_packets)}}
