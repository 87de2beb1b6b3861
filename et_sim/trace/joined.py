"""Many small traces as one: their rows end to end, so that work on columns is done once for all of them.

Rows and names that a row refers to are those of the whole. Only traces without texts (such as groups) and
tensors are joined, as schedules of thousands of ranks are; others are few, or so large that it gains nothing.

Not here: what is made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.trace.columns import ATTRIBUTES, TEXT_ATTRIBUTES, Trace

_ROWS = ("node_id", "kind", "duration_us", *(one.column for one in ATTRIBUTES), "involved_count", "present")


class Joined(Struct, frozen=True, eq=False):
    """`trace` holds the rows of trace k from `first[k]` on."""

    trace: Trace
    first: Any  # and the end of the last


def alone(trace: Trace) -> Joined:
    """One trace, whatever is in it."""
    return Joined(trace, np.array([0, len(trace)], np.int64))


def join(traces: Sequence[Trace]) -> Joined:
    """Traces that `can_be_joined`."""
    first = _offsets([len(trace) for trace in traces])
    sizes = np.diff(first)
    columns = zip(*map(attrgetter(*_ROWS), traces), strict=True)
    names = _offsets([len(trace.names) for trace in traces])
    whole: dict[str, Any] = {}
    for start, deps in (("data_start", "data_deps"), ("ctrl_start", "ctrl_deps")):
        rows = [getattr(trace, deps) for trace in traces]
        counts = _offsets([len(one) for one in rows])
        begins = np.concatenate([getattr(trace, start)[:-1] for trace in traces])
        whole[start] = np.append(begins + np.repeat(counts[:-1], sizes), counts[-1])
        whole[deps] = (np.concatenate(rows) + np.repeat(first[:-1], np.diff(counts))).astype(np.int32)
    name = np.concatenate([trace.name for trace in traces]) + np.repeat(names[:-1], sizes)
    whole["name"] = name.astype(np.int32)
    whole["names"] = tuple(name for trace in traces for name in trace.names)
    whole |= {column: np.concatenate(parts) for column, parts in zip(_ROWS, columns, strict=True)}
    return Joined(replace(traces[0], **whole), first)


def can_be_joined(traces: Sequence[Trace]) -> bool:
    """Whether none of some traces has texts or tensors."""
    texts = attrgetter(*(one.texts for one in TEXT_ATTRIBUTES))
    return not any(
        len(trace.tensors) or trace.metadata_text or max(map(len, texts(trace))) > 1 for trace in traces
    )


def _offsets(sizes: Sequence[int]) -> Any:
    found = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=found[1:])
    return found
