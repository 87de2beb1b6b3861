"""Reports of Nsight Systems with the ranges of NCCL, in which payloads have operations, sizes and groups."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

IDENTITY, BYTES, RANKS, RANK = "NCCL communicator ID", "Message size [bytes]", "No. of ranks", "Rank"
CREATED, CALLED, DOMAIN = 1001, 1002, 1
# schema, place in it, type of NVTX, name, offset (empty for the first one, as Nsight writes it)
ENTRIES = [
    (CREATED, 0, 18, IDENTITY, None),
    (CREATED, 1, 5, RANKS, 8),
    (CREATED, 2, 5, RANK, 12),
    (CALLED, 0, 18, IDENTITY, None),
    (CALLED, 1, 22, BYTES, 8),
]
KERNELS = {
    "ncclAllReduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclAllGather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclReduceScatter": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclAlltoAll": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}
DELAY = 100  # nanoseconds between a call, its launch, and its kernel at least


class Work(NamedTuple):
    """A kernel; without an operation it computes. Without a time of its launch, it begins at once."""

    start_ns: int
    end_ns: int
    stream: int = 7
    operation: str = ""
    communicator: int = 0xABC
    bytes: int = 0
    launch_ns: int = -1


def payload(schema: int, content: bytes) -> bytes:
    words = (DOMAIN, schema, len(content), 32 + len(content))
    return b"".join(word.to_bytes(8, "little") for word in words) + content


def created(communicator: int, ranks: int, rank: int) -> bytes:
    content = communicator.to_bytes(8, "little") + ranks.to_bytes(4, "little") + rank.to_bytes(4, "little")
    return payload(CREATED, content)


def called(communicator: int, size: int) -> bytes:
    return payload(CALLED, communicator.to_bytes(8, "little") + size.to_bytes(8, "little"))


def report(
    path: Path,
    rank: int,
    work: Sequence[Work],
    communicators: Sequence[tuple[int, int, int]],
    *,
    grouped: bool = False,
) -> Path:
    """Write the report of a rank; `communicators` has the identity, size and own place of each. Kernels of
    grouped calls are launched at the end of the group.
    """
    owner = 1000 + rank << 24
    texts: dict[str, int] = {}
    kernels, calls, ranges = [], [], list[tuple[Any, ...]]()
    for at, (identity, ranks, place) in enumerate(communicators):
        code = texts.setdefault("ncclCommInitRank", len(texts) + 1)
        ranges.append((at, at + 1, 59, DOMAIN, None, code, owner, created(identity, ranks, place)))
    first = min((each.start_ns for each in work if each.operation), default=0) - 3 * DELAY
    if grouped:
        end = max(each.start_ns for each in work)
        group = (("ncclGroupStart", first, first + 1), ("ncclGroupEnd", first + 20, end))
        for name, start, stop in group:
            code = texts.setdefault(name, len(texts) + 1)
            ranges.append((start, stop, 59, DOMAIN, None, code, owner | 9, None))
    for number, each in enumerate(work, 1):
        name = KERNELS.get(each.operation, "gemm")
        launch = each.start_ns - DELAY if each.launch_ns < 0 else each.launch_ns
        code = texts.setdefault(name, len(texts) + 1)
        api = texts.setdefault("cudaLaunchKernel_v7000", len(texts) + 1)
        kernels.append((each.start_ns, each.end_ns, 0, 1, each.stream, number, owner, code))
        calls.append((launch, launch + 10, owner | 9, number, api))
        if each.operation:
            begin = first + number if grouped else launch - DELAY
            stop = begin + 1 if grouped else launch + 20
            code = texts.setdefault(each.operation, len(texts) + 1)
            content = called(each.communicator, each.bytes)
            ranges.append((begin, stop, 59, DOMAIN, None, code, owner | 9, content))
    tables: dict[str, tuple[str, list[Any]]] = {
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            "start end deviceId contextId streamId correlationId globalPid demangledName",
            kernels,
        ),
        "CUPTI_ACTIVITY_KIND_RUNTIME": ("start end globalTid correlationId nameId", calls),
        "NVTX_EVENTS": ("start end eventType domainId text textId globalTid binaryData", ranges),
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": ("schemaId idx type name offset", list(ENTRIES)),
        "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs", [(1_700_000_000_000_000_000,)]),
        "StringIds": ("id value", [(number, text) for text, number in texts.items()]),
    }
    with sqlite3.connect(path) as base:
        for table, (columns, rows) in tables.items():
            names = columns.split()
            base.execute(f"CREATE TABLE {table} ({', '.join(names)})")
            base.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", rows)
    base.close()
    return path
