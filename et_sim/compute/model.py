"""The seam of compute models: how long a kernel takes, and how well it uses the machine.

A model is one module and one line: in `et_sim.machine.compute_rules`, or of whole systems in `registry`. The
plan asks it for durations, folding and the timeline for what they consist of. None of them knows which models
there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from enum import IntEnum
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from et_sim.basics.errors import TraceError, did_you_mean
from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.machine.datatypes import BITS, datatype_named
from et_sim.machine.model import Notice, System
from et_sim.trace.columns import BoolColumn, IntColumn, RowColumn, Trace


def place_of(trace: Trace, row: int) -> str:
    """The file and the node, for messages."""
    return ", ".join(filter(None, (trace.source, trace.describe(row))))


def datatypes_of(trace: Trace, rows: IntColumn, default: str, rule: str) -> IntColumn:
    """Index into BITS of the datatype of each node; refuses nodes whose datatype is not known."""
    names = list(BITS)
    known = [datatype_named(text) if text else default for text in trace.datatypes]
    number = np.array([names.index(name) if name else -1 for name in known], np.int64)
    numbers = number[trace.datatype[rows]]
    if (numbers < 0).any():
        row = int(rows[int(np.argmax(numbers < 0))])
        text = trace.datatypes[int(trace.datatype[row])]
        if not text:
            raise TraceError(
                f"{trace.describe(row)} says no dtype, and {rule} gives none for such nodes",
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
    """A column of words; the empty one stands for "nothing is known", and is always the first."""

    codes: npt.NDArray[np.int16]
    texts: tuple[str, ...] = (NOTHING,)

    @staticmethod
    def alike(text: str, count: int) -> Labels:
        """The same word `count` times."""
        return Labels(np.full(count, 1 if text else 0, np.int16), (NOTHING, text) if text else (NOTHING,))

    @staticmethod
    def of(words: Sequence[str], which: IntColumn) -> Labels:
        """Of some words, which each entry has."""
        texts = tuple(dict.fromkeys((NOTHING, *words)))
        place = np.array([texts.index(word) for word in words] or [0], np.int16)
        return Labels(place[which], texts)

    @staticmethod
    def joined(parts: Sequence[Labels]) -> Labels:
        """All of them, one after the other."""
        texts = tuple(dict.fromkeys((NOTHING, *(text for part in parts for text in part.texts))))
        number = {text: code for code, text in enumerate(texts)}
        codes = [np.array([number[text] for text in part.texts], np.int16)[part.codes] for part in parts]
        return Labels(np.concatenate(codes) if codes else np.zeros(0, np.int16), texts)

    def take(self, rows: IntColumn) -> Labels:
        """Some of the entries, in the order given."""
        return Labels(self.codes[rows], self.texts)

    def spread(self, rows: IntColumn, count: int) -> Labels:
        """The same entries as these rows of `count`: the others have no word."""
        codes = np.zeros(count, np.int16)
        codes[rows] = self.codes
        return Labels(codes, self.texts)

    def is_same(self, other: Labels) -> bool:
        """Whether all entries are the same words."""
        joined = Labels.joined([self, other])
        return np.array_equal(joined.codes[: len(self.codes)], joined.codes[len(self.codes) :])


FloatColumn = npt.NDArray[np.float64]


class Treatment(IntEnum):
    """Where a node's time comes from: the coverage table counts these."""

    MODELLED = 0
    REPLAYED = 1
    DEFAULTED = 2  # replayed, but the trace records no duration: one nanosecond
    INSTANT = 3  # takes no time by its nature


