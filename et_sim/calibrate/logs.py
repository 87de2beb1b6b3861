"""Readers of measured collectives: logs of nccl-tests and rccl-tests, CSV, and tables of measurements.

A log names the program (`all_reduce_perf`), or its file is named after the collective; it lists its ranks
with their hosts, and has a line for each size. The first time of a line, which is out of place, is taken. A
log may hold several runs. A CSV has the columns `collective`, `dtype`, `ranks`, `nodes`, `bytes` and `us`. In
a folder, all files of these forms are read. Records of NCCL's Inspector, one file a rank, are read together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from et_sim.basics.errors import InputError, UsageError, unreadable
from et_sim.calibrate.collective_library import MeasuredCollective
from et_sim.calibrate.inspector import is_inspector, read_inspector
from et_sim.documents.reading import csv_rows
from et_sim.machine.collective_library import Call
from et_sim.machine.collective_library.choice import ALL_TO_ALL
from et_sim.machine.collective_library.constants import (
    COLLNET_CHAIN,
    COLLNET_DIRECT,
    NVLS,
    NVLS_TREE,
    PAT,
    PROTOCOL_NAMES,
    RING,
    TREE,
)
from et_sim.machine.collective_library_keys import LOGGED_KINDS
from et_sim.machine.datatypes import datatype_named
from et_sim.validation.row import Collective
from et_sim.validation.rows import read_rows
from et_sim.validation.tables import NAMES

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", ALL_TO_ALL, "broadcast", "reduce")
CSV_COLUMNS = ("collective", "dtype", "ranks", "nodes", "bytes", "us")
_PROGRAM = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|alltoall|broadcast|reduce)_perf\b")
_IN_NAMES = (  # words in names of files, without separators, the longest first
    *(("reducescatter", "reduce_scatter"), ("allreduce", "all_reduce"), ("allgather", "all_gather")),
    *(("alltoall", ALL_TO_ALL), ("broadcast", "broadcast"), ("reduce", "reduce")),
)
_RANK = re.compile(r"^#\s+Rank\s+(\d+)\s.*?\bon\s+(\S+)\s+device\b")


def read_all(paths: Sequence[Path]) -> tuple[list[MeasuredCollective], tuple[str, ...]]:
    """Return the rows of files and folders, and the reasons why files in folders were left out."""
    rows, left = list[MeasuredCollective](), list[str]()
    files = inspector_files(paths)
    if files:
        rows += _of_inspector(files, left)
    for path in paths:
        if path in files:
            continue
        if not path.is_dir():
            rows += read_measured(path)
            continue
        before = 0 if files else len(rows)
        for file in (child for child in _files(path) if child not in files):
            try:
                rows += read_measured(file)
            except (InputError, UsageError) as error:
                left.append(f"{file.name}: {error.cause}")
        if len(rows) == before:
            raise _nothing_measured(path, "no file in it has measured collectives", left)
    if not rows:
        raise _nothing_measured(paths[0], "it has no collective that was measured as a whole", left)
    return rows, tuple(left)


def inspector_files(paths: Sequence[Path]) -> list[Path]:
    """Return the files of NCCL's Inspector among files and those in folders."""
    return [file for path in paths for file in _files(path) if _is_inspector(file)]


def _nothing_measured(path: Path, cause: str, left: Sequence[str]) -> InputError:
    return InputError("; ".join((cause, *left[:3])), place=str(path), remedy=_REMEDY)


def _files(path: Path) -> list[Path]:
    return sorted(child for child in path.iterdir() if child.is_file()) if path.is_dir() else [path]


