"""The tables of the packet model, made from a network; and what is refused of a protocol before a run.

A packet that finds no room even in empty queues and buffers would be lost for ever. Not here: what happens
(`kernel`).
"""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import numpy as np

from et_sim.basics.errors import MachineError
from et_sim.basics.units import format_bytes
from et_sim.machine.graph import NPU
from et_sim.machine.model import GraphFabric, Network
from et_sim.machine.transports import PS_PER_NS, Buffers, CongestionControl, Protocol, Window
from et_sim.network import graph
from et_sim.network.packet.records import DEVICE, NEVER, PORT
from et_sim.network.route_tables import NONE, route_tables
from et_sim.network.routes import routes_of
from et_sim.network.settings import settings_row
from et_sim.plan.records import table

MASK = 0xFFFFFFFF
NS3_HEADROOM, PACKETS_IN_HEADROOM = 3, 5


def rules_of(protocol: Protocol) -> Any:
    """What holds for all transports."""
    packets, buffers = protocol.packets, protocol.packets.buffers
    return settings_row(protocol, packets, buffers, marks=bool(buffers.marking), seed=packets.seed & MASK)


def largest_window(network: Network, ports: Any, protocol: Protocol) -> tuple[int, int]:
    """(the longest time there and back in the network, the most bytes on such a way), if they are needed."""
    if protocol.packets.window is not Window.LARGEST:
        return 0, 0
    routes, ranks, room = route_tables(network), network.ranks, graph.most_links(network)
    unit = PS_PER_NS if protocol.whole_ns else 1
    stored = protocol.payload * (8 * 10**12 // unit) // ports["bits_per_s"] * unit
    longest, most = 0, 0
    for source in range(ranks):
        counts, links = np.zeros(ranks, np.int64), np.zeros((ranks, room), np.int32)
        routes_of(routes, np.full(ranks, source), np.arange(ranks), counts, links)
        is_used = np.arange(room) < counts[:, None]
        time = ((2 * ports["delay_ps"] + stored)[links] * is_used).sum(axis=1)
        slowest = np.where(is_used, ports["bits_per_s"][links], NEVER).min(axis=1)
        others = counts > 0
        longest = max(longest, int(time[others].max(initial=0)))
        bytes_on_way = time[others] // PS_PER_NS * (slowest[others] // 1000) // 8_000_000
        most = max(most, int(bytes_on_way.max(initial=0)))
    return longest, most


MOST_BITS_PER_S = 2**53  # whole numbers in a double


def ports_of(network: Network, protocol: Protocol) -> Any:
    """Return every link, idle."""
    assert isinstance(network.fabric, GraphFabric)
    wires = network.fabric.graph
    ports = table(PORT, len(wires.sources))
    for name in ("back", "head", "tail"):
        ports[name] = NONE
    for name in ("flying", "urgent"):
        ports[name]["head"] = ports[name]["tail"] = NONE
    ports["free_ps"], ports["free_order"] = NONE, NONE
    ports["delay_ps"] = np.rint(wires.latency_ns * PS_PER_NS)
    bits_per_s = np.rint(wires.bytes_per_ns * 8e9)
    if (bits_per_s > MOST_BITS_PER_S).any():
        raise MachineError(
            f"a link of {bits_per_s.max() / 1e9:g} Gbps: packets are counted on up to "
            f"{MOST_BITS_PER_S / 1e9:g} Gbps",
            place=PLACE,
            remedy="correct its bandwidth",
        )
    ports["bits_per_s"] = bits_per_s
    ports["device"], ports["to"] = wires.sources, wires.targets
    ports["is_host"] = wires.kinds[wires.sources] == NPU
    ports["at_host"] = wires.kinds[wires.targets] == NPU
    ports["back"] = _links_back(wires)
    _set_marking(ports, protocol.packets.buffers)
    _set_headroom(ports, protocol)
    return ports


def _links_back(graph: Any) -> Any:
    """By link, one between the same devices in the other direction: the n-th for the n-th."""
    link_between: dict[tuple[int, int, int], int] = {}
    rows: dict[tuple[int, int], int] = {}
    for link, ends in enumerate(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)):
        number = rows[ends] = rows.get(ends, -1) + 1
        link_between[(*ends, number)] = link
    back = np.full(len(graph.sources), NONE, np.int32)
    for (source, target, number), link in link_between.items():
        back[link] = link_between.get((target, source, number), NONE)
    return back


def _set_marking(ports: Any, buffers: Buffers) -> None:
    """Of the given bandwidths, the lowest that is not below the port's; of faster ports, the highest."""
    ports["least_marked"] = ports["all_marked"] = NEVER
    if not buffers.marking:
        return
    rows = sorted(buffers.marking, key=lambda marking: marking.bits_per_s)
    at = np.searchsorted([row.bits_per_s for row in rows], ports["bits_per_s"])
    at = np.minimum(at, len(rows) - 1)
    _, least, most, probability = (np.array(column) for column in zip(*map(astuple, rows), strict=True))
    ports["least_marked"], ports["all_marked"] = least[at], most[at]
    ports["marked_at_most"] = probability[at]


