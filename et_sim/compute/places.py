"""What models have to know of nodes besides their shapes: where they stand, and their datatypes."""

from __future__ import annotations

import numpy as np

from et_sim.errors import TraceError, did_you_mean
from et_sim.machine.datatypes import BITS, datatype_named
from et_sim.trace.columns import IntColumn, Trace


def place_of(trace: Trace, row: int) -> str:
    """The file and the node, for messages."""
    return ", ".join(filter(None, (trace.source, trace.describe(row))))


def datatypes_of(trace: Trace, rows: IntColumn, default: str, rule: str) -> IntColumn:
    """Index into BITS of the datatype of each node; refuses nodes that nobody knows one of."""
    names = list(BITS)
    known = [datatype_named(text) if text else default for text in trace.datatypes]
    number = np.array([names.index(name) if name else -1 for name in known], np.int64)
    found = number[trace.datatype[rows]]
    if (found < 0).any():
        row = int(rows[int(np.argmax(found < 0))])
        text = trace.datatypes[int(trace.datatype[row])]
        if not text:
            raise TraceError(
                f"{trace.describe(row)} says no dtype, and {rule} gives none for such nodes",
                place=trace.source,
                remedy='give "dtype" there, or the attribute dtype to the node',
            )
        remedy = did_you_mean(text, names)
        raise TraceError(
            f"{trace.describe(row)} has the dtype {text[:40]!r}",
            place=trace.source,
            remedy=f"{remedy} known: {', '.join(names)}".strip(),
        )
    return found
