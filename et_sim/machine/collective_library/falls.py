"""Falls of a curve of time against size: at a change of the algorithm, more bytes may take less time.

A library chooses by its own constants, and the time of the choice follows from measurements. Where the two
disagree, the candidate that the library leaves at a size is slower there than the one that it takes from then
on. Real libraries have such falls, and measured tables show how large they are. A calibration that is used
beyond the sizes and ranks of its fit may have larger falls, so the time before a fall is limited.
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
    LibraryGroup,
)
from et_sim.machine.collective_library.constants import name_of

# The most by which the time of a size may exceed that of any larger one: on one node, and between nodes. No
# limit exceeds the largest fall in the measured tables of its class: in all-reduces 1.42 (8 H200) and 1.22
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
GATHERED = (ALL_GATHER,)  # the library counts the bytes of all ranks together


class Larger(Struct, frozen=True):
    """A larger size, and the library's choice and its time there."""

    size: int  # bytes
    way: Candidate
    time_us: float


class ChoiceCurve(Struct, frozen=True):
    """The choices of a library for a collective of a group, by size."""

    ways: Callable[[int], tuple[Candidate, Sequence[Candidate]]]  # the chosen candidate, and all candidates
    time_us: Callable[[Candidate, int], float]
    bounds: tuple[int, ...]  # ascending sizes at which estimates are not linear


def bounds_of(group: LibraryGroup, channels: int, logged: Sequence[int], factors: int) -> tuple[int, ...]:
    """Return the sizes at which the estimates of candidates change their slope or jump.

    Trees have another factor from each power of two on, and rings between nodes other steps from a size on;
    entries of a log hold from their sizes on.
    """
    powers = [SMALLEST_FACTOR << power for power in range(factors)]
    return tuple(sorted({*powers, PLATEAU * channels * group.ranks, *logged}))


def faster_above(
    curve: ChoiceCurve, size: int, time_us: float, way: Candidate, ways: Sequence[Candidate]
) -> tuple[Larger, ...]:
    """Return larger sizes that take less time than a candidate, the first one and the fastest one.

    The search follows the library's choice from one change to the next, until all candidates take longer.
    Each candidate takes longer with every byte, so the least time is where a candidate begins to be chosen.
    """
    found: list[Larger] = []
    least, change = time_us, _next_change(ways, way, size, curve.bounds)
    while change is not None and change <= LARGEST:
        at = change
        way, ways = curve.ways(at)
        taken = curve.time_us(way, at)
        if taken < least:
            found, least = [*found[:1], Larger(at, way, taken)], taken
        if all(curve.time_us(other, at) >= least for other in ways):
            break
        change = _next_change(ways, way, at, curve.bounds)
    return tuple(found)


def _next_change(ways: Sequence[Candidate], way: Candidate, at: int, bounds: Sequence[int]) -> int | None:
    """Return the size at which the library may change its choice; None if it never does."""
    ahead = [bound for bound in bounds if bound > at][:1]
    for other in ways:
        per_byte = (1 / way.bandwidth - 1 / other.bandwidth) / 1000
        crossing = (other.latency_us - way.latency_us) / per_byte if per_byte > 0 else 0.0
        if (
            crossing > at - 1
        ):  # a crossing further back comes from a logged choice that contradicts the constants
            ahead.append(max(math.floor(crossing), at) + 1)
    return min(ahead, default=None)


def worth_mention(larger: Sequence[Larger], time_us: float) -> Larger | None:
    """Return the first size whose time is clearly less than this one."""
    return next((entry for entry in larger if entry.time_us < WORTH_MENTION * time_us), None)


def text_of(kind: str, group: LibraryGroup, time_us: float, unlimited_us: float, larger: Larger) -> str:
    """Describe the time of a size and of a larger, faster one, and the limit of the time before a fall."""
    size = -(-larger.size // group.ranks) if kind in GATHERED else larger.size
    name = name_of(larger.way.algorithm, larger.way.protocol)
    limited = f", limited from {unlimited_us:.1f} us" if unlimited_us else ""
    return f"{time_us:.1f} us{limited}, and {format_bytes(size)} {larger.time_us:.1f} us ({name})"


def limit_us(kind: str, group: LibraryGroup, larger: Sequence[Larger]) -> float:
    """Return the limit of a collective's time, given larger sizes that take less."""
    return min((entry.time_us for entry in larger), default=math.inf) * MOST_FALL[kind][group.nodes > 1]
