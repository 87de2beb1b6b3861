"""A table as one value: its columns, their figures, and the columns that are dropped if room is short.

The value is rendered as lines of a terminal, a table of a page, or CSV.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from et_sim.basics.alignment import aligned
from et_sim.basics.units import format_bandwidth, format_bytes, format_ns
from et_sim.views.run.selection import Selection
from et_sim.views.text import distinct, no_room, not_shown, shortened

Cell = Callable[[Any], str]
ANY_WIDTH = 1 << 16  # no column is dropped
CSV_BLOCK = 1 << 16  # letters


class SheetColumn(Struct, frozen=True):
    """A column; `of` is an attribute, key or index of rows, whose name gives the unit, or a function; empty:
    the head.

    A head may have several lines. On a page, `markup` gives the cell if it is more than text.
    """

    head: str
    of: str | int | Callable[[Any], Any] = ""
    side: str = ">"
    is_optional: bool = False  # left out if it is empty in all rows
    key: str = ""  # the column's name, if it is not its head
    markup: Cell | None = None
    form: str = "{:,}"  # format of figures whose name has no unit
    missing: str = ""  # text for None

    @property
    def name(self) -> str:
        """Return the name of the column in a sheet."""
        return self.key or self.head

    def head_lines(self, height: int) -> list[str]:
        """Return the head as so many lines, the first ones empty."""
        lines = self.head.splitlines()
        return [""] * (height - len(lines)) + lines

    def markup_of(self, row: Any) -> str:
        """Return the cell of a page."""
        from html import escape

        return self.markup(row) if self.markup else escape(self.cell(row))

    def cell(self, row: Any) -> str:
        """Return the text of a cell."""
        if callable(self.of):
            return self._text("", self.of(row))
        if isinstance(self.of, int):
            return self._text("", row[self.of])
        figure = self.of or self.head
        return self._text(figure, row[figure] if isinstance(row, Mapping) else getattr(row, figure))

    def _text(self, name: str, value: Any) -> str:
        if value is None or isinstance(value, str):
            return self.missing if value is None else value
        if name.endswith("_ns"):
            return format_ns(value)
        is_size = name == "bytes" or name.endswith("_bytes")
        return format_bytes(value) if is_size else self.form.format(value)


def rate(bytes_per_second: float | None) -> str:
    """Return a bandwidth; empty if there is none."""
    return format_bandwidth(bytes_per_second / 1e9) if bytes_per_second else ""


class Sheet(Struct, frozen=True):
    """Columns, and by name those that are cut (with their least width, in order) or dropped."""

    columns: tuple[SheetColumn, ...]
    cut: Mapping[str, int] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # columns that are cut so that texts remain distinct
    rows: int | None = None  # number of rows by default
    more: str = "more line"  # noun of rows that are not shown
    hint: str = ": --top"
    gap: str = "  "

    def without(self, *names: str) -> Sheet:
        """Return the sheet without some columns."""
        return replace(self, columns=tuple(column for column in self.columns if column.name not in names))

    def table(self, rows: Sequence[Any], caption: str = "") -> str:
        """Return the table of a page."""
        from html import escape

        from et_sim.views.markup import tag

        sides = {column: {"class_": "number"} if column.side == ">" else {} for column in self.columns}
        heads = (tag("th", escape(column.head), scope="col", **side) for column, side in sides.items())
        lines = ((tag("td", column.markup_of(row), **side) for column, side in sides.items()) for row in rows)
        body = tag("tbody", "".join(tag("tr", "".join(cells)) for cells in lines))
        content = tag("thead", tag("tr", "".join(heads))) + body
        return tag("div", tag("table", tag("caption", caption) * bool(caption) + content), class_="scroll")

    def lines(self, rows: Sequence[Any], width: int = ANY_WIDTH) -> list[str]:
        """Return the head, if there is one, and a line for each row, within a width if possible.

        If they are wider, texts are cut; if this is not enough, columns are dropped one by one, and a last
        line names them.
        """
        texts = {column: [*map(column.cell, rows)] for column in self.columns}
        shown = [column for column, cells in texts.items() if any(cells) or not column.is_optional]
        height = max(len(column.head.splitlines()) for column in shown)
        texts = {column: [*column.head_lines(height), *texts[column]] for column in shown}
        widths = {column: max(map(len, texts[column]), default=0) for column in shown}
        for count in range(len(self.drop) + 1):
            kept = [column for column in shown if column.name not in self.drop[:count]]
            excess = sum(widths[column] for column in kept) + len(self.gap) * (len(kept) - 1) - width
            cut = {c: least for name, least in self.cut.items() for c in kept if c.name == name}
            if excess <= sum(max(widths[column] - least, 0) for column, least in cut.items()):
                break
        for column, least in cut.items():
            taken = min(max(widths[column] - least, 0), max(excess, 0))
            excess -= taken
            widths[column] -= taken
        cells = [self._cut(texts[column], widths[column], column.name) for column in kept]
        lines = aligned([*zip(*cells, strict=True)], "".join(column.side for column in kept), self.gap)
        return lines + no_room([column.head or column.key for column in shown if column not in kept], width)

    def _cut(self, cells: Sequence[str], width: int, name: str) -> list[str]:
        return distinct(cells, width) if name in self.names else [shortened(cell, width) for cell in cells]

    def shown(self, every: Sequence[Any], part: Selection, width: int) -> list[str]:
        """Return as many rows as `--top` allows, and the number of others."""
        rows = part.cut(every, self.rows)
        return [*self.lines(rows, width), *not_shown(len(every) - len(rows), self.more, self.hint)]


def csv_blocks(rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield rows as CSV, many at a time, so that their number does not matter; None is empty."""
    import csv
    import io

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for row in rows:
        writer.writerow(row)
        if buffer.tell() > CSV_BLOCK:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()
