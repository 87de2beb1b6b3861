"""A table as one value: its columns, the figure that each shows, and what gives way where room is short.

The same value is the lines of a terminal and the table of a page. Not here: how lines are laid out (`text`),
and data for `--json`, which has more figures than a screen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from et_sim.basics.units import format_bandwidth, format_bytes, format_ns
from et_sim.views.run.selection import Selection
from et_sim.views.text import fitted, not_shown

Cell = Callable[[Any], str]
ANY_WIDTH = 1 << 16  # where nothing needs to give way


class SheetColumn(Struct, frozen=True):
    """`of` is an attribute or key of rows, whose name says its unit, or gives the text; empty: the head.

    On a page, `markup` gives the cell, where it is more than the text.
    """

    head: str
    of: str | Cell = ""
    side: str = ">"
    is_optional: bool = False  # left out where it is empty in all rows
    key: str = ""  # what a sheet calls it, if that is not its head
    markup: Cell | None = None

    @property
    def name(self) -> str:
        """By which a sheet means it."""
        return self.key or self.head

    def cell(self, row: Any) -> str:
        """The text of a row."""
        if callable(self.of):
            return self.of(row)
        figure = self.of or self.head
        return _text(figure, row[figure] if isinstance(row, Mapping) else getattr(row, figure))


def _text(name: str, value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if name.endswith("_ns"):
        return format_ns(value)
    return format_bytes(value) if name == "bytes" or name.endswith("_bytes") else f"{value:,}"


def rate(bytes_per_second: float | None) -> str:
    """A bandwidth; empty if there is none."""
    return format_bandwidth(bytes_per_second / 1e9) if bytes_per_second else ""


class Sheet(Struct, frozen=True):
    """Columns, and by their names what is cut (to how many letters, the first first) and what is left out."""

    columns: tuple[SheetColumn, ...]
    cut: Mapping[str, int] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # those that are cut so that they still differ
    rows: int | None = None  # that are shown unless more are asked for
    more: str = "more line"  # what is not shown
    hint: str = ": --top"

    def without(self, *names: str) -> Sheet:
        """The same without some columns."""
        return replace(self, columns=tuple(column for column in self.columns if column.name not in names))

    def table(self, rows: Sequence[Any], caption: str = "") -> str:
        """The table of a page."""
        from et_sim.views.markup import table, text

        cells = [
            [column.markup(row) if column.markup else text(column.cell(row)) for column in self.columns]
            for row in rows
        ]
        return table(
            caption,
            [text(column.head) for column in self.columns],
            cells,
            "".join(column.side for column in self.columns),
        )

    def lines(self, rows: Sequence[Any], width: int = ANY_WIDTH) -> list[str]:
        """The head, and a line for each row."""
        cells = [[column.cell(row) for column in self.columns] for row in rows]
        kept = [
            at
            for at, column in enumerate(self.columns)
            if not column.is_optional or any(row[at] for row in cells)
        ]
        at_of = {self.columns[column].name: at for at, column in enumerate(kept)}
        return fitted(
            [[self.columns[at].head for at in kept], *([row[at] for at in kept] for row in cells)],
            "".join(self.columns[at].side for at in kept),
            width,
            shrink={at_of[name]: least for name, least in self.cut.items() if name in at_of},
            drop=[at_of[name] for name in self.drop if name in at_of],
            names=[at_of[name] for name in self.names if name in at_of],
        )

    def shown(self, every: Sequence[Any], part: Selection, width: int) -> list[str]:
        """As many rows as are asked for, and how many there are besides."""
        rows = part.cut(every, self.rows)
        return [*self.lines(rows, width), *not_shown(len(every) - len(rows), self.more, self.hint)]
