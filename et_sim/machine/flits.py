"""How long flits take on links, in whole cycles, and what links carry for that.

Not here: keys (`transports`), and what routers do (`et_sim.network.packet.credit`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from et_sim.machine.transports import Credits

PS_PER_NS = 1000
LONGEST_CYCLE_PS = 1000  # unless given
ROUNDED = 1e-9  # relative: a quotient of floats that is so near to a whole number is that


def filled_in(credits: Credits, bytes_per_ns: Any, latency_ns: Any) -> Credits:
    """With what the file leaves open: a cycle that suits the fastest link, channels that suit the longest."""
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
    """How many a flit takes on links, at least one."""
    assert credits.cycle_ps is not None
    exact = credits.flit * PS_PER_NS / (np.asarray(bytes_per_ns) * credits.cycle_ps)
    return np.maximum(np.ceil(exact * (1 - ROUNDED)), 1).astype(np.int64)


def cycles_of_wire(credits: Credits, latency_ns: Any) -> Any:
    """How many the latencies of links take."""
    assert credits.cycle_ps is not None
    return np.ceil(np.asarray(latency_ns) * PS_PER_NS / credits.cycle_ps * (1 - ROUNDED)).astype(np.int64)


def most_carried(credits: Credits, bytes_per_ns: Any, latency_ns: Any) -> Any:
    """Bytes per ns that links can carry: a flit in whole cycles, and as many as there are places for."""
    assert credits.cycle_ps is not None
    assert credits.channels is not None
    flit = cycles_of_flit(credits, bytes_per_ns)
    per_flit = np.maximum(flit, _held(credits, flit, latency_ns) / (credits.channels * credits.flits))
    return np.minimum(credits.flit * PS_PER_NS / (per_flit * credits.cycle_ps), bytes_per_ns)


def _held(credits: Credits, flit: Any, latency_ns: Any) -> Any:
    """Cycles that a packet holds a channel of an idle link: until that is known to be free again."""
    assert credits.buffer is not None
    round_trip = 2 * cycles_of_wire(credits, latency_ns) + flit + credits.router_cycles + 1
    return (credits.flits - 1) * np.maximum(flit, round_trip / credits.buffer) + round_trip
