"""What the constants of a transport mean for links: tables of the flow model.

Not here: what they mean for messages (`routes`, `model`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.machine.transports import Completion, Protocol
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


def capacities(bytes_per_ns: Any, protocol: Protocol | None) -> Any:
    """What full packets find of bandwidths; 0: there is no such link."""
    if protocol is None or not protocol.whole_ns:
        return bytes_per_ns
    packet = protocol.payload + protocol.header
    found, exist = np.zeros(len(bytes_per_ns)), bytes_per_ns > 0
    found[exist] = packet / _rounded(packet / bytes_per_ns[exist], least=1)
    return found


def set_capacities(shared: Any, protocol: Protocol, units: int) -> None:
    """Capacities as full packets find them, and what acknowledgements take; `units`: of time in a ns."""
    bytes_per_ns = shared["capacity"] * units
    back_ns = protocol.acknowledgement / bytes_per_ns
    if protocol.whole_ns:
        back_ns = _rounded(back_ns, least=0)
    found = capacities(bytes_per_ns, protocol)
    shared["capacity"] = found / units
    shared["back"] = back_ns * found / (protocol.payload + protocol.header)
    shared["back_ns"] = back_ns * units


def _rounded(times_ns: Any, least: int) -> Any:
    return np.maximum(np.floor(times_ns + 0.5), least)


def most_bytes(protocol: Protocol | None, size: int) -> int:
    """A message of which no more would take longer without a protocol."""
    if protocol is None:
        return size
    packets = -(-size // protocol.payload) + 1
    rounding = 2 if protocol.whole_ns else 1
    return rounding * packets * (protocol.payload + protocol.header + protocol.acknowledgement)
