"""Stragglers: the entries of the system file about ranks that are slower than the others.

Not here: what they do to a run (`et_sim.plan.straggler_variants`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from et_sim.basics.errors import MachineError, UsageError
from et_sim.basics.units import parse_ranks
from et_sim.machine.checks import read_keys
from et_sim.machine.keys import Remarks
from et_sim.machine.model import Straggler
from et_sim.machine.sources import Source
from et_sim.machine.uneven_tables import STRAGGLER_KEYS

EFFECTS = ("compute", "delay", "jitter")
NAME, ALL = "stragglers", "all"


def read_stragglers(entries: list[dict[str, Any]], place: str, remarks: Remarks) -> tuple[Straggler, ...]:
    """The entries of the key "stragglers"."""
    return tuple(
        _straggler(Source(entry_place(place, NAME, index), entry, ""), remarks)
        for index, entry in enumerate(entries)
    )


def check_ranks_exist(key: str, named: Sequence[tuple[range, ...] | None], ranks: int, place: str) -> None:
    """Refuse entries of a key about ranks that the network does not have."""
    for index, pieces in enumerate(named):
        highest = max((piece[-1] for piece in pieces or ()), default=0)
        if highest >= ranks:
            raise MachineError(
                f'key "ranks" names rank {highest}, and the network has {ranks} NPUs',
                place=entry_place(place, key, index),
                remedy=f"allowed: ranks from 0 to {ranks - 1}",
            )


def entry_place(place: str, key: str, index: int) -> str:
    """Where an entry of a key is."""
    return f'{place}: "{key}" index {index}'


def _straggler(source: Source, remarks: Remarks) -> Straggler:
    given = read_keys(source, STRAGGLER_KEYS, remarks)
    if not any(name in given for name in EFFECTS):
        raise MachineError(
            "the entry says nothing about its ranks",
            place=source.place,
            remedy=f"give at least one of {', '.join(EFFECTS)}",
        )
    for key in STRAGGLER_KEYS:
        if key.name in given and key.needs and key.needs not in given:
            raise MachineError(
                f'key "{key.name}" has no effect without "{key.needs}"',
                place=source.place,
                remedy="give both, or neither",
            )
    return Straggler(
        ranks=read_ranks(given["ranks"], source.place),
        compute=given.get("compute", 1.0),
        delay_ns=_whole_ns(given.get("delay", 0.0), source.place),
        node=given.get("node"),
        jitter=given.get("jitter", 0.0),
        seed=given.get("seed", 0),
    )


def read_ranks(text: str, place: str) -> tuple[range, ...] | None:
    """The ranks that an entry names; None: all."""
    if text == ALL:
        return None
    try:
        return tuple(parse_ranks(text))
    except UsageError as error:
        remedy = f'{error.remedy}, or "{ALL}"'
        raise MachineError(f'key "ranks": {error.cause}', place=place, remedy=remedy) from None


def _whole_ns(delay: float, place: str) -> int:
    if delay != int(delay):
        raise MachineError(
            f'key "delay" is {delay} ns, which is no whole number of nanoseconds',
            place=place,
            remedy="delays are in whole nanoseconds",
        )
    return int(delay)
