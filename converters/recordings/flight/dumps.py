"""Dumps of the flight recorder, read from pickles or JSON into checked records.

A pickle can name any function to call. `pickle_values` has no instruction for that, so that only numbers,
texts, lists, tuples and dicts can result.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from converters.recordings.flight.pickle_values import plain_values
from et_sim.basics.errors import InputError, unreadable
from et_sim.documents.gzipped import opened

MOST_BYTES = 1 << 28  # of a dump
MOST_FRAMES = 3  # of a message
_RANK = re.compile(r"rank[^0-9]{0,3}([0-9]{1,7})", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,7}")
_REMEDY = "dump it again with torch._C._distributed_c10d._dump_nccl_trace or _dump_fr_trace"
_LIBRARIES = re.compile(r"[/\\](site-packages|dist-packages|torch|lib[/\\]python3)[/\\.]|^<frozen")


class Frame(Struct, frozen=True):
    """A line of the program."""

    name: str = ""
    filename: str = ""
    line: int = 0


class Entry(Struct, frozen=True):
    """An operation that a rank issued."""

    record_id: int = 0
    pg_id: int = 0
    process_group: tuple[str, str] = ("", "")
    collective_seq_id: int = 0
    p2p_seq_id: int = 0
    op_id: int = 0
    profiling_name: str = ""
    time_created_ns: int = 0
    input_sizes: list[list[int]] = []
    input_dtypes: list[str] = []
    output_sizes: list[list[int]] = []
    output_dtypes: list[str] = []
    state: str = ""
    is_p2p: bool = False
    retired: bool = False
    time_discovered_completed_ns: int | None = None
    frames: list[Frame] = []

    @property
    def operation(self) -> str:
        """Return the operation without the name of the library."""
        return self.profiling_name.rpartition(":")[2] or "operation"

    @property
    def is_over(self) -> bool:
        """Return whether the rank has finished the operation, or given it up."""
        return self.retired or self.state == "completed"

    @property
    def size(self) -> str:
        """Return the shapes and datatypes of the inputs."""
        shapes = [" x ".join(map(str, shape)) or "scalar" for shape in self.input_sizes]
        types = list(dict.fromkeys(self.input_dtypes))
        return f"{', '.join(shapes) or 'nothing'} {'/'.join(types)}".strip()

    @property
    def line(self) -> str:
        """Return the innermost lines of the program itself; empty if no line was recorded."""
        own = [frame for frame in self.frames if not _LIBRARIES.search(frame.filename)]
        shown = [frame for frame in own or self.frames if frame.filename][:MOST_FRAMES]
        texts, file = [], ""
        for frame in shown:
            place = f"line {frame.line}" if frame.filename == file else f"{frame.filename}:{frame.line}"
            texts.append(f"{place} ({frame.name})")
            file = frame.filename
        return ", called from ".join(texts)


class Group(Struct, frozen=True):
    """The configuration of a process group."""

    name: str = ""
    desc: str = ""
    ranks: str | list[int] = ""


class Status(Struct, frozen=True):
    """The last operations of a process group, -1 if none."""

    last_enqueued_collective: int = -1
    last_started_collective: int = -1
    last_completed_collective: int = -1


class _Content(Struct, frozen=True):
    version: str = ""
    pg_config: dict[str, Group] = {}
    pg_status: dict[str, Status] = {}
    entries: list[Entry] = []


class Dump(Struct, frozen=True):
    """The dump of one rank."""

    rank: int
    path: Path
    version: str
    groups: dict[str, Group]
    status: dict[str, Status]
    entries: list[Entry]  # in the order in which they were issued


def read_dumps(files: Sequence[Path]) -> list[Dump]:
    """Read the dumps of all ranks; two of one rank are refused."""
    dumps: dict[int, Dump] = {}
    for path in files:
        rank = rank_of(path)
        if rank in dumps:
            other = dumps[rank].path.name
            cause = f"this and {other} are both of rank {rank}, as their names state"
            raise InputError(cause, place=str(path), remedy="keep the dumps of one hang in the folder")
        dumps[rank] = read_dump(path, rank)
    return [dumps[rank] for rank in sorted(dumps)]


def rank_of(path: Path) -> int:
    """Return the rank of a dump: the number after the word rank in its name, or else the last number."""
    stem = path.name.removesuffix(".gz").removesuffix(path.suffix if not path.suffix[1:].isdecimal() else "")
    named = _RANK.search(stem)
    numbers = _NUMBER.findall(stem)
    if named is None and not numbers:
        raise InputError(
            "the name has no number, and the dump does not state its rank",
            place=str(path),
            remedy="name it after its rank, as in trace_rank_3",
        )
    return int(named[1] if named else numbers[-1])


def read_dump(path: Path, rank: int) -> Dump:
    """Read the dump of a rank."""
    try:
        with opened(path) as file:
            raw = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read: {unreadable(error)}", place=str(path), remedy=_REMEDY) from None
    if len(raw) > MOST_BYTES:
        cause = f"the dump has more than {MOST_BYTES >> 20} MiB"
        raise InputError(cause, place=str(path), remedy="record fewer entries: TORCH_FR_BUFFER_SIZE")
    try:
        content = msgspec.convert(_plain(raw), _Content, strict=False)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise InputError(f"is no dump: {error}", place=str(path), remedy=_REMEDY) from None
    entries = sorted(content.entries, key=lambda entry: entry.record_id)
    return Dump(rank, path, content.version, content.pg_config, content.pg_status, entries)


def _plain(raw: bytes) -> Any:
    """Return the plain values of a dump."""
    if raw.lstrip()[:1] != b"{":
        return plain_values(raw)
    try:
        return msgspec.json.decode(raw)
    except (RecursionError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise msgspec.ValidationError(str(error)) from None


def members_of(dumps: Sequence[Dump]) -> Iterator[tuple[str, frozenset[int]]]:
    """Yield the ranks of each group that a dump states."""
    for dump in dumps:
        for key, group in dump.groups.items():
            text = group.ranks if isinstance(group.ranks, str) else str(group.ranks)
            ranks = [int(number) for number in _NUMBER.findall(text)]
            if len(ranks) > 1 or (ranks and key):
                yield group.name or key, frozenset(ranks)