@quick_dataclass(frozen=True, eq=False)
class Utilisation:
    """Of each kernel: which model timed it, what its time consists of, and how well it uses the machine.

    It takes its launch, and then the longer of its arithmetic and its memory traffic. NaN where a model does
    not say; `peak` and `level` name the figures of the machine that set the two times.
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
    efficiency: Labels  # the figure that says how much of the peak is reached
    level: Labels
    memory_efficiency: Labels
    processors: FloatColumn  # that it is spread over, where its arithmetic sets its time; else NaN
    clock: FloatColumn  # that its device has then, as a part of the full one
    energy_pj: FloatColumn  # that it takes above what the device draws when idle

    @staticmethod
    def unknown(timed_by: str, bound: str, count: int) -> Utilisation:
        """Of kernels whose times were measured: what the times consist of is not known."""
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

    def take(self, rows: IntColumn) -> Utilisation:
        """That of some of the kernels, in the order given."""

        def chosen(column: Any) -> Any:
            return column.take(rows) if isinstance(column, Labels) else column[rows]

        return self._each(chosen)

    def slowed(self, nominal_ns: IntColumn, actual_ns: IntColumn) -> Utilisation:
        """The same kernels where they take other times than the model says."""
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
        """The same kernels as these rows of `count` nodes: the others have NaN, and no words."""

        def put(part: Any) -> Any:
            if isinstance(part, Labels):
                return part.spread(rows, count)
            column = np.zeros(count, np.bool_) if part.dtype == np.bool_ else np.full(count, np.nan)
            column[rows] = part
            return column

        return self._each(put)

    def is_same(self, other: Utilisation) -> bool:
        """Whether all of it is."""
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return all(
            column.is_same(two) if isinstance(column, Labels) else np.array_equal(column, two, equal_nan=True)
            for column, two in pairs
        )

    def _each(self, change: Callable[[Any], Any]) -> Utilisation:
        return Utilisation(*(change(getattr(self, field.name)) for field in fields(self)))

    @staticmethod
    def joined(parts: list[Utilisation]) -> Utilisation:
        """All of them, one after the other."""

        def together(column: list[Any]) -> Any:
            return Labels.joined(column) if isinstance(column[0], Labels) else np.concatenate(column)

        columns = ([getattr(part, field.name) for part in parts] for field in fields(Utilisation))
        return Utilisation(*map(together, columns))


class Durations(Struct, frozen=True, eq=False):
    """What a model says about some nodes, an entry for each."""

    ns: IntColumn
    treatment: npt.NDArray[np.uint8]  # Treatment; what is INSTANT occupies nothing
    bytes: IntColumn | None = None  # what the timeline shows as moved; None: nothing
    utilisation: Utilisation | None = None


class TimingModel(Protocol):
    """What times kernels."""

    def lacking(self, trace: Trace, rank: int) -> Mapping[str, BoolColumn]:
        """By what it is, which kernels lack something without which they cannot be timed, and are replayed.

        Only kernels count; of other nodes nothing is said.
        """

    def durations(self, trace: Trace, rows: IntColumn, rank: int) -> Durations:
        """How long the kernels at these rows take on a rank, and on all others of its class."""


@runtime_checkable
class PartialModel(TimingModel, Protocol):
    """A model that may leave kernels to the rules behind its own."""

    def covers(self, trace: Trace) -> BoolColumn:
        """Which kernels it times; of other nodes nothing is said."""


class ComputeModel(TimingModel, Protocol):
    """How long the kernels of a machine take: its nodes that compute on the device."""

    @property
    def has_rules(self) -> bool:
        """Whether kernels of one machine are timed by several models."""

    def rank_classes(self, ranks: int) -> RowColumn | None:
        """A number per rank, equal where ranks are timed alike; None: all of them are."""

    def notices(self) -> tuple[Notice, ...]:
        """What somebody should know after all traces were looked at."""


class OfAllRanks:
    """A model that times all kernels of all ranks alike, and has nothing to say about it."""

    __slots__ = ()
    has_rules = False

    def rank_classes(self, ranks: int) -> None:
        """All ranks are the same machine."""

    def notices(self) -> tuple[Notice, ...]:
        """None."""
        return ()


class SystemModel(ComputeModel, Protocol):
    """A model that the keys of a system ask for."""

    @classmethod
    def of(cls, system: System) -> Self | None:
        """The model of a system; None if the system does not ask for this one."""


def without(trace: Trace, *attributes: str) -> Mapping[str, BoolColumn]:
    """Which nodes lack which of these attributes."""
    return {repr(name): ~trace.has(name) for name in attributes}
