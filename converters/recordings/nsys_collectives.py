"""Operations, sizes and groups of NCCL's kernels in a report of Nsight Systems, from the ranges of NVTX.

NCCL's calls are ranges with a payload: the identity of the communicator and the bytes, at places that the
report describes. A kernel belongs to the call in which it is launched, or to the calls of the group at whose
end it is launched. It gets a size if these are clear, and if each member of the communicator is known; else
it keeps its recorded time alone.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from converters.recordings.parquet_tables import ParquetTables
from converters.recordings.sqlite_tables import SqliteTables, whole

Tables = SqliteTables | ParquetTables
NVTX, ENTRIES = "NVTX_EVENTS", "NVTX_PAYLOAD_SCHEMA_ENTRIES"
BYTES, IDENTITY = "Message size [bytes]", "NCCL communicator ID"
RANKS, RANK = "No. of ranks", "Rank"
NAMES = (BYTES, IDENTITY, RANKS, RANK)
# Widths of the whole numbers among the types of NVTX's payloads.
WIDTHS = {5: 4, 6: 4, 15: 4, 16: 4, 7: 8, 8: 8, 9: 8, 10: 8, 17: 8, 18: 8, 22: 8}
HEADER = 32  # bytes before a payload; the schema's number is the second of four words of 8
# NCCL's calls, and the words of PyTorch for them; the last two numbers are how many times the recorded
# bytes go in and come out, by the members of the group where they are 0.
OPERATIONS = {
    "ncclAllReduce": ("allreduce", 1, 1),
    "ncclAllGather": ("allgather", 1, 0),
    "ncclReduceScatter": ("reducescatter", 0, 1),
    "ncclAlltoAll": ("alltoall", 0, 0),
    "ncclAllToAll": ("alltoall", 0, 0),
    "ncclBroadcast": ("broadcast", 1, 1),
    "ncclReduce": ("reduce", 1, 1),
}
GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"
MOST_BYTES, MOST_RANKS = 1 << 50, 1 << 20


class Call(Struct, frozen=True):
    """A call of a collective."""

    start_ns: int
    end_ns: int
    operation: str
    communicator: int
    bytes: int


class NcclRanges(Struct):
    """Records of NCCL in a process: its calls by thread, and its places in communicators."""

    calls: dict[int, list[Call]] = field(default_factory=dict)
    groups: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)  # begins and ends, by thread
    places: dict[int, tuple[int, int]] = field(default_factory=dict)  # number of ranks, and its own

    @property
    def communicators(self) -> set[int]:
        """Return the communicators of the process."""
        return {*self.places, *(call.communicator for calls in self.calls.values() for call in calls)}


class Members(Struct, frozen=True):
    """The ranks of each communicator, in its order, and how they are known."""

    of: Mapping[int, tuple[int, ...]]
    guessed: int  # communicators whose creation was not recorded: the ranks that used them
    unknown: int  # communicators some of whose members have no report
    ranks: int  # of the largest communicator


def nccl_ranges(tables: Tables) -> dict[int, NcclRanges]:
    """Return what each process of a report recorded."""
    fields = _fields(tables)
    found: dict[int, NcclRanges] = {}
    if not fields:
        return found
    names = {
        "start": ("start",),
        "end": ("end",),
        "thread": ("globalTid",),
        "text": ("text",),
        "code": ("textId",),
        "payload": ("binaryData",),
    }
    texts = _texts(tables)
    for start, end, thread, text, code, payload in tables.rows(NVTX, names, "start"):
        operation, number = str(text or texts.get(whole(code), "")), whole(thread, 0)
        process, own = number >> 24 & 0xFFFFFF, number & 0xFFFFFF
        if operation in (GROUP_START, GROUP_END):
            times = whole(start), whole(end), operation
            found.setdefault(process, NcclRanges()).groups.setdefault(own, []).append(times)
            continue
        values = _values(payload, fields)
        if IDENTITY not in values:
            continue
        ranges, identity = found.setdefault(process, NcclRanges()), values[IDENTITY]
        if values.get(RANKS, 0) > values.get(RANK, -1) >= 0 and values[RANKS] <= MOST_RANKS:
            ranges.places[identity] = values[RANKS], values[RANK]
        if operation in OPERATIONS and 0 < values.get(BYTES, 0) < MOST_BYTES:
            call = Call(whole(start), whole(end), operation, identity, values[BYTES])
            ranges.calls.setdefault(own, []).append(call)
    return found


def _texts(tables: Tables) -> dict[int, str]:
    """Return the names of NCCL's calls by number."""
    rows = tables.rows("StringIds", {"id": ("id",), "value": ("value",)})
    known = (*OPERATIONS, GROUP_START, GROUP_END)
    return {whole(number): str(text) for number, text in rows if text in known}


def _fields(tables: Tables) -> dict[int, dict[str, tuple[int, int]]]:
    """Return the place and width of each known entry, by schema."""
    names = {"schema": ("schemaId",), "kind": ("type",), "name": ("name",), "offset": ("offset",)}
    found: dict[int, dict[str, tuple[int, int]]] = {}
    for schema, kind, name, offset in tables.rows(ENTRIES, names):
        width = WIDTHS.get(whole(kind))
        if name in NAMES and width is not None and 0 <= whole(offset, 0) < 1 << 16:
            found.setdefault(whole(schema), {})[name] = whole(offset, 0), width
    return found


