"""Declarations of tables and columns, and the kinds of nodes that views use."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from et_sim.basics.units import LONGEST_NS

MOST_BYTES = 2**62
FIGURES = ("int32", "int64", "uint64", "float64", "bool")
WORD, TEXT = "word", "text"  # texts in a dictionary: of at most 127 different ones, or of many
STRING = "string"  # texts without a dictionary


class Column(Struct, frozen=True):
    """A column. Writers, readers and checks follow this declaration."""

    name: str
    declared: str  # one of FIGURES, or WORD, TEXT, STRING; then a "?" if values may be missing (null)
    meaning: str
    refers_to: str = ""  # the table whose rows its numbers name; rows of `actors` represent all their ranks
    only_of: str = ""  # the runs that have this column, if not all do

    @property
    def kind(self) -> str:
        """Return one of FIGURES, or WORD, TEXT, STRING."""
        return self.declared.removesuffix("?")

    @property
    def may_be_null(self) -> bool:
        """Return whether values may be missing, which is written as a number below zero, or NaN."""
        return self.declared.endswith("?")

    @property
    def range(self) -> tuple[int, int] | None:
        """Return the least and the largest possible figure, or None if there are no limits."""
        if self.unit == "ns" and self.kind == "int64":
            return -LONGEST_NS, LONGEST_NS
        if self.unit == "bytes":
            return (-MOST_BYTES if self.name.startswith("delta_") else -1), MOST_BYTES
        return None

    @property
    def unit(self) -> str:
        """Return the unit of the figures, by the column's name; empty without a unit."""
        if self.name.endswith("_ns"):
            return "ns"
        return "bytes" if self.name == "bytes" or self.name.endswith("_bytes") else ""


_COLUMN = re.compile(r"(\w+) (\w+\??)(?: -> (\w+))?(?: \((.+?)\))?: (.+)")


def declared(text: str) -> Iterator[tuple[str, ...]]:
    """Yield (name, type, table it refers to, note, meaning) of lines `name type -> table (note): meaning`.

    Table and note may be left out; a line that is indented by four more spaces continues the meaning.
    """
    margin = text[: -len(text.lstrip())]  # a line break, and the indentation of the first line
    for line in text.strip().replace(f"{margin}    ", " ").split(margin):
        column = _COLUMN.fullmatch(line)
        assert column is not None, line
        yield column.groups(default="")


def columns(text: str) -> tuple[Column, ...]:
    """Return the columns that a text declares; a note names the runs that have the column.

    >>> columns("\\n  layer int32? -> layers (only of layer files): its layer")
    (Column(name='layer', declared='int32?', meaning='its layer', refers_to='layers', only_of='layer files'),)
    """
    return tuple(
        Column(name, kind, meaning, table, note.removeprefix("only of "))
        for name, kind, table, note, meaning in declared(text)
    )


class Table(Struct, frozen=True):
    """A table of a run; one with neither `detail` nor `remedy` is part of every run."""

    name: str
    about: str  # the meaning and the order of its rows
    writer: str  # module:function (run) -> Content or None; loaded when a run is written
    columns: tuple[Column, ...]
    detail: str = ""  # the value of --detail
    model: str = ""  # the only network model that has this detail
    remedy: str = ""  # other way to get it

    @property
    def file(self) -> str:
        """Return the name of its file."""
        return f"{self.name}.arrow"

    @property
    def is_optional(self) -> bool:
        """Return whether a run may lack the table."""
        return bool(self.detail or self.remedy)

    @property
    def how_to_get_it(self) -> str:
        """Return a remedy for a run without the table."""
        model = f"--network-model {self.model} " if self.model else ""
        return self.remedy or f"simulate with {model}--detail {self.detail}"

    @property
    def not_recorded(self) -> str:
        """Return the message of a view for a run without the table."""
        return f"{self.detail or self.name} were not recorded: {self.how_to_get_it}"

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return the columns of every run that holds the table."""
        return tuple(column.name for column in self.columns if not column.only_of)


# Types that are never modelled: they take their recorded time, as the host does.
OPAQUE_KINDS = ("storage", "batch", "checkpoint", "unknown")
MEMORY_KINDS = ("memory_load", "memory_store")
COPY = "copy"  # moves or fills memory of a device: no kernel
NOT_COMMUNICATION = ("compute", COPY, "host", "gap", *MEMORY_KINDS, "metadata", "invalid", *OPAQUE_KINDS)

# Key of the metadata of path.arrow and links.arrow: messages slowed each other, or computing.
SHARED_LINKS = "links-are-shared"

# Key of the metadata of resources.arrow: NPUs of each dimension of a grid, innermost first.
DIMENSION_SIZES = "npus-by-dimension"

CAPACITY = "capacity-bytes"  # key of the metadata of memory.arrow: capacity, if the machine has one
