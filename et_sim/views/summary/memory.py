"""Peaks of local memory: by rank the size, the time, and the tensors that were alive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins

from et_sim.basics.units import format_bytes
from et_sim.views.run.columns import alike, coded, integers, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection, recorded_part
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.summary.rank_table import called
from et_sim.views.text import not_shown, prose, share, shortened
from et_sim.views.view import Forms

COLUMNS = ("actor", "time_ns", "tensor", "class", "node", "delta_bytes", "alive_bytes")

LARGEST = 20  # tensors named per peak
SHOWN_PEAKS = 12
SHOWN_TENSORS = 10
NO_NODE = -1
NOT_TRACKED = (
    'local memory was not tracked: set "track-local-mem": 1 in the system file, for traces whose nodes name '
    "their tensors in 'inputs' and 'outputs' (et-sim make and et-record write such traces, and et-convert of "
    "recordings with profile_memory=True)"
)


class Alive(Struct, frozen=True):
    """A tensor that is alive at a peak."""

    tensor: str
    tensor_class: str
    bytes: int
    since_ns: int
    node: int | None  # the node that wrote it; None: it was present from the start


class Peak(Struct, frozen=True):
    """The peak of ranks whose memory holds the same at that time."""

    ranks: str
    bytes: int
    at_ns: int
    tensors: int
    by_class: tuple[tuple[str, int], ...]  # bytes, the most first
    largest: tuple[Alive, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it for `--json`."""
        plain: dict[str, Any] = to_builtins(self) | {"by_class": dict(self.by_class)}
        for alive in plain["largest"]:
            alive["class"] = alive.pop("tensor_class")
        return plain


class _Rows(Struct, frozen=True, eq=False):
    """Columns of memory.arrow."""

    actor: Any
    time: Any
    tensor: Any
    tensor_class: Any
    node: Any
    delta: Any
    alive: Any

    def take(self, rows: Any) -> _Rows:
        return _Rows(*(getattr(self, name)[rows] for name in self.__struct_fields__))


class _Names(Struct, frozen=True):
    """Names of tensors and classes by code."""

    tensors: Sequence[str | None] = ()
    classes: Sequence[str | None] = ()


def memory_peaks(run: RunDirectory, part: Selection = EVERYTHING) -> list[Peak] | None:
    """Return the peaks, highest first, earliest first, in rank order; None if memory was not tracked."""
    part.check_ranks(run)
    if not run.holds("memory"):
        return None
    ranks = part.of_actors(run)
    every = (peak for rows, names in _blocks(run) for peak in _peaks(rows, names))
    peaks = [
        Peak(ranks_text, *peak)
        for ranks_text, peak in alike((ranks[a], tuple(p)) for a, *p in every if ranks[a])
    ]
    return sorted(peaks, key=lambda peak: (-peak.bytes, peak.at_ns))


def _blocks(run: RunDirectory) -> Iterator[tuple[_Rows, _Names]]:
    """Yield all rows of one or more actors, block by block, and the names of tensors."""
    kept: list[_Rows] = []
    names = _Names()
    for batch in run.batches("memory", COLUMNS):
        if not names.classes:  # all batches share them
            tensors, classes = (batch[name].dictionary.to_pylist() for name in ("tensor", "class"))
            names = _Names((*tensors, None), (*classes, None))
        rows = _Rows(
            actor=numbers(batch["actor"]),
            time=numbers(batch["time_ns"]),
            tensor=coded(batch["tensor"]),
            tensor_class=coded(batch["class"]),
            node=integers(batch["node"], missing=NO_NODE),
            delta=numbers(batch["delta_bytes"]),
            alive=numbers(batch["alive_bytes"]),
        )
        if not len(rows.actor):
            continue
        if kept and kept[-1].actor[-1] != rows.actor[0]:
            yield _joined(kept), names
            kept = []
        begin = int(np.searchsorted(rows.actor, rows.actor[-1]))  # the last actor may go on in the next batch
        if begin:
            yield _joined([*kept, rows.take(slice(begin))]), names
            kept = []
        kept.append(rows.take(slice(begin, None)))
    if kept:
        yield _joined(kept), names


def _joined(parts: Sequence[_Rows]) -> _Rows:
    columns = ([getattr(part, name) for part in parts] for name in _Rows.__struct_fields__)
    return _Rows(*map(np.concatenate, columns))


