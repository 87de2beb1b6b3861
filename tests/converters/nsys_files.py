"""SQLite files as Nsight Systems exports them, made of the device events of Kineto timelines."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

WORK = "start end deviceId contextId streamId correlationId globalPid"
COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{WORK} demangledName",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{WORK} bytes copyKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{WORK} bytes",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid correlationId nameId",
    "NVTX_EVENTS": "start end eventType domainId text textId globalTid",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs",
    "StringIds": "id value",
}
TABLE_OF = {
    "kernel": "CUPTI_ACTIVITY_KIND_KERNEL",
    "gpu_memcpy": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "gpu_memset": "CUPTI_ACTIVITY_KIND_MEMSET",
    "cuda_runtime": "CUPTI_ACTIVITY_KIND_RUNTIME",
    "cuda_driver": "CUPTI_ACTIVITY_KIND_RUNTIME",
    "user_annotation": "NVTX_EVENTS",
}
ORDER = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "user_annotation")
COPIES = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "PtoP": 10}
PROCESS, EPOCH_NS = 4321, 1_700_000_000_000_000_000


def device_events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a Kineto timeline that Nsight Systems records, too, in the order of its tables."""
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    chosen = [dict(event) for event in events if event.get("ph") == "X" and event.get("cat") in TABLE_OF]
    begin = min(Decimal(event["ts"]) for event in chosen)
    for event in chosen:
        event["cat"] = "cuda_runtime" if event["cat"] == "cuda_driver" else event["cat"]
        event["ts"] = str(Decimal(event["ts"]) - begin)
        event["dur"] = str(event["dur"])
        args = event.get("args") or {}
        if event["cat"] == "gpu_memcpy":
            event["name"] = "Memcpy " + event["name"].split()[1]
        if event["cat"] == "gpu_memset":
            event["name"] = "Memset (Device)"
        event["args"] = {
            key: args[key] for key in ("device", "stream", "correlation", "bytes") if key in args
        }
        if event["cat"] in ("cuda_runtime", "user_annotation"):
            event["pid"], event["tid"] = PROCESS, int(event["tid"]) & 0xFFFFFF
    chosen.sort(key=lambda event: (ORDER.index(event["cat"]), Decimal(event["ts"])))
    return chosen


def kineto_file(events: Sequence[dict[str, Any]], path: Path) -> Path:
    """Write the events as a Kineto timeline."""
    head = {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "baseTimeNanoseconds": EPOCH_NS}
    path.write_text(json.dumps({**head, "traceEvents": events}))
    return path


def _ns(text: str) -> int:
    return int(Decimal(text) * 1000)


def nsys_file(
    events: Sequence[dict[str, Any]], path: Path, without: Sequence[str] = (), process: int = PROCESS
) -> Path:
    """Write the events as an SQLite file; columns named in `without` are missing, and so are empty tables."""
    numbers: dict[str, int] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        args, start = event["args"], _ns(event["ts"])
        name = numbers.setdefault(event["name"], len(numbers) + 100)
        copy = next((code for word, code in COPIES.items() if word in event["name"]), 0)
        row = {
            "start": start,
            "end": start + _ns(event["dur"]),
            "deviceId": args.get("device"),
            "contextId": 1,
            "streamId": args.get("stream"),
            "correlationId": args.get("correlation"),
            "globalPid": process << 24,
            "demangledName": name,
            "bytes": args.get("bytes"),
            "copyKind": copy,
            "globalTid": process << 24 | int(event["tid"]) & 0xFFFFFF,
            "nameId": name,
            "eventType": 59,
            "domainId": 0,
            "text": event["name"],
        }
        rows.setdefault(TABLE_OF[event["cat"]], []).append(row)
    rows["StringIds"] = [{"id": number, "value": name} for name, number in numbers.items()]
    rows["TARGET_INFO_SESSION_START_TIME"] = [{"utcEpochNs": EPOCH_NS}]
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as base:
        for table, entries in rows.items():
            columns = [column for column in COLUMNS[table].split() if column not in without]
            base.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            marks = ", ".join("?" * len(columns))
            values = ([entry.get(column) for column in columns] for entry in entries)
            base.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
    base.close()
    return path


def nsys_folder(report: Path, folder: Path) -> Path:
    """Write the tables of an SQLite file as Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    with sqlite3.connect(report) as base:
        for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            cursor = base.execute(f"SELECT * FROM {name}")
            columns = [described[0] for described in cursor.description]
            rows = cursor.fetchall()
            values = {column: [row[at] for row in rows] for at, column in enumerate(columns)}
            pq.write_table(pa.table(values), folder / f"{name}.parquet")
    base.close()
    return folder
