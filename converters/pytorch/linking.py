"""Links between nodes of the execution trace and calls of the timeline that are the same operator.

Three methods are tried, and the first that fits is used: record-function ids, which both files contain since
2024; a constant difference between those ids and Kineto's external ids; and sequences of names, thread by
thread. Names must agree in all of them. The result states the number of linked operators and the part of the
timeline that the execution trace covers.

Recordings of different runs can link by their names as well as those of one run, so processes, ranks and
spans are compared, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from converters.pytorch.alignment import NameSequence, align
from converters.pytorch.calls import Calls, Rows
from converters.pytorch.columns import ABSENT, NONE, DeviceTrace, HostNodeKind, HostTrace
from et_sim.basics.errors import TraceError
from et_sim.basics.unique import unique
from et_sim.basics.units import format_ns

_WITHOUT_CALLS = (HostNodeKind.PROCESS, HostNodeKind.THREAD, HostNodeKind.DEVICE, HostNodeKind.GROUPS)
RECORD_FUNCTIONS, EXTERNAL, NAMES = "record-function ids", "external ids", "names, thread by thread"
_ENOUGH = 0.8  # share of the smaller side that must link for a method to be used at once
_VOTES = 100_000  # most operators that vote
_LIKELY = 0.3  # share of a thread's names that must occur on a lane for a comparison


class HostCallPairs(Struct, frozen=True, eq=False):
    """Pairs of host rows and calls."""

    host_of_call: Rows  # host row, or NONE
    method: str
    host_rows: Rows  # rows that can be linked
    device_operators: int
    linked: int

    @property
    def host_operators(self) -> int:
        """Return the number of rows of the execution trace that can be linked."""
        return len(self.host_rows)

    @property
    def host_orphans(self) -> Rows:
        """Return the rows of the execution trace without a call."""
        return self.host_rows[~np.isin(self.host_rows, self.host_of_call)]

    @property
    def device_rate(self) -> float:
        """Return the share of the timeline's operators that are linked."""
        return self.linked / self.device_operators if self.device_operators else 1.0


class _Sides(Struct, frozen=True, eq=False):
    """Both sides with names in one numbering."""

    host: Rows  # rows that can be linked, by id
    host_name: Rows
    call: Rows  # calls that can be linked, in their order
    call_name: Rows


def operators_of(host: HostTrace) -> Any:
    """Return the rows of calls."""
    return np.flatnonzero(~np.isin(host.kind, [int(node_sort) for node_sort in _WITHOUT_CALLS]))


def link(host: HostTrace, device: DeviceTrace, calls: Calls) -> HostCallPairs:
    """Find the pairs of rows and calls."""
    sides = _sides(host, device, calls)
    best, name = _no_pairs(), "nothing fits"
    if device.node_id is not None:
        best, name = _by_node_id(host, device, calls, sides), "node ids of the linked file"
    ways = (
        (RECORD_FUNCTIONS, _by_record_function),
        (EXTERNAL, _by_external_id),
        (NAMES, _by_names),
    )
    smaller = min(len(sides.host), len(sides.call))
    for way_name, way in ways:
        if len(best[0]) >= _ENOUGH * smaller:
            break
        links = way(host, device, calls, sides)
        if len(links[0]) > len(best[0]):
            best, name = links, way_name
    host_of_call = np.full(len(calls), NONE, np.int32)
    host_of_call[best[1]] = best[0]
    return HostCallPairs(host_of_call, name, np.sort(sides.host), len(sides.call), len(best[0]))


Pairs = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # host rows, calls


def _no_pairs() -> Pairs:
    return np.zeros(0, np.int64), np.zeros(0, np.int64)


