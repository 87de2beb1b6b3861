"""Entries of a picture: numbers that describe a state, and are compared with those of an earlier one.

The searches for periods of steps (`search`) and of packets (`network.packet.repeats`) have tables with the
numbers, `picture`, and a record of the search, `repeats`. One description of the state serves to take the
picture and to compare the state with it: `put` writes a number, or compares it.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE


@works_on_tables
def not_described(_tables: Any, *_about: Any) -> int:
    """Return 0, in place of the functions of models whose state is not described."""
    return 0


@works_on_tables
def put(tables: Any, at: int, *values: int) -> int:
    """Put values into the picture, or compare them; return the next entry, or NONE if one differs or does not
    fit.
    """
    repeats, picture = tables.repeats[0], tables.picture
    for value in values:
        repeats.entries = max(at, repeats.entries)
        if at == NONE or at == len(picture):
            return NONE
        if not repeats.compares:
            picture[at] = value
        elif picture[at] != value:
            return NONE
        at += 1
    return at
