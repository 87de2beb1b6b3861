"""Whether the recordings of several ranks are of one run, and of the same steps of it.

Not here: whether the two recordings of one rank belong together (`belonging`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from et_sim.basics.errors import TraceError
from et_sim.basics.units import format_ns, plural

_APART_NS = 60_000_000_000  # clocks of machines differ by less
_REMEDY = "give recordings of one run and the same steps, or --force to convert these"


def refuse_unlike(reports: Sequence[dict[str, Any]]) -> None:
    """Raise if ranks are of different worlds, steps or times, or only some have times.

    `reports` are those of `totals`.
    """
    for place, what in _differences(reports):
        raise TraceError(what, place=place, remedy=_REMEDY)


def _differences(reports: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for key, said in (("world_size", "a world of {}"), ("steps", "{}")):
        known = [one for one in reports if one["recorded"][key]]
        for one in known[1:]:
            first, other = known[0]["recorded"][key], one["recorded"][key]
            if first != other:
                ours, theirs = said.format(_shown(other)), said.format(_shown(first))
                yield _place(one), f"is of {ours}, and {_place(known[0])} of {theirs}"
    for one in reports if len(reports) > 1 else ():  # of a single one, the rank may be a guess
        size = one["recorded"]["world_size"]
        if size and one["rank"] is not None and one["rank"] >= size:
            yield _place(one), f"is of rank {one['rank']} of a world of {size}"
    without = [one for one in reports if one["time"] is None]
    if without and len(without) < len(reports):
        timed_too = next(one for one in reports if one["time"] is not None)
        yield (
            _place(without[0]),
            f"has no times, so its rank would take none, and {_place(timed_too)} has: a timeline is missing",
        )
    timed = [one for one in reports if one["recorded"]["begin_ns"] is not None]
    for before, after in pairwise(timed):
        ours, theirs = after["recorded"], before["recorded"]
        apart = max(ours["begin_ns"] - theirs["end_ns"], theirs["begin_ns"] - ours["end_ns"])
        if apart > _APART_NS:
            yield _place(after), f"was recorded {format_ns(apart)} apart from {_place(before)}"


def missing_ranks(reports: Sequence[dict[str, Any]]) -> list[str]:
    """What is to be said where a world has more ranks than are converted together."""
    world = max((one["recorded"]["world_size"] or 0 for one in reports), default=0)
    if world <= len(reports) or len(reports) == 1:
        return []
    return [
        f"{len(reports)} of {plural(world, 'rank')} of the run are here: only they do what its groups of all"
        " ranks did, with less communication (et-sim run --alone takes the recorded times)"
    ]


def _place(report: dict[str, Any]) -> str:
    return str(report["inputs"][-1])


def _shown(value: Any) -> str:
    """`8`, `steps 3 to 5`."""
    if isinstance(value, int):
        return str(value)
    several = f"steps {value[0]} to {value[-1]}" if len(value) > 1 else f"step {value[0]}"
    return several if value == list(range(value[0], value[-1] + 1)) else f"steps {', '.join(map(str, value))}"
