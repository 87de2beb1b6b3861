"""A systolic array and its three memories, and whose rules are applied.

Not here: files that describe one (`config_file`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from et_sim.basics.units import LONGEST_NS


class Dataflow(StrEnum):
    """Which operand stays in the array."""

    OUTPUT = "os"
    WEIGHT = "ws"
    INPUT = "is"


class Bandwidth(StrEnum):
    """Whether the bandwidth to DRAM is what the array needs, or what the user gives."""

    CALCULATED = "CALC"
    GIVEN = "USER"


class Rules(StrEnum):
    """Whose rules are applied; docs/systolic.md names each that differs."""

    SCALE_SIM = "scale-sim"
    CORRECTED = "corrected"


LARGEST_SIDE = 1 << 16
LARGEST_MEMORY_KB = 1 << 30
GREATEST_BANDWIDTH = 1 << 40


@dataclass(frozen=True, slots=True)
class Array:
    """Sizes in processing elements and KiB; words are bytes; bandwidth in words per cycle."""

    height: int
    width: int
    ifmap_kb: int
    filter_kb: int
    ofmap_kb: int
    dataflow: Dataflow = Dataflow.WEIGHT
    mode: Bandwidth = Bandwidth.CALCULATED
    bandwidths: tuple[int, ...] = (10,)  # of ifmap, filter and ofmap, or of each
    rules: Rules = Rules.SCALE_SIM

    @property
    def elements(self) -> int:
        """Processing elements."""
        return self.height * self.width

    @property
    def is_corrected(self) -> bool:
        """Whether SCALE-Sim's defects are mended."""
        return self.rules == Rules.CORRECTED

    @property
    def is_limited(self) -> bool:
        """Whether bandwidth can make the array wait."""
        return self.mode == Bandwidth.GIVEN

    def bandwidth(self, operand: int) -> int:
        """Words per cycle of an operand: 0 is ifmap, 1 filter, 2 ofmap.

        SCALE-Sim uses the first figure for all of them. Where none is given, it lets reads start at ten
        words per cycle, and writes leave as fast as the array makes them.
        """
        if not self.is_limited:
            return self.width if operand == 2 else 10
        is_each = self.is_corrected and len(self.bandwidths) > 1
        return self.bandwidths[operand if is_each else 0]


CLOCK, DRAM_BANDWIDTH = "array clock", "DRAM bandwidth"
_SIZES = MappingProxyType(
    {
        "array height": ("height", LARGEST_SIDE),
        "array width": ("width", LARGEST_SIDE),
        "ifmap SRAM": ("ifmap_kb", LARGEST_MEMORY_KB),
        "filter SRAM": ("filter_kb", LARGEST_MEMORY_KB),
        "ofmap SRAM": ("ofmap_kb", LARGEST_MEMORY_KB),
    }
)


@dataclass(frozen=True, slots=True)
class ClockedArray:
    """An array, and its cycles per nanosecond."""

    array: Array
    clock_ghz: float = 1.0

    def duration_ns(self, cycles: int) -> int:
        """How long so many cycles last, cut to whole nanoseconds."""
        return int(min(cycles / self.clock_ghz, float(2 * LONGEST_NS)))

    @property
    def figures(self) -> tuple[str, ...]:
        """What can be multiplied: memories and bandwidth matter only where bandwidth is given."""
        sides = tuple(_SIZES)[:2]
        return (*_SIZES, DRAM_BANDWIDTH, CLOCK) if self.array.is_limited else (*sides, CLOCK)

    def scaled(self, name: str, multiple: float) -> tuple[ClockedArray, float] | None:
        """Sizes and words per cycle stay whole, 1 at least and as much as a file may say at most."""
        if name not in self.figures:
            return None
        if name == CLOCK:
            return replace(self, clock_ghz=self.clock_ghz * multiple), multiple
        if name == DRAM_BANDWIDTH:
            words = self.array.bandwidths
            moved = tuple(_whole(one, multiple, GREATEST_BANDWIDTH) for one in words)
            return replace(self, array=replace(self.array, bandwidths=moved)), sum(moved) / sum(words)
        field, most = _SIZES[name]
        size: int = getattr(self.array, field)
        after = _whole(size, multiple, most)
        changed: dict[str, Any] = {field: after}
        return replace(self, array=replace(self.array, **changed)), after / size


def _whole(size: int, multiple: float, most: int) -> int:
    return min(max(round(size * multiple), 1), most)
