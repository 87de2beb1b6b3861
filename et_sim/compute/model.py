"""The interface of compute models: durations of kernels, and their utilisation of the machine.

A model is one module and one entry: in `et_sim.machine.compute_rules`, or for whole systems in `registry`.
The plan takes durations from it, folding and the timeline take their parts. They are independent of the list
of models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import TraceError, did_you_mean
from et_sim.machine.datatypes import BITS, datatype_named
from et_sim.machine.model import Notice, System
from et_sim.trace.columns import BoolColumn, IntColumn, RowColumn, Trace


def place_of(trace: Trace, row: int) -> str:
    """Return the file and the node, for messages."""
    return ", ".join(filter(None, (trace.source, trace.describe(row))))


def datatypes_of(trace: Trace, rows: IntColumn, default: str, rule: str) -> IntColumn:
    """Return the index into BITS of the datatype of each node; refuse nodes with an unknown datatype."""
    names = list(BITS)
    known = [datatype_named(text) if text else default for text in trace.datatypes]
    number = np.array([names.index(name) if name else -1 for name in known], np.int64)
    numbers = number[trace.datatype[rows]]
    if (numbers < 0).any():
        row = int(rows[int(np.argmax(numbers < 0))])
        text = trace.datatypes[int(trace.datatype[row])]
        if not text:
            raise TraceError(
                f"{trace.describe(row)} has no dtype, and {rule} gives none",
                place=trace.source,
                remedy='give "dtype" there, or the attribute dtype to the node',
            )
        remedy = did_you_mean(text, names)
        raise TraceError(
            f"{trace.describe(row)} has the dtype {text[:40]!r}",
            place=trace.source,
            remedy=f"{remedy} known: {', '.join(names)}".strip(),
        )
    return numbers


NOTHING = ""


class Labels(Struct, frozen=True, eq=False):
    """A column of words; the empty one stands for "unknown", and is always the first."""

    codes: npt.NDArray[np.int16]
    texts: tuple[str, ...] = (NOTHING,)

    @staticmethod
    def alike(text: str, count: int) -> Labels:
        """Return `count` entries with the same word."""
        return Labels(np.full(count, 1 if text else 0, np.int16), (NOTHING, text) if text else (NOTHING,))

    @staticmethod
    def of(words: Sequence[str], which: IntColumn) -> Labels:
        """Return a column from words and the index of each entry's word."""
        texts = tuple(dict.fromkeys((NOTHING, *words)))
        place = np.array([texts.index(word) for word in words] or [0], np.int16)
        return Labels(place[which], texts)

    @staticmethod
    def joined(parts: Sequence[Labels]) -> Labels:
        """Concatenate columns."""
        texts = tuple(dict.fromkeys((NOTHING, *(text for part in parts for text in part.texts))))
        number = {text: code for code, text in enumerate(texts)}
        codes = [np.array([number[text] for text in part.texts], np.int16)[part.codes] for part in parts]
        return Labels(np.concatenate(codes) if codes else np.zeros(0, np.int16), texts)

    def by_first_use(self) -> Labels:
        """Return the same entries with the words in the order of their first entries."""
        used, first = np.unique(self.codes, return_index=True)
        order = [code for code in used[np.argsort(first)].tolist() if self.texts[code]]
        number = np.zeros(len(self.texts), np.int16)
        number[order] = np.arange(1, len(order) + 1)
        return Labels(number[self.codes], (NOTHING, *(self.texts[code] for code in order)))

    def take(self, rows: IntColumn | slice) -> Labels:
        """Return some of the entries, in the order of `rows`."""
        return Labels(self.codes[rows], self.texts)

    def spread(self, rows: IntColumn, count: int) -> Labels:
        """Return a column of `count` entries with these at `rows`, and no word elsewhere."""
        codes = np.zeros(count, np.int16)
        codes[rows] = self.codes
        return Labels(codes, self.texts)

    def is_same(self, other: Labels) -> bool:
        """Check whether all entries are the same words."""
        joined = Labels.joined([self, other])
        return np.array_equal(joined.codes[: len(self.codes)], joined.codes[len(self.codes) :])


FloatColumn = npt.NDArray[np.float64]


class Treatment(IntEnum):
    """The source of a node's time, which the coverage table counts."""

    MODELLED = 0
    REPLAYED = 1
    DEFAULTED = 2  # replayed, but the trace records no duration: one nanosecond
    INSTANT = 3  # takes no time by its nature


