"""The key `credits` of the network file: how flits, packets and channels are made.

Not here: what that means for messages (`et_sim.network.packet.credit`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.units import format_bandwidth
from et_sim.documents.keys import Key, Remarks, Section, inner_section, keys_of, read
from et_sim.documents.kinds import OBJECT
from et_sim.machine.protocol_presets import PROTOCOL_KEY
from et_sim.machine.transports import Credits

WORTH_SAYING = 0.98  # links that carry less of their bandwidth are named
CREDITS_KEY = Key(
    "credits",
    OBJECT,
    "Links carry flits for which there is a place at the other end, on the packet model; see "
    "[networks](networks.md#credits).",
    "In files of Garnet.",
    choices=tuple(key.name for key in keys_of(Credits)),
)


def read_credits(source: Section, bytes_per_ns: Any, latency_ns: Any, remarks: Remarks) -> Credits | None:
    """Those that the source describes, if any, for links with these figures."""
    section = inner_section(source, CREDITS_KEY, remarks)
    if section is None:
        return None
    if PROTOCOL_KEY.name in source.content:
        raise section.fault(
            'keys "protocol" and "credits" exclude each other',
            "leave out the protocol: with credits, nothing is lost that it would send again",
        )
    credits_read = read(Credits, section, remarks)
    _warn_of_slow_links(credits_read, np.asarray(bytes_per_ns), latency_ns, source.place, remarks)
    return credits_read


def _warn_of_slow_links(
    credits: Credits, bytes_per_ns: Any, latency_ns: Any, place: str, remarks: Remarks
) -> None:
    """Links that can never carry what their bandwidth says."""
    from et_sim.machine.flits import filled_in, most_carried

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
