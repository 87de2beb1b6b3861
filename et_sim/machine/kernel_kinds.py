"""Constants of single kinds of kernels, such as `gemm fp8` or `attention`, which override the device's.

An entry is named by an operation and optionally a datatype. It holds for kernels of that operation; kinds of
one family take their launch and tiles from their lead (`gemm`, `attention`) unless they have their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.kernel_names import (
    DECODE_ATTENTION,
    GEMM_BLOCKS,
    GROUPED_BLOCKS,
    GROUPED_NARROW,
    LATENT_ATTENTION,
)
from et_sim.documents.keys import Slot, ValueKind, build, key, keys_of, nearest, read_keys, show
from et_sim.documents.kinds import count, number, time
from et_sim.machine.datatypes import BITS
from et_sim.machine.efficiencies import CURVE, TILES, Curve, Tile

LARGEST = 1 << 20  # steps, or queries
LEADS: Mapping[str, str] = MappingProxyType(
    {
        "grouped_gemm": "gemm",
        "conv": "gemm",
        "attention_backward": "attention",
        DECODE_ATTENTION: "attention",
        LATENT_ATTENTION: "attention",
        GEMM_BLOCKS: "gemm",
        GROUPED_BLOCKS: "gemm",
        GROUPED_NARROW: "gemm",
    }
)
PARTS = ("efficiency", "memory_efficiency")  # fields that are not taken from the lead


class KernelKind(Struct, frozen=True):
    """Constants of a kind of kernels; None: the device's."""

    efficiency: Curve | None = key(CURVE, "Overrides `efficiency` of the operation.", None)
    memory_efficiency: Curve | None = key(CURVE, "Overrides `memory-efficiency` of the operation.", None)
    launch_ns: float | None = time(
        "Overrides `launch-overhead`; includes kernels that prepare and finish the operation.",
        None,
        name="launch-overhead",
    )
    tiles: tuple[Tile, ...] | None = key(TILES, "Overrides `tiles`.", None)
    prologue: float | None = number("Overrides `prologue`.", None, maximum=LARGEST)
    split_k: int | None = count("Overrides `split-k`.", None, minimum=1, maximum=1 << 10)
    split_ns: float | None = time("Overrides `split-time`.", None, name="split-time")
    query_tile: int | None = count("Overrides `query-tile`.", None, minimum=1, maximum=LARGEST)
    query_prologue: float | None = number("Overrides `query-prologue`.", None, maximum=LARGEST)
    score_operations: float | None = number("Overrides `score-operations`.", None, maximum=LARGEST)
    row_tile: int | None = count("Overrides `row-tile`.", None, minimum=1, maximum=LARGEST)
    tile_ns: float | None = time("Overrides `tile-time`.", None, name="tile-time")
    doubling_ns: float | None = time("Overrides `doubling-time`.", None, name="doubling-time")

    exposed: float | None = number("Overrides `unhidden-part`.", None, name="unhidden-part", maximum=1)

    def slower(self, multiple: float) -> KernelKind:
        """Return the constants with the times of launches and splits multiplied."""
        times = {name: getattr(self, name) for name in ("launch_ns", "split_ns", "tile_ns", "doubling_ns")}
        return replace(self, **{name: ns * multiple for name, ns in times.items() if ns is not None})

    def better(self, field: str, multiple: float) -> KernelKind:
        """Return the constants with one of the efficiencies multiplied, if it is given."""
        curve: Curve | None = getattr(self, field)
        changed: dict[str, Any] = {} if curve is None else {field: curve.raised(multiple)}
        return replace(self, **changed)


FIELDS = KernelKind.__struct_fields__


def _kinds(slot: Slot, value: Any) -> Mapping[str, KernelKind]:
    if not isinstance(value, dict):
        raise slot.refusal(value)
    whole = slot.section.entry(slot.key.name, value)
    kinds: dict[str, KernelKind] = {}
    for name, entry in value.items():
        words = name.split(" ")
        if len(words) > 2 or (len(words) == 2 and words[1] not in BITS):
            remedy = nearest(words[-1], BITS) or 'write "OPERATION" or "OPERATION DTYPE"'
            raise whole.fault(f"kind {show(name)} is not known", remedy)
        if not isinstance(entry, dict):
            raise whole.fault(f"key {show(name)} is {show(entry)}", "allowed: an object")
        section = whole.entry(name, entry)
        given = read_keys(section, keys_of(KernelKind), slot.remarks)
        kinds[name] = build(KernelKind, given, section, slot.remarks)
    return MappingProxyType(kinds)


KINDS = ValueKind(
    "objects by kind",
    lambda _: 'objects by "OPERATION" or "OPERATION DTYPE", each with some of the keys',
    _kinds,
)


def constants_of(kinds: Mapping[str, KernelKind], operation: str, datatype: str) -> dict[str, Any]:
    """Return the fields of the device that kernels of an operation and a datatype override."""
    found: dict[str, Any] = {}
    for name, fields in _entries(operation, datatype):
        if name in kinds:
            values = ((field, getattr(kinds[name], field)) for field in fields)
            found |= {field: value for field, value in values if value is not None}
    return found


def _entries(operation: str, datatype: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the names of entries that apply, the most specific last, and the fields of each that count."""
    lead = LEADS.get(operation)
    if lead is not None:
        cut = tuple(field for field in FIELDS if field not in PARTS)
        yield from ((lead, cut), (f"{lead} {datatype}", cut))
    yield from ((operation, FIELDS), (f"{operation} {datatype}", FIELDS))
