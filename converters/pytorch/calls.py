"""Calls of the host's threads: operators, annotations, and the relevant calls of the runtime.

A call of the runtime is relevant if it started work of a device or waited for one. Repeated queries of a
thread are one such call. All others (attributes, event records) are part of their operator's time; event
records and waits of streams are evaluated as dependencies (`waits`).

Each thread is a lane. Calls are sorted by lane and start, callers before their callees.

`rules.toml` holds the meaning of names (collectives, kernels, datatypes, calls). A name without a rule gives
None or 0, and the caller counts it for the report.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from converters.pytorch.columns import NONE, ON_DEVICE, DeviceTrace, EventKind, HostTrace
from et_sim.basics.unique import unique
from et_sim.compiled.entry_points import entry
from et_sim.trace.columns import CollectiveKind, NodeKind

UNNAMED = "?"  # a kernel that communicates under an unknown operation


class CommunicationKind(Struct, frozen=True):
    """The kind of a communication node and of its collective (None for messages, or unknown)."""

    node: NodeKind
    collective: CollectiveKind | None

    @property
    def label(self) -> str:
        """Return the name for reports, such as `all_reduce` or `send`."""
        if self == UNNAMED_OPERATION:
            return "communication"
        return self.node.name.lower() if self.collective is None else self.collective.name.lower()

    @property
    def is_message(self) -> bool:
        """Return whether the operation is a message between two ranks."""
        return self.node != NodeKind.COLL


UNNAMED_OPERATION = CommunicationKind(NodeKind.COLL, None)


class TrafficRules(Struct, frozen=True):
    """The rules for the bytes that operators move."""

    by_tensors: re.Pattern[str]
    others: re.Pattern[str]
    uses: Mapping[str, str]  # FILLS, REDUCES, …, by name without `aten::` and the last `_`


class TraceRules(Struct, frozen=True):
    """The tables of `rules.toml`."""

    operations: Mapping[str, CommunicationKind]  # by normalised name
    bookkeeping: frozenset[str]
    kernels: tuple[tuple[re.Pattern[str], str], ...]  # normalised name of an operation, or UNNAMED
    element_bytes: Mapping[str, int]
    runtime: Mapping[str, frozenset[str]]
    traffic: TrafficRules

    def operation(self, name: str) -> CommunicationKind | None:
        """Return the operation of a name such as `_allgather_base`, `nccl:all_reduce` or
        `c10d::allreduce_`.
        """
        return self.operations.get(normalised(name))

    def is_bookkeeping(self, name: str) -> bool:
        """Return whether a communication record of this name transfers nothing."""
        return normalised(name) in self.bookkeeping

    def kernel(self, name: str) -> str | None:
        """Return the name of the operation if a kernel communicates (or UNNAMED), else None."""
        operations = (operation for pattern, operation in self.kernels if pattern.search(name))
        return next(operations, None)

    def bytes_of(self, datatype: str) -> int:
        """Return the bytes of one element; 0 if the datatype is unknown."""
        return self.element_bytes.get(datatype.lower().replace("c10::", "").strip(), 0)


def normalised(name: str) -> str:
    """Return the name of an operation without prefix and separators: `c10d::alltoall_base_` gives
    `alltoallbase`.
    """
    return name.rpartition(":")[2].lower().replace("_", "").replace("-", "")


@functools.cache
def rules() -> TraceRules:
    """Read the rules, once per process."""
    with Path(__file__).with_name("rules.toml").open("rb") as file:
        content = tomllib.load(file)
    return TraceRules(
        {name: _operation(kind) for name, kind in content["collective"].items()},
        frozenset(content["bookkeeping"]["names"]),
        tuple(
            (re.compile(rule["pattern"]), rule["collective"].replace("_", "")) for rule in content["kernel"]
        ),
        {name: int(size) for size, names in content["bytes"].items() for name in names},
        {rule: frozenset(names) for rule, names in content["runtime"].items()},
        _traffic(content["traffic"]),
    )


def _traffic(content: Mapping[str, Any]) -> TrafficRules:
    by_tensors, others = (re.compile("|".join(content[key])) for key in ("by_tensors", "others"))
    uses = ("fills", "reduces", "gathers", "scatters")
    return TrafficRules(by_tensors, others, {name: key.upper() for key in uses for name in content[key]})


def _operation(name: str) -> CommunicationKind:
    if name in ("send", "recv"):
        return CommunicationKind(NodeKind[name.upper()], None)
    return CommunicationKind(NodeKind.COLL, CollectiveKind[name.upper()])


@entry(what="the reader of PyTorch traces", seconds=lambda lane, *_: len(lane) * 1e-6)
def nest(lane: Any, start: Any, end: Any, parent: Any, open_calls: Any) -> None:
    """Fill `parent`; `open_calls` is scratch space for as many entries as there are calls."""
    depth = 0
    for call in range(len(start)):
        if call > 0 and lane[call] != lane[call - 1]:
            depth = 0
        while depth > 0 and end[open_calls[depth - 1]] <= start[call]:
            depth -= 1
        parent[call] = open_calls[depth - 1] if depth > 0 else NONE
        open_calls[depth] = call
        depth += 1


Rows = npt.NDArray[np.signedinteger[Any]]  # 32 bits to save memory
Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_HOST = (EventKind.OPERATOR, EventKind.ANNOTATION)
WAITING = ("wait_stream", "wait_event", "wait_device", "wait_own")


class Calls(Struct, frozen=True, eq=False):
    """The calls, one row each, sorted by lane and start."""

    row: Rows  # of the device trace
    lane: Rows  # index into `DeviceTrace.lanes`
    start_ns: Times
    end_ns: Times
    parent: Rows  # the innermost call around this one, or NONE
    is_operator: Flags  # the others are annotations and calls of the runtime
    is_annotation: Flags

    def __len__(self) -> int:
        return len(self.row)

    @property
    def outlasting(self) -> int:
        """Return the number of calls that end after their caller."""
        inner = np.flatnonzero(self.parent != NONE)
        return int((self.end_ns[inner] > self.end_ns[self.parent[inner]]).sum())

    def around(self, call: Rows, wanted: Flags) -> Rows:
        """Return the innermost wanted call around (or at) each of some calls, or NONE."""
        around = call.copy()
        while True:
            on = np.flatnonzero(around != NONE)
            on = on[~wanted[around[on]]]
            if not len(on):
                return around
            around[on] = self.parent[around[on]]

    def of_row(self, events: int) -> Rows:
        """Return the call of each event of the device trace, or NONE."""
        calls = np.full(events, NONE, np.int32)
        calls[self.row] = np.arange(len(self.row))
        return calls


class DeviceWork(Struct, frozen=True, eq=False):
    """The work of the devices: rows of the device trace by lane (stream) and start."""

    row: Rows
    lane: Rows
    start_ns: Times
    end_ns: Times
    launch: Rows  # row of the launching event in the device trace, or NONE
    call: Rows  # the same event as an index into `Calls`

    def __len__(self) -> int:
        return len(self.row)


class Recording(Struct, frozen=True, eq=False):
    """The input of a conversion; all times count from its beginning."""

    device: DeviceTrace
    host: HostTrace | None
    calls: Calls
    work: DeviceWork
    host_of_call: Rows  # row of the execution trace, or NONE


def running_most(lane: Rows, values: Times) -> Times:
    """Return the largest value so far, lane by lane."""
    beyond = int(values.max(initial=0)) + 1
    shift = lane.astype(np.int64) * beyond  # times start at 0, so this separates the lanes
    most: Times = np.maximum.accumulate(values + shift) - shift
    return most


def device_work(device: DeviceTrace) -> DeviceWork:
    """Return all work of devices, with the event that launched it."""
    rows = np.flatnonzero(np.isin(device.kind, [int(kind) for kind in ON_DEVICE]))
    start = device.ts_ns[rows]
    rows = rows[np.lexsort((rows, start + device.dur_ns[rows], start, device.lane[rows]))]
    start = device.ts_ns[rows]
    return DeviceWork(
        rows,
        device.lane[rows].astype(np.int64),
        start,
        start + device.dur_ns[rows],
        _launches(device, rows),
        np.full(len(rows), NONE, np.int64),
    )


def host_calls(device: DeviceTrace, work: DeviceWork) -> tuple[Calls, DeviceWork]:
    """Return the calls of all threads, and the work with its calls."""
    is_call = np.isin(device.kind, [int(kind) for kind in _HOST])
    is_call[work.launch[work.launch != NONE]] = True
    is_call |= (device.kind == EventKind.LAUNCH) & np.isin(device.name, named(device, *WAITING))
    first, last = _polls(device, is_call)
    is_call[last] = True
    begin = device.ts_ns.copy()
    begin[last] = begin[first]
    lasts = device.ts_ns + device.dur_ns - begin
    rows = np.flatnonzero(is_call)
    order = (
        -lasts[rows],
        device.external_id[rows],  # ids ascend by start: they order equal microseconds
        device.kind[rows] == EventKind.LAUNCH,
        begin[rows],
        device.lane[rows],
    )
    rows = rows[np.lexsort(order)].astype(np.int32)
    lane = device.lane[rows]
    start = begin[rows]
    end = start + lasts[rows]
    parent = np.empty(len(rows), np.int32)
    nest(lane, start, end, parent, np.empty(len(rows), np.int32))
    kind = device.kind[rows]
    # an annotation that outlasts its operator (gloo's messages) contains no later calls
    outlasts = (kind == EventKind.ANNOTATION) & (parent != NONE) & (end > end[parent])
    if outlasts.any():
        end[outlasts] = end[parent[outlasts]]
        nest(lane, start, end, parent, np.empty(len(rows), np.int32))
    calls = Calls(
        rows,
        lane,
        start,
        end,
        parent,
        kind == EventKind.OPERATOR,
        kind == EventKind.ANNOTATION,
    )
    of_row = calls.of_row(len(device))
    call = np.where(work.launch != NONE, of_row[work.launch], NONE)
    if device.node_id is not None:
        call = np.where(call == NONE, _callers(device.node_id, rows, work.row), call)
    return calls, replace(work, call=call)


def _polls(device: DeviceTrace, is_call: Flags) -> tuple[Rows, Rows]:
    """Return the first and the last of repeated queries of one thread, even if it makes other calls
    between.
    """
    is_host = device.kind == EventKind.LAUNCH
    is_query = is_host & np.isin(device.name, named(device, "query"))
    busy = unique(device.lane[is_call])
    is_query &= np.isin(device.lane, busy)
    if not is_query.any():
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    rows = np.flatnonzero((is_host | is_call) & np.isin(device.lane, unique(device.lane[is_query])))
    rows = rows[np.lexsort((-device.dur_ns[rows], device.ts_ns[rows], device.lane[rows]))]
    same = is_query[rows[1:]] & is_query[rows[:-1]] & (device.lane[rows[1:]] == device.lane[rows[:-1]])
    goes_on, went_on = np.append(same, False), np.insert(same, 0, False)
    return rows[goes_on & ~went_on], rows[went_on & ~goes_on]


def _callers(node_id: Any, rows: Rows, work: Rows) -> Rows:
    """Return the call of the operator of each piece of work. Linked files have no launches but node ids."""
    order = np.argsort(node_id[rows], kind="stable")
    at = np.minimum(np.searchsorted(node_id[rows][order], node_id[work]), max(len(order) - 1, 0))
    if not len(order):
        return np.full(len(work), NONE, np.int64)
    callers: Rows = np.where(node_id[rows[order[at]]] == node_id[work], order[at], NONE)
    return callers


def named(device: DeviceTrace, *which: str) -> Any:
    """Return the indices of the names that the rules list under `which`."""
    wanted = set().union(*(rules().runtime[rule] for rule in which))
    return np.array([at for at, name in enumerate(device.names) if _plain(name) in wanted], np.int64)


def _plain(name: str) -> str:
    """Return a driver's function without its version suffix, as in `cudaMemcpyAsync_v3020`."""
    head, _, tail = name.partition("_")
    return head if tail.startswith(("v", "ptsz")) else name


def _launches(device: DeviceTrace, rows: Rows) -> Rows:
    """Return the first call with the correlation of each piece of work, or NONE."""
    calls = np.flatnonzero((device.kind == EventKind.LAUNCH) & (device.correlation > 0))
    calls = calls[np.lexsort((device.ts_ns[calls], device.correlation[calls]))]
    wanted = device.correlation[rows]
    if not len(calls):
        return np.full(len(rows), NONE, np.int64)
    at = np.minimum(np.searchsorted(device.correlation[calls], wanted), len(calls) - 1)
    launches: Rows = np.where((device.correlation[calls[at]] == wanted) & (wanted > 0), calls[at], NONE)
    return launches
