"""The nodes that carry the communication of a rank: kernels, or calls of the host's own backends (gloo).

A collective is recorded several times: as an operator of torch.distributed, as `record_param_comms`, as an
annotation and as a kernel. It becomes one node. The kernel is preferred, because it has the time of the
transfer. Without a kernel and with tensors in host memory, the annotation of the worker (`gloo:…`) is used:
the operator launched it as work on a stream of its own. Otherwise the operator itself is used.

The arguments of a kernel have priority over those of the calls around its launch, from the inside out. A
kernel that is launched for several messages, whose calls have already returned, carries all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from converters.pytorch.calls import UNNAMED, UNNAMED_OPERATION, Calls, DeviceWork, Flags, Recording, rules
from converters.pytorch.columns import ABSENT, COLLECTIVE_TEXTS, NONE, DeviceTrace, RecordedCollectives
from converters.pytorch.communication import (
    ArgumentValues,
    Communication,
    HostRecords,
    from_annotation,
    from_nccl,
    from_operator,
    shape_bytes,
)
from converters.pytorch.graph import Column, Rows
from converters.pytorch.groups import RankGroups
from et_sim.trace.columns import CollectiveKind

_ANNOTATIONS = ("nccl:", "gloo:", "mpi:", "ucc:")
_OPERATORS = ("c10d::", "_c10d_functional::", "c10d_functional::", "symm_mem::")
_RECORD = "record_param_comms"
ALONE = "collectives of a group of one rank, which move nothing"


class Carriers(Struct, frozen=True, eq=False):
    """The communications and the work or calls that carry them."""

    communications: tuple[Communication, ...]
    work: DeviceWork  # with extra rows for further messages of a kernel, and for work of workers
    of_work: Column  # index into `communications`, or NONE
    of_call: Rows
    by_worker: Column  # work of a worker

    @property
    def group_of_work(self) -> Column:
        """Return a number for the group of each piece of work; all work without communication has the
        same.
        """
        names = {
            name: at
            for at, name in enumerate(
                dict.fromkeys(communication.group for communication in self.communications)
            )
        }
        numbers = np.array(
            [names[communication.group] for communication in self.communications] + [NONE], np.int64
        )
        return numbers[self.of_work]


class _Records(Struct):
    """The records of communication among the calls of the host."""

    device: DeviceTrace
    calls: Calls
    host_of_call: Rows
    host: HostRecords | None
    row_of_event: dict[int, int] = field(default_factory=dict)
    known: dict[int, Communication | None] = field(default_factory=dict)
    is_named: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))

    def __post_init__(self) -> None:
        self.row_of_event = {row: at for at, row in enumerate(self.device.collectives.row.tolist())}
        named = [
            name == _RECORD or name.startswith((*_ANNOTATIONS, *_OPERATORS)) for name in self.device.names
        ]
        self.is_named = (
            np.array(named, np.bool_)[self.device.name[self.calls.row]] if len(self.calls) else self.is_named
        )

    def around(self, call: int) -> Iterator[int]:
        """Yield the calls that describe communication, from a call outwards."""
        while call != NONE:
            if self.is_named[call] and self.of(call) is not None:
                yield call
            call = int(self.calls.parent[call])

    def of(self, call: int) -> Communication | None:
        """Return the communication that a call itself describes."""
        if call not in self.known:
            self.known[call] = self._read(call)
        return self.known[call]

    def of_event(self, row: int) -> Communication | None:
        """Return the communication that the NCCL arguments of an event describe."""
        at = self.row_of_event.get(row)
        if at is None:
            return None
        table, texts = self.device.collectives, self.device.texts
        given: dict[str, Any] = {
            name: int(getattr(table, name)[at]) for name in RecordedCollectives.__struct_fields__
        }
        for name in COLLECTIVE_TEXTS:
            given[name] = texts[given[name]].decode(errors="replace") if given[name] != ABSENT else ""
        return from_nccl(given)

    def name_of(self, call: int) -> str:
        """Return the name of a call."""
        return self.device.names[int(self.device.name[self.calls.row[call]])]

    def in_bytes(self, call: int) -> int:
        """Return the bytes of the recorded inputs of a call."""
        dims, types, _ = self._arguments(call)
        return sum(shape_bytes(dims, types))

    def is_on_host(self, call: int) -> bool | None:
        """Return whether a call's tensors are in host memory; None if that is not recorded."""
        row = int(self.host_of_call[call])
        return None if self.host is None or row == NONE else self.host.is_on_host(row)

    def _read(self, call: int) -> Communication | None:
        record = self.of_event(int(self.calls.row[call]))
        row = int(self.host_of_call[call])
        if record is None and self.host is not None and row != NONE:
            record = self.host.of(row)
        name = self.name_of(call)
        if record is None and name.startswith(_ANNOTATIONS):
            record = from_annotation(name, self.in_bytes(call))
        if record is None and name.startswith(_OPERATORS):
            record = from_operator(name, self._values(call))
        return record

    def _values(self, call: int) -> ArgumentValues:
        dims, types, values = self._arguments(call)
        sizes = shape_bytes(dims, types)
        kinds = [
            "Tensor" if size else "Int" if kind == "Scalar" else kind
            for size, kind in zip(sizes, types, strict=False)
        ]
        return ArgumentValues([_value(value) for value in values], kinds, dict(enumerate(sizes)), 0)

    def _arguments(self, call: int) -> tuple[list[Any], list[Any], list[Any]]:
        text = int(self.device.arguments[self.calls.row[call]])
        arguments = json.loads(self.device.texts[text]) if text != ABSENT else {}
        return arguments.get("dims") or [], arguments.get("types") or [], arguments.get("values") or []


