"""Time factors: the entries of the system file that make kinds of work faster or slower than recorded.

Not here: what they do to a run (`et_sim.plan.time_factors`).
"""

from __future__ import annotations

from typing import Any

from et_sim.errors import MachineError
from et_sim.machine.checks import read_keys
from et_sim.machine.keys import Remarks
from et_sim.machine.model import TimeFactors, WorkKind
from et_sim.machine.sources import Source
from et_sim.machine.stragglers import ALL, entry_place, read_ranks
from et_sim.machine.uneven_tables import TIME_FACTOR_KEYS

NAME = "time-factors"


def read_time_factors(entries: list[dict[str, Any]], place: str, remarks: Remarks) -> tuple[TimeFactors, ...]:
    """The entries of the key "time-factors"."""
    return tuple(
        _entry(Source(entry_place(place, NAME, index), entry, ""), remarks)
        for index, entry in enumerate(entries)
    )


def _entry(source: Source, remarks: Remarks) -> TimeFactors:
    given = read_keys(source, TIME_FACTOR_KEYS, remarks)
    factors = {kind: given[kind.value] for kind in WorkKind if kind.value in given}
    if not factors:
        raise MachineError(
            "the entry gives no factor",
            place=source.place,
            remedy=f"give at least one of {', '.join(WorkKind)}",
        )
    return TimeFactors(
        ranks=read_ranks(given.get("ranks", ALL), source.place),
        name=given.get("name"),
        factors=factors,
        place=source.place,
    )
