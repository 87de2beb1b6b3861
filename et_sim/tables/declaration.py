"""What is declared of a table, of each of its columns, and of the kinds of nodes that views go by."""

from __future__ import annotations

from typing import NamedTuple

from et_sim.basics.units import LONGEST_NS

MOST_BYTES = 2**62
FIGURES = ("int32", "int64", "uint64", "float64", "bool")
WORD, TEXT = "word", "text"  # texts in a dictionary: of at most 127 different ones, or of many
STRING = "string"  # texts without a dictionary


class Column(NamedTuple):
    """A column. Who writes it, who reads it and who looks for damage go by this declaration."""

    name: str
    declared: str  # one of FIGURES, or WORD, TEXT, STRING; with a "?" behind it if there may be none (null)
    meaning: str
    refers_to: str = ""  # the table whose rows its numbers name; of `actors`, each stands for all its ranks
    only_of: str = ""  # the runs that have this column, if not all do

    @property
    def kind(self) -> str:
        """One of FIGURES, or WORD, TEXT, STRING."""
        return self.declared.removesuffix("?")

    @property
    def may_be_null(self) -> bool:
        """Return whether rows may have none, which is written as a number below zero, or NaN."""
        return self.declared.endswith("?")

    @property
    def range(self) -> tuple[int, int] | None:
        """Return the least and the most that its figures can be, where anything is known of that."""
        if self.unit == "ns" and self.kind == "int64":
            return -LONGEST_NS, LONGEST_NS
        if self.unit == "bytes":
            return (-MOST_BYTES if self.name.startswith("delta_") else -1), MOST_BYTES
        return None

    @property
    def unit(self) -> str:
        """Return the unit of its figures, which its name says; empty where they have none."""
        if self.name.endswith("_ns"):
            return "ns"
        return "bytes" if self.name == "bytes" or self.name.endswith("_bytes") else ""


class Table(NamedTuple):
    """A table of a run; one with neither `detail` nor `remedy` is part of every run."""

    name: str
    about: str  # what its rows are, and in which order they stand
    writer: str  # module:function (run) -> Content or None; loaded when a run is written
    columns: tuple[Column, ...]
    detail: str = ""  # asked for with --detail
    model: str = ""  # the only network model that has this detail
    remedy: str = ""  # how else to get it

    @property
    def file(self) -> str:
        """Return the name of its file."""
        return f"{self.name}.arrow"

    @property
    def is_optional(self) -> bool:
        """Return whether a run may lack it."""
        return bool(self.detail or self.remedy)

    @property
    def how_to_get_it(self) -> str:
        """What to do in order to get it, as a remedy."""
        model = f"--network-model {self.model} " if self.model else ""
        return self.remedy or f"simulate with {model}--detail {self.detail}"

    @property
    def not_recorded(self) -> str:
        """What a view says that is about it, of a run without it."""
        return f"{self.detail or self.name} were not recorded: {self.how_to_get_it}"

    @property
    def column_names(self) -> tuple[str, ...]:
        """Those that every run has that holds the table."""
        return tuple(column.name for column in self.columns if not column.only_of)


# Of types that are never modelled: they take what is recorded, as the host does.
OPAQUE_KINDS = ("storage", "batch", "checkpoint", "unknown")
MEMORY_KINDS = ("memory_load", "memory_store")
COPY = "copy"  # moves or fills memory of a device: no kernel
NOT_COMMUNICATION = ("compute", COPY, "host", "gap", *MEMORY_KINDS, "metadata", "invalid", *OPAQUE_KINDS)

# Key of the metadata of path.arrow and links.arrow: messages slowed each other, or computing.
SHARED_LINKS = "links-are-shared"

# Key of the metadata of resources.arrow: NPUs of each dimension of a grid, innermost first.
DIMENSION_SIZES = "npus-by-dimension"

CAPACITY = "capacity-bytes"  # key of the metadata of memory.arrow: what there is, where the machine says so
