"""The tables of a run before its first event, kept for further runs of the same plan.

All tables but those of the network follow from the plan. The next run restores them in place and copies its
own network tables over the former ones, so that compiled code finds everything where it was. The outcome of a
run is therefore valid until the next run begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.compiled.signature import fields_of, signature_of
from et_sim.compiled.tables_by_reference import Tables
from et_sim.engine.pools import Reserve
from et_sim.engine.state.run import Run, alike_transfers
from et_sim.plan.fractions import check_lengths, shifted
from et_sim.plan.records import LINE_BYTES, LoweredPlan, zeros

LARGEST_JOINED = 64 << 10  # bytes
LARGEST_KEPT = 64 << 20  # bytes of copies; beside a larger run, making its tables takes no time
MOST_SCALE = 64
NOT_SAVED = ("plan", "network", "nodes")  # an actor that starts sets the state of its nodes
# Tables of a plan whose times may be set anew, and nodes and collectives that may be others.
TIMED = ("nodes", "paces", "slowing", "programs", "transfers", "collectives")


class Start(Struct, frozen=True, eq=False):
    """A run before its first event."""

    plan: LoweredPlan  # in the unit of time of the run
    reserve: Reserve
    run: Run


class _Saved:
    """Tables with arrays of their own, and the contents of these.

    Small arrays are parts of one array, so that one copy restores them.
    """

    def __init__(self, tables: Any) -> None:
        arrays = {id(array): array for array in _arrays_of(tables)}
        ends = np.cumsum([0, *(_lines(array) for array in arrays.values())])
        self._small = zeros((int(ends[-1]),), np.dtype(np.uint8))
        self._large: list[tuple[Any, Any]] = []  # as bytes, with their contents; None: zeros
        own = {
            key: self._own(array, begin)
            for (key, array), begin in zip(arrays.items(), ends.tolist(), strict=False)
        }
        self._content = self._small.copy()
        self.tables = _with_arrays(tables, lambda array: own[id(array)])

    def _own(self, array: Any, begin: int) -> Any:
        """Return a copy of an array; that of a small one begins there."""
        if not _lines(array):
            own = array.copy()
            if array.size:
                content = _bytes_of(array)
                self._large.append((_bytes_of(own), content.copy() if content.any() else None))
            return own
        part = self._small[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
        part[...] = np.ndarray.view(array, np.ndarray)
        return part.view(type(array))

    @property
    def nbytes(self) -> int:
        """Return the size of all contents but zeros."""
        return len(self._content) + sum(content.nbytes for _, content in self._large if content is not None)

    def restore(self) -> None:
        """Restore the contents of all arrays."""
        np.copyto(self._small, self._content)
        for array, content in self._large:
            np.copyto(array, 0 if content is None else content)


class _Network:
    """The tables of a network with its pools, which grew from the tables of its figures.

    How pools grow, and what is in them, follows from their sizes, so other figures get the same ones.
    """

    def __init__(self, tables: Tables, grow: Callable[[Tables], Tables]) -> None:
        self._shape, small = _taken_apart(tables)
        self._before = [part.copy() for part in small]
        self.saved = _Saved(grow(tables))
        self._parts = _taken_apart(self.saved.tables)[1]
        pairs = list(zip(self._before, self._parts, strict=True))
        self._figures = [at for at, (one, two) in enumerate(pairs) if len(one) and np.array_equal(one, two)]
        self._taken = [self._before[at] for at in self._figures]
        self._pools = sorted(set(range(len(pairs))) - set(self._figures))

    def restored(self, tables: Tables) -> bool:
        """Restore the pools and take the figures of other tables; return False if their pools differ."""
        shape, parts = _taken_apart(tables)
        if shape != self._shape:
            return False
        if not all(np.array_equal(parts[at], self._before[at]) for at in self._pools if len(parts[at])):
            return False
        self.saved.restore()
        self._taken = [parts[at] for at in self._figures]
        self._take()
        return True

    def restored_as_before(self) -> None:
        """Restore the pools and the figures of the last tables."""
        self.saved.restore()
        self._take()

    def take_as_written(self) -> None:
        """Take the figures that are written in the tables."""
        self._taken = [self._parts[at].copy() for at in self._figures]

    def _take(self) -> None:
        for at, part in zip(self._figures, self._taken, strict=True):
            np.copyto(self._parts[at], part)


class KeptStart:
    """The start of the latest run of a plan."""

    def __init__(self, former: KeptStart | None = None, *, is_due: bool = False) -> None:
        self._is_due = is_due  # the first run is worth keeping
        self.goes_ahead = True  # no run has had events whose order may differ then
        self.scale: int = 1 if former is None else former.scale  # of the rows that pools have at first
        self._rules: Any = None
        self._start: Start | None = None
        self._saved: _Saved | None = None  # what follows from the plan
        self._network: _Network | None = None  # the last one
        self._given: tuple[Any, ...] = ()  # what it was made from

    def is_due(self, rules: Any) -> bool:
        """Return whether a run is worth keeping: the last one had the same rules (its other inputs)."""
        if self._rules == rules:
            return True
        is_due = self._is_due and self._rules is None
        self._rules, self._start = rules, None
        return is_due

    def ran_short(self) -> None:
        """Begin further runs with larger pools: those of the last one were not sufficient."""
        if self.scale < MOST_SCALE:
            self.scale, self._start = self.scale * 4, None

    def keep(self, start: Start) -> Start:
        """Keep the start of a run unless it is large, and return it."""
        names = [name for name in Run.__struct_fields__ if name not in NOT_SAVED]
        of_run = tuple(getattr(start.run, name) for name in names)
        saved, network = _Saved(of_run), _Saved((start.run.network,))
        is_alike = signature_of((saved.tables, *network.tables)) == signature_of((of_run, start.run.network))
        if not is_alike or saved.nbytes > LARGEST_KEPT:
            return start
        own = {name: getattr(start.plan, name).copy() for name in TIMED}
        parts = dict(zip(names, saved.tables, strict=True))
        run = replace(start.run, network=network.tables[0], plan=replace(start.run.plan, **own), **parts)
        self._start, self._saved, self._network = (
            replace(start, plan=replace(start.plan, **own), run=run),
            saved,
            None,
        )
        return self._start

    def again(self, rules: Any, plan: LoweredPlan, bits: int) -> Start | None:
        """Return the start for another run with the same rules, which has the times of a plan; its network is
        still the former one.
        """
        start = self._start if self._rules == rules else None
        if start is None or not _slows_alike(start.plan, plan):
            return None
        check_lengths(plan, bits)
        times, reductions = start.plan, plan.transfers.reduction_ns
        np.copyto(times.nodes["duration_ns"], plan.nodes["duration_ns"] << bits)
        np.copyto(times.nodes["action"], plan.nodes["action"])
        np.copyto(times.collectives, plan.collectives)
        np.copyto(times.paces, plan.paces << bits)
        np.copyto(times.slowing, plan.slowing)
        np.copyto(times.programs, plan.programs)
        np.copyto(times.transfers["reduction_ns"], shifted(reductions, bits))
        return start

    def restored(
        self,
        start: Start,
        given: tuple[Any, ...],
        tables: Callable[[], Tables],
        grow: Callable[[Tables], Tables],
        rewrite: Callable[[Tables, tuple[Any, ...]], bool],
    ) -> Start:
        """Return the kept start with the tables of a network; `grow` adds their pools.

        The same objects that are `given`, all that differs between runs and that `tables` reads, have the
        same tables. `rewrite` may write their figures into tables that were made from what was given before.
        """
        assert self._saved is not None
        self._saved.restore()
        is_used = bool(start.run.repeats["is_on"][0])
        np.copyto(start.run.alike_transfers, alike_transfers(start.plan, is_used=is_used))
        if self._network is not None and all(map(_is, self._given, given)):
            self._network.restored_as_before()
            return start
        if self._network is not None:
            self._network.restored_as_before()
            if rewrite(self._network.saved.tables, self._given):
                self._network.take_as_written()
                self._given = given
                return start
        made, self._given = tables(), given
        if self._network is None or not self._network.restored(made):
            self._network = _Network(made, grow)
            self._start = start = replace(start, run=replace(start.run, network=self._network.saved.tables))
        return start


def _slows_alike(one: LoweredPlan, other: LoweredPlan) -> bool:
    """Return whether the same kernels take longer, whatever slows them."""
    if one.slowing is other.slowing:
        return True
    return np.array_equal(one.slowing.clip(0), other.slowing.clip(0)) and np.array_equal(
        one.slowdowns, other.slowdowns
    )


def _lines(array: Any) -> int:
    """Return the space for an array beside other small ones, in bytes; 0: it is large, or has no rows."""
    return -(-array.nbytes // LINE_BYTES) * LINE_BYTES if array.nbytes <= LARGEST_JOINED else 0


def _bytes_of(array: Any) -> Any:
    """Return the contents of an array as bytes: the same memory."""
    plain = np.ndarray.view(array, np.ndarray)  # record arrays search attributes among their fields
    return plain.ravel().view(np.uint8)


def _taken_apart(tables: Any) -> tuple[Any, list[Any]]:
    """Return all of some tables but the contents of their arrays, and these, as bytes."""
    arrays: list[Any] = []

    def part_of(array: Any) -> Any:
        arrays.append(_bytes_of(array))
        return array.dtype, array.shape

    return _with_arrays(tables, part_of, lambda kind, parts: (kind, *parts.values())), arrays


def _arrays_of(tables: Any) -> list[Any]:
    arrays: list[Any] = []
    _with_arrays(tables, arrays.append)
    return arrays


def _with_arrays(value: Any, change: Callable[[Any], Any], made: Callable[..., Any] | None = None) -> Any:
    """Return tables with other arrays; `made` combines their class and fields."""
    if isinstance(value, np.ndarray):
        return change(value)
    if isinstance(value, Tables):
        kind: Any = type(value)
        parts = {name: _with_arrays(getattr(value, name), change, made) for name in fields_of(kind)}
        return kind(**parts) if made is None else made(kind, parts)
    if isinstance(value, tuple):
        parts_of = [_with_arrays(item, change, made) for item in value]
        return type(value)(*parts_of) if hasattr(value, "_fields") else tuple(parts_of)
    return value


def _is(first: object, second: object) -> bool:
    return first is second