def _peaks(rows: _Rows, names: _Names) -> list[tuple[Any, ...]]:
    """Return, by actor with memory: itself, bytes, time, tensors alive, classes, and the largest tensors."""
    first = np.flatnonzero(np.diff(rows.actor, prepend=-1))
    if not len(first):
        return []
    actors = rows.actor[first]
    of_row = np.searchsorted(actors, rows.actor)
    most = np.maximum.reduceat(rows.alive, first)
    fullest = np.flatnonzero(rows.alive == most[of_row])
    time = rows.time[fullest[np.unique(of_row[fullest], return_index=True)[1]]]
    alive = _alive(rows.take(np.flatnonzero(rows.time <= time[of_row])))
    begin = np.searchsorted(alive.actor, actors)
    count = np.diff(begin, append=len(alive.actor))
    figures = zip(*(column.tolist() for column in (actors, most, time, count, begin)), strict=True)
    return [
        (
            actor,
            peak,
            at,
            tensors,
            _by_class(alive.take(slice(at_row, at_row + tensors)), names),
            _named(alive.take(slice(at_row, at_row + min(tensors, LARGEST))), names),
        )
        for actor, peak, at, tensors, at_row in figures
    ]


def _by_class(rows: _Rows, names: _Names) -> tuple[tuple[str, int], ...]:
    sums = np.zeros(len(names.classes), np.int64)
    np.add.at(sums, rows.tensor_class, rows.delta)
    sizes = [(str(name), size) for name, size in zip(names.classes, sums.tolist(), strict=True) if size]
    return tuple(sorted(sizes, key=lambda entry: -entry[1]))


def _named(rows: _Rows, names: _Names) -> tuple[Alive, ...]:
    columns = (rows.tensor, rows.tensor_class, rows.delta, rows.time, rows.node)
    return tuple(
        Alive(
            str(names.tensors[tensor]),
            str(names.classes[tensor_class]),
            size,
            since,
            None if node == NO_NODE else node,
        )
        for tensor, tensor_class, size, since, node in zip(
            *(column.tolist() for column in columns), strict=True
        )
    )


def _alive(rows: _Rows) -> _Rows:
    """Return the allocations that are alive after all these changes, by actor, the largest first."""
    order = np.lexsort((rows.delta, rows.time, rows.tensor, rows.actor))  # releases come first at one time
    rows = rows.take(order)
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = (rows.actor[1:] != rows.actor[:-1]) | (rows.tensor[1:] != rows.tensor[:-1])
    net = np.add.reduceat(rows.delta, np.flatnonzero(np.append(True, is_last[:-1])))
    rows = rows.take(np.flatnonzero(is_last)[net > 0])
    return rows.take(np.lexsort((rows.time, -rows.delta, rows.actor)))


def memory_data(run: RunDirectory, part: Selection) -> Any:
    """Return the peaks for `--json`."""
    every = memory_peaks(run, part)
    return None if every is None else [peak.as_dict() for peak in part.cut(every)]


def memory_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return the recorded part, the peaks, and the tensors at the highest one."""
    every, kept = memory_peaks(run, part), recorded_part(run)
    if every is None:
        return prose([NOT_TRACKED], width)
    if "window_ns" in run.manifest.get("recorded_part", {}):
        kept += "; tensors that were alive before it are counted, but not named"
    heading = prose([f"only of the recorded part: {kept}", ""] if kept else [], width)
    return [*heading, *(_peak_lines(every, part, width) if every else ["no tensor is ever alive"])]


MEMORY = Forms(memory_lines, memory_data)


def _peak_lines(every: Sequence[Peak], part: Selection, width: int) -> list[str]:
    highest = every[0]
    shown = part.cut(highest.largest, SHOWN_TENSORS)
    lines = PEAKS.shown(every, part, width)
    classes = Sheet(
        (
            SheetColumn("class", 0, "<"),
            SheetColumn("size", lambda entry: format_bytes(entry[1])),
            SheetColumn("", lambda entry: share(entry[1], highest.bytes)),
        )
    )
    lines += ["", f"at the peak of {called(highest.ranks, 40)}:", *classes.lines(highest.by_class, width)]
    lines += ["", "largest tensors then:", *TENSORS.lines(shown, width)]
    return [*lines, *not_shown(highest.tensors - len(shown), "other")]


def _origin(tensor: Alive) -> str:
    return "no node: there from the start" if tensor.node is None else f"node {tensor.node}"


PEAKS = Sheet(
    (
        SheetColumn("ranks", lambda peak: shortened(peak.ranks, 24), "<"),
        SheetColumn("peak", "bytes"),
        SheetColumn("at", "at_ns"),
        SheetColumn("tensors alive then", "tensors"),
    ),
    cut={"ranks": 8},
    rows=SHOWN_PEAKS,
    more="lower line",
    hint=": --top, or --json",
)
TENSORS = Sheet(
    (
        SheetColumn("tensor", side="<"),
        SheetColumn("class", "tensor_class", "<"),
        SheetColumn("size", "bytes"),
        SheetColumn("since", "since_ns"),
        SheetColumn("written by", _origin, "<"),
    ),
    cut={"tensor": 12, "written by": 10},
    names=("tensor",),
)
