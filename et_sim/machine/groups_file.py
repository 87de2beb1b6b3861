"""The communicator-group file: group id to the ranks that take part, in ring order.

Not here: groups that a trace itself brings (`et_sim.trace`).
"""

from __future__ import annotations

import re
from typing import Any

from et_sim.errors import MachineError
from et_sim.machine.checks import show
from et_sim.machine.sources import Source

_ID = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


def read_groups(source: Source, ranks: int) -> dict[int, tuple[int, ...]]:
    """Groups by id; the order of ranks is the file's, because it is the order of the ring."""
    groups = {}
    for name, members in source.content.items():
        groups[_group_id(name, source.place)] = _members(name, members, ranks, source.place)
    return groups


def _group_id(name: str, place: str) -> int:
    if _ID.fullmatch(name):
        return int(name)
    form = 'allowed: decimal ids from 1 to 999999999, in quotes, such as "1"'
    if name.isdecimal() and int(name) == 0:
        raise MachineError(
            f'group "{name}" cannot be defined: 0 always means all ranks',
            place=place,
            remedy="leave it out, or give the group an id >= 1",
        )
    raise MachineError(f'group "{name}": the id is not a whole number >= 1', place=place, remedy=form)


def _members(name: str, members: Any, ranks: int, place: str) -> tuple[int, ...]:
    form = f"allowed: a list of different ranks, each an integer from 0 to {ranks - 1}"
    if not isinstance(members, list):
        raise MachineError(f'group "{name}" is {show(members)}, not a list', place=place, remedy=form)
    if not members:
        raise MachineError(f'group "{name}" is empty', place=place, remedy=form)
    seen: dict[int, None] = {}
    for index, rank in enumerate(members):
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < ranks:
            raise MachineError(f'group "{name}" index {index} is {show(rank)}', place=place, remedy=form)
        if rank in seen:
            raise MachineError(f'group "{name}" has rank {rank} twice', place=place, remedy=form)
        seen[rank] = None
    return tuple(seen)
