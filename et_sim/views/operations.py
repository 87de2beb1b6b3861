"""Which operations took the time: the timeline's rows added up per kind, name stem and group.

A name stem is the name with every number replaced by `#`, so that the layers of a model are one line.
Adding up is numpy's work, because importing Arrow's compute functions takes longer than a small simulation;
Python sees one object per group only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from et_sim.views.run_directory import RunDirectory

AVERAGED = ("compute_utilisation", "memory_utilisation", "operational_intensity")
COLUMNS = ("actor", "name", "kind", "group", "start_ns", "end_ns", "bytes", *AVERAGED)


@dataclass(slots=True)
class Operation:
    """Nodes alike, over all ranks; times are sums over ranks."""

    kind: str
    name: str
    group: str | None
    count: int = 0
    never_completed: int = 0
    total_ns: int = 0
    longest_ns: int = 0
    bytes: int = 0  # of those that completed
    # Of kernels timed by the roofline: their time, how much of it arithmetic limits, and sums over it.
    kernel_ns: int = 0
    compute_bound_ns: int = 0
    weighted: tuple[float, ...] = (0.0,) * len(AVERAGED)

    @property
    def mean_ns(self) -> float:
        """How long one takes."""
        return self.total_ns / max(self.count - self.never_completed, 1)

    @property
    def bytes_per_second(self) -> float | None:
        """Payload over time, waiting for others included ("algorithm bandwidth")."""
        return self.bytes * 1e9 / self.total_ns if self.bytes and self.total_ns else None

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        plain = asdict(self)
        for name in ("kernel_ns", "compute_bound_ns", "weighted"):
            del plain[name]
        rate = {"mean_ns": self.mean_ns, "bytes_per_second": self.bytes_per_second}
        return {**plain, **rate, **self.averages()}

    def averages(self) -> dict[str, float | None]:
        """Use of the machine by kernels, weighted by their time; None where the roofline timed none."""
        sums = ("compute_bound_share", *AVERAGED), (self.compute_bound_ns, *self.weighted)
        return {name: s / self.kernel_ns if self.kernel_ns else None for name, s in zip(*sums, strict=True)}


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """A column of texts: the distinct ones, and which of them every row has; none is the last."""

    texts: tuple[str | None, ...]
    codes: Any


def operations(run: RunDirectory) -> list[Operation]:
    """All operations, the one with the most time first."""
    found: dict[tuple[str | None, ...], Operation] = {}
    for kind, name, group, ranks, figures in _groups(run):
        operation = found.setdefault((kind, name, group), Operation(kind, name, group))
        # Weighted here, in Python's unbounded integers: a million ranks would overflow a column.
        count, completed, total_ns, longest_ns, payload, kernel_ns, bound_ns, *sums = figures
        operation.count += ranks * count
        operation.never_completed += ranks * (count - completed)
        operation.total_ns += ranks * total_ns
        operation.longest_ns = max(operation.longest_ns, longest_ns)
        operation.bytes += ranks * payload
        operation.kernel_ns += ranks * kernel_ns
        operation.compute_bound_ns += ranks * bound_ns
        operation.weighted = tuple(a + ranks * b for a, b in zip(operation.weighted, sums, strict=True))
    return sorted(found.values(), key=lambda one: (-one.total_ns, one.kind, one.name, one.group or ""))


def _groups(run: RunDirectory) -> Iterator[tuple[str, str, str | None, int, tuple[Any, ...]]]:
    """Kind, stem, group, number of ranks per actor; and count, completed, time, longest, bytes, time in
    kernels and when compute bound, and sums over that time of them."""
    rows = run.timeline(COLUMNS).unify_dictionaries().combine_chunks()
    if not len(rows):
        return
    kinds, stems, groups = words(rows["kind"]), _stems(words(rows["name"])), words(rows["group"])
    counts, weight = np.unique(run.actors()["rank_count"].to_numpy(), return_inverse=True)
    sizes = (len(kinds.texts), len(stems.texts), len(groups.texts), len(counts))
    codes = (kinds.codes, stems.codes, groups.codes, weight.reshape(-1)[rows["actor"].to_numpy()])
    keys, key_of_row = np.unique(np.ravel_multi_index(codes, sizes), return_inverse=True)
    figures = _add_up(rows, key_of_row.reshape(-1))
    for of_key, values in zip(zip(*np.unravel_index(keys, sizes), strict=True), figures, strict=True):
        kind, stem, group, ranks = (int(code) for code in of_key)
        yield (
            str(kinds.texts[kind]),
            str(stems.texts[stem]),
            groups.texts[group],
            int(counts[ranks]),
            values,
        )


def _add_up(rows: Any, key_of_row: Any) -> list[tuple[Any, ...]]:
    """Figures per key."""
    order = np.argsort(key_of_row, kind="stable")
    firsts = np.flatnonzero(np.diff(key_of_row[order], prepend=-1))
    end = integers(rows["end_ns"], missing=-1)[order]
    completed = end >= 0
    start = rows["start_ns"].to_numpy()[order]
    duration = np.where(completed, end - start, 0)
    payload = np.where(completed, rows["bytes"].to_numpy()[order], 0)
    used = [rows[name].to_numpy()[order] for name in AVERAGED]
    is_kernel, is_compute_bound = ~np.isnan(used[0]), used[0] >= 1
    columns = (
        np.add.reduceat(np.ones(len(order), np.int64), firsts),
        np.add.reduceat(completed.astype(np.int64), firsts),
        np.add.reduceat(duration, firsts),
        np.maximum.reduceat(duration, firsts),
        np.add.reduceat(payload, firsts),
        np.add.reduceat(np.where(is_kernel, duration, 0), firsts),
        np.add.reduceat(np.where(is_compute_bound, duration, 0), firsts),
        *(np.add.reduceat(np.where(is_kernel, figure, 0.0) * duration, firsts) for figure in used),
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))


def integers(column: Any, missing: int) -> Any:
    """An integer column with a value for its nulls, without Arrow's compute functions.

    Importing those takes longer than showing a small run.
    """
    array = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    validity, values = array.buffers()
    window = slice(array.offset, array.offset + len(array))
    out = np.frombuffer(values, array.type.to_pandas_dtype())[window].astype(np.int64)
    if validity is not None and array.null_count:
        is_valid = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")[window]
        out[is_valid == 0] = missing
    return out


def words(column: Any) -> Words:
    """A column of texts, all of whose rows share one dictionary."""
    dictionary = column.combine_chunks()
    texts = dictionary.dictionary.to_pylist()
    return Words((*texts, None), integers(dictionary.indices, missing=len(texts)))


def _stems(names: Words) -> Words:
    """Names with their numbers taken out; the work is per distinct name."""
    index: dict[str, int] = {}
    stems = (re.sub(r"[0-9]+", "#", name or "") for name in names.texts)
    of_name = np.array([index.setdefault(stem, len(index)) for stem in stems], np.int64)
    return Words(tuple(index), of_name[names.codes])
