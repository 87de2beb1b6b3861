"""The key `credits` of the network file: how flits, packets and channels are made.

Not here: what that means for messages (`et_sim.network.packet.credit`).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from et_sim.basics.errors import MachineError
from et_sim.basics.units import format_bandwidth
from et_sim.machine.credit_tables import CREDIT_KEYS, CREDITS_KEY, FLIT
from et_sim.machine.flits import filled_in, most_carried
from et_sim.machine.keys import Remarks
from et_sim.machine.protocol_tables import PROTOCOL_KEY
from et_sim.machine.sources import Source
from et_sim.machine.topology.generators import place_of, read_inner
from et_sim.machine.transports import Credits

PS_PER_NS = 1000
WORTH_SAYING = 0.98  # links that carry less of their bandwidth are told of


def read_credits(source: Source, bytes_per_ns: Any, latency_ns: Any, remarks: Remarks) -> Credits | None:
    """Those that the source describes, if any, for links with these figures."""
    given = read_inner(source, CREDITS_KEY, CREDIT_KEYS, remarks)
    if given is None:
        return None
    if PROTOCOL_KEY.name in source.content:
        raise MachineError(
            'keys "protocol" and "credits" exclude each other',
            place=place_of(source, CREDITS_KEY),
            remedy="leave out the protocol: with credits, nothing is lost that it would send again",
        )
    values: dict[str, Any] = {}
    for name, value in given.items():
        match name:
            case "cycle":
                values["cycle_ps"] = _whole_ps(value, place_of(source, CREDITS_KEY, name))
            case "padding":
                values["pads"] = value
            case "turns":
                values["turns_of_flits"] = value == FLIT
            case _:
                values[name.replace("-", "_")] = value
    found = Credits(**values)
    if found.flit > found.packet:
        raise MachineError(
            f"a flit of {found.flit} bytes is longer than a packet, which has {found.packet}",
            place=place_of(source, CREDITS_KEY, "flit" if "flit" in given else "packet"),
            remedy="make packets longer, or flits shorter",
        )
    _tell_of_slow_links(found, np.asarray(bytes_per_ns), latency_ns, source.place, remarks)
    return found


def _tell_of_slow_links(
    credits: Credits, bytes_per_ns: Any, latency_ns: Any, place: str, remarks: Remarks
) -> None:
    """Links that can never carry what their bandwidth says."""
    full = filled_in(credits, bytes_per_ns, latency_ns)
    part = most_carried(full, bytes_per_ns, latency_ns) / bytes_per_ns
    slowest = int(part.argmin())
    if part[slowest] < WORTH_SAYING:
        given = format_bandwidth(float(bytes_per_ns[slowest]))
        remarks.warn(
            place,
            CREDITS_KEY.name,
            f"a link of {given} can carry {part[slowest]:.0%} of that: a flit of {credits.flit} bytes takes "
            f"whole cycles of {full.cycle_ps} ps, and no more flits are under way than there are places for "
            f"at the other end ({full.channels} channels of {full.buffer} flits)",
        )


def _whole_ps(cycle_ns: float, place: str) -> int:
    exact = Fraction(str(cycle_ns)) * PS_PER_NS
    if exact.denominator != 1:
        raise MachineError(
            f"a cycle of {cycle_ns} ns is not a whole number of picoseconds",
            place=place,
            remedy='such as "0.5ns"',
        )
    return int(exact)
