"""A device with a roof for each datatype and level of memory, as the system file describes it.

Not here: what a kernel takes on it (`et_sim.compute.device`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from et_sim.machine.model import System

ANY = ""  # the datatype of a peak that holds for all of them


def peaks_of(system: System) -> dict[str, float]:
    """In 10^12 operations per second; no datatype that rules for different kernels differ about."""
    found: dict[str, set[float]] = {}
    for rule in system.compute:
        if isinstance(rule.settings, RooflineDevice):
            for datatype, peak in rule.settings.peaks.items():
                found.setdefault(datatype, set()).add(peak)
    if system.roofline and system.peak_perf and not found:
        found[ANY] = {system.peak_perf}
    return {datatype: peaks.pop() for datatype, peaks in sorted(found.items()) if len(peaks) == 1}


FloatColumn = npt.NDArray[np.float64]
OTHER = "other"  # operations without an entry of their own


@dataclass(frozen=True, slots=True)
class MemoryLevel:
    """Bandwidth in decimal GB/s, so bytes per ns; without a capacity, everything fits."""

    name: str
    bandwidth: float
    capacity: int | None = None

    def faster(self, multiple: float) -> MemoryLevel:
        """With so many times the bandwidth."""
        return replace(self, bandwidth=self.bandwidth * multiple)


@dataclass(frozen=True, slots=True)
class Curve:
    """Which part of a peak is reached, by size: `peak` x / (x + `half`), or measured points.

    Between points it is a line over the logarithm of the size, beyond them that of the nearest.
    """

    peak: float = 1.0
    half: float = 0.0
    sizes: tuple[float, ...] = ()
    values: tuple[float, ...] = ()

    def at(self, size: FloatColumn) -> FloatColumn:
        """The part that is reached by operations of some sizes."""
        found: FloatColumn
        if self.sizes:
            found = self.peak * np.interp(np.log(np.maximum(size, 1.0)), np.log(self.sizes), self.values)
        else:
            found = self.peak * size / (size + self.half) if self.half else np.full(len(size), self.peak)
        return found


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Curves by kind of operation."""

    curves: Mapping[str, Curve] = field(default_factory=lambda: MappingProxyType({OTHER: Curve()}))

    def of(self, kind: str) -> Curve:
        """That of a kind of operation."""
        return self.curves.get(kind) or self.curves.get(OTHER) or Curve()

    def better(self, kind: str, multiple: float) -> Efficiency:
        """With the curve of a kind multiplied."""
        curve = self.curves[kind]
        raised = replace(curve, peak=curve.peak * multiple)
        return Efficiency(MappingProxyType({**self.curves, kind: raised}))


@dataclass(frozen=True, slots=True)
class Tile:
    """Of a product's output, and the step in which it goes through the inner side; `part`: of the peak that
    processors reach with such tiles."""

    rows: int
    columns: int
    step: int
    part: float = 1.0


@dataclass(frozen=True, slots=True)
class RooflineDevice:
    """Rates in TFLOPS, time in ns."""

    peaks: Mapping[str, float]  # by datatype
    datatype: str  # of nodes that say none; "" if there is none
    levels: tuple[MemoryLevel, ...]  # the largest first
    efficiency: Efficiency = Efficiency()
    memory_efficiency: Efficiency = Efficiency()
    launch_ns: float = 0.0
    processors: int = 0  # that tiles are spread over; 0: nothing is cut into tiles
    tiles: tuple[Tile, ...] = ()
    prologue: float = 0.0  # steps that a tile takes besides its own
    split_k: int = 1  # parts into which the inner side may be split, at most
    split_ns: float = 0.0  # of a product that is split
    query_tile: int = 0  # queries of a tile of attention; 0: it is not cut into tiles
    query_prologue: float = 0.0  # keys that such a tile takes besides those that it sees
    sustained: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))  # rates, by datatype

    @property
    def figures(self) -> tuple[str, ...]:
        """What can be multiplied."""
        return tuple(self._places)

    @property
    def _places(self) -> dict[str, tuple[str, str]]:
        """The field of every figure, and what it is called there."""
        found = {f"peak of {one}": ("peaks", one) for one in self.peaks}
        found |= {f"bandwidth of {one.name}": ("levels", one.name) for one in self.levels}
        found |= {f"efficiency of {kind}": ("efficiency", kind) for kind in self.efficiency.curves}
        for kind in self.memory_efficiency.curves:
            found[f"memory efficiency of {kind}"] = ("memory_efficiency", kind)
        return found | ({"launch overhead": ("launch_ns", "")} if self.launch_ns else {})

    def scaled(self, name: str, multiple: float) -> tuple[RooflineDevice, float] | None:
        """With one figure multiplied; a curve is, as a whole."""
        if name not in self._places:
            return None
        field_name, key = self._places[name]
        before: Any = getattr(self, field_name)
        after: Any
        match field_name:
            case "peaks":
                after = MappingProxyType({**before, key: before[key] * multiple})
                sustained = {
                    one: rate * (multiple if one == key else 1) for one, rate in self.sustained.items()
                }
                return replace(self, peaks=after, sustained=MappingProxyType(sustained)), multiple
            case "levels":
                after = tuple(one.faster(multiple) if one.name == key else one for one in before)
            case "launch_ns":
                split_ns = self.split_ns * multiple
                return replace(self, launch_ns=before * multiple, split_ns=split_ns), multiple
            case _:
                after = before.better(key, multiple)
        changed: dict[str, Any] = {field_name: after}
        return replace(self, **changed), multiple