def _set_headroom(ports: Any, protocol: Protocol) -> None:
    """What may come after a pause was asked for; ports faster than an NPU's may use more of what is free.

    That is what is under way in both directions, and packets that are being sent, or were too large for the
    rest of the buffer; ns-3 takes three times what is under way, which is too little for large packets.
    """
    under_way = ports["bits_per_s"] * (ports["delay_ps"] // PS_PER_NS) // 8 // 1_000_000_000
    if protocol.packets.as_ns3:
        ports["headroom"] = under_way * NS3_HEADROOM
    else:
        ports["headroom"] = 2 * under_way + PACKETS_IN_HEADROOM * (protocol.payload + protocol.header)
    hosts = ports["bits_per_s"][ports["is_host"] == 1][:1]  # none where an NPU is alone
    doublings = np.ceil(np.log2(np.maximum(ports["bits_per_s"] / hosts, 1.0))) if len(hosts) else 0.0
    ports["shift"] = np.maximum(protocol.packets.buffers.threshold_shift - doublings, 0)


def devices_of(network: Network, ports: Any, buffers: Buffers) -> Any:
    """Return every device, its buffer empty."""
    assert isinstance(network.fabric, GraphFabric)
    count = len(network.fabric.graph)
    devices = table(DEVICE, count)
    headroom = np.bincount(ports["to"], ports["headroom"], minlength=count)
    reserved = headroom + buffers.reserve * np.bincount(ports["to"], minlength=count)
    devices["shared"] = buffers.size - (reserved.astype(np.int64) if buffers.pauses else 0)
    smallest = int(np.argmin(devices["shared"]))
    if devices["shared"][smallest] <= 0:
        raise MachineError(
            f"{network.fabric.graph.names[smallest]} needs {format_bytes(reserved[smallest])} of buffer "
            f"for what is under way when it asks for a pause, and has {format_bytes(buffers.size)}",
            place="network configuration",
            remedy="give protocol a larger buffer, or pauses: false",
        )
    return devices


PLACE = "network configuration"


def check_protocol(network: Network, protocol: Protocol) -> None:
    """Refuse what cannot work on a network, which is a graph."""
    ports = ports_of(network, protocol)
    if len(ports) == 0:
        return
    _check_least_rate(protocol, ports)
    if protocol.packets.buffers.pauses:
        _check_ways_back(network, ports)
        _check_buffers(network, protocol, ports, devices_of(network, ports, protocol.packets.buffers))
    else:
        _check_queues(protocol)


def _check_ways_back(network: Network, ports: Any) -> None:
    """Whoever passes packets on must be able to tell the other end of a link to pause."""
    assert isinstance(network.fabric, GraphFabric)
    graph, at_host = network.fabric.graph, ports["at_host"] == 1
    one_way = np.flatnonzero((ports["back"] == NONE) & (~at_host | network.fabric.npus_forward))
    if len(one_way):
        ends = (graph.names[end[one_way[0]]] for end in (graph.sources, graph.targets))
        raise MachineError(
            f"no link leads back along {'->'.join(ends)}, over which a pause could be asked for",
            place=PLACE,
            remedy="link both ways, or give protocol pauses: false",
        )


def _check_least_rate(protocol: Protocol, ports: Any) -> None:
    control, is_given = protocol.packets.control, "least-rate" in protocol.of_packets_only
    fastest = int(ports["bits_per_s"].max())
    if is_given and control.algorithm is not CongestionControl.NONE and fastest < control.least_rate:
        raise MachineError(
            f"least-rate is {control.least_rate / 1e9:g} Gbps, and no link has more than "
            f"{fastest / 1e9:g} Gbps",
            place=PLACE,
            remedy="give protocol a lower least-rate",
        )


def _largest_packet(protocol: Protocol) -> int:
    """Return bytes of the largest packet that is stored on its way."""
    full, answer, tcp = protocol.payload + protocol.header, protocol.acknowledgement, protocol.packets.tcp
    if tcp is None:
        return max(full, answer)
    return max(full, tcp.opening, 0 if tcp.bypass else answer)


def _check_queues(protocol: Protocol) -> None:
    """Without pauses."""
    size, buffers = _largest_packet(protocol), protocol.packets.buffers
    if size > buffers.queue_bytes:
        raise MachineError(
            f"a packet takes {size:,} bytes, and a queue has at most queue-bytes {buffers.queue_bytes:,}",
            place=PLACE,
            remedy=f"give protocol queue-bytes of at least {size}, or leave the key out",
        )
    if size > buffers.share * buffers.size:
        raise MachineError(
            f"a packet takes {size:,} bytes, and a queue has at most {buffers.share:g} times the buffer of "
            f"{format_bytes(buffers.size)}",
            place=PLACE,
            remedy="give protocol a larger buffer, or a larger queue-share",
        )
    if size > buffers.random_from and buffers.random_drop >= 1:
        raise MachineError(
            f"a packet takes {size:,} bytes, and all are dropped from queues of more than "
            f"{buffers.random_from:,}",
            place=PLACE,
            remedy="give protocol a larger random-drop-from, or a random-drop below 1",
        )


def _check_buffers(network: Network, protocol: Protocol, ports: Any, devices: Any) -> None:
    """With pauses: what came over a link takes its headroom, or its part of what is shared."""
    assert isinstance(network.fabric, GraphFabric)
    size = _largest_packet(protocol)
    room = np.maximum(ports["headroom"], devices["shared"][ports["to"]] >> ports["shift"])
    least = int(np.argmin(room))
    if size > room[least]:
        name = network.fabric.graph.names[ports["to"][least]]
        raise MachineError(
            f"a packet takes {size:,} bytes, and {name} has room for {int(room[least]):,} "
            "that came over one link",
            place=PLACE,
            remedy="give protocol a larger buffer, a smaller reserve or threshold-shift, or pauses: false",
        )