def find_carriers(given: Recording, groups: RankGroups) -> Carriers:
    """Return all communication of a rank."""
    host = HostRecords(given.host) if given.host is not None else None
    records = _Records(given.device, given.calls, given.host_of_call, host)
    search = _Search(records, given.work, groups)
    search.kernels()
    search.host()
    return search.result()


class _Search(Struct):
    records: _Records
    work: DeviceWork
    groups: RankGroups
    communications: list[Communication] = field(default_factory=list)
    carried: dict[int, list[int]] = field(default_factory=dict)  # by work
    by_call: dict[int, int] = field(default_factory=dict)
    begun: list[tuple[int, int, int]] = field(default_factory=list)  # worker, its operator, communication
    used: set[int] = field(default_factory=set)  # calls whose communication has a node

    def kernels(self) -> None:
        """Assign communications to kernels."""
        device, work = self.records.device, self.work
        kind = [rules().kernel(name) for name in device.names]
        communicates = np.array([kind_name is not None for kind_name in kind], np.bool_)
        communicating = np.zeros(0, np.int64)
        if len(work):
            described = [row for row in self.records.row_of_event if self.records.of_event(row) is not None]
            communicating = np.flatnonzero(communicates[device.name[work.row]] | np.isin(work.row, described))
        # in the order of launching, so that messages of a common kernel are assigned to the first one
        launched = device.ts_ns[
            np.where(work.launch[communicating] != NONE, work.launch[communicating], work.row[communicating])
        ]
        waiting = self._pending(communicating)
        for at in communicating[np.argsort(launched, kind="stable")].tolist():
            self._kernel(at, kind[device.name[work.row[at]]] or UNNAMED, waiting)
        for lane in waiting.values():
            for call in lane:
                communication = self.records.known[call]
                remark = "collectives recorded, but without a kernel in the recording"
                if communication is not None and self.groups.is_alone(communication):
                    remark = ALONE
                self.groups.tally.remark(remark, self.records.name_of(call))

    def _pending(self, kernels: Column) -> dict[int, list[int]]:
        """Return the records of communication that launch no kernel, by lane in the order of time."""
        records, calls = self.records, self.records.calls
        holding = {call for at in kernels.tolist() for call in self._ancestors(int(self.work.call[at]))}
        named = np.flatnonzero(records.is_named & calls.is_operator).tolist()
        waiting: dict[int, list[int]] = {}
        for call in named if len(kernels) else ():
            if records.name_of(call) == _RECORD and call not in holding and records.of(call) is not None:
                waiting.setdefault(int(calls.lane[call]), []).append(call)
        return waiting

    def _ancestors(self, call: int) -> Iterator[int]:
        while call != NONE:
            yield call
            call = int(self.records.calls.parent[call])

    def _kernel(self, at: int, kind: str, waiting: dict[int, list[int]]) -> None:
        records, call = self.records, int(self.work.call[at])
        name = records.device.names[records.device.name[self.work.row[at]]].partition("(")[0]
        communication = records.of_event(int(self.work.row[at]))
        around = list(records.around(call))
        fresh = [outer for outer in around[:1] if outer not in self.used]
        if communication is not None:
            self.used.update(around)
            for outer in around:
                communication = communication.with_group_of(records.known[outer] or communication)
            self._carry(at, [communication])
        elif fresh:
            self.used.update(around)
            self._carry(at, [self._merged(around)])
        elif around:
            self.groups.tally.remark("further kernels of a collective, kept as computation", name)
        else:
            lane = int(records.calls.lane[call]) if call != NONE else NONE
            start = int(records.calls.start_ns[call]) if call != NONE else 0
            early = [record for record in waiting.get(lane, []) if records.calls.start_ns[record] < start]
            if early:
                waiting[lane] = [record for record in waiting[lane] if record not in early]
                self._carry(at, [self._merged([record]) for record in early])
            else:
                self._unsized(at, kind, name)

    def _unsized(self, at: int, kind: str, name: str) -> None:
        """Assign a communication to a kernel without a record; its size is the inputs of its operator."""
        operation = (rules().operation(kind) if kind != UNNAMED else None) or UNNAMED_OPERATION
        parent = int(self.work.call[at])
        while parent != NONE and not self.records.calls.is_operator[parent]:
            parent = int(self.records.calls.parent[parent])
        size = self.records.in_bytes(parent) if parent != NONE else 0
        if operation == UNNAMED_OPERATION:
            self.groups.tally.remark("kernels whose communication is unknown", name)
        elif size:
            self.groups.tally.remark("kernels whose size is that of their operator's inputs", name)
        self._carry(at, [Communication(operation, size, 0)])

    def _merged(self, around: list[int]) -> Communication:
        """Return the innermost record, completed by those around it."""
        first, *outer = (self.records.known[call] for call in around)
        assert first is not None
        for other in outer:
            if other is not None:
                size = first.in_bytes or other.in_bytes
                first = replace(
                    first.with_group_of(other), in_bytes=size, out_bytes=first.out_bytes or other.out_bytes
                )
        return first

    def _carry(self, at: int, communications: list[Communication]) -> None:
        if all(map(self.groups.is_alone, communications)):
            self.groups.tally.count(ALONE)
            return
        for communication in communications:
            self.carried.setdefault(at, []).append(self._add(communication))

    def _add(self, communication: Communication) -> int:
        self.communications.append(self.groups.resolve(communication))
        return len(self.communications) - 1

    def host(self) -> None:
        """Assign communication to operators of the host's own backends, whose tensors no kernel moves."""
        records, calls = self.records, self.records.calls
        operators = [
            call
            for call in np.flatnonzero(records.is_named & calls.is_operator).tolist()
            if call not in self.used and records.name_of(call).startswith(_OPERATORS) and records.of(call)
        ]
        outer = {ancestor for call in operators for ancestor in self._ancestors(int(calls.parent[call]))}
        workers = _by_start(calls, np.flatnonzero(records.is_named & calls.is_annotation).tolist())
        workers = [call for call in workers if call not in self.used and records.of(call) is not None]
        for call in _by_start(calls, operators):
            if call in outer or not self._is_hosts(call):
                continue
            merged = self._merged(list(records.around(call)))
            if self.groups.is_alone(merged):
                self.groups.tally.count(ALONE)
                self.used.update(records.around(call))
                continue
            worker = self._worker(call, merged, workers)
            if worker == NONE:
                self.by_call[call] = self._add(merged)
            else:
                workers.remove(worker)
                merged = replace(merged, in_bytes=merged.in_bytes or records.in_bytes(worker))
                self.begun.append((worker, call, self._add(merged)))
            self.used.update(records.around(call))
        for call in workers:
            communication = records.known[call]
            if communication is None or self.groups.is_alone(communication):
                continue
            if not records.name_of(call).startswith("nccl:"):
                self.begun.append((call, NONE, self._add(communication)))

    def _is_hosts(self, call: int) -> bool:
        is_on_host = self.records.is_on_host(call)
        if is_on_host is not None:
            return is_on_host or (not self.records.in_bytes(call) and not self.carried)
        return not self.carried

    def _worker(self, call: int, communication: Communication, workers: list[int]) -> int:
        """Return the first annotation of a worker that begins after the operator and has the same
        operation.
        """
        calls = self.records.calls
        for worker in workers:
            other = self.records.known[worker]
            if other is None or calls.start_ns[worker] < calls.start_ns[call]:
                continue
            ours, theirs = communication.operation.collective, other.operation.collective
            by_all_reduce = ours == CollectiveKind.REDUCE_SCATTER and theirs == CollectiveKind.ALL_REDUCE
            if other.operation == communication.operation or by_all_reduce:
                return worker
        return NONE

    def result(self) -> Carriers:
        """Return the work with a row for each message, and the communication of each row and call."""
        calls, work = self.records.calls, self.work
        repeats = np.ones(len(work), np.int64)
        for at, several in self.carried.items():
            repeats[at] = len(several)
        index = np.repeat(np.arange(len(work)), repeats)
        of_work = np.full(len(index), NONE, np.int64)
        first = np.cumsum(repeats) - repeats
        for at, several in self.carried.items():
            of_work[first[at] : first[at] + len(several)] = several
        of_call = np.full(len(calls), NONE, np.int32)
        for call, communication in self.by_call.items():
            of_call[call] = communication
        columns = {name: getattr(work, name)[index] for name in DeviceWork.__struct_fields__}
        worker, operator, carried = np.array(self.begun, np.int64).reshape(-1, 3).T
        nothing = np.full(len(worker), NONE, np.int64)
        ends = calls.start_ns[worker] + self.records.device.dur_ns[calls.row[worker]]
        theirs = DeviceWork(
            calls.row[worker],
            calls.lane[worker],
            calls.start_ns[worker],
            ends,
            nothing,
            operator,
        )
        columns = {name: np.concatenate((column, getattr(theirs, name))) for name, column in columns.items()}
        of_work = np.concatenate((of_work, carried))
        order = np.lexsort((columns["row"], columns["end_ns"], columns["start_ns"], columns["lane"]))
        return Carriers(
            tuple(self.communications),
            DeviceWork(**{name: column[order] for name, column in columns.items()}),
            of_work[order],
            of_call,
            np.flatnonzero(order >= len(index)),
        )


def _by_start(calls: Calls, unordered: list[int]) -> list[int]:
    return sorted(unordered, key=lambda call: (int(calls.start_ns[call]), call))


def _value(text: Any) -> Any:
    """Parse a value, which Kineto writes as text."""
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text
