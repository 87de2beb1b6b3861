"""The entry from Python into the event loop, and the reasons to return.

The loop (`loop`) and the functions it calls are imported where they are interpreted or compiled: a run of
machine code needs none of them.
"""

from __future__ import annotations

from et_sim.compiled.decorators import Later
from et_sim.compiled.entry_points import entry

FINISHED, PAUSED, NEEDS_POOLS, TOO_LATE, TIED, BLOCKED = range(6)

simulate = entry(what="the engine")(Later("et_sim.engine.loop", "simulate"))
