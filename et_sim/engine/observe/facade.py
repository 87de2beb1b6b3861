"""The events that observers receive, as the mechanism imports them: `facade as observe`.

Machine code has its observers in it, so their modules are imported with the first event that Python calls or
compiles; a run whose machine code is there needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from et_sim.engine.observe.events import *


def __getattr__(name: str) -> Any:
    """Take all events from their module when one is missing, and return this one."""
    from et_sim.engine.observe import events

    if name.startswith("_") or not hasattr(events, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals().update({event: found for event, found in vars(events).items() if not event.startswith("_")})
    return getattr(events, name)