def _values(payload: object, fields: Mapping[int, Mapping[str, tuple[int, int]]]) -> dict[str, int]:
    """Return the known entries of a payload."""
    if not isinstance(payload, bytes) or len(payload) < HEADER:
        return {}
    schema = fields.get(int.from_bytes(payload[8:16], "little")) or fields.get(
        int.from_bytes(payload[8:12], "little"), {}
    )
    content = payload[HEADER:]
    return {
        name: int.from_bytes(content[offset : offset + width], "little")
        for name, (offset, width) in schema.items()
        if offset + width <= len(content)
    }


def members_of(recorded: Mapping[int, NcclRanges]) -> Members:
    """Return the members of all communicators, by what each rank recorded."""
    holders: dict[int, list[int]] = {}
    for rank, ranges in recorded.items():
        for identity in ranges.communicators:
            holders.setdefault(identity, []).append(rank)
    sizes: dict[int, int] = {}
    for ranges in recorded.values():
        sizes |= {identity: size for identity, (size, _) in ranges.places.items()}
    world = max([0, *sizes.values(), len(recorded)])
    of: dict[int, tuple[int, ...]] = {}
    counts = Counter[str]()
    for identity, ranks in holders.items():
        if sizes.get(identity) == world and max(ranks) < world:
            of[identity] = tuple(range(world))
        elif identity not in sizes:
            of[identity] = tuple(sorted(ranks))
            counts["guessed"] += 1
        elif sizes[identity] == len(ranks):
            own = {rank: recorded[rank].places.get(identity, (0, rank))[1] for rank in ranks}
            of[identity] = tuple(sorted(ranks, key=lambda rank: own[rank]))
        else:
            counts["unknown"] += 1
    return Members(of, counts["guessed"], counts["unknown"], world)


def kernel_arguments(
    launches: Mapping[int, Sequence[tuple[int, int, str]]], ranges: NcclRanges, members: Members
) -> dict[int, dict[str, Any]]:
    """Return what Kineto writes about NCCL's kernels, by correlation; `launches` has the time, correlation
    and kernel of each launch, by thread.
    """
    found: dict[int, dict[str, Any]] = {}
    for thread, launched in launches.items():
        calls, groups = ranges.calls.get(thread, []), list(_outermost(ranges.groups.get(thread, [])))
        for call, (correlation, kernel) in _matched(calls, groups, sorted(launched)):
            ranks = members.of.get(call.communicator, ())
            if len(ranks) > 1 and _fits(call.operation, kernel):
                found[correlation] = _arguments(call, ranks, members.ranks)
    return found


def _outermost(ranges: Sequence[tuple[int, int, str]]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each group that lies in no other one."""
    depth, begun = 0, 0
    for start, end, operation in ranges:
        if operation == GROUP_START:
            begun, depth = (begun if depth else start), depth + 1
        elif depth:
            depth -= 1
            if not depth:
                yield begun, end


def _matched(
    calls: Sequence[Call], groups: Sequence[tuple[int, int]], launched: Sequence[tuple[int, int, str]]
) -> Iterator[tuple[Call, tuple[int, str]]]:
    """Yield the kernels whose calls are clear, with these."""
    starts, begins = [call.start_ns for call in calls], [begin for begin, _ in groups]
    together: dict[int, list[tuple[int, str]]] = {}  # kernels of each group
    for time, correlation, kernel in launched:
        at, group = bisect_right(starts, time) - 1, bisect_right(begins, time) - 1
        if at >= 0 and time <= calls[at].end_ns:
            yield calls[at], (correlation, kernel)
        elif group >= 0 and time <= groups[group][1]:
            together.setdefault(group, []).append((correlation, kernel))
    for group, kernels in together.items():
        first, last = (bisect_left(starts, time) for time in groups[group])
        yield from _paired(calls[first:last], kernels)


def _paired(
    calls: Sequence[Call], kernels: Sequence[tuple[int, str]]
) -> Iterator[tuple[Call, tuple[int, str]]]:
    """Yield the call of each kernel, if it is clear: one each, or one kernel for equal calls."""
    if len(calls) == len(kernels):
        yield from zip(calls, kernels, strict=True)
    elif len(kernels) == 1 and len({(call.operation, call.communicator) for call in calls}) == 1:
        together = sum(call.bytes for call in calls)
        first = calls[0]
        yield replace(first, bytes=together), kernels[0]


def _fits(operation: str, kernel: str) -> bool:
    """Check whether a kernel carries out an operation; exchanges are kernels of sends and receives."""
    words = [operation.removeprefix("nccl").lower()]
    words += ["sendrecv"] if words[0] == "alltoall" else []
    return re.search(rf"_(?:{'|'.join(words)})(?![a-z])", kernel.lower()) is not None


def _arguments(call: Call, ranks: tuple[int, ...], world: int) -> dict[str, Any]:
    name, into, out = OPERATIONS[call.operation]
    return {
        "Collective name": name,
        "dtype": "Byte",
        "In msg nelems": call.bytes * (into or len(ranks)),
        "Out msg nelems": call.bytes * (out or len(ranks)),
        "Group size": len(ranks),
        "Process Group Name": "" if len(ranks) == world else f"communicator {call.communicator:#x}",
        "Process Group Ranks": str(list(ranks)),
    }
