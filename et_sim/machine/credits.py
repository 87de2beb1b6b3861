"""The key `credits` of the network file, and the times of flits on links in whole cycles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.units import format_bandwidth
from et_sim.documents.keys import Key, Remarks, Section, inner_section, keys_of, read
from et_sim.documents.kinds import OBJECT
from et_sim.machine.protocol_presets import PROTOCOL_KEY
from et_sim.machine.transports import Credits

MOST_RANKS = 4096  # the paths of all pairs are computed
PS_PER_NS = 1000
LONGEST_CYCLE_PS = 1000  # without the key `cycle`
ROUNDED = 1e-9  # relative: a quotient this near to a whole number is taken as whole


def filled_in(credits: Credits, bytes_per_ns: Any, latency_ns: Any) -> Credits:
    """Fill in a cycle that suits the fastest link, and channels that suit the longest."""
    if credits.cycle_ps is None:
        shortest = credits.flit * PS_PER_NS / float(np.max(bytes_per_ns)) * (1 - ROUNDED)
        cycles = math.ceil(shortest / LONGEST_CYCLE_PS)
        credits = replace(credits, cycle_ps=math.ceil(shortest / cycles))
    if credits.buffer is None:
        credits = replace(credits, buffer=credits.flits)
    if credits.channels is None:
        flit = cycles_of_flit(credits, bytes_per_ns)
        needed = np.ceil(_held(credits, flit, latency_ns) / (credits.flits * flit))
        credits = replace(credits, channels=int(needed.max()))
    return credits


def cycles_of_flit(credits: Credits, bytes_per_ns: Any) -> Any:
    """Return the cycles of a flit on links, at least one."""
    assert credits.cycle_ps is not None
    exact = credits.flit * PS_PER_NS / (np.asarray(bytes_per_ns) * credits.cycle_ps)
    return np.maximum(np.ceil(exact * (1 - ROUNDED)), 1).astype(np.int64)


def cycles_of_wire(credits: Credits, latency_ns: Any) -> Any:
    """Return the cycles of the latencies of links."""
    assert credits.cycle_ps is not None
    return np.ceil(np.asarray(latency_ns) * PS_PER_NS / credits.cycle_ps * (1 - ROUNDED)).astype(np.int64)


def most_carried(credits: Credits, bytes_per_ns: Any, latency_ns: Any) -> Any:
    """Return the bytes per ns that links can carry, limited by whole cycles and by buffers."""
    assert credits.cycle_ps is not None
    assert credits.channels is not None
    flit = cycles_of_flit(credits, bytes_per_ns)
    per_flit = np.maximum(flit, _held(credits, flit, latency_ns) / (credits.channels * credits.flits))
    return np.minimum(credits.flit * PS_PER_NS / (per_flit * credits.cycle_ps), bytes_per_ns)


def _held(credits: Credits, flit: Any, latency_ns: Any) -> Any:
    """Return the cycles for which a packet holds a channel of an idle link, until the credit returns."""
    assert credits.buffer is not None
    round_trip = 2 * cycles_of_wire(credits, latency_ns) + flit + credits.router_cycles + 1
    return (credits.flits - 1) * np.maximum(flit, round_trip / credits.buffer) + round_trip


WORTH_A_WARNING = 0.98  # links that carry less of their bandwidth are named
CREDITS_KEY = Key(
    "credits",
    OBJECT,
    "Links that carry flits only if the other end has a buffer for them, on the packet model; see "
    "[networks](network-features.md#credits).",
    "In files of Garnet.",
    choices=tuple(key.name for key in keys_of(Credits)),
)


def read_credits(source: Section, bytes_per_ns: Any, latency_ns: Any, remarks: Remarks) -> Credits | None:
    """Read the credits of a source for links with these figures, if it describes any."""
    section = inner_section(source, CREDITS_KEY, remarks)
    if section is None:
        return None
    if PROTOCOL_KEY.name in source.content:
        raise section.fault(
            'keys "protocol" and "credits" exclude each other',
            "leave out the protocol: with credits, no packet is lost and sent again",
        )
    credits_read = read(Credits, section, remarks)
    _warn_of_slow_links(credits_read, np.asarray(bytes_per_ns), latency_ns, source.place, remarks)
    return credits_read


def _warn_of_slow_links(
    credits: Credits, bytes_per_ns: Any, latency_ns: Any, place: str, remarks: Remarks
) -> None:
    """Warn of links that can never carry their bandwidth."""
    full = filled_in(credits, bytes_per_ns, latency_ns)
    part = most_carried(full, bytes_per_ns, latency_ns) / bytes_per_ns
    slowest = int(part.argmin())
    if part[slowest] < WORTH_A_WARNING:
        given = format_bandwidth(float(bytes_per_ns[slowest]))
        remarks.warn(
            place,
            CREDITS_KEY.name,
            f"a link of {given} can carry {part[slowest]:.0%} of that: a flit of {credits.flit} bytes takes "
            f"whole cycles of {full.cycle_ps} ps, and the other end has buffers for {full.channels} channels "
            f"of {full.buffer} flits",
        )
