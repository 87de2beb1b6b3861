"""A device with a roof for each datatype and level of memory: the model `roofline` of the key `compute`.

Its fields are the keys of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.kernel_names import ATTENTION_KERNELS
from et_sim.basics.quantities import Quantity
from et_sim.documents.keys import Remarks, Section, Slot, ValueKind, key, nearest, show
from et_sim.documents.kinds import (
    NAMED,
    OBJECT,
    choice,
    count,
    number,
    rate,
    section,
    sections,
    size,
    text,
    time,
    watts,
)
from et_sim.machine.datatypes import BITS
from et_sim.machine.efficiencies import EFFICIENCY, TILES, Efficiency, Tile, is_part
from et_sim.machine.kernel_kinds import KINDS, LARGEST, PARTS, KernelKind, constants_of
from et_sim.machine.power import POWER, Power

LARGEST_RATE = 1 << 40
BF16 = "bf16"


class MemoryLevel(Struct, frozen=True):
    """A level of memory; the bandwidth is in decimal GB/s, so bytes per ns."""

    name: str = text("Name in the timeline: `HBM`.", required=True)
    bandwidth: float = rate(
        "Bandwidth of the whole device.",
        unit="GB/s (10^9 bytes)",
        above_minimum=True,
        required=True,
        maximum=LARGEST_RATE,
    )
    capacity: int | None = size(
        "Bytes of the level. Without the key: all tensors fit.", None, above_minimum=True
    )

    def faster(self, multiple: float) -> MemoryLevel:
        """Return the level with its bandwidth multiplied."""
        return replace(self, bandwidth=self.bandwidth * multiple)


def _peaks(slot: Slot, value: Any) -> Mapping[str, float]:
    section = slot.section.entry(slot.key.name, OBJECT.read(slot, value))
    if not value:
        raise section.fault("no peak is given", 'for example {"bf16": 312}')
    for name, figure in value.items():
        if name not in BITS:
            remedy = nearest(name, BITS) or f"known: {', '.join(BITS)}"
            raise section.fault(f"datatype {show(name)} is not known", remedy)
        if not is_part(figure, LARGEST_RATE):
            raise section.fault(f'key "{name}" is {show(figure)}', "allowed: a number > 0, in TFLOPS")
    return MappingProxyType({name: float(figure) for name, figure in value.items()})


PEAKS = ValueKind("peaks", OBJECT.allowed, _peaks)


_portion = partial(number, minimum=0, above_minimum=True, maximum=1, form="a number > 0 and <= 1")


class AttentionKernel(Struct, frozen=True):
    """The parts of the best kernel's rate that another kernel of attention reaches."""

    forward: float = _portion("Part in the forward pass.", 1.0)
    backward: float = _portion("Part in the backward pass.", 1.0)


