"""The collectives of a run as records of NCCL's Inspector (format v4.0): a file for each rank.

A record has the time from the coming of the rank to its end, which includes waiting for others, and the
number of the collective in its communicator. As in the Inspector, nothing below 8,192 bytes is recorded, and
bytes are those that the application gives: of one rank where each has a part of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from et_sim.basics.errors import UsageError, unreadable
from et_sim.basics.files import draft_folder, exists, is_folder
from et_sim.basics.units import parse_ranks
from et_sim.views.run.directory import RunDirectory

VERSION = "v4.0"
SMALLEST = 8192  # bytes
LABELS = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_to_all": "AlltoAll",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
}
IN_PARTS = ("reduce_scatter", "all_to_all")  # a trace has the bytes of all ranks, a record those of one
SPREAD = ("all_gather", *IN_PARTS)  # the bandwidth counts the bytes of all ranks
COLUMNS = ("actor", "kind", "group", "sequence", "bytes", "start_ns", "end_ns")


class Communicator(Struct, frozen=True):
    """The group of a rank, and its place in it."""

    id: str
    rank: int
    ranks: int
    nodes: int


class Collectives(Struct, frozen=True, eq=False):
    """The collectives of an actor that are over, in the order of their starts: a list for each column."""

    kind: list[str]
    group: list[str]
    number: list[int]  # within the group
    bytes: list[int]
    start_ns: list[int]
    end_ns: list[int]


class InspectorRecords(Struct):
    """The records of all ranks of a run; `node` is the ranks of a node, 0 if all are on one."""

    run: RunDirectory
    node: int
    left_out: Counter[str] = field(default_factory=Counter)  # by reason
    written: int = 0

    def files(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield the name of each rank's file and its lines."""
        of_actor = self._collectives()
        groups = self.run.table("groups").to_pylist()
        for row in self.run.table("actors", ("actor", "ranks")).to_pylist():
            done = of_actor.get(row["actor"])
            if done is None:
                continue
            own = [group for group in groups if group["actor"] == row["actor"]]
            for span in parse_ranks(row["ranks"]):
                for rank in span:
                    name = f"node{rank // self.node if self.node else 0}-pid{rank}.log"
                    yield name, self._lines(rank, done, own)

    def _collectives(self) -> dict[int, Collectives]:
        """Return the collectives of each actor."""
        columns = self.run.arrays("timeline", COLUMNS)
        actor, sequence, size, start, end = (
            columns[name] for name in ("actor", "sequence", "bytes", "start_ns", "end_ns")
        )
        kinds = [LABELS.get(str(text)) is not None for text in columns["kind"].texts]
        is_known = np.array(kinds, bool)[columns["kind"].codes]
        is_over = is_known & (sequence >= 0) & (end >= 0)
        self.left_out["collectives of other kinds"] += int(((sequence >= 0) & ~is_known).sum())
        found = {}
        for number in np.unique(actor[is_over]).tolist():
            rows = np.flatnonzero(is_over & (actor == number))
            group = columns["group"].codes[rows]
            rows = rows[np.lexsort((sequence[rows], group))]
            group = columns["group"].codes[rows]
            first = np.flatnonzero(np.diff(group, prepend=-2))
            place = np.arange(len(rows)) - np.repeat(first, np.diff(np.append(first, len(rows))))
            order = np.argsort(start[rows], kind="stable")
            rows, place = rows[order], place[order]
            texts, names = columns["kind"].texts, columns["group"].texts
            found[number] = Collectives(
                [str(texts[code]) for code in columns["kind"].codes[rows].tolist()],
                [str(names[code]) for code in columns["group"].codes[rows].tolist()],
                place.tolist(),
                size[rows].tolist(),
                start[rows].tolist(),
                end[rows].tolist(),
            )
        return found

    def _lines(self, rank: int, done: Collectives, groups: list[dict[str, Any]]) -> Iterator[bytes]:
        """Yield the records of a rank."""
        known: dict[str, Communicator] = {}
        about = {
            "inspector_output_format_version": VERSION,
            "hostname": f"node{rank // self.node if self.node else 0}",
            "pid": rank,
        }
        rows = zip(done.kind, done.group, done.number, done.bytes, done.start_ns, done.end_ns, strict=True)
        for kind, group, number, size, start, end in rows:
            if group not in known:
                known[group] = self._communicator(rank, group, groups)
            communicator = known[group]
            own = size // communicator.ranks if kind in IN_PARTS else size
            if own < SMALLEST or end <= start:
                self.left_out[f"collectives of less than {SMALLEST:,} bytes, or without a time"] += 1
                continue
            whole = own * communicator.ranks if kind in SPREAD else own
            head = {
                "id": communicator.id,
                "rank": communicator.rank,
                "n_ranks": communicator.ranks,
                "nnodes": communicator.nodes,
                "comm_name": group,
            }
            bandwidth = whole / (end - start)
            performed = {
                "coll": LABELS[kind],
                "coll_sn": number,
                "coll_msg_size_bytes": own,
                "coll_exec_time_us": (end - start) / 1000,
                "coll_timing_source": "kernel_gpu",
                "coll_algobw_gbs": round(bandwidth, 6),
                "coll_busbw_gbs": round(bandwidth * _on_bus(kind, communicator.ranks), 6),
            }
            self.written += 1
            metadata = {**about, "dump_timestamp_us": end // 1000}
            record = {"header": head, "metadata": metadata, "coll_perf": performed}
            yield json.dumps(record, separators=(",", ":")).encode() + b"\n"

    def _communicator(self, rank: int, group: str, groups: list[dict[str, Any]]) -> Communicator:
        meant = [row for row in groups if row["group"] == group]
        row = next((row for row in meant if row["ranks"] is None or _holds(row["ranks"], rank)), meant[0])
        members = members_of(rank, row)
        node = self.node or max(members) + 1
        identity = hashlib.sha256(f"{row['name']} {members}".encode()).hexdigest()[:14]
        nodes = len({member // node for member in members})
        return Communicator(f"0x{identity}", members.index(rank), len(members), nodes)


def members_of(rank: int, row: dict[str, Any]) -> list[int]:
    """Return the members of the group of a rank, by its row of groups.arrow."""
    if row["members"] is not None:
        return [member for span in parse_ranks(row["members"]) for member in span]
    rule = json.loads(row["rule"]) if row["rule"] else {"size": row["size"], "stride": row["stride"]}
    sizes, strides = (
        value if isinstance(value, list) else [value] for value in (rule["size"], rule["stride"])
    )
    members = [
        rank - sum(rank // stride % size * stride for size, stride in zip(sizes, strides, strict=True))
    ]
    for size, stride in zip(sizes, strides, strict=True):
        members = [first + at * stride for at in range(size) for first in members]
    return members


def _holds(ranks: str, rank: int) -> bool:
    return any(rank in span for span in parse_ranks(ranks))


def _on_bus(kind: str, ranks: int) -> float:
    """Return the bus bandwidth by the algorithm's, as nccl-tests defines it."""
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if kind in SPREAD else 1.0


def write_inspector(run: RunDirectory, folder: Path, node: int) -> InspectorRecords:
    """Write the files of all ranks into a new or empty folder, all or none; return the written records."""
    folder = folder.absolute()
    records = InspectorRecords(run, node)
    try:
        if exists(folder) and (not is_folder(folder) or any(folder.iterdir())):
            raise UsageError(
                f"{folder} is not an empty directory",
                remedy="name another one: records of two runs do not mix",
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        with draft_folder(folder) as drafts:
            made = drafts / folder.name
            made.mkdir()
            for name, lines in records.files():
                with (made / name).open("wb") as file:
                    file.writelines(lines)
            made.replace(folder)
    except OSError as error:
        raise UsageError(
            f"cannot be written: {unreadable(error)}", place=str(folder), remedy="name a writable directory"
        ) from None
    return records
