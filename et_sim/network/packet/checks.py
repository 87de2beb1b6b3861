"""What is refused of a protocol before a run.

A packet that finds no room even in empty queues and buffers would be lost for ever.
Not here: queues and buffers during a run (`forwarding`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.errors import MachineError
from et_sim.basics.units import format_bytes
from et_sim.machine.model import GraphFabric, Network
from et_sim.machine.transports import CongestionControl, Protocol
from et_sim.network.packet.setup import devices_of, ports_of
from et_sim.network.route_tables import NONE

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
    """Bytes of the largest packet that is stored on its way."""
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