class RooflineDevice(Struct, frozen=True):
    """A device; rates in TFLOPS, times in ns."""

    timer: ClassVar[str] = "et_sim.compute.device:Device"
    scope: ClassVar[tuple[str, str]] = "kernels at the machine's efficiencies", ""

    peaks: Mapping[str, float] = key(  # by datatype
        PEAKS,
        "Peak rate by datatype, in TFLOPS (integers: TOPS).",
        unit="TFLOPS",
        choices=BITS,
        required=True,
    )
    datatype: str = choice(  # "" if there is none
        "The datatype of nodes that have no attribute `dtype`.", "", name="dtype", choices=BITS
    )
    levels: tuple[MemoryLevel, ...] = sections(
        "Levels of memory, the largest first. The smallest that a kernel's tensors fit serves it.",
        name="memory",
        of=MemoryLevel,
        required=True,
    )
    efficiency: Efficiency = key(
        EFFICIENCY,
        "Part of the peak rate that kernels reach; see [efficiencies](compute.md#efficiencies).",
        Efficiency(),
        stated=1.0,
    )
    memory_efficiency: Efficiency = key(
        EFFICIENCY,
        "Part of a level's bandwidth that kernels reach, by bytes.",
        Efficiency(),
        stated=1.0,
    )
    launch_ns: float = time("Additional time of every kernel.", 0.0, stated=True, name="launch-overhead")
    processors: int = count(  # 0: kernels are not cut into tiles
        "Processors (SMs, compute units) that the tiles of kernels are spread over.",
        0,
        minimum=1,
        maximum=LARGEST,
    )
    tiles: tuple[Tile, ...] = key(
        TILES,
        "Tiles that products may be cut into; the fastest one is used. A fourth number is the part of the "
        "peak that is reached with it.",
        (),
        needs="processors",
    )
    prologue: float = number(
        "Additional steps of K that every tile takes to begin and to end.",
        0.0,
        needs="tiles",
        maximum=LARGEST,
    )
    split_k: int = count(
        "Most parts into which K of a product is split; powers of two are tried.",
        1,
        needs="tiles",
        minimum=1,
        maximum=1 << 10,
    )
    split_ns: float = time(
        "Additional time of a product that is split.", 0.0, name="split-time", needs="split-k"
    )
    query_tile: int = count(  # 0: attention is not cut into tiles
        "Queries of attention that a processor computes at a time. Without the key: attention is not cut.",
        0,
        needs="processors",
        minimum=1,
        maximum=LARGEST,
    )
    query_prologue: float = number(
        "Additional keys in the time of every tile of attention.",
        0.0,
        needs="query-tile",
        maximum=LARGEST,
    )
    row_tile: int = count(
        "Rows (queries of all heads that share keys) that a processor computes at a time, in attention of "
        "few queries: kinds `decode_attention` and `latent_attention`.",
        0,
        needs="processors",
        minimum=1,
        maximum=LARGEST,
    )
    tile_ns: float = time(
        "Time of every wave of such tiles, in addition to their arithmetic and traffic.",
        0.0,
        name="tile-time",
        needs="processors",
    )
    doubling_ns: float = time(
        "Additional time of such attention for each doubling of its keys beyond 64.",
        0.0,
        name="doubling-time",
    )
    exposed: float = number(
        "Part of the shorter one of arithmetic and traffic that the longer one does not hide.",
        0.0,
        name="unhidden-part",
        maximum=1,
    )
    score_operations: float = number(
        "Time of the exponential of a score of attention, in operations of a processor, in addition to its "
        "products.",
        0.0,
        maximum=LARGEST,
    )
    exponential_operations: float = number(
        "Time of the exponential of a score, in operations of a processor in bf16, on units that work beside "
        "those of products: each pair of attention takes the longer of both, in any datatype.",
        0.0,
        maximum=LARGEST,
    )
    kinds: Mapping[str, KernelKind] = key(
        KINDS,
        'Constants of kinds of kernels that override those above, by operation and datatype: `{"gemm fp8": '
        '{"prologue": 2}, "attention": {"launch-overhead": "6us"}}`; see [kinds](compute.md#kinds).',
        MappingProxyType({}),
        of=KernelKind,
    )
    attention_kernels: Mapping[str, AttentionKernel] = key(
        NAMED,
        "Kernels of attention that are slower than the best one, for which `efficiency` holds: the part of "
        "its rate that they reach. A kernel without an entry is as fast as the best.",
        MappingProxyType({}),
        of=AttentionKernel,
    )
    full_sums: float = number(
        "Part of its rate that a product reaches if its sums are kept in fp32 throughout (`full-sums` in its "
        "shape), on tensor cores that add in fewer bits, such as those of Hopper in fp8. Power is unchanged.",
        1.0,
        stated=True,
        above_minimum=True,
        maximum=1,
    )
    power: Power | None = section(  # None: it keeps its full clock
        "Power of the device as a function of its clock; requires `power-cap`.",
        None,
        of=Power,
    )
    power_cap: float | None = watts(
        "Limit of the device's power: the clock of a kernel falls until its power is at most the cap; "
        "see [power](compute.md#power). Without the key: the full clock.",
        None,
        needs=POWER,
    )

    def check(self, _: Mapping[str, Any], section: Section, __: Remarks) -> None:
        """Refuse figures that contradict each other."""
        if self.power is not None:
            self.power.check_with(self.peaks, self.power_cap, section)
        for name in self.attention_kernels:
            if name not in ATTENTION_KERNELS:
                cause = f'key "attention-kernels" names "{name}"'
                raise section.fault(
                    cause, f"allowed: {', '.join(ATTENTION_KERNELS)}", key="attention-kernels"
                )
        if self.exponential_operations and BF16 not in self.peaks:
            raise section.fault(
                f'key "exponential-operations" counts operations in {BF16}, which has no peak',
                f"peaks: {', '.join(self.peaks)}",
            )
        if self.datatype and self.datatype not in self.peaks:
            raise section.fault(
                f'key "dtype" is "{self.datatype}", which has no peak', f"peaks: {', '.join(self.peaks)}"
            )
        for index, (larger, level) in enumerate(pairwise(self.levels), 1):
            if level.capacity is None or (larger.capacity is not None and level.capacity >= larger.capacity):
                raise section.entry("memory", {}, index).fault(
                    f'"{level.name}" is not smaller than "{larger.name}" before it',
                    'give the largest level first, and a "capacity" to all later ones',
                )
        for name, entry in self.kinds.items():
            if not self.processors and (entry.tiles or entry.query_tile or entry.row_tile):
                cause = f'key "kinds" cuts "{name}" into tiles, and the device has no "processors"'
                raise section.fault(cause, 'give "processors", or leave the tiles out', key="kinds")

    def of_kind(self, operation: str, datatype: str) -> RooflineDevice:
        """Return the device with its constants for kernels of an operation and a datatype."""
        changes = constants_of(self.kinds, operation, datatype)
        for name in PARTS:
            if name in changes:
                changes[name] = getattr(self, name).with_curve(operation, changes[name])
        if self.exponential_operations:  # as long in any datatype
            rate = self.peaks.get(datatype, self.peaks[BF16]) / self.peaks[BF16]
            changes["exponential_operations"] = self.exponential_operations * rate
        return replace(self, **changes)

    def without_processors(self, number: int) -> RooflineDevice:
        """Return the device without some of its processors, at most half of them; memory is as fast."""
        left = self.processors - min(number, self.processors // 2)
        if left == self.processors:
            return self
        peaks = {name: peak * left / self.processors for name, peak in self.peaks.items()}
        return replace(self, processors=left, peaks=peaks)

    @property
    def at_full_clock(self) -> RooflineDevice:
        """Return the device without a power cap, for kernels that are too short for it."""
        return replace(self, power=None, power_cap=None)

    @property
    def figures(self) -> tuple[str, ...]:
        """Return the names of figures that can be multiplied."""
        return tuple(self._places)

    @property
    def _places(self) -> dict[str, tuple[str, str]]:
        """Return the field of every figure, and its key in the field."""
        places = {f"peak of {datatype}": ("peaks", datatype) for datatype in self.peaks}
        places |= {Quantity.BANDWIDTH.of(level.name): ("levels", level.name) for level in self.levels}
        for name in PARTS:
            others = (kind.partition(" ")[0] for kind, entry in self.kinds.items() if getattr(entry, name))
            for kind in (*getattr(self, name).curves, *others):
                places[f"{name.replace('_', ' ')} of {kind}"] = (name, kind)
        return places | ({Quantity.LAUNCH.value: ("launch_ns", "")} if self.launch_ns else {})

    def scaled(self, name: str, multiple: float) -> tuple[RooflineDevice, float] | None:
        """Return the device with one figure multiplied; a curve is multiplied as a whole."""
        if name not in self._places:
            return None
        field_name, key = self._places[name]
        before: Any = getattr(self, field_name)
        after: Any
        match field_name:
            case "peaks":
                after = MappingProxyType({**before, key: before[key] * multiple})
                power = self.power and self.power.faster(key, multiple)
                return replace(self, peaks=after, power=power), multiple
            case "levels":
                after = tuple(curve.faster(multiple) if curve.name == key else curve for curve in before)
            case "launch_ns":
                kinds = {kind: entry.slower(multiple) for kind, entry in self.kinds.items()}
                names = ("launch_ns", "split_ns", "tile_ns", "doubling_ns")
                times = {name: getattr(self, name) * multiple for name in names}
                return replace(self, **times, kinds=MappingProxyType(kinds)), multiple
            case _:
                after = before.better(key, multiple)
                kinds = {
                    kind: entry.better(field_name, multiple) if kind.partition(" ")[0] == key else entry
                    for kind, entry in self.kinds.items()
                }
                return replace(self, **{field_name: after}, kinds=MappingProxyType(kinds)), multiple
        changed: dict[str, Any] = {field_name: after}
        return replace(self, **changed), multiple