def _sides(host: HostTrace, device: DeviceTrace, calls: Calls) -> _Sides:
    number = {name: at for at, name in enumerate(host.names)}
    # Numbers of the execution trace; names that it lacks are below -1.
    common = np.array([number.get(name, -2 - at) for at, name in enumerate(device.names)], np.int64)
    rows = operators_of(host)
    rows = rows[np.argsort(host.node_id[rows], kind="stable")]
    chosen = np.flatnonzero(calls.is_operator | calls.is_annotation)
    names = common[device.name[calls.row[chosen]]] if len(chosen) else np.zeros(0, np.int64)
    return _Sides(rows, host.name[rows].astype(np.int64), chosen, names)


def _joined(sides: _Sides, ours: Any, theirs: Any) -> Pairs:
    """Return the pairs with equal keys and equal names; a key below 1 is missing."""
    order = np.argsort(ours, kind="stable")
    order = order[ours[order] > 0]
    if not len(order):
        return _no_pairs()
    keys = ours[order]
    at = np.minimum(np.searchsorted(keys, theirs), len(keys) - 1)
    fits = (keys[at] == theirs) & (theirs > 0) & (sides.host_name[order[at]] == sides.call_name)
    _, first = np.unique(order[at][fits], return_index=True)
    return sides.host[order[at][fits][first]], sides.call[fits][first]


def _by_node_id(host: HostTrace, device: DeviceTrace, calls: Calls, sides: _Sides) -> Pairs:
    ids = device.node_id
    assert ids is not None
    return _joined(sides, host.node_id[sides.host].astype(np.int64), ids[calls.row[sides.call]])


def _by_record_function(host: HostTrace, device: DeviceTrace, calls: Calls, sides: _Sides) -> Pairs:
    ours = host.record_function[sides.host].astype(np.int64)
    return _joined(sides, ours, device.record_function[calls.row[sides.call]].astype(np.int64))


def _by_external_id(host: HostTrace, device: DeviceTrace, calls: Calls, sides: _Sides) -> Pairs:
    """Return the pairs at the usual difference between ids of operators of one name."""
    ours = host.record_function[sides.host].astype(np.int64)
    theirs = device.external_id[calls.row[sides.call]].astype(np.int64)
    here, there = ours > 0, (theirs > 0) & (sides.call_name >= 0)
    shift = _usual_shift((sides.host_name[here], ours[here]), (sides.call_name[there], theirs[there]))
    return (
        _joined(sides, np.where(ours > 0, ours + shift, ABSENT), theirs) if shift is not None else _no_pairs()
    )


def _usual_shift(ours: Pairs, theirs: Pairs) -> int | None:
    """Return the most frequent difference between ids of one name; each side is names and ids.

    Only the rarest names that occur equally often on both sides are used.
    """
    counts = [np.bincount(names) for names, _ in (ours, theirs)]
    size = min(map(len, counts))
    count = counts[0][:size]
    names = np.flatnonzero((count > 0) & (count == counts[1][:size]))
    names = names[np.argsort(count[names], kind="stable")]
    names = names[np.cumsum(count[names]) <= max(_VOTES, int(count[names[:1]].sum()))]
    sorted_ids = []
    for side, ids in (ours, theirs):
        shared = np.flatnonzero(np.isin(side, names))
        sorted_ids.append(ids[shared[np.lexsort((ids[shared], side[shared]))]])
    shifts, votes = np.unique(sorted_ids[1] - sorted_ids[0], return_counts=True)
    return int(shifts[np.argmax(votes)]) if len(shifts) else None


