"""Databases of rocprofv3 for tests: the same events as results in JSON, with the columns of its schema.

Columns are those of rocpd_tables.sql of ROCm/rocprofiler-sdk: times and places are in the
rows (`inline`), or in tables of tracks and timestamps.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

IDENTITY = "_00005a1e_77aa_7000"
_PLACE = "pid INTEGER, tid INTEGER, agent_id INTEGER, queue_id INTEGER, stream_id INTEGER"
_INLINE = f'{_PLACE}, "start" BIGINT, "end" BIGINT'
_APART = "track_id INTEGER, start_id INTEGER, end_id INTEGER"


class _Database:
    def __init__(self, path: Path, *, inline: bool) -> None:
        path.unlink(missing_ok=True)
        self.base, self.inline = sqlite3.connect(path), inline
        self.numbers: dict[str, int] = {}
        where = _INLINE if inline else _APART
        for name, columns in (
            ("kernel_dispatch", f"{where}, kernel_id INTEGER, event_id INTEGER"),
            ("memory_copy", f"{where}, name_id INTEGER, size INTEGER, event_id INTEGER"),
            ("region", f"{where}, name_id INTEGER, event_id INTEGER"),
            ("info_kernel_symbol", "kernel_name TEXT, display_name TEXT"),
            ("event", "category_id INTEGER, stack_id INTEGER"),
            ("string", "string TEXT"),
            ("track", _PLACE),
            ("timestamp", "value BIGINT"),
        ):
            self.base.execute(f"CREATE TABLE `rocpd_{name}{IDENTITY}` (id INTEGER PRIMARY KEY, {columns})")
            self.base.execute(f"CREATE VIEW rocpd_{name} AS SELECT * FROM `rocpd_{name}{IDENTITY}`")

    def add(self, table: str, values: Mapping[str, Any]) -> int:
        """Add a row and return its number."""
        names, marks = ", ".join(f'"{name}"' for name in values), ", ".join("?" * len(values))
        text = f"INSERT INTO `rocpd_{table}{IDENTITY}` ({names}) VALUES ({marks})"
        return self.base.execute(text, list(values.values())).lastrowid or 0

    def text(self, text: str) -> int:
        """Return the number of a text."""
        if text not in self.numbers:
            self.numbers[text] = self.add("string", {"string": text})
        return self.numbers[text]

    def timed(
        self, table: str, row: Mapping[str, Any], place: Sequence[int], category: str, **more: int
    ) -> None:
        """Add a row with times, a place and an event."""
        stack = row.get("correlation_id", {}).get("internal")
        event = self.add("event", {"category_id": self.text(category), "stack_id": stack})
        where = dict(zip(("pid", "tid", "agent_id", "queue_id", "stream_id"), place, strict=True))
        start, end = row["start_timestamp"], row["end_timestamp"]
        if self.inline:
            given = {**where, "start": start, "end": end}
        else:
            moments = [self.add("timestamp", {"value": time}) for time in (start, end)]
            given = {"track_id": self.add("track", where), "start_id": moments[0], "end_id": moments[1]}
        self.add(table, {**given, "event_id": event, **more})


def rocpd_file(results: Mapping[str, Any], path: Path, *, inline: bool = True) -> Path:
    """Write results of rocprofv3 as a database."""
    base = _Database(path, inline=inline)
    for tool in results["rocprofiler-sdk-tool"]:
        pid = tool.get("metadata", {}).get("pid", 0)
        for symbol in tool["kernel_symbols"]:
            names = {"kernel_name": "_Z", "display_name": symbol["formatted_kernel_name"]}
            base.add("info_kernel_symbol", {"id": symbol["kernel_id"], **names})
        records = tool["buffer_records"]
        for row in records["kernel_dispatch"]:
            info = row["dispatch_info"]
            place = (
                pid,
                0,
                info["agent_id"]["handle"],
                info["queue_id"]["handle"],
                row["stream_id"]["handle"],
            )
            base.timed("kernel_dispatch", row, place, "KERNEL_DISPATCH", kernel_id=info["kernel_id"])
        for row in records.get("memory_copy", ()):
            place = (pid, 0, 0, 0, row["stream_id"]["handle"])
            name = base.text(operation(tool, row))
            base.timed("memory_copy", row, place, "MEMORY_COPY", name_id=name, size=row["bytes"])
        for row in records.get("hip_api", ()):
            place = (pid, row["thread_id"], 0, 0, 0)
            base.timed("region", row, place, "HIP_RUNTIME_API_EXT", name_id=base.text(operation(tool, row)))
    base.base.commit()
    base.base.close()
    return path


def operation(tool: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Return the name of a row's operation."""
    return str(tool["strings"]["buffer_records"][row["kind"]]["operations"][row["operation"]])
