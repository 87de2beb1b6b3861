"""Names of nodes against patterns of the system file, in which * stands for any text."""

from __future__ import annotations

import re

import numpy as np

from et_sim.trace.columns import BoolColumn, Trace


def is_named(trace: Trace, pattern: str | None) -> BoolColumn:
    """Which nodes have a name that the pattern fits; None: all."""
    if pattern is None:
        return np.ones(len(trace), np.bool_)
    matches = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL).fullmatch
    fits = np.array([matches(name) is not None for name in trace.names], np.bool_)
    found: BoolColumn = fits[trace.name]
    return found
