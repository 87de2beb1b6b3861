"""Falls of a curve of time against size: where a library changes its way, more bytes may take less time.

A library chooses by its own constants, and what it chose takes a time that follows from measurements. Where
the two disagree, the way that it leaves at some size is slower there than the way that it takes from then on.
Real libraries have such falls, and measured tables say how large. A calibration that is used beyond the sizes
and ranks that it was fitted to may have larger ones, so the time before a fall is limited.

Not here: the formulas (`candidates`), and the times (`choice`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from et_sim.basics.units import format_bytes
from et_sim.machine.collective_library.candidates import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    PLATEAU,
    REDUCE,
    REDUCE_SCATTER,
    SMALLEST_FACTOR,
    Candidate,
    Group,
)
from et_sim.machine.collective_library.constants import name_of

# How many times as long as any larger size a size takes at most: on one node, and between nodes. None is
# larger than the largest fall in the measured tables of its class: in all-reduces 1.42 (8 H200) and 1.22
# (8 V100, from 13 to 14 MiB) on a node, and 1.30 (16 MI300X) between nodes; in all-gathers 1.21 and 1.03; in
# reduce-scatters 1.23 and none; in broadcasts 1.03. Others were not measured.
MOST_FALL: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        ALL_REDUCE: (1.2, 1.2),
        ALL_GATHER: (1.2, 1.03),
        REDUCE_SCATTER: (1.2, 1.0),
        BROADCAST: (1.02, 1.0),
        REDUCE: (1.02, 1.0),
    }
)
LARGEST = 1 << 50  # bytes
WORTH_MENTION = 0.99  # of the time
GATHERED = (ALL_GATHER,)  # whose bytes the library counts as those of all ranks together


class Larger(Struct, frozen=True):
    """A larger size, and what the library does and takes there."""

    size: int  # bytes
    way: Candidate
    time_us: float


class Curve(Struct, frozen=True):
    """What a library does with a collective of a group, by size."""

    ways: Callable[[int], tuple[Candidate, Sequence[Candidate]]]  # the chosen one, and all that may be
    time_us: Callable[[Candidate, int], float]
    bounds: tuple[int, ...]  # sizes, ascending, at which estimates do not go on as lines


def bounds_of(group: Group, channels: int, logged: Sequence[int], factors: int) -> tuple[int, ...]:
    """Return the sizes at which the estimates of ways begin anew.

    Trees have another factor from each power of two on, and rings between nodes other steps from a size on;
    what a log says holds from the sizes that it names.
    """
    powers = [SMALLEST_FACTOR << power for power in range(factors)]
    return tuple(sorted({*powers, PLATEAU * channels * group.ranks, *logged}))


def faster_above(curve: Curve, size: int, time_us: float) -> tuple[Larger, ...]:
    """Return larger sizes that take less: the first, and the one that takes least of all.

    The library's choice is followed from one change to the next, until all ways take longer. As each way
    takes longer with every byte, the least of what follows is where a way begins to be taken.
    """
    found: list[Larger] = []
    at, least = size, time_us
    while at <= LARGEST:
        way, ways = curve.ways(at)
        taken = curve.time_us(way, at)
        if at > size and taken < least:
            found, least = [*found[:1], Larger(at, way, taken)], taken
        if all(curve.time_us(other, at) >= least for other in ways):
            break
        change = _next_change(ways, way, at, curve.bounds)
        if change is None:
            break
        at = change
    return tuple(found)


def _next_change(ways: Sequence[Candidate], way: Candidate, at: int, bounds: Sequence[int]) -> int | None:
    """Return the size at which the library may take another way; None: it never does again."""
    ahead = [bound for bound in bounds if bound > at][:1]
    for other in ways:
        per_byte = (1 / way.bandwidth - 1 / other.bandwidth) / 1000
        crossing = (other.latency_us - way.latency_us) / per_byte if per_byte > 0 else 0.0
        if crossing > at - 1:  # one behind is of a way that a log names, against the library's constants
            ahead.append(max(math.floor(crossing), at) + 1)
    return min(ahead, default=None)


def worth_mention(larger: Sequence[Larger], time_us: float) -> Larger | None:
    """Return the first that takes less than the time, and not about the same."""
    return next((entry for entry in larger if entry.time_us < WORTH_MENTION * time_us), None)


def text_of(kind: str, group: Group, time_us: float, unlimited_us: float, larger: Larger) -> str:
    """Return a sentence that says what more bytes take, and where the time before the fall is limited."""
    size = -(-larger.size // group.ranks) if kind in GATHERED else larger.size
    name = name_of(larger.way.algorithm, larger.way.protocol)
    limited = f", limited from {unlimited_us:.1f} us" if unlimited_us else ""
    return f"{time_us:.1f} us{limited}, and {format_bytes(size)} {larger.time_us:.1f} us ({name})"


def limit_us(kind: str, group: Group, larger: Sequence[Larger]) -> float:
    """Return the most that a collective takes where larger ones take less."""
    return min((entry.time_us for entry in larger), default=math.inf) * MOST_FALL[kind][group.nodes > 1]
