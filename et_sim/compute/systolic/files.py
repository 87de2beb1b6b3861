"""SCALE-Sim's files: topologies (CSV), with a layer per row, and configurations of arrays (INI).

A row, a convolution or a matrix product, ends with a comma; SCALE-Sim drops the text after the last one. A
convolution whose name contains "DP" is depth-wise, and becomes one layer for each channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct

from et_sim.basics.errors import InputError, did_you_mean
from et_sim.basics.units import plural
from et_sim.compute.operations import refuse_large_filter
from et_sim.compute.systolic.layer import Dimensions, SystolicLayer
from et_sim.machine.systolic import (
    GREATEST_BANDWIDTH,
    LARGEST_MEMORY_KB,
    LARGEST_SIDE,
    Array,
    Dataflow,
    DramBandwidth,
    SystolicRules,
)

LARGEST = 1 << 24
MOST_CHANNELS = 1 << 16
DEPTH_WISE = "DP"
_PRODUCT = ("M", "N", "K")
_CONVOLUTION = (
    "IFMAP height",
    "IFMAP width",
    "filter height",
    "filter width",
    "channels",
    "filters",
    "stride height",
    "stride width",
)


class FileLayout(StrEnum):
    """The kinds of rows of a file."""

    CONVOLUTIONS = "conv"
    PRODUCTS = "gemm"


def parse_topology(text: str, source: str, layout: FileLayout | None = None) -> list[SystolicLayer]:
    """Read the layers of a file; without a layout, the number of columns of the first row decides."""
    layers: list[SystolicLayer] = []
    for number, line in enumerate(text.splitlines(), start=1):
        place = f"{source}, line {number}"
        cells = [cell.strip() for cell in line.strip().split(",")]
        if number == 1:
            _refuse_layer(cells, place)
        if number == 1 or not line.strip():
            continue
        if layout is None:
            layout = FileLayout.CONVOLUTIONS if len(list(filter(None, cells))) > 4 else FileLayout.PRODUCTS
        layers += _layers(cells, layout, place)
    if not layers:
        raise InputError(
            "there are no layers", place=source, remedy="write a header, and then a layer per line"
        )
    return layers


def _refuse_layer(cells: list[str], place: str) -> None:
    """Refuse a layer in place of the header, which SCALE-Sim skips."""
    sizes = list(filter(None, cells[1:]))
    if sizes and all(cell.isdecimal() for cell in sizes):
        raise InputError(
            "the first line, which SCALE-Sim skips as a header, is a layer",
            place=place,
            remedy="put a line of names before it",
        )


def _layers(cells: list[str], layout: FileLayout, place: str) -> Iterator[SystolicLayer]:
    is_product = layout == FileLayout.PRODUCTS
    names = _PRODUCT if is_product else _CONVOLUTION
    least, most = len(names) + (is_product), len(names) + 1
    is_closed, given = not cells[-1], cells[:-1] if not cells[-1] else cells
    if not least <= len(given) <= most or not given[0]:
        columns = ", ".join(("name", *names)) + ("" if is_product else " (which may be left out)")
        layout = FileLayout.CONVOLUTIONS if is_product else FileLayout.PRODUCTS
        other = f"--input-type {layout} reads the other layout"
        cause = f"the row has {plural(len(given), 'column')}" if given[0] else "the layer has no name"
        raise InputError(cause, place=place, remedy=f"a row has the columns {columns}; {other}")
    sizes = [_size(name, cell, place) for name, cell in zip(names, given[1:], strict=False)]
    if is_product:
        yield SystolicLayer.product(given[0], *sizes, place=place)
        return
    if len(sizes) == len(names) and not is_closed and sizes[-1] != sizes[-2]:
        raise InputError(
            f"the row does not end with a comma, so that SCALE-Sim drops the stride width {sizes[-1]}",
            place=place,
            remedy="end the row with a comma",
        )
    sizes += sizes[-1:] * (len(names) - len(sizes))
    yield from _convolutions(given[0], Dimensions(*sizes), place)


def _convolutions(name: str, size: Dimensions, place: str) -> Iterator[SystolicLayer]:
    refuse_large_filter(size, place, InputError)
    if DEPTH_WISE not in name:
        yield SystolicLayer(name, size, place)
        return
    if size.channels > MOST_CHANNELS:
        raise InputError(
            f"{name} is depth-wise and has {size.channels:,} channels, each of which is a layer",
            place=place,
            remedy=f"give at most {MOST_CHANNELS:,} channels, or a name without {DEPTH_WISE}",
        )
    for channel in range(size.channels):
        yield SystolicLayer(f"{name}Channel_{channel}", size._replace(channels=1), place)


def _size(name: str, cell: str, place: str) -> int:
    if not (cell.isascii() and cell.isdigit() and 1 <= int(cell[:30]) <= LARGEST):
        raise InputError(
            f"{name} is {cell!r}", place=place, remedy=f"give a whole number from 1 to {LARGEST:,}"
        )
    return int(cell)


_ARCHITECTURE, _PRESETS = "architecture_presets", "run_presets"
_UNUSED = ("IfmapOffset", "FilterOffset", "OfmapOffset", "MemoryBanks")
_KEYS = MappingProxyType(
    {
        "general": ("run_name",),
        _ARCHITECTURE: (
            "ArrayHeight",
            "ArrayWidth",
            "IfmapSramSzkB",
            "FilterSramSzkB",
            "OfmapSramSzkB",
            "Dataflow",
            "Bandwidth",
            *_UNUSED,
        ),
        "network_presets": ("TopologyCsvLoc",),
        _PRESETS: ("InterfaceBandwidth",),
    }
)


class Config(Struct, frozen=True):
    """The array, the name of the run, and given keys without effect."""

    array: Array
    run_name: str
    without_effect: tuple[str, ...]


class _Value(Struct, frozen=True):
    line: int
    text: str


def parse_config(text: str, source: str, rules: SystolicRules = SystolicRules.SCALE_SIM) -> Config:
    """Read a configuration."""
    given = dict(_values(text, source))
    reader = _Reader(given, source)
    mode = DramBandwidth(
        reader.choice(_PRESETS, "InterfaceBandwidth", [bandwidth.value for bandwidth in DramBandwidth])
    )
    array = Array(
        height=reader.number("ArrayHeight", LARGEST_SIDE),
        width=reader.number("ArrayWidth", LARGEST_SIDE),
        ifmap_kb=reader.number("IfmapSramSzkB", LARGEST_MEMORY_KB),
        filter_kb=reader.number("FilterSramSzkB", LARGEST_MEMORY_KB),
        ofmap_kb=reader.number("OfmapSramSzkB", LARGEST_MEMORY_KB),
        dataflow=Dataflow(
            reader.choice(_ARCHITECTURE, "Dataflow", [dataflow.value for dataflow in Dataflow])
        ),
        mode=mode,
        bandwidths=reader.bandwidths() if mode == DramBandwidth.GIVEN else (10,),
        rules=rules,
    )
    unused = [*_UNUSED, *(["Bandwidth"] if mode == DramBandwidth.CALCULATED else [])]
    name = given.get(("general", "run_name"), _Value(0, "scale_run")).text
    named = {"TopologyCsvLoc"} & {key for _, key in given}
    return Config(array, name, (*(key for key in unused if (_ARCHITECTURE, key) in given), *named))


def _values(text: str, source: str) -> Iterator[tuple[tuple[str, str], _Value]]:
    """Yield section and key, in the spelling of `_KEYS`, and the value."""
    section, seen = "", dict[tuple[str, str], int]()
    for number, line in enumerate(text.splitlines(), start=1):
        line, place = line.strip(), f"{source}, line {number}"
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            section = line.strip("[] \t")
            if section not in _KEYS or line[-1] != "]":
                near = did_you_mean(section, tuple(_KEYS))
                raise InputError(
                    f"there is no section [{section}]",
                    place=place,
                    remedy=f"{near} known: {', '.join(_KEYS)}".strip(),
                )
            continue
        cut = min((at for at in (line.find("="), line.find(":")) if at > 0), default=0)
        key, value = line[:cut].strip(), line[cut + 1 :].strip()
        if not cut or not section:
            problem = "is not a key with a value" if section else "is before the first section"
            raise InputError(
                f"{line!r} {problem}", place=place, remedy="write [section], and below it key = value"
            )
        known = {name.lower(): name for name in _KEYS[section]}
        if key.lower() not in known:
            raise InputError(
                f"there is no key {key!r} in [{section}]", place=place, remedy=_near_key(key, section)
            )
        key_path = section, known[key.lower()]
        if key_path in seen:
            raise InputError(
                f"{key} is given twice", place=place, remedy=f"line {seen[key_path]} gives it too: keep one"
            )
        seen[key_path] = number
        yield key_path, _Value(number, value)


def _near_key(key: str, section: str) -> str:
    home = {name: place for place, names in _KEYS.items() for name in names}
    near = did_you_mean(key, tuple(home))
    where = next((name for name in home if f"'{name}'" in near), None)
    if where is not None and home[where] != section:
        return f"{near} it belongs to [{home[where]}]"
    return near or f"known: {', '.join(_KEYS[section])}"


class _Reader:
    """The values of a file by key, checked."""

    def __init__(self, given: dict[tuple[str, str], _Value], source: str) -> None:
        self._given, self._source = given, source

    def number(self, key: str, most: int) -> int:
        value = self._get(_ARCHITECTURE, key)
        return self._whole(key, value, value.text, most)

    def choice(self, section: str, key: str, choices: list[str]) -> str:
        value = self._get(section, key)
        if value.text not in choices:
            spellings = (value.text, value.text.lower(), value.text.upper())
            near = next(filter(None, (did_you_mean(spelling, choices) for spelling in spellings)), "")
            raise InputError(
                f"{key} is {value.text!r}",
                place=self._place(value),
                remedy=f"{near} it is one of {', '.join(choices)}".strip(),
            )
        return value.text

    def bandwidths(self) -> tuple[int, ...]:
        value = self._get(_ARCHITECTURE, "Bandwidth")
        given = tuple(
            self._whole("Bandwidth", value, part.strip(), GREATEST_BANDWIDTH)
            for part in value.text.split(",")
        )
        if len(given) not in (1, 3):
            raise InputError(
                f"Bandwidth has {len(given)} figures",
                place=self._place(value),
                remedy="give one, or one each of ifmap, filter and ofmap",
            )
        return given

    def _whole(self, key: str, value: _Value, text: str, most: int) -> int:
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:30]) <= most):
            raise InputError(
                f"{key} is {text!r}",
                place=self._place(value),
                remedy=f"give a whole number from 1 to {most:,}",
            )
        return int(text)

    def _get(self, section: str, key: str) -> _Value:
        if (section, key) not in self._given:
            raise InputError(
                f"there is no {key}", place=self._source, remedy=f"give it in [{section}]: {key} = …"
            )
        return self._given[section, key]

    def _place(self, value: _Value) -> str:
        return f"{self._source}, line {value.line}"
