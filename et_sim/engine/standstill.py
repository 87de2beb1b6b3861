"""Whether time goes on: an instant in which events happen for ever, and nothing comes of them, is an error.

Something comes of an instant when a message is delivered, a node completes or an actor starts. What else
happens in between follows from these, so it is bounded by what is on the calendar.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.errors import StallError
from et_sim.engine.state import kinds

EVENTS_FOR_NOTHING = 1_000_000  # in one instant
EVENTS_PER_ROW = 64  # of the calendar, likewise
SETTLED_LATE = {
    kinds.POOL_SHARE: "rates of a memory pool's transfers",
    kinds.POOL_END: "ends of a memory pool's transfers",
    kinds.ADMIT: "admission to a queue of collectives",
}


class Standstill:
    """Counts what happens in one instant without result."""

    def __init__(self) -> None:
        self._seen: tuple[int, ...] = ()
        self._events = 0

    def look(self, run: Any, events: int, bits: int) -> None:
        """So many events have happened since the last look."""
        clock = run.clock[0]
        seen = tuple(int(clock[name]) for name in ("now", "delivered", "completed", "to_start"))
        if seen != self._seen:
            self._seen, self._events = seen, 0
            return
        self._events += events
        if self._events <= EVENTS_FOR_NOTHING + EVENTS_PER_ROW * len(run.events):
            return
        place = f"at {seen[0] >> bits:,} ns"
        cause = (
            f"simulated time stands still: {self._events:,} events in a row have delivered no message and "
            f"completed no node; what repeats is {_what_repeats(run)}"
        )
        remedy = "a defect of et-sim: please report it with its inputs"
        raise StallError(cause, place=place, remedy=remedy, report=f"{place}: {cause} ({remedy})")


def _what_repeats(run: Any) -> str:
    """The kinds of events that are due at the present time."""
    clock = run.clock[0]
    rows = [int(clock["head"])]
    if clock["slot"] >= 0:
        rows.append(int(run.slots["head"][clock["slot"]]))
    found = []
    for row in rows:
        for _ in range(len(run.events)):
            if row < 0:
                break
            found.append(int(run.events["kind"][row]) % kinds.OPENS_BUCKET)
            row = int(run.events["next"][row])
    kinds_found, counts = np.unique(np.array(found, np.int64), return_counts=True)
    names = [
        f"{count} of {_name(kind)}" for kind, count in zip(kinds_found.tolist(), counts.tolist(), strict=True)
    ]
    return ", ".join(names) or "an event that puts nothing on the calendar"


def _name(kind: int) -> str:
    if kind >= kinds.NETWORK:
        return f"the network model's own (kind {kind - kinds.NETWORK})"
    return SETTLED_LATE.get(kind, f"kind {kind}")