def _by_names(host: HostTrace, device: DeviceTrace, calls: Calls, sides: _Sides) -> Pairs:
    """Return the pairs of aligned names, for pairs of threads and lanes that match best."""
    threads, lanes = host.thread[sides.host], calls.lane[sides.call]
    ours = NameSequence(sides.host_name, host.sequence[sides.host].astype(np.int64))
    theirs = NameSequence(sides.call_name, device.sequence[calls.row[sides.call]].astype(np.int64))
    candidates: list[tuple[int, int, int, Pairs]] = []
    for thread in unique(threads).tolist():
        here = np.flatnonzero(threads == thread)
        for lane in unique(lanes).tolist():
            there = np.flatnonzero(lanes == lane)
            if _shared(ours.name[here], theirs.name[there]) < _LIKELY * len(here):
                continue
            in_host, in_device = align(ours.chosen(here), theirs.chosen(there))
            candidates.append(
                (len(in_host), thread, lane, (sides.host[here[in_host]], sides.call[there[in_device]]))
            )
    taken: set[tuple[str, int]] = set()
    all_pairs = [_no_pairs()]
    for _, thread, lane, pairs in sorted(
        candidates, key=lambda candidate: (-candidate[0], candidate[1], candidate[2])
    ):
        if ("thread", thread) in taken or ("lane", lane) in taken:
            continue
        taken |= {("thread", thread), ("lane", lane)}
        all_pairs.append(pairs)
    return np.concatenate([pair[0] for pair in all_pairs]), np.concatenate([pair[1] for pair in all_pairs])


def _shared(ours: Rows, theirs: Rows) -> int:
    """Return the number of elements that both have, repetitions included."""
    names, count = np.unique(ours, return_counts=True)
    others, counts = np.unique(theirs, return_counts=True)
    _, first, second = np.intersect1d(names, others, assume_unique=True, return_indices=True)
    return int(np.minimum(count[first], counts[second]).sum())


_FEW = 0.5  # share of the smaller recording's operators
_LEEWAY = 1.1  # factor by which the linked span may exceed that of the execution trace
_LEEWAY_NS = 50_000_000


def doubts(host: HostTrace, device: DeviceTrace, calls: Calls, links: HostCallPairs) -> Iterator[str]:
    """Yield reasons to doubt that the two recordings belong together."""
    if device.node_id is not None:  # one file
        return
    processes = sorted({lane.process for lane in device.lanes if lane.device == ABSENT} - {ABSENT})
    if host.process in processes:
        pass  # a rank may come from the name of a file only
    elif ABSENT not in (host.rank, device.rank) and host.rank != device.rank:
        yield f"one is of rank {host.rank} and the other of rank {device.rank}"
    elif processes and host.process != ABSENT:
        yield f"one is of process {host.process} and the other of process {processes[0]}"
    smaller = min(links.host_operators, links.device_operators)
    if links.linked <= _FEW * smaller:
        yield f"only {_rate(links)}" if smaller else "one of them holds no operators"
    elif took := _longer(host, calls, links):
        yield f"{took}"


def refuse_unrelated(host: HostTrace, device: DeviceTrace, links: HostCallPairs, doubts: list[str]) -> None:
    """Raise an error for the first of some doubts."""
    if doubts:
        linked = "" if "operators" in doubts[0] else f"; {_rate(links)}"
        raise TraceError(
            f"does not belong to {host.path}: {doubts[0]}{linked}",
            place=device.path,
            remedy="give two recordings of one rank, made at the same time, or --force to convert these",
        )


def _rate(links: HostCallPairs) -> str:
    smaller = max(min(links.host_operators, links.device_operators), 1)
    share = f"{100 * links.linked / smaller:.0f} %"
    return f"{links.linked:,} of {smaller:,} operators of the smaller one link ({share})"


def _longer(host: HostTrace, calls: Calls, links: HostCallPairs) -> str:
    """Return a sentence if the linked span is longer than the recorded one, else ""."""
    linked = links.host_of_call != NONE
    recorded_ns = (host.finish_ms - host.start_ms) * 1_000_000
    if ABSENT in (host.start_ms, host.finish_ms) or recorded_ns <= 0 or not np.any(linked):
        return ""
    span = int(calls.end_ns[linked].max() - calls.start_ns[linked].min())
    if span <= _LEEWAY * recorded_ns + _LEEWAY_NS:
        return ""
    return (
        f"linked operators take {format_ns(span)} in the timeline, and the execution trace was recorded for "
        f"{format_ns(recorded_ns)}"
    )
