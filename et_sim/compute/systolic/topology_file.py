"""SCALE-Sim's topologies: a CSV file with a layer per row, convolutions or matrix products.

A row ends with a comma; SCALE-Sim drops what stands behind the last one. A convolution whose name contains
"DP" is depth-wise, and becomes one layer for each channel. Not here: what a layer costs (`report`).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from et_sim.basics.errors import InputError
from et_sim.basics.units import plural
from et_sim.compute.systolic.layer import Dimensions, SystolicLayer

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


class Layout(StrEnum):
    """What the rows of a file are."""

    CONVOLUTIONS = "conv"
    PRODUCTS = "gemm"


def parse_topology(text: str, source: str, layout: Layout | None = None) -> list[SystolicLayer]:
    """The layers of a file; without a layout, the number of columns of the first row tells it."""
    found: list[SystolicLayer] = []
    for number, line in enumerate(text.splitlines(), start=1):
        place = f"{source}, line {number}"
        cells = [cell.strip() for cell in line.strip().split(",")]
        if number == 1:
            _refuse_layer(cells, place)
        if number == 1 or not line.strip():
            continue
        if layout is None:
            layout = Layout.CONVOLUTIONS if len(list(filter(None, cells))) > 4 else Layout.PRODUCTS
        found += _layers(cells, layout, place)
    if not found:
        raise InputError(
            "there are no layers", place=source, remedy="the first line is a header, and each other a layer"
        )
    return found


def _refuse_layer(cells: list[str], place: str) -> None:
    """Refuse a layer where SCALE-Sim skips the header."""
    sizes = list(filter(None, cells[1:]))
    if sizes and all(cell.isdecimal() for cell in sizes):
        raise InputError(
            "a layer stands where SCALE-Sim skips a header",
            place=place,
            remedy="put a line of names before it",
        )


def _layers(cells: list[str], layout: Layout, place: str) -> Iterator[SystolicLayer]:
    is_product = layout == Layout.PRODUCTS
    names = _PRODUCT if is_product else _CONVOLUTION
    least, most = len(names) + (is_product), len(names) + 1
    is_closed, given = not cells[-1], cells[:-1] if not cells[-1] else cells
    if not least <= len(given) <= most or not given[0]:
        columns = ", ".join(("name", *names)) + ("" if is_product else " (which may be left out)")
        other = (
            f"--input-type {Layout.CONVOLUTIONS if is_product else Layout.PRODUCTS} reads the other layout"
        )
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
    refuse_large_filter(size, place)
    if DEPTH_WISE not in name:
        yield SystolicLayer(name, size, place)
        return
    if size.channels > MOST_CHANNELS:
        raise InputError(
            f"{name} is depth-wise and has {size.channels:,} channels, each of which is a layer",
            place=place,
            remedy=f"give {MOST_CHANNELS:,} channels at most, or a name without {DEPTH_WISE}",
        )
    for channel in range(size.channels):
        yield SystolicLayer(f"{name}Channel_{channel}", size._replace(channels=1), place)


def refuse_large_filter(size: Dimensions, place: str) -> None:
    """Refuse a filter that is larger than the image."""
    for what, window, image in (
        ("height", size.filter_height, size.ifmap_height),
        ("width", size.filter_width, size.ifmap_width),
    ):
        if window > image:
            raise InputError(
                f"the filter's {what} {window} is larger than the ifmap's, {image}",
                place=place,
                remedy="make the ifmap as large as the filter at least, padding included",
            )


def _size(name: str, cell: str, place: str) -> int:
    if not (cell.isascii() and cell.isdigit() and 1 <= int(cell[:30]) <= LARGEST):
        raise InputError(
            f"{name} is {cell!r}", place=place, remedy=f"give a whole number from 1 to {LARGEST:,}"
        )
    return int(cell)
