"""Capacities of links for full packets."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.machine.transports import PacketProtocol


def capacities(bytes_per_ns: Any, protocol: PacketProtocol | None) -> Any:
    """Return the bandwidths that full packets get; 0: there is no such link."""
    if protocol is None or not protocol.whole_ns:
        return bytes_per_ns
    packet = protocol.payload + protocol.header
    capacity, exist = np.zeros(len(bytes_per_ns)), bytes_per_ns > 0
    capacity[exist] = packet / _rounded(packet / bytes_per_ns[exist], least=1)
    return capacity


def set_capacities(shared: Any, protocol: PacketProtocol, units: int) -> None:
    """Set the capacities for full packets, and the parts that acknowledgements take; `units`: of time in a
    ns.

    A packet uses one link of a trunk.
    """
    bytes_per_ns, members = shared["wire"] * units, shared["capacity"] / shared["wire"]
    back_ns = protocol.acknowledgement / bytes_per_ns
    if protocol.whole_ns:
        back_ns = _rounded(back_ns, least=0)
    capacity = capacities(bytes_per_ns, protocol)
    shared["wire"] = capacity / units
    shared["capacity"] = capacity / units * members
    shared["back"] = back_ns * capacity / (protocol.payload + protocol.header)
    shared["back_ns"] = back_ns * units


def _rounded(times_ns: Any, least: int) -> Any:
    return np.maximum(np.floor(times_ns + 0.5), least)
