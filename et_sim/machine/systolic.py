"""A systolic array with its three memories, and the rules that are applied.

Its fields are the keys of the model `systolic`, of `compute` in the system file.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.units import LONGEST_NS
from et_sim.documents.keys import Remarks, Section, inline
from et_sim.documents.kinds import choice, count, number


class Dataflow(StrEnum):
    """The operand that stays in the array."""

    OUTPUT = "os"
    WEIGHT = "ws"
    INPUT = "is"


class DramBandwidth(StrEnum):
    """The source of the bandwidth to DRAM: calculated from the array's needs, or given."""

    CALCULATED = "CALC"
    GIVEN = "USER"


class SystolicRules(StrEnum):
    """The rules that are applied; docs/systolic.md lists their differences."""

    SCALE_SIM = "scale-sim"
    CORRECTED = "corrected"


LARGEST_SIDE = 1 << 16
LARGEST_MEMORY_KB = 1 << 30
GREATEST_BANDWIDTH = 1 << 40

side = partial(count, unit="processing elements", minimum=1, maximum=LARGEST_SIDE, required=True)
memory = partial(count, unit="KiB", minimum=1, maximum=LARGEST_MEMORY_KB, required=True)


class Array(Struct, frozen=True):
    """An array; sizes in processing elements and KiB; words are bytes; bandwidth in words per cycle."""

    height: int = side("Rows of the array.", name="array-height")
    width: int = side("Columns of the array.", name="array-width")
    ifmap_kb: int = memory("Memory for the first operand.", name="ifmap-sram-kb")
    filter_kb: int = memory("Memory for the second operand.", name="filter-sram-kb")
    ofmap_kb: int = memory("Memory for the result.", name="ofmap-sram-kb")
    dataflow: Dataflow = choice(
        "The operand that stays in the array: the output, the weights or the input.",
        Dataflow.WEIGHT,
        choices=Dataflow,
        required=True,
    )
    mode: DramBandwidth = DramBandwidth.CALCULATED
    bandwidths: tuple[int, ...] = count(  # one each for ifmap, filter and ofmap, or one for all
        "Words that each operand moves per cycle to or from DRAM. Without the key: unlimited.",
        (10,),
        name="bandwidth",
        unit="words per cycle",
        minimum=1,
        maximum=GREATEST_BANDWIDTH,
        becomes=lambda words: (words,),
    )
    rules: SystolicRules = choice(
        "The rules that are applied: SCALE-Sim's, or [corrected ones](systolic.md#corrected-rules).",
        SystolicRules.SCALE_SIM,
        stated=True,
        choices=SystolicRules,
    )

    @property
    def elements(self) -> int:
        """Return the number of processing elements."""
        return self.height * self.width

    @property
    def is_corrected(self) -> bool:
        """Check whether SCALE-Sim's defects are corrected."""
        return self.rules == SystolicRules.CORRECTED

    @property
    def is_limited(self) -> bool:
        """Check whether the bandwidth can make the array wait."""
        return self.mode == DramBandwidth.GIVEN

    def bandwidth(self, operand: int) -> int:
        """Return the words per cycle of an operand: 0 is ifmap, 1 filter, 2 ofmap.

        SCALE-Sim uses the first figure for all of them. Without a figure, reads start at ten words per cycle,
        and writes leave as fast as the array makes them.
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


class ClockedArray(Struct, frozen=True):
    """An array, and its cycles per nanosecond."""

    timer: ClassVar[str] = "et_sim.compute.systolic:Systolic"
    scope: ClassVar[tuple[str, str]] = "kernels on systolic arrays, clock by clock", ""
    note: ClassVar[str] = "Sizes are counted in words of one byte, as in SCALE-Sim"

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
        """Return the mode: a given bandwidth limits the array."""
        return {"mode": DramBandwidth.GIVEN if "bandwidth" in given else DramBandwidth.CALCULATED}

    def duration_ns(self, cycles: int) -> int:
        """Return the duration of cycles, cut to whole nanoseconds."""
        return int(min(cycles / self.clock_ghz, float(2 * LONGEST_NS)))

    @property
    def figures(self) -> tuple[str, ...]:
        """Return the figures that can be multiplied; memories count only with a given bandwidth."""
        sides = tuple(_SIZES)[:2]
        return (*_SIZES, DRAM_BANDWIDTH, CLOCK) if self.array.is_limited else (*sides, CLOCK)

    def scaled(self, name: str, multiple: float) -> tuple[ClockedArray, float] | None:
        """Return the array with a figure multiplied; sizes stay whole and within their limits."""
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
