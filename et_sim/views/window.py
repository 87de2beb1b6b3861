"""A stretch of simulated time as people write it: `10ms-20ms`, `10ms-`, `-20ms`.

Not here: which rows fall into it; views decide that (a node that is under way in it usually does).
"""

from __future__ import annotations

import re

from et_sim.errors import UsageError
from et_sim.units import LONGEST_NS, parse_time_ns

FORMS = "allowed: two times such as 10ms-20ms; one of them may be missing: 10ms-, -20ms"
_HYPHEN = re.compile(r"(?<![eE])-")  # not that of 1e-3s
ALWAYS = (0, LONGEST_NS)

Window = tuple[int, int]


def parse_window(text: str | None) -> Window:
    """First and last nanosecond; without a text, all of time."""
    if text is None:
        return ALWAYS
    parts = [part.strip() for part in _HYPHEN.split(text)]
    if len(parts) != 2 or not any(parts):
        raise UsageError(f"window {text!r} cannot be understood", remedy=FORMS)
    first, last = (
        round(parse_time_ns(part)) if part else default for part, default in zip(parts, ALWAYS, strict=True)
    )
    if first >= last:
        raise UsageError(f"window {text!r} ends before it begins", remedy=FORMS)
    return first, last
