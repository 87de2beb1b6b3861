"""Turns of rings: a period later, each collective has the place that the one of another rank had.

Events of one time have the order in which they were put on the calendar. When a step of a ring is over,
everything is as before, but the first chunk is that of the next rank. If all ranks are alike, and send to
each other as before and over equal links, they will have turned by one more after the next period. So the
collective of each rank, and each link, has a successor in its place (`turn`); after many periods, that is the
one as many places ahead (`comes_to`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import Run


@works_on_tables
def turn(run: Run, pool: Any, before: int, now: int) -> bool:
    """Store that a row has the place of another one; return False if one of them has a third one's."""
    repeats = run.repeats[0]
    if pool[before].turned == repeats.comparison:
        return bool(pool[before].turns_to == now)
    if pool[now].taken == repeats.comparison:
        return False
    pool[before].turns_to, pool[before].turned = now, repeats.comparison
    pool[now].taken = repeats.comparison
    repeats.turns |= before != now
    return True


@works_on_tables
def has_turned(run: Run, pool: Any, row: int) -> bool:
    """Return whether another row, or the same, is known to have the place of this one."""
    return bool(pool[row].turned == run.repeats[0].comparison)


@works_on_tables
def comes_to(run: Run, pool: Any, row: int) -> int:
    """Return the row that has the place of another one when all periods have passed."""
    repeats = run.repeats[0]
    if not repeats.turns:
        return row
    if pool[row].turned != repeats.comparison:
        length, ahead = 1, pool[row].turns_to
        while ahead != row:
            length, ahead = length + 1, pool[ahead].turns_to
        for _ in range(repeats.periods % length):
            ahead = pool[ahead].turns_to
        at = row
        for _ in range(length):
            pool[at].comes_to, pool[at].turned = ahead, repeats.comparison
            at, ahead = pool[at].turns_to, pool[ahead].turns_to
    return int(pool[row].comes_to)
