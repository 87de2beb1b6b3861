"""Is there memory for what a run is going to record?

Not here: what else a run takes, which grows while it goes on (`pools`).
"""

from __future__ import annotations

import os

from et_sim.engine.state.cause_tables import CAUSAL_EVENT
from et_sim.errors import UsageError
from et_sim.units import format_bytes

BUFFERED = 2  # times what one event may need


def check_record(events_at_once: int) -> None:
    """Refuse to record causal events if those of a single event would not fit."""
    needed, available = BUFFERED * events_at_once * CAUSAL_EVENT.itemsize, available_bytes()
    if needed > available:
        free = f"of which {format_bytes(available)} are free"
        raise UsageError(
            f"a record of causes needs {format_bytes(needed)} of memory, {free}",
            place="--detail path",
            remedy="leave it out, record --detail phases instead, or simulate a smaller part of the job",
        )


def available_bytes() -> int:
    """How much memory there is to take."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return int(os.sysconf("SC_PAGE_SIZE")) * int(os.sysconf("SC_PHYS_PAGES"))
