"""A systolic array and its three memories, and whose rules are applied.

Its fields are the keys of the model `systolic`, of `compute` in the system file. Not here: SCALE-Sim's files,
which describe one too (`config_file`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.basics.units import LONGEST_NS
from et_sim.documents.keys import Remarks, Section, inline
from et_sim.documents.kinds import choice, count, number


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

side = partial(count, unit="processing elements", minimum=1, maximum=LARGEST_SIDE, required=True)
memory = partial(count, unit="KiB", minimum=1, maximum=LARGEST_MEMORY_KB, required=True)


@quick_dataclass(frozen=True)
class Array:
    """Sizes in processing elements and KiB; words are bytes; bandwidth in words per cycle."""

    height: int = side("Rows of the array.", name="array-height")
    width: int = side("Columns of the array.", name="array-width")
    ifmap_kb: int = memory("Memory for the first operand.", name="ifmap-sram-kb")
    filter_kb: int = memory("Memory for the second operand.", name="filter-sram-kb")
    ofmap_kb: int = memory("Memory for the result.", name="ofmap-sram-kb")
    dataflow: Dataflow = choice(
        "What stays in the array: the output, the weights or the input.",
        Dataflow.WEIGHT,
        choices=Dataflow,
        required=True,
    )
    mode: Bandwidth = Bandwidth.CALCULATED
    bandwidths: tuple[int, ...] = count(  # of ifmap, filter and ofmap, or of each
        "Words that each operand moves per cycle to or from DRAM. Without the key: as many as it needs.",
        (10,),
        name="bandwidth",
        unit="words per cycle",
        minimum=1,
        maximum=GREATEST_BANDWIDTH,
        becomes=lambda words: (words,),
    )
    rules: Rules = choice(
        "Whose rules are applied: those of SCALE-Sim, or [corrected ones](systolic.md#corrected-rules).",
        Rules.SCALE_SIM,
        stated=True,
        choices=Rules,
    )

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


@quick_dataclass(frozen=True)
class ClockedArray:
    """An array, and its cycles per nanosecond."""

    timer: ClassVar[str] = "et_sim.compute.systolic:Systolic"
    scope: ClassVar[tuple[str, str]] = "kernels on systolic arrays, clock by clock", ""
    note: ClassVar[str] = "Sizes are counted in words of a byte, as SCALE-Sim does"

    array: Array = inline(Array)
    clock_ghz: float = number(
        "Cycles per nanosecond; times are cut to whole nanoseconds.",
        1.0,
        stated=True,
        unit="GHz",
        above_minimum=True,
        maximum=1000,
    )

    @staticmethod
    def complete(given: Mapping[str, Any], _: Section, __: Remarks) -> dict[str, Any]:
        """A bandwidth that is given limits the array."""
        return {"mode": Bandwidth.GIVEN if "bandwidth" in given else Bandwidth.CALCULATED}

    def duration_ns(self, cycles: int) -> int:
        """How long the cycles last, cut to whole nanoseconds."""
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
            moved = tuple(_whole(bandwidth, multiple, GREATEST_BANDWIDTH) for bandwidth in words)
            return replace(self, array=replace(self.array, bandwidths=moved)), sum(moved) / sum(words)
        field, most = _SIZES[name]
        size: int = getattr(self.array, field)
        after = _whole(size, multiple, most)
        changed: dict[str, Any] = {field: after}
        return replace(self, array=replace(self.array, **changed)), after / size


def _whole(size: int, multiple: float, most: int) -> int:
    return min(max(round(size * multiple), 1), most)
