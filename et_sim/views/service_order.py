"""Who was served before whom: pairs of moments the order of which decided something else than when.

While each first one of a pair comes no later than its second, the run takes the same course, and its times
are sums and maxima. The pairs are those that came to one link, one memory server or one queue one after the
other; what became ready for a lane or a queue against what was started there before and after; and messages
and bundles of a phase. On a shared memory bus, everything must keep its order.

Not here: when that changes (`sensitivity`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.views.path_record import NONE, PathRecord

ROUNDING_NS = 1.0


def pairs_in_order(record: PathRecord) -> tuple[Any, Any, Any]:
    """(moments, moments that must not come before them, by how much later these must come at least).

    Things that come to be served in one nanosecond may be a little apart either way. But whether the second
    half of a direct exchange begins or waits for another bundle is no matter of a little.
    """
    found = [
        _one_after_the_other(*_arrivals(record, "link", "link_queue", "serialisation")),
        _one_after_the_other(*_arrivals(record, "server", "server_queue", None)),
        _one_after_the_other(*_at_places(record, "chunk_queued")),
        _between(*_at_places(record, "chunk_queued"), *_at_places(record, "chunk_start")),
        _between(*_ready(record), *_at_places(record, "node_start")),
        _one_after_the_other(*_at_places(record, "receive")),
        _bundles(record),
        _on_buses(record),
    ]
    first, second = (np.concatenate(parts) for parts in zip(*found, strict=True))
    differ = first != second
    first, second = np.unique(np.stack((first[differ], second[differ])), axis=1)
    half, tried = _halves(record)
    least = np.repeat((-ROUNDING_NS, ROUNDING_NS), (len(first), len(half)))
    return np.concatenate((first, half)), np.concatenate((second, tried)), least


def _at_places(record: PathRecord, what: str) -> tuple[Any, Any]:
    """(moments, their places) of a kind, where they have one."""
    rows = np.flatnonzero(record.is_what(what) & (record.place != NONE))
    return rows, record.place[rows]


def _arrivals(record: PathRecord, free: str, queue: str, service: str | None) -> tuple[Any, Any]:
    """(moments at which something came to be served, where), in the order of service."""
    if service is None:
        rows = np.flatnonzero(record.is_what(free, queue))
        met = rows
    else:
        rows, _ = _at_places(record, service)
        met = record.by[rows]
    waited = record.is_what(queue)[met]
    was_free = record.is_what(free)[met]
    came = np.where(waited, record.also[met], np.where(was_free, record.by[met], met))
    return came, record.place[rows]


def _one_after_the_other(rows: Any, place: Any) -> tuple[Any, Any]:
    order = np.argsort(place, kind="stable")
    alike = place[order][1:] == place[order][:-1]
    return rows[order][:-1][alike], rows[order][1:][alike]


def _ready(record: PathRecord) -> tuple[Any, Any]:
    """(moments at which nodes were ready, their lanes)."""
    rows, place = _at_places(record, "node_start")
    return np.where(record.also[rows] == NONE, record.by[rows], record.also[rows]), place


def _bundles(record: PathRecord) -> tuple[Any, Any]:
    """Each bundle of a phase lets the next message go, whichever it is."""
    rows = np.flatnonzero(record.is_what("bundles"))
    return record.also[rows], record.by[rows]


def _halves(record: PathRecord) -> tuple[Any, Any]:
    """The second half of a direct exchange is tried with every bundle, and begins with the first one after
    all messages of the first half."""
    rows = np.flatnonzero(record.is_what("half"))
    half, tried = record.also[rows], record.by[rows]
    before = np.where(record.is_what("bundles")[tried], record.also[tried], NONE)
    failed = (before != NONE) & (before < half)
    return np.concatenate((half, before[failed])), np.concatenate((tried, half[failed]))


def _on_buses(record: PathRecord) -> tuple[Any, Any]:
    """Whatever begins or ends on the bus of an actor, one after the other."""
    rows = np.flatnonzero(record.is_what("bus", "bus_queue"))
    touched = np.concatenate((rows, record.by[rows], record.also[rows]))
    touched = np.unique(touched[touched != NONE])
    order = np.lexsort((touched, record.end_ns[touched], record.actor[touched]))
    return _one_after_the_other(touched[order], record.actor[touched][order])


def _between(rows: Any, place: Any, starts: Any, start_place: Any) -> tuple[Any, Any]:
    """Whatever became ready did so after the start before it, and before the start after it."""
    span = int(max(rows.max(initial=0), starts.max(initial=0))) + 1
    known = np.sort(start_place.astype(np.int64) * span + starts)
    at = np.searchsorted(known, place.astype(np.int64) * span + rows)
    has_before = at > 0
    has_before[has_before] = known[at[has_before] - 1] // span == place[has_before]
    has_after = at < len(known)
    has_after[has_after] = known[at[has_after]] // span == place[has_after]
    before, after = known[at[has_before] - 1] % span, known[at[has_after]] % span
    return np.concatenate((before, rows[has_after])), np.concatenate((rows[has_before], after))
