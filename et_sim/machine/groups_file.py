"""The communicator-group file: group id to the ranks that take part, in ring order.

Not here: groups that a trace itself brings (`et_sim.trace`).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from et_sim.basics.errors import MachineError
from et_sim.basics.group_names import group_key
from et_sim.documents.keys import show
from et_sim.machine.sources import Source
from et_sim.machine.texts import parse_yaml


def read_programs(path: str) -> tuple[dict[int, str], tuple[tuple[str, str], ...]]:
    """(program prefixes by node id, the path and content hash of the file)."""
    try:
        raw = Path(path).read_bytes()
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MachineError(
            f"cannot be read: {error}", place=path, remedy='see "per-node-custom-implementation"'
        ) from None
    content = parse_yaml(text, path)
    programs: dict[int, str] = {}
    for node, prefix in (content if isinstance(content, dict) else {"": content}).items():
        if not str(node).isdecimal() or not isinstance(prefix, str):
            raise MachineError(
                f"entry {node!r}: {prefix!r} does not name a program for a node",
                place=path,
                remedy='write lines like "7: programs/ring": a node id and the prefix of its files',
            )
        programs[int(node)] = prefix
    return programs, ((path, hashlib.sha256(raw).hexdigest()),)


_LONGEST = 200  # characters of a name


def read_groups(source: Source, ranks: int) -> dict[str, tuple[int, ...]]:
    """Groups by name, any text; the order of ranks is the file's, because it may be that of the ring.

    Numbers have one spelling: group 7 is also found as 007.
    """
    groups: dict[str, tuple[int, ...]] = {}
    for name, members in source.content.items():
        key = _key(name, source.place)
        if key in groups:
            raise MachineError(
                f"group {show(name)} is given twice, in two spellings of one number",
                place=source.place,
                remedy="keep one of them",
            )
        groups[key] = _members(name, members, ranks, source.place)
    return groups


def _key(name: str, place: str) -> str:
    if not name.strip("0"):
        problem = "cannot be defined: 0 always means all ranks" if name else "has no name"
        remedy = "leave it out, or give the group another name"
        raise MachineError(f"group {show(name)} {problem}", place=place, remedy=remedy)
    if len(name) > _LONGEST:
        raise MachineError(
            f"group {show(name)}: the name has {len(name)} characters",
            place=place,
            remedy=f"allowed: names of at most {_LONGEST} characters",
        )
    return group_key(name)


def _members(name: str, members: Any, ranks: int, place: str) -> tuple[int, ...]:
    form = f"allowed: a list of different ranks, each an integer from 0 to {ranks - 1}"
    called = f"group {show(name)}"
    if not isinstance(members, list):
        raise MachineError(f"{called} is {show(members)}, not a list", place=place, remedy=form)
    if not members:
        raise MachineError(f"{called} is empty", place=place, remedy=form)
    seen: dict[int, None] = {}
    for index, rank in enumerate(members):
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < ranks:
            raise MachineError(f"{called} index {index} is {show(rank)}", place=place, remedy=form)
        if rank in seen:
            raise MachineError(f"{called} has rank {rank} twice", place=place, remedy=form)
        seen[rank] = None
    return tuple(seen)
