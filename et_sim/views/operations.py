"""Which operations took the time: the timeline's rows added up per kind, name stem and group.

A name stem is the name with every number replaced by `#`, so that the layers of a model are one line.
Aggregation runs in Arrow; Python sees one object per group only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

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


def operations(run: RunDirectory) -> list[Operation]:
    """All operations, the one with the most time first."""
    found: dict[tuple[str, str, str], Operation] = {}
    for row in _grouped(run).to_pylist():
        key = (row["kind"], row["stem"], row["group"] or "")
        operation = found.setdefault(key, Operation(row["kind"], row["stem"], row["group"]))
        # Weighted here, in Python's unbounded integers: a million ranks would overflow a column.
        ranks = row["ranks"]
        operation.count += ranks * row["duration_ns_count_all"]
        operation.never_completed += ranks * (row["duration_ns_count_all"] - row["duration_ns_count"])
        operation.total_ns += ranks * (row["duration_ns_sum"] or 0)
        operation.longest_ns = max(operation.longest_ns, row["duration_ns_max"] or 0)
        operation.bytes += ranks * (row["completed_bytes_sum"] or 0)
    return sorted(found.values(), key=lambda one: (-one.total_ns, one.kind, one.name, one.group or ""))


def _grouped(run: RunDirectory) -> Any:
    """One row per kind, stem, group and number of ranks that an actor stands for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = run.timeline(COLUMNS).unify_dictionaries().combine_chunks()
    duration = pc.subtract(rows["end_ns"], rows["start_ns"])
    table = pa.table(
        {
            "kind": rows["kind"],
            "stem": _stems(rows["name"]),
            "group": rows["group"],
            "ranks": run.actors()["rank_count"].take(rows["actor"]),
            "duration_ns": duration,
            "completed_bytes": pc.if_else(pc.is_valid(duration), rows["bytes"], 0),
        }
    )
    figures = [
        ("duration_ns", "count", pc.CountOptions(mode="all")),
        ("duration_ns", "count"),
        ("duration_ns", "sum"),
        ("duration_ns", "max"),
        ("completed_bytes", "sum"),
    ]
    grouped = table.group_by(["kind", "stem", "group", "ranks"]).aggregate(figures)
    names = ["kind", "stem", "group", "ranks", "duration_ns_count_all", "duration_ns_count"]
    return grouped.rename_columns([*names, "duration_ns_sum", "duration_ns_max", "completed_bytes_sum"])


def _stems(names: Any) -> Any:
    """Stems of a column of names; the work is per distinct name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(names):
        return pa.array([], pa.string())
    column = names.combine_chunks()
    stems = pc.replace_substring_regex(column.dictionary, r"[0-9]+", "#").dictionary_encode()
    codes = stems.indices.take(column.indices)
    return pa.DictionaryArray.from_arrays(codes, stems.dictionary)
