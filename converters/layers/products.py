"""Lists of matrix products, and lists of convolutions as the products that they are.

    Layer,m,n,k,strategy
    conv1,12544,64,147,DATA

is a product m x k times k x n, as ASTRA-sim 1.0 has it. The header is compulsory, its names may have
capitals; lines may end with a comma.

    Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,
    Conv1, 230, 230, 7, 7, 3, 64, 2,

is a convolution in SCALE-Sim's columns. Its product has a row for each output pixel, a column for each
filter, and sums up the values of a window.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from msgspec import Struct

from et_sim.basics.errors import TraceError, UsageError, did_you_mean
from et_sim.compute.systolic.files import FileLayout, parse_topology
from et_sim.layerfile.reading import shown

_COLUMNS = ("layer", "m", "n", "k", "strategy")
_NEEDED = _COLUMNS[:4]
_FORM = "the first line names the columns: Layer,m,n,k or Layer,m,n,k,strategy"
_CONVOLUTION = 8  # columns
_MOST = 1 << 40  # of m, n and k


class ProductLine(Struct, frozen=True):
    """One line: the product of m x k and k x n of a layer, and its strategy ("": the default)."""

    name: str
    m: int
    n: int
    k: int
    strategy: str = ""
    line: int = 0


def parse_products(text: str, source: str, strategies: tuple[str, ...]) -> list[ProductLine]:
    """Parse all products of a list, in order."""
    rows = _rows(text, source)
    line, header = next(rows, (1, []))
    order = _order(header, f"{source}, line {line}")
    products = [_product(row, number, order, source, strategies) for number, row in rows]
    if not products:
        raise TraceError("there is no layer", place=source, remedy="add a line per layer below the header")
    return products


def _rows(text: str, source: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields) of lines with content; an empty last field is a trailing comma."""
    reader = csv.reader(text.splitlines(), strict=True)
    try:
        for row in reader:
            fields = [field.strip() for field in row]
            if fields and not fields[-1]:
                del fields[-1]
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        place = f"{source}, line {reader.line_num}"
        raise TraceError(f"is not CSV: {error}", place=place, remedy="quotes must be closed") from None


def _order(header: list[str], place: str) -> list[str]:
    """Return the meaning of each column."""
    order = [name.lower() for name in header]
    for number, name in enumerate(order, start=1):
        where = f"{place}, column {number}"
        if name not in _COLUMNS:
            remedy = f"{did_you_mean(name, _COLUMNS)} {_FORM}".strip()
            if len(header) >= _CONVOLUTION:
                remedy += "; SCALE-Sim's list of convolutions is read with --images N"
            raise TraceError(f"there is no column {shown(header[number - 1])}", place=where, remedy=remedy)
        if name in order[: number - 1]:
            raise TraceError(f"column {shown(name)} is there twice", place=where, remedy=_FORM)
    for name in _NEEDED:
        if name not in order:
            raise TraceError(f"column {shown(name)} is missing", place=place, remedy=_FORM)
    return order


def _product(
    row: list[str], line: int, order: list[str], source: str, strategies: tuple[str, ...]
) -> ProductLine:
    place = f"{source}, line {line}"
    if len(row) > len(order):
        cause = f"{shown(row[len(order)])} is one more than the header has"
        where = f"{place}, column {len(order) + 1}"
        raise TraceError(cause, place=where, remedy=f"give {len(order)} values")
    fields = dict(zip(order, row, strict=False))
    for column in _NEEDED:
        if column not in fields:
            cause = f"the line ends before column {shown(column)}"
            raise TraceError(cause, place=place, remedy=f"give {', '.join(order)}")
    name, strategy = fields["layer"], fields.get("strategy", "")

    def at(column: str) -> str:
        return f"{place}, column {order.index(column) + 1}"

    if not name or len(name.split()) != 1:
        cause = f"{shown(name)} cannot be the name of a layer"
        raise TraceError(cause, place=at("layer"), remedy="give one word without blanks")
    if strategy and strategy not in strategies:
        remedy = f"{did_you_mean(strategy.upper(), strategies)} known: {', '.join(strategies)}".strip()
        raise TraceError(f"there is no strategy {shown(strategy)}", place=at("strategy"), remedy=remedy)
    m, n, k = (_size(fields[column], column, at(column)) for column in ("m", "n", "k"))
    return ProductLine(name, m, n, k, strategy, line)


def _size(text: str, column: str, place: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 15 or not 1 <= int(text) <= _MOST:
        raise TraceError(
            f"{column} is {shown(text)}", place=place, remedy=f"give a whole number from 1 to {_MOST:,}"
        )
    return int(text)


def parse_convolutions(text: str, source: str, images: int) -> list[ProductLine]:
    """Parse all layers of a list, in order, each with the given number of images."""
    if images < 1:
        raise UsageError(f"--images is {images}", remedy="give how many images all NPUs process in a step")
    products = []
    for layer in parse_topology(text, source, FileLayout.CONVOLUTIONS):
        if len(layer.name.split()) != 1:
            raise TraceError(
                f"{shown(layer.name)} cannot be the name of a layer",
                place=layer.place,
                remedy="give one word without blanks",
            )
        if layer.rows * images > _MOST:
            raise TraceError(
                f"layer {layer.name} has {layer.rows * images:,} output pixels",
                place=layer.place,
                remedy=f"give fewer images: {_MOST:,} pixels are the most",
            )
        line = int(layer.place.rpartition(" ")[2])
        products.append(ProductLine(layer.name, layer.rows * images, layer.columns, layer.inner, "", line))
    return products
