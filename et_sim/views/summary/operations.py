"""Operations: the timeline's rows added up by kind, name stem and group.

A name stem is the name without its counters (`run.names`), so that the layers of a model are one line. Sums
use numpy, because importing Arrow's compute functions takes longer than a small simulation; Python handles
one object per group.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import asdict

from et_sim.basics.intervals import Intervals, Unions, together
from et_sim.basics.unique import groups_of, unique
from et_sim.views.run.columns import numbers, words
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import (
    OPERATION,
    TIMES,
    Counts,
    Key,
    OperationKeys,
    Spans,
    communicates,
    exact_total_by,
    most_by,
    spans,
    total_by,
)
from et_sim.views.run.selection import EVERYTHING, Selection

if TYPE_CHECKING:
    from fractions import Fraction

ONCE = ("broadcast", "reduce", "send")
SHARED = ("all_gather", "reduce_scatter", "reduce_scatter_block", "all_to_all")
LEGEND = (
    "bandwidth: size divided by the time in which bytes move, for a collective from the arrival of its first "
    "member to the end of its last; bus bw: the part that a port carries, as nccl-tests counts"
)


class Bandwidth(Struct, frozen=True):
    """Bytes per second over the time in which bytes move."""

    algorithm: float | None  # None: no payload
    bus: float | None  # as a port carries it; None: not communication, or its members are unknown

    def as_dict(self) -> dict[str, float | None]:
        """Return it for `--json`."""
        return {"bytes_per_second": self.algorithm, "bus_bytes_per_second": self.bus}


NONE = Bandwidth(None, None)


def bandwidth(kind: str, members: int | None, bytes: int, moving_ns: int) -> Bandwidth:
    """Return the bandwidth of equal operations, from the sum of their bytes and the sum of their times.

    Receives have none: their bytes may have arrived before they were posted.
    """
    if not bytes or moving_ns <= 0 or kind == "receive":
        return NONE
    rate = bytes * 1e9 / moving_ns
    if kind in ONCE:
        return Bandwidth(rate, rate)
    if members is None:
        return Bandwidth(rate, None)
    if kind == "all_gather":
        rate *= members
    share = (members - 1) / members
    factor = 2 * share if kind == "all_reduce" else share if kind in SHARED else None
    return Bandwidth(rate, None if factor is None else rate * factor)


def members_of(sizes: Mapping[str, int], group: str | None) -> int | None:
    """Return the number of ranks of the groups with this name; None: unknown, or not the same everywhere."""
    return sizes.get(group) if group is not None else None


AVERAGED = ("compute_utilisation", "memory_utilisation", "operational_intensity")
WORDS = ("timed_by", "bound")
MOST_COUNTED = 1 << 22  # keys that are counted, which is faster than sorting
COLUMNS = (
    *OPERATION,
    *TIMES,
    "bytes",
    *AVERAGED,
    "memory_bound",
    "timed_by",
    "bound",
)


class OperationTotal(Struct):
    """Equal nodes, over all ranks; times are sums over ranks."""

    kind: str
    name: str
    group: str | None
    count: int = 0
    never_completed: int = 0
    total_ns: int = 0
    longest_ns: int = 0
    queued_ns: int = 0  # part of the total: behind other communication of the same rank
    waiting_ns: int = 0  # part of the total: for other ranks to begin
    moving_ns: int = 0  # from the first byte to the last; of a collective, over all members
    bytes: int = 0  # of nodes that completed
    # Kernels timed by the roofline: their time, the part limited by arithmetic, and weighted sums.
    kernel_ns: int = 0
    compute_bound_ns: int = 0
    weighted: tuple[Fraction | float, ...] = (0,) * len(AVERAGED)
    timed_by: dict[str, int] = field(default_factory=dict)  # time by the model that it comes from
    bound: dict[str, int] = field(default_factory=dict)  # time of kernels by their limit
    members: int | None = None  # of the group

    @property
    def mean_ns(self) -> float:
        """Return the mean duration of a node."""
        return self.total_ns / max(self.count - self.never_completed, 1)

    @property
    def bandwidth(self) -> Bandwidth:
        """Return the bandwidth over the time in which bytes move."""
        return bandwidth(self.kind, self.members, self.bytes, self.moving_ns)

    def as_dict(self) -> dict[str, Any]:
        """Return it for `--json`."""
        plain = asdict(self)
        for name in ("kernel_ns", "compute_bound_ns", "weighted"):
            del plain[name]
        return {**plain, "mean_ns": self.mean_ns, **self.bandwidth.as_dict(), **self.averages()}

    def averages(self) -> dict[str, float | None]:
        """Return the use of the machine by kernels, weighted by time; None if the roofline timed none."""
        sums = ("compute_bound_share", *AVERAGED), (self.compute_bound_ns, *self.weighted)
        return {
            name: float(total / self.kernel_ns) if self.kernel_ns else None
            for name, total in zip(*sums, strict=True)
        }


def names_in(run: RunDirectory) -> tuple[str | None, ...]:
    """Return all names of the timeline."""
    for rows in run.batches("timeline", ("name",)):
        return tuple(rows["name"].dictionary.to_pylist())  # all batches share them
    return ()


def operations(
    run: RunDirectory, part: Selection = EVERYTHING, beside: RunDirectory | None = None
) -> list[OperationTotal]:
    """Return all operations, the longest first; durations are cut to the window.

    `beside` is another run; both runs get the same names of operations.
    """
    operation_of: dict[tuple[str | None, ...], OperationTotal] = {}
    keys = OperationKeys(run, part, names_in(beside) if beside is not None else ())
    for kind, name, groups, figures, words_of in _groups(run, keys, part):
        for group, ranks in groups:
            key = kind, name, group
            if key not in operation_of:
                operation_of[key] = OperationTotal(*key, members=members_of(keys.groups.sizes, group))
            operation = operation_of[key]
            # Weighted in Python's unbounded integers: a million ranks would overflow a column.
            count, completed, total_ns, longest_ns, queued_ns, waiting_ns, moving_ns, *rest = figures
            payload, kernel_ns, bound_ns, *sums = rest
            for column in WORDS:
                spent = getattr(operation, column)
                for word, ns in words_of[column].items():
                    spent[word] = spent.get(word, 0) + ranks * ns
            operation.count += ranks * count
            operation.never_completed += ranks * (count - completed)
            operation.total_ns += ranks * total_ns
            operation.longest_ns = max(operation.longest_ns, longest_ns)
            operation.queued_ns += ranks * queued_ns
            operation.waiting_ns += ranks * waiting_ns
            operation.moving_ns += ranks * moving_ns
            operation.bytes += ranks * payload
            operation.kernel_ns += ranks * kernel_ns
            operation.compute_bound_ns += ranks * bound_ns
            operation.weighted = tuple(a + ranks * b for a, b in zip(operation.weighted, sums, strict=True))
    return sorted(
        operation_of.values(), key=lambda entry: (-entry.total_ns, entry.kind, entry.name, entry.group or "")
    )


def _groups(
    run: RunDirectory, operations: OperationKeys, part: Selection
) -> Iterator[tuple[str, str, Counts, tuple[Any, ...], dict[str, dict[str, int]]]]:
    """Yield, block by block, kind, stem, groups with their numbers of ranks, figures of one rank, and time by
    words.

    The figures are count, completed, time, longest, queued, waiting, moving, bytes, time in kernels, time of
    compute-bound kernels, and weighted sums.
    """
    for rows in run.batches("timeline", COLUMNS):
        times = spans(rows)
        shown = part.touches(times.start, times.end)
        if not shown.any():
            continue
        columns = operations.columns(rows)
        sizes = operations.sizes
        keys, key_of_row = _numbered(np.ravel_multi_index(columns, sizes), math.prod(sizes))
        figures = _add_up(rows, times, shown, key_of_row, len(keys), part)
        spent = _time_by_words(rows, times, shown, key_of_row, len(keys), part)
        of_keys = zip(*np.unravel_index(keys, sizes), strict=True)
        for of_key, values, words_of in zip(of_keys, figures, spent, strict=True):
            kind, name, there = operations.named(*map(int, of_key))
            if values[0] and there:
                yield kind, name, there, values, words_of


def _time_by_words(
    rows: Any, times: Spans, shown: Any, key_of_row: Any, keys: int, part: Selection
) -> list[dict[str, dict[str, int]]]:
    """Return, by key, the time of its nodes by the words of each column."""
    times_of: list[dict[str, dict[str, int]]] = [{column: {} for column in WORDS} for _ in range(keys)]
    cut = times.cut(part)
    duration = np.where(times.completed & shown, cut.end - cut.start, 0)
    for column in WORDS:
        texts = words(rows[column])
        size = len(texts.texts)
        total = total_by(key_of_row * size + texts.codes, keys * size, duration).reshape(keys, size)
        for key, word in zip(*np.nonzero(total[:, :-1]), strict=True):
            times_of[key][column][str(texts.texts[word])] = int(total[key, word])
    return times_of


def _numbered(keys: Any, size: int) -> tuple[Any, Any]:
    """Return the distinct keys, all below `size`, and the index of the key of every row."""
    if size > MOST_COUNTED:
        equal = groups_of(keys)
        return keys[equal.first], equal.of_row
    known = np.flatnonzero(np.bincount(keys, minlength=size))
    number = np.zeros(size, np.int64)
    number[known] = np.arange(len(known))
    return known, number[keys]


def _add_up(
    rows: Any, times: Spans, shown: Any, key_of_row: Any, keys: int, part: Selection
) -> list[tuple[Any, ...]]:
    """Return figures by key."""
    cut, counted = times.cut(part), times.completed & shown

    def summed(values: Any) -> Any:
        return total_by(key_of_row, keys, values)

    def spent(begin: Any, end: Any) -> Any:
        return np.where(counted, end - begin, 0)

    duration, payload = spent(cut.start, cut.end), np.where(counted, numbers(rows["bytes"]), 0)
    if part.window is not None:  # in proportion to its time in the window
        whole = np.maximum(times.end - times.start, 1)
        payload = np.rint(payload * (duration / whole)).astype(np.int64)
    columns = [summed(shown.astype(np.int64)), summed(counted.astype(np.int64)), summed(duration)]
    columns += [most_by(key_of_row, keys, duration), summed(spent(cut.start, cut.admitted))]
    columns += [summed(spent(cut.admitted, cut.moved)), summed(np.where(counted, cut.moving, 0))]
    columns += [summed(payload)]
    if all(rows[name].null_count == len(rows) for name in AVERAGED):
        columns += [np.zeros(keys, np.int64)] * (2 + len(AVERAGED))
    else:
        used = [numbers(rows[name]) for name in AVERAGED]
        is_kernel = ~np.isnan(used[0])
        is_compute_bound = is_kernel & ~numbers(rows["memory_bound"])
        columns += [summed(np.where(mask, duration, 0)) for mask in (is_kernel, is_compute_bound)]
        counts = is_kernel & (duration > 0)  # a figure may be infinite
        weights = (np.where(counts, figure, 0.0) * duration for figure in used)
        columns += [np.array(exact_total_by(key_of_row, keys, values), object) for values in weights]
    return list(zip(*(column.tolist() for column in columns), strict=True))


EXPOSURE_COLUMNS = (*OPERATION, *TIMES)
KERNELS, NEITHER, FIRST = 0, 1, 2


def without_kernel(run: RunDirectory, part: Selection) -> Counter[Key]:
    """Return, by operation that communicates, how long no kernel ran, over all selected ranks."""
    times_ns: Counter[Key] = Counter()
    keys = _Keys(run, part)
    if not len(keys.known):
        return times_ns
    unions = Unions(FIRST + len(keys.known), lambda parts: keys.share_out(parts, times_ns))
    for rows in run.batches("timeline", EXPOSURE_COLUMNS):
        times, kind = spans(rows, run.summary["makespan_ns"]), keys.activities(rows)
        admitted = np.where(kind >= FIRST, times.admitted, times.start)
        unions.add(numbers(rows["actor"]), kind, *part.clipped(admitted, times.end))
    unions.close()
    return times_ns


class _Keys:
    """Codes of the operations that communicate: kind, name, and number of ranks by group."""

    def __init__(self, run: RunDirectory, part: Selection) -> None:
        self._keys = OperationKeys(run, part)
        batches = run.batches("timeline", EXPOSURE_COLUMNS)
        codes = (unique(self._codes(rows)[words(rows["kind"]).where(communicates)]) for rows in batches)
        self.known = unique(np.concatenate([np.zeros(0, np.int64), *codes]))

    def activities(self, rows: Any) -> Any:
        """Return the activity of each row: KERNELS, NEITHER, or the index of its operation."""
        kinds = words(rows["kind"])
        operation = FIRST + np.searchsorted(self.known, self._codes(rows))
        kind_if_not = np.where(kinds.where(lambda kind: kind == "compute"), KERNELS, NEITHER)
        return np.where(kinds.where(communicates), operation, kind_if_not)

    def share_out(self, unions: list[Intervals], times_ns: Counter[Key]) -> None:
        """Add the times of complete actors."""
        kernels = unions[KERNELS]
        for at, active in enumerate(unions[FIRST:]):
            if len(active):
                without = kernels.of(unique(active.owner))
                both = together((active, without))
                actors = 1 + int(active.owner.max())
                alone_ns = int((both.lengths(actors) - without.lengths(actors)).sum())
                codes = np.unravel_index(self.known[at], self._keys.sizes)
                for key, ranks in self._keys.operations(*map(int, codes)):
                    times_ns[key] += ranks * alone_ns

    def _codes(self, rows: Any) -> Any:
        return np.ravel_multi_index(self._keys.columns(rows), self._keys.sizes)
