"""Whether every packet has room in empty queues and buffers: one that has none would be lost for ever.

Not here: queues and buffers during a run (`buffers`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.errors import MachineError
from et_sim.machine.model import GraphFabric, Network, Protocol
from et_sim.network.packet.setup import devices_of, ports_of
from et_sim.units import format_bytes

PLACE = "network configuration"


def check_room(network: Network, protocol: Protocol) -> None:
    """Refuse what can never hold one packet; the network is a graph."""
    if not protocol.packets.buffers.pauses:
        _check_queues(protocol)
        return
    ports = ports_of(network, protocol)
    _check_buffers(network, protocol, ports, devices_of(network, ports, protocol.packets.buffers))


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
