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

COLUMNS = ("actor", "name", "kind", "group", "start_ns", "end_ns", "bytes")


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
        return {**asdict(self), "mean_ns": self.mean_ns, "bytes_per_second": self.bytes_per_second}


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
        count, completed, total_ns, longest_ns, payload = (int(figure) for figure in figures)
        operation.count += ranks * count
        operation.never_completed += ranks * (count - completed)
        operation.total_ns += ranks * total_ns
        operation.longest_ns = max(operation.longest_ns, longest_ns)
        operation.bytes += ranks * payload
    return sorted(found.values(), key=lambda one: (-one.total_ns, one.kind, one.name, one.group or ""))


def _groups(run: RunDirectory) -> Iterator[tuple[str, str, str | None, int, tuple[int, ...]]]:
    """Kind, stem, group, number of ranks per actor; and count, completed, time, longest, bytes of them."""
    rows = run.timeline(COLUMNS).unify_dictionaries().combine_chunks()
    if not len(rows):
        return
    kinds, stems, groups = _words(rows["kind"]), _stems(_words(rows["name"])), _words(rows["group"])
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


def _add_up(rows: Any, key_of_row: Any) -> list[tuple[int, ...]]:
    """Figures per key."""
    order = np.argsort(key_of_row, kind="stable")
    firsts = np.flatnonzero(np.diff(key_of_row[order], prepend=-1))
    end = integers(rows["end_ns"], missing=-1)[order]
    completed = end >= 0
    start = rows["start_ns"].to_numpy()[order]
    duration = np.where(completed, end - start, 0)
    payload = np.where(completed, rows["bytes"].to_numpy()[order], 0)
    columns = (
        np.add.reduceat(np.ones(len(order), np.int64), firsts),
        np.add.reduceat(completed.astype(np.int64), firsts),
        np.add.reduceat(duration, firsts),
        np.maximum.reduceat(duration, firsts),
        np.add.reduceat(payload, firsts),
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


def _words(column: Any) -> Words:
    dictionary = column.combine_chunks()
    texts = dictionary.dictionary.to_pylist()
    return Words((*texts, None), integers(dictionary.indices, missing=len(texts)))


def _stems(names: Words) -> Words:
    """Names with their numbers taken out; the work is per distinct name."""
    index: dict[str, int] = {}
    stems = (re.sub(r"[0-9]+", "#", name or "") for name in names.texts)
    of_name = np.array([index.setdefault(stem, len(index)) for stem in stems], np.int64)
    return Words(tuple(index), of_name[names.codes])
