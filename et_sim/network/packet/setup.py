"""Setup of the packet model: its tables, and checks of the protocol before a run.

A packet that does not fit even in empty queues and buffers is refused, because it would be lost for ever.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import astuple

from et_sim.basics.errors import MachineError
from et_sim.basics.units import format_bytes
from et_sim.machine.graph import NPU
from et_sim.machine.model import GraphFabric, Network
from et_sim.machine.protocol_presets import DEFAULT_PRESET, PRESETS
from et_sim.machine.transports import PS_PER_NS, PacketProtocol, SwitchBuffers, Window
from et_sim.network import graph
from et_sim.network.packet.records import DEVICE, NEVER, PORT
from et_sim.network.route_tables import NONE, route_tables
from et_sim.network.routes import routes_of
from et_sim.network.settings import settings_row
from et_sim.plan.records import table

MASK = 0xFFFFFFFF
NS3_HEADROOM, PACKETS_IN_HEADROOM = 3, 5


def protocol_of(network: Network) -> PacketProtocol:
    """Return the protocol of a network: its own, or the default preset."""
    return network.protocol or PRESETS[DEFAULT_PRESET]


def rules_of(protocol: PacketProtocol) -> Any:
    """Return the rules of all transports."""
    packets, buffers = protocol.packets, protocol.packets.buffers
    return settings_row(protocol, packets, buffers, marks=bool(buffers.marking), seed=packets.seed & MASK)


def largest_window(network: Network, ports: Any, protocol: PacketProtocol) -> tuple[int, int]:
    """Return the longest round trip and the most bytes on such a way, if the window depends on them."""
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


MOST_BITS_PER_S = 2**53  # the largest whole number that a double holds exactly


def ports_of(network: Network, protocol: PacketProtocol) -> Any:
    """Return the table of all links, idle."""
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
            f"a link of {bits_per_s.max() / 1e9:g} Gbps is too fast: the packet model supports up to "
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
    """Return for each link one in the other direction: the n-th between two devices for the n-th."""
    link_between: dict[tuple[int, int, int], int] = {}
    rows: dict[tuple[int, int], int] = {}
    for link, ends in enumerate(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)):
        number = rows[ends] = rows.get(ends, -1) + 1
        link_between[(*ends, number)] = link
    back = np.full(len(graph.sources), NONE, np.int32)
    for (source, target, number), link in link_between.items():
        back[link] = link_between.get((target, source, number), NONE)
    return back


def _set_marking(ports: Any, buffers: SwitchBuffers) -> None:
    """Set the marking of each port: that of the lowest given bandwidth that is not below it, else the
    highest.
    """
    ports["least_marked"] = ports["all_marked"] = NEVER
    if not buffers.marking:
        return
    rows = sorted(buffers.marking, key=lambda marking: marking.bits_per_s)
    at = np.searchsorted([row.bits_per_s for row in rows], ports["bits_per_s"])
    at = np.minimum(at, len(rows) - 1)
    _, least, most, probability = (np.array(column) for column in zip(*map(astuple, rows), strict=True))
    ports["least_marked"], ports["all_marked"] = least[at], most[at]
    ports["marked_at_most"] = probability[at]


def _set_headroom(ports: Any, protocol: PacketProtocol) -> None:
    """Set the headroom for bytes that arrive after a pause was sent, and the shift of fast ports.

    The headroom covers bytes in flight in both directions, and packets that are being sent or did not fit in
    the rest of the buffer. ns-3 takes three times the bytes in flight, which is too little for large packets.
    Ports faster than those of NPUs may use more of the free buffer.
    """
    under_way = ports["bits_per_s"] * (ports["delay_ps"] // PS_PER_NS) // 8 // 1_000_000_000
    if protocol.packets.as_ns3:
        ports["headroom"] = under_way * NS3_HEADROOM
    else:
        ports["headroom"] = 2 * under_way + PACKETS_IN_HEADROOM * (protocol.payload + protocol.header)
    hosts = ports["bits_per_s"][ports["is_host"] == 1][:1]  # empty if there is one NPU only
    doublings = np.ceil(np.log2(np.maximum(ports["bits_per_s"] / hosts, 1.0))) if len(hosts) else 0.0
    ports["shift"] = np.maximum(protocol.packets.buffers.threshold_shift - doublings, 0)


def longest_crossing(ports: Any, protocol: PacketProtocol) -> int:
    """Return the longest time from the sending of a full packet until it has crossed a link."""
    bits = (protocol.payload + protocol.header) * 8
    return int((ports["delay_ps"] + bits * 10**12 // ports["bits_per_s"]).max(initial=0))


def devices_of(network: Network, ports: Any, buffers: SwitchBuffers) -> Any:
    """Return every device with an empty buffer."""
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
            f"for bytes in flight when it sends a pause, and has {format_bytes(buffers.size)}",
            place="network configuration",
            remedy="give protocol a larger buffer, or pauses: false",
        )
    return devices


PLACE = "network configuration"


def check_protocol(network: Network, protocol: PacketProtocol) -> None:
    """Refuse a protocol that cannot work on a graph."""
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
    """Refuse one-way links where the receiving end may have to send a pause."""
    assert isinstance(network.fabric, GraphFabric)
    graph, at_host = network.fabric.graph, ports["at_host"] == 1
    one_way = np.flatnonzero((ports["back"] == NONE) & (~at_host | network.fabric.npus_forward))
    if len(one_way):
        ends = (graph.names[end[one_way[0]]] for end in (graph.sources, graph.targets))
        raise MachineError(
            f"no link leads back along {'->'.join(ends)}, over which a pause could be sent",
            place=PLACE,
            remedy="link both ways, or give protocol pauses: false",
        )


def _check_least_rate(protocol: PacketProtocol, ports: Any) -> None:
    control, is_given = protocol.packets.control, "least-rate" in protocol.of_packets_only
    fastest = int(ports["bits_per_s"].max())
    if is_given and control.algorithm != "none" and fastest < control.least_rate:
        raise MachineError(
            f"least-rate is {control.least_rate / 1e9:g} Gbps, and no link has more than "
            f"{fastest / 1e9:g} Gbps",
            place=PLACE,
            remedy="give protocol a lower least-rate",
        )


def _largest_packet(protocol: PacketProtocol) -> int:
    """Return the bytes of the largest packet that devices store."""
    full, answer, tcp = protocol.payload + protocol.header, protocol.acknowledgement, protocol.packets.tcp
    if tcp is None:
        return max(full, answer)
    return max(full, tcp.opening, 0 if tcp.bypass else answer)


def _check_queues(protocol: PacketProtocol) -> None:
    """Refuse packets that do not fit in queues, without pauses."""
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


def _check_buffers(network: Network, protocol: PacketProtocol, ports: Any, devices: Any) -> None:
    """Refuse packets that fit neither in the headroom of a link nor in its part of the shared buffer."""
    assert isinstance(network.fabric, GraphFabric)
    size = _largest_packet(protocol)
    room = np.maximum(ports["headroom"], devices["shared"][ports["to"]] >> ports["shift"])
    least = int(np.argmin(room))
    if size > room[least]:
        name = network.fabric.graph.names[ports["to"][least]]
        raise MachineError(
            f"a packet takes {size:,} bytes, and {name} has space for {int(room[least]):,} "
            "that came over one link",
            place=PLACE,
            remedy="give protocol a larger buffer, a smaller reserve or threshold-shift, or pauses: false",
        )
