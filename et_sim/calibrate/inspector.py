"""Records of NCCL's Inspector: collectives of a real job, by communicator, rank and sequence number.

Files hold JSON objects, one on a line or on several. Up to version 4.2 each has its header; from 4.3 on, an
object without one belongs to the last header before it. Ranks that come early wait for the last one inside
the recorded time: the shortest time of an operation is that of the collective, and the rank that has it came
last. Operations of which a rank has no record are counted, and give no time where others are complete.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field

from et_sim.basics.errors import InputError, unreadable
from et_sim.documents.gzipped import opened

MOST_LINE = 1 << 20  # bytes of one object
SIGN = b'"inspector_output_format_version"'
KINDS = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AlltoAll": "all_to_all",
    "AllToAll": "all_to_all",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
}
NAMES = tuple(dict.fromkeys(KINDS.values()))
WHOLE = ("all_gather", "reduce_scatter", "all_to_all")  # recorded with the bytes of one rank
MOST_US = 1 << 52  # of the epoch
SMALLEST = 8192  # bytes; the Inspector records nothing below
NEAR, NEAREST_US, FAR = 0.02, 1.0, 0.1  # of the time, by which the ranks of an operation may come apart
TABLE = tuple[tuple[str, int, int, int], "OperationTimes"]


class _Header(Struct, frozen=True):
    id: str = ""
    rank: int = -1
    n_ranks: int = 0
    nnodes: int = 1
    comm_name: str = ""


class _Metadata(Struct, frozen=True):
    version: str = field(default="", name="inspector_output_format_version")
    hostname: str = ""
    pid: int = 0


class _Kernel(Struct, frozen=True):
    stop_us: float = field(default=0.0, name="kernel_stop_ts")


class _Moments(Struct, frozen=True):
    kernels: list[_Kernel] = field(default_factory=list, name="kernel_events")


class _Performance(Struct, frozen=True):
    coll: str = ""
    number: int = field(default=-1, name="coll_sn")
    size: int = field(default=0, name="coll_msg_size_bytes")
    us: float = field(default=0.0, name="coll_exec_time_us")
    source: str = field(default="", name="coll_timing_source")
    moments: _Moments | None = field(default=None, name="event_trace_ts")

    @property
    def end_us(self) -> int:
        """Return the time at which the last kernel stopped, by the clock of the host; 0: not recorded."""
        stops = [kernel.stop_us for kernel in self.moments.kernels] if self.moments else []
        last = max(stops, default=0.0)
        return int(last) if 0 < last < MOST_US else 0


class _Record(Struct, frozen=True):
    header: _Header | None = None
    metadata: _Metadata | None = None
    coll_perf: _Performance | list[_Performance] | None = None
    p2p_perf: dict[str, Any] | list[Any] | None = None
    dump_stats: dict[str, Any] | None = None


class Communicator(Struct, frozen=True):
    """A communicator, by the hash of its identity and its size."""

    id: str
    ranks: int
    nodes: int
    name: str


class OperationTimes(Struct, frozen=True, eq=False):
    """Operations of one kind, size and group: arrays with an entry each."""

    us: Any  # of the rank that came last
    late_us: Any  # by which it came after the first one
    last: Any  # that rank
    communicator: Any
    is_complete: Any  # whether every rank has a record

    @property
    def is_apart(self) -> Any:
        """Return whether the ranks of each operation came apart."""
        return self.late_us > np.maximum(NEAR * self.us, NEAREST_US)

    def alone_us(self) -> tuple[float, int]:
        """Return the time of the collective if no rank waits, and the number of operations that show it.

        It lies between the times of the first and the last rank. Operations are taken whose ranks came nearly
        together, or as near as there are; without any, the number is 0.
        """
        near = self.is_complete & (self.late_us <= FAR * self.us)
        for chosen in (near & ~self.is_apart, near):
            if chosen.any():
                return float(np.median((self.us + self.late_us / 2)[chosen])), int(chosen.sum())
        return 0.0, 0


class InspectorLog(Struct):
    """The records of all files, in columns."""

    communicators: list[Communicator] = field(default_factory=list)
    numbers: dict[Communicator, int] = field(default_factory=dict)
    processes: dict[tuple[int, int], str] = field(default_factory=dict)  # host and process of a rank
    communicator: array[int] = field(default_factory=lambda: array("i"))
    rank: array[int] = field(default_factory=lambda: array("i"))
    number: array[int] = field(default_factory=lambda: array("q"))
    kind: array[int] = field(default_factory=lambda: array("b"))
    size: array[int] = field(default_factory=lambda: array("q"))
    us: array[float] = field(default_factory=lambda: array("d"))
    # records with the times of their kernels, which verbose files have: the record, and the last stop
    timed: array[int] = field(default_factory=lambda: array("q"))
    end_us: array[int] = field(default_factory=lambda: array("q"))
    dropped: dict[tuple[str, str, str], int] = field(default_factory=dict)  # by file, communicator, counter
    versions: dict[str, int] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    messages: int = 0  # records of sends and receives
    others: int = 0  # collectives without a model
    damaged: int = 0  # objects that cannot be read

    def table(self) -> Iterator[TABLE]:
        """Yield the operations of each (kind, ranks, nodes, bytes as nccl-tests counts them)."""
        columns = (np.frombuffer(data, data.typecode) for data in (self.kind, self.communicator, self.number))
        kind, group, number = columns
        rank, size, us = (np.frombuffer(data, data.typecode) for data in (self.rank, self.size, self.us))
        order = np.lexsort((us, size, number, group, kind))
        kind, group, number, size, us = (column[order] for column in (kind, group, number, size, us))
        is_first = np.ones(len(order), bool)
        is_first[1:] = (
            (np.diff(number) != 0) | (np.diff(group) != 0) | (np.diff(kind) != 0) | (np.diff(size) != 0)
        )
        begin = np.flatnonzero(is_first)
        end = np.append(begin[1:], len(order)) - 1
        ranks = np.array([known.ranks for known in self.communicators])[group[begin]]
        nodes = np.array([known.nodes for known in self.communicators])[group[begin]]
        keys = np.stack([kind[begin], ranks, nodes, size[begin]])
        kinds, of = np.unique(keys, axis=1, return_inverse=True)
        for at, (code, members, hosts, given) in enumerate(kinds.T.tolist()):
            rows = np.flatnonzero(of.reshape(-1) == at)
            first, last = begin[rows], end[rows]
            times = OperationTimes(
                us[first],
                us[last] - us[first],
                rank[order[first]],
                group[first],
                last - first + 1 == members,
            )
            whole = members if NAMES[code] in WHOLE else 1
            yield (NAMES[code], members, hosts, given * whole), times

    def ends(self, joint: Sequence[str]) -> tuple[list[str], list[tuple[list[int], Any]]]:
        """Return the hosts, and the ends of the operations of each communicator on its hosts, in nanoseconds.

        Operations of some kinds are taken, of which every rank has a time; the end on a host is the median of
        its ranks.
        """
        at, end = (np.frombuffer(data, data.typecode) for data in (self.timed, self.end_us))
        kind, group, number, rank = (
            np.frombuffer(data, data.typecode)[at]
            for data in (self.kind, self.communicator, self.number, self.rank)
        )
        hosts = sorted({process.rpartition(", process ")[0] for process in self.processes.values()})
        wanted = np.isin(kind, [NAMES.index(name) for name in joint])
        listed: list[tuple[list[int], Any]] = []
        for which, known in enumerate(self.communicators):
            of = {
                member: hosts.index(self.processes[which, member].rpartition(", process ")[0])
                for member in range(known.ranks if known.ranks <= len(self.processes) else 0)
                if (which, member) in self.processes
            }
            if len(of) < known.ranks or len(set(of.values())) < 2:
                continue
            for one in np.unique(kind[wanted & (group == which)]).tolist():  # each counts by itself
                rows = np.flatnonzero((group == which) & (kind == one))
                listed += _ends_by_host(of, number[rows], rank[rows], end[rows])
        return hosts, listed

    def notes(self) -> Iterator[str]:
        """Yield what the records cannot show."""
        if lost := sum(self.dropped.values()):
            yield f"the Inspector dropped {lost:,} records, as its rings were full"
        if self.damaged:
            yield f"{self.damaged:,} objects cannot be read"
        if self.others:
            yield f"{self.others:,} records are of other operations"
        if self.messages:
            yield f"{self.messages:,} records are of sends and receives"
        if self.sources.get("collective_cpu"):
            yield f"{self.sources['collective_cpu']:,} times are of the host, and include launches"
        yield f"nothing below {SMALLEST:,} bytes is recorded"


def _ends_by_host(of: dict[int, int], number: Any, rank: Any, end: Any) -> Iterator[tuple[list[int], Any]]:
    """Yield the hosts of a communicator and the ends on each, of operations with one time of each rank."""
    order = np.lexsort((rank, number))
    number, rank, end = number[order], rank[order], end[order]
    begin = np.flatnonzero(np.append(True, np.diff(number) != 0)) if len(number) else number
    counts = np.diff(np.append(begin, len(number)))
    begin = begin[counts == len(of)]
    places = begin[:, None] + np.arange(len(of))[None, :]
    places = places[(rank[places] == np.arange(len(of))).all(axis=1)]
    if not len(places):
        return
    members = sorted(set(of.values()))
    host = np.array([of[member] for member in range(len(of))])
    by_host = [np.median(end[places[:, host == one]], axis=1) for one in members]
    yield members, np.rint(np.array(by_host) * 1000).astype(np.int64)


def is_inspector(begin: bytes) -> bool:
    """Check whether a file begins with a record."""
    return begin.lstrip()[:1] == b"{" and SIGN in begin


def read_inspector(paths: Sequence[Path]) -> InspectorLog:
    """Read the records of all files."""
    log = InspectorLog()
    decoder = msgspec.json.Decoder(_Record, strict=False)
    for path in paths:
        state: tuple[_Header, _Metadata] | None = None
        for text in _objects(path):
            try:
                record = decoder.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                log.damaged += 1
                continue
            if record.header is not None:
                state = record.header, record.metadata or (state[1] if state else _Metadata())
            if state is None or not state[0].id:
                log.damaged += 1
                continue
            _add(log, record, *state, str(path))
    if not log.us:
        raise InputError(
            "no record of a collective can be read",
            place=str(paths[0]),
            remedy="run with NCCL_INSPECTOR_ENABLE=1, and keep the whole files",
        )
    return log


def _objects(path: Path) -> Iterator[bytes]:
    """Yield the texts of objects; one on several lines ends with a line that is a brace."""
    parts: list[bytes] = []
    size = 0
    try:
        with opened(path) as file:
            while line := file.readline(MOST_LINE):
                if not parts and line.startswith(b"{") and line.rstrip().endswith(b"}"):
                    yield line
                    continue
                size += len(line)
                if line.strip() and size <= MOST_LINE:
                    parts.append(line)
                if line.startswith(b"}") or size > MOST_LINE:
                    yield b"".join(parts)
                    parts, size = [], 0
    except (OSError, EOFError, zlib.error) as error:
        remedy = "name a file of NCCL's Inspector"
        raise InputError(f"cannot be read: {unreadable(error)}", place=str(path), remedy=remedy) from None
    if parts:
        yield b"".join(parts)


def _add(log: InspectorLog, record: _Record, header: _Header, metadata: _Metadata, path: str) -> None:
    for counter, count in (record.dump_stats or {}).items():
        if "dropped" in counter and "since" not in counter and isinstance(count, int):
            key = path, header.id, counter
            log.dropped[key] = max(log.dropped.get(key, 0), count)
    if record.p2p_perf is not None:
        log.messages += 1
    found = record.coll_perf
    if found is None:
        return
    known = Communicator(header.id, header.n_ranks, header.nnodes, header.comm_name)
    group = log.numbers.setdefault(known, len(log.numbers))
    if group == len(log.communicators):
        log.communicators.append(known)
    log.processes.setdefault((group, header.rank), f"{metadata.hostname}, process {metadata.pid}")
    log.versions[metadata.version] = log.versions.get(metadata.version, 0) + 1
    for entry in found if isinstance(found, list) else (found,):
        name = KINDS.get(entry.coll)
        is_sound = 0 < entry.us < 1e12 and 0 < entry.size < 1 << 62 and -1 < entry.number < 1 << 62
        if name is None:
            log.others += 1
        elif not is_sound or not 0 <= header.rank < header.n_ranks <= 1 << 22 or header.nnodes < 1:
            log.damaged += 1
        else:
            log.sources[entry.source] = log.sources.get(entry.source, 0) + 1
            log.communicator.append(group)
            log.rank.append(header.rank)
            log.number.append(entry.number)
            log.kind.append(NAMES.index(name))
            log.size.append(entry.size)
            if end_us := entry.end_us:
                log.timed.append(len(log.us))
                log.end_us.append(end_us)
            log.us.append(entry.us)