def _is_inspector(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return is_inspector(file.read(1 << 12))
    except OSError:
        return False


def _of_inspector(files: Sequence[Path], left: list[str]) -> Iterator[MeasuredCollective]:
    """Yield a row for each kind, size and group that the Inspector recorded: the median over operations."""
    log = read_inspector(files)
    for (kind, ranks, nodes, size), times in log.table():
        name = f"{kind} of {ranks} ranks, {size:,} bytes"
        if ranks < 2 or nodes > ranks or ranks % nodes:
            left.append(f"{name} on {nodes} nodes: no equal number on each node")
            continue
        us, count = times.alone_us()
        if count:
            yield MeasuredCollective(
                Call(kind, ranks, nodes, size, ""), us, f"Inspector: {name}, {count:,} operations"
            )
        elif times.is_complete.any():
            left.append(f"{name}: in each operation, ranks came apart by more than a tenth of its time")
        else:
            left.append(f"{name}: no operation has records of all ranks")
    left.extend(log.notes())


def _kind_of_name(name: str) -> str:
    """Return the collective that a file is named after; empty if none or several."""
    plain, kinds = re.sub(r"[^a-z]", "", name.lower()), list[str]()
    for word, kind in _IN_NAMES:
        if word in plain:
            kinds.append(kind)
            plain = plain.replace(word, "|")
    return kinds[0] if len(kinds) == 1 else ""


def read_measured(path: Path) -> list[MeasuredCollective]:
    """Return all rows of a file in any of these forms."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {unreadable(error)}", remedy="name a log of nccl-tests"
        ) from error
    if path.suffix.lower() == ".json":
        measured = [
            MeasuredCollective(
                _call(row.job), row.measured_us or 0.0, f"{path}: table {row.table}, row {row.number}"
            )
            for row in read_rows(path)
            if isinstance(row.job, Collective)
        ]
    else:
        measured = list(_csv(path, text) if path.suffix.lower() == ".csv" else _log(path, text))
    if not measured:
        raise InputError("the file has no measured collective", place=str(path), remedy=_REMEDY)
    return measured


_NODES = re.compile(r"\bnNodes (\d+)")
_CHOICE = re.compile(
    r"(?:(?P<kind>\w+): )?(?P<size>\d+) Bytes -> Algo (?P<algorithm>\w+) proto (?P<protocol>\w+)"
)
# In the order of NCCL's numbers.
_ALGORITHMS = (TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE, PAT)
_PROTOCOLS = tuple(PROTOCOL_NAMES.values())
_RINGS = re.compile(r"\bPattern 4, .*?nChannels (\d+), bw ([\d.]+)/")  # rings
_REMEDY = "give the whole log of a program of nccl-tests, or a CSV with " + ",".join(CSV_COLUMNS)


def _text_of_log(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {unreadable(error)}", remedy="name a log of NCCL"
        ) from error


def read_rings(path: Path) -> dict[str, list[float]]:
    """Read the channels of rings, and the GB/s of each, from a log of NCCL (NCCL_DEBUG_SUBSYS=INIT,GRAPH)."""
    text = _text_of_log(path)
    nodes = [int(count) for count in _NODES.findall(text)]
    rings = [(int(count), float(speed)) for count, speed in _RINGS.findall(text)]
    if not rings or not nodes:
        raise InputError(
            "the log describes no rings" if nodes else "the log has no number of nodes (nNodes)",
            place=str(path),
            remedy="run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH, and keep the whole log",
        )
    if len(set(rings)) > 1 or len(set(nodes)) > 1:
        raise InputError(
            "the log describes several communicators, which differ",
            place=str(path),
            remedy="keep the lines of one of them",
        )
    return {"on-a-node" if nodes[0] == 1 else "between-nodes": list(rings[0])}


def read_choices(path: Path) -> dict[str, list[list[Any]]]:
    """Read NCCL's choices from its log (NCCL_DEBUG_SUBSYS=INIT,TUNING), in the form of the key "choices"."""
    text = _text_of_log(path)
    nodes, program = set(_NODES.findall(text)), _PROGRAM.search(text) or _PROGRAM.search(path.name)
    remedy = (
        "run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,TUNING, and keep the whole log of one communicator"
    )
    if len(nodes) != 1:
        cause = "the log has no number of nodes (nNodes)"
        if nodes:
            cause = f"the log describes communicators on {' and '.join(sorted(nodes))} nodes"
        raise InputError(cause, place=str(path), remedy=remedy)
    choices: dict[tuple[str, int], list[Any]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        seen = _CHOICE.search(line)
        if seen is None:
            continue
        name = (seen["kind"] or (program[1] if program else "")).lower().replace("_", "")
        kind = {kind.replace("_", ""): kind for kind in LOGGED_KINDS}.get(name)
        algorithm, protocol = _named(seen["algorithm"], _ALGORITHMS), _named(seen["protocol"], _PROTOCOLS)
        place = f"{path}, line {number}"
        if kind is None or algorithm is None or protocol is None:
            raise InputError(
                f"the collective, algorithm or protocol is not known: {seen[0]}", place=place, remedy=remedy
            )
        size = int(seen["size"])
        entry = [int(min(nodes)), size, algorithm, protocol]
        if choices.setdefault((kind, size), entry) != entry:
            raise InputError(f"{size} bytes have two different choices", place=place, remedy=remedy)
    if not choices:
        raise InputError("the log describes no choice", place=str(path), remedy=remedy)
    return {
        kind: [entry for (of, _), entry in sorted(choices.items()) if of == kind]
        for kind in dict.fromkeys(of for of, _ in choices)
    }


def _named(given: str, names: Sequence[str]) -> str | None:
    """Return a name, given in any case or as its number; None if it is unknown."""
    if given.isdecimal():
        return names[int(given)] if int(given) < len(names) else None
    plain = {name.replace("-", "").lower(): name for name in names}
    return plain.get(given.replace("_", "").lower())


def _call(job: Collective) -> Call:
    return Call(job.kind, job.gpus, job.nodes or 1, job.bytes, datatype_named(job.datatype) or "")


def _csv(path: Path, text: str) -> Iterator[MeasuredCollective]:
    for number, (_, row) in enumerate(csv_rows(text, str(path)), 2):
        place = f"{path}, line {number}"
        if set(row) != set(CSV_COLUMNS) or None in row.values():
            raise InputError("the columns do not match", place=place, remedy=_REMEDY)
        kind = NAMES.get(row["collective"], row["collective"])
        try:
            ranks, nodes, size, us = int(row["ranks"]), int(row["nodes"]), int(row["bytes"]), float(row["us"])
        except ValueError as error:
            raise InputError(str(error), place=place, remedy=_REMEDY) from error
        yield _checked(kind, ranks, nodes, size, row["dtype"], us, place)


def _log(path: Path, text: str) -> Iterator[MeasuredCollective]:
    kind, hosts, columns = _kind_of_name(path.stem), list[str](), list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.lstrip("# ").split()
        if program := _PROGRAM.search(line):
            kind = NAMES.get(program[1], program[1])
        elif rank := _RANK.search(line):
            hosts = [*(hosts if int(rank[1]) else ()), rank[2]]
        elif line.startswith("#") and words[:1] == ["size"] and "time" in words:
            columns = words
        elif columns and words and words[0].isdecimal() and len(words) > columns.index("time"):
            _refuse_without_head(path, kind, hosts)
            time, place = words[columns.index("time")], f"{path}, line {number}"
            try:
                us = float(time)
            except ValueError as error:
                raise InputError(f"the time is {time!r}", place=place, remedy=_REMEDY) from error
            if int(words[0]):
                datatype = words[columns.index("type")] if "type" in columns else ""
                yield _checked(kind, len(hosts), len(set(hosts)), int(words[0]), datatype, us, place)
    _refuse_without_head(path, kind, hosts)


def _refuse_without_head(path: Path, kind: str, hosts: Sequence[str]) -> None:
    if not kind:
        raise InputError(
            "the log does not name the collective",
            place=str(path),
            remedy="keep the line that names the program, or name the file after the collective, as in "
            "all_reduce.log",
        )
    if not hosts:
        raise InputError("no ranks are listed", place=str(path), remedy="keep the lines # Rank … of the log")


def _checked(
    kind: str, ranks: int, nodes: int, size: int, datatype: str, us: float, place: str
) -> MeasuredCollective:
    if kind not in COLLECTIVES:
        raise InputError(
            f"collective {kind!r} is not known", place=place, remedy=f"known: {', '.join(COLLECTIVES)}"
        )
    if ranks < 2 or not 1 <= nodes <= ranks or ranks % nodes or size < 1 or not 0 < us < 1e12:
        raise InputError(
            f"{size} bytes on {ranks} ranks of {nodes} nodes in {us:g} us",
            place=place,
            remedy="give two or more ranks, equally many on each node, and bytes and times above 0",
        )
    return MeasuredCollective(Call(kind, ranks, nodes, size, datatype_named(datatype) or ""), us, place)
