"""What the constants of a transport mean for links: tables of the flow model.

Not here: what they mean for messages (`routes`, `model`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.machine.model import Completion, Protocol
from et_sim.network.flow.records import PROTOCOL
from et_sim.plan.tables import table


def table_of(protocol: Protocol | None) -> Any:
    """The constants; all zero: messages are as they are."""
    row = table(PROTOCOL, 1)
    if protocol is not None:
        row.payload, row.header = protocol.payload, protocol.header
        row.goes_back = goes_back(protocol)
        row.stores_packets = protocol.store_and_forward
        row.ends_acknowledged = protocol.completion is Completion.ACKNOWLEDGEMENT
    return row


def goes_back(protocol: Protocol | None) -> bool:
    """Whether the way back matters."""
    if protocol is None:
        return False
    return protocol.acknowledgement > 0 or protocol.completion is Completion.ACKNOWLEDGEMENT


def set_capacities(shared: Any, protocol: Protocol, units: int) -> None:
    """Capacities as full packets find them, and what acknowledgements take; `units`: of time in a ns."""
    packet = protocol.payload + protocol.header
    packet_ns = packet / shared["capacity"] / units
    back_ns = protocol.acknowledgement / shared["capacity"] / units
    if protocol.whole_ns:
        packet_ns, back_ns = np.maximum(np.floor(packet_ns + 0.5), 1), np.floor(back_ns + 0.5)
        shared["capacity"] = packet / (packet_ns * units)
    shared["back"], shared["back_ns"] = back_ns / packet_ns, back_ns * units


def most_bytes(protocol: Protocol | None, size: int) -> int:
    """A message of which no more would take longer without a protocol."""
    if protocol is None:
        return size
    packets = -(-size // protocol.payload) + 1
    rounding = 2 if protocol.whole_ns else 1
    return rounding * packets * (protocol.payload + protocol.header + protocol.acknowledgement)