class Utilisation(Struct, frozen=True, eq=False):
    """The timing of kernels: their model, the parts of their times, and their use of the machine.

    A kernel takes its launch, and then the longer of its arithmetic and its memory traffic. Figures that a
    model does not give are NaN; `peak` and `level` name the figures of the machine behind the two times.
    """

    compute: FloatColumn  # share of the peak
    memory: FloatColumn  # share of the bandwidth
    intensity: FloatColumn  # operations per byte
    is_memory_bound: BoolColumn
    arithmetic_ns: FloatColumn
    traffic_ns: FloatColumn
    launch_ns: FloatColumn
    timed_by: Labels
    bound: Labels
    peak: Labels
    efficiency: Labels  # the figure for the part of the peak that is reached
    level: Labels
    memory_efficiency: Labels
    processors: FloatColumn  # processors in use if arithmetic sets the time; else NaN
    clock: FloatColumn  # clock of the device, as a part of the full one
    energy_pj: FloatColumn  # energy above the idle power

    @staticmethod
    def unknown(timed_by: str, bound: str, count: int) -> Utilisation:
        """Return the entry of measured kernels, the parts of whose times are not known."""
        nothing, none = np.full(count, np.nan), Labels.alike("", count)
        return Utilisation(
            nothing,
            nothing,
            nothing,
            np.zeros(count, np.bool_),
            nothing,
            nothing,
            nothing,
            Labels.alike(timed_by, count),
            Labels.alike(bound, count),
            none,
            none,
            none,
            none,
            *(nothing,) * 3,
        )

    def by_first_use(self) -> Utilisation:
        """Return the same entries with words in the order of first use, however entries were joined."""
        return self._each(lambda column: column.by_first_use() if isinstance(column, Labels) else column)

    def take(self, rows: IntColumn | slice) -> Utilisation:
        """Return the entries of some kernels, in the order of `rows`."""

        def chosen(column: Any) -> Any:
            return column.take(rows) if isinstance(column, Labels) else column[rows]

        return self._each(chosen)

    def slowed(self, nominal_ns: IntColumn, actual_ns: IntColumn) -> Utilisation:
        """Return the entries of kernels whose actual times differ from the model's."""
        slower = np.flatnonzero(nominal_ns != actual_ns)
        if not len(slower):
            return self
        nominal_ns, actual_ns = nominal_ns[slower], actual_ns[slower]
        ratio = np.where(actual_ns > 0, nominal_ns / np.maximum(actual_ns, 1), 1.0)
        longer = np.where(ratio > 0, 1 / np.where(ratio > 0, ratio, 1.0), 1.0)

        def changed(column: FloatColumn, factor: FloatColumn) -> FloatColumn:
            column = column.copy()
            column[slower] *= factor
            return column

        return replace(
            self,
            compute=changed(self.compute, ratio),
            memory=changed(self.memory, ratio),
            arithmetic_ns=changed(self.arithmetic_ns, longer),
            traffic_ns=changed(self.traffic_ns, longer),
            launch_ns=changed(self.launch_ns, longer),
        )

    def spread(self, rows: IntColumn, count: int) -> Utilisation:
        """Return entries for `count` nodes with these at `rows`, and NaN and no words elsewhere."""

        def put(part: Any) -> Any:
            if isinstance(part, Labels):
                return part.spread(rows, count)
            column = np.zeros(count, np.bool_) if part.dtype == np.bool_ else np.full(count, np.nan)
            column[rows] = part
            return column

        return self._each(put)

    def is_same(self, other: Utilisation) -> bool:
        """Check whether all columns are equal."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in self.__struct_fields__)
        return all(
            column.is_same(two) if isinstance(column, Labels) else np.array_equal(column, two, equal_nan=True)
            for column, two in pairs
        )

    def _each(self, change: Callable[[Any], Any]) -> Utilisation:
        return Utilisation(*(change(getattr(self, name)) for name in self.__struct_fields__))

    @staticmethod
    def joined(parts: list[Utilisation]) -> Utilisation:
        """Concatenate entries."""

        def together(column: list[Any]) -> Any:
            return Labels.joined(column) if isinstance(column[0], Labels) else np.concatenate(column)

        columns = ([getattr(part, name) for part in parts] for name in Utilisation.__struct_fields__)
        return Utilisation(*map(together, columns))


class Durations(Struct, frozen=True, eq=False):
    """The durations of some nodes, an entry for each."""

    ns: IntColumn
    treatment: npt.NDArray[np.uint8]  # Treatment; INSTANT nodes occupy no stream
    bytes: IntColumn | None = None  # bytes that the timeline shows; None: none
    utilisation: Utilisation | None = None


class TimingModel(Protocol):
    """A model that times kernels."""

    def lacking(self, trace: Trace, rank: int) -> Mapping[str, BoolColumn]:
        """Return, by attribute, the kernels that lack it, which are replayed.

        Only the entries of kernels are meaningful.
        """

    def durations(self, trace: Trace, rows: IntColumn, rank: int) -> Durations:
        """Return the durations of the kernels at these rows on a rank, and on all others of its class."""


@runtime_checkable
class PartialModel(TimingModel, Protocol):
    """A model that may leave kernels to later rules."""

    def covers(self, trace: Trace) -> BoolColumn:
        """Return the kernels that it times; only the entries of kernels are meaningful."""


def ns_of(model: TimingModel, trace: Trace, rows: IntColumn, rank: int) -> IntColumn:
    """Return the nanoseconds of kernels.

    A model may have a method `ns` for them, which leaves out their causes and equals those of `durations`.
    """
    ns: Callable[[Trace, IntColumn, int], IntColumn] | None = getattr(model, "ns", None)
    return model.durations(trace, rows, rank).ns if ns is None else ns(trace, rows, rank)


class ComputeModel(TimingModel, Protocol):
    """A model of all kernels of a machine: the nodes that compute on the device."""

    @property
    def has_rules(self) -> bool:
        """Check whether several models time the kernels of one machine."""

    def rank_classes(self, ranks: int) -> RowColumn | None:
        """Return a number per rank, equal for ranks with equal times; None: all ranks are equal."""

    def notices(self) -> tuple[Notice, ...]:
        """Return the remarks of the model after all traces."""


class OfAllRanks:
    """A model that times the kernels of all ranks alike, and has no remarks."""

    __slots__ = ()
    has_rules = False

    def rank_classes(self, ranks: int) -> None:
        """Return None: all ranks are equal."""

    def notices(self) -> tuple[Notice, ...]:
        """Return no remarks."""
        return ()


class SystemModel(ComputeModel, Protocol):
    """A model that the keys of a system select."""

    @classmethod
    def of(cls, system: System) -> Self | None:
        """Return the model of a system, or None if the system does not select this one."""


def without(trace: Trace, *attributes: str) -> Mapping[str, BoolColumn]:
    """Return the nodes that lack each of these attributes."""
    return {repr(name): ~trace.has(name) for name in attributes}
