"""Who was served before whom: pairs of moments the order of which decided something else than when.

While each first one of a pair comes no later than its second, the run takes the same course, and its times
are sums and maxima. The pairs are those that came to one link, one memory server or one queue one after the
other; what became ready for a lane or a queue against what was started there before and after; and messages
and bundles of a phase. On a shared memory bus, everything must keep its order.

Not here: when that changes (`sensitivity`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.views.critical.kernels import ALIKE_NS, posted_at
from et_sim.views.critical.record import NONE, TIMES, PathRecord

ROUNDING_NS = 1.0


@dataclass(frozen=True, slots=True)
class Pairs:
    """Moments in the order in which they were served, pair by pair."""

    first: Any
    second: Any  # must not come before the first
    least: Any  # but by how much later at least
    # What came in one nanosecond was served in the order in which it was put on the calendar.
    tied: Any  # which pairs
    posted_first: Any  # when that was, for each of them
    posted_second: Any

    def are_in_order(self, time: Any) -> bool:
        """Whether the order stays as it is if moments come at these times."""
        gap = time[self.second] - time[self.first]
        if not (gap >= self.least).all():
            return False
        posted = time[self.posted_second] - time[self.posted_first]
        return not ((np.abs(gap[self.tied]) <= ROUNDING_NS) & (posted < -ALIKE_NS)).any()


def pairs_in_order(record: PathRecord) -> Pairs:
    """All pairs of a run.

    Things that come to be served in one nanosecond may be a little apart either way. But whether the second
    half of a direct exchange begins or waits for another bundle is no matter of a little.
    """
    served = _distinct(
        _one_after_the_other(*_arrivals(record, "link", "link_queue", "serialisation")),
        _one_after_the_other(*_arrivals(record, "server", "server_queue", None)),
        _one_after_the_other(*_at_places(record, "chunk_queued")),
        _between(*_at_places(record, "chunk_queued"), *_at_places(record, "chunk_start")),
        _overtaking(record, "chunk_start", "queue_slot"),
        _between(*_ready(record), *_at_places(record, "node_start")),
        _overtaking(record, "node_start", "lane"),
        *_waiting_for_a_pass(record),
    )
    others = _distinct(
        _one_after_the_other(*_at_places(record, "receive")), _bundles(record), _on_buses(record)
    )
    half, tried = _halves(record)
    posted = _posted(record)
    end_ns, (before, after) = record.end_ns, served
    tied = np.flatnonzero(
        (end_ns[before] == end_ns[after]) & (end_ns[posted[before]] < end_ns[posted[after]])
    )
    little = len(before) + len(others[0])
    return Pairs(
        first=np.concatenate((before, others[0], half)),
        second=np.concatenate((after, others[1], tried)),
        least=np.repeat((-ROUNDING_NS, ROUNDING_NS), (little, len(half))),
        tied=tied,
        posted_first=posted[before[tied]],
        posted_second=posted[after[tied]],
    )


def _distinct(*found: tuple[Any, Any]) -> tuple[Any, Any]:
    """Each pair of two different moments once."""
    first, second = (np.concatenate(parts).astype(np.int64) for parts in zip(*found, strict=True))
    span = int(second.max(initial=0)) + 1
    pairs = np.sort((first * span + second)[first != second])  # np.unique takes ten times as long
    pairs = pairs[np.diff(pairs, prepend=-1) != 0]
    return pairs // span, pairs % span


def _posted(record: PathRecord) -> Any:
    """For each moment, the one at which the event that it is part of was put on the calendar."""
    passes, flies = record.is_kind(*TIMES), record.is_kind("latency", "serialisation")
    by = np.maximum(record.critical_parent, 0)
    same_flight = flies & flies[by] & (record.resource == NONE)
    # Where messages do not wait for links, a latency after a serialisation on the same ones is another's.
    again = (record.kind[by] > record.kind) & (record.link.codes == record.link.codes[by])
    same_flight &= ~(again & (record.resource[by] == NONE))
    posted = np.zeros(len(record), np.int64)
    posted_at(record.critical_parent, ~passes | same_flight, posted)
    return posted


def _at_places(record: PathRecord, what: str) -> tuple[Any, Any]:
    """(moments, their places) of a kind, where they have one."""
    rows = np.flatnonzero(record.is_kind(what) & (record.resource != NONE))
    return rows, record.resource[rows]


def _arrivals(record: PathRecord, free: str, queue: str, service: str | None) -> tuple[Any, Any]:
    """(moments at which something came to be served, where), in the order of service."""
    if service is None:
        rows = np.flatnonzero(record.is_kind(free, queue))
        met = rows
    else:
        rows, _ = _at_places(record, service)
        met = record.critical_parent[rows]
    waited = record.is_kind(queue)[met]
    was_free = record.is_kind(free)[met]
    came = np.where(waited, record.other_parent[met], np.where(was_free, record.critical_parent[met], met))
    return came, record.resource[rows]


def _one_after_the_other(rows: Any, place: Any) -> tuple[Any, Any]:
    order = np.argsort(place, kind="stable")
    alike = place[order][1:] == place[order][:-1]
    return rows[order][:-1][alike], rows[order][1:][alike]


def _ready(record: PathRecord) -> tuple[Any, Any]:
    """(moments at which nodes were ready, their lanes)."""
    rows, place = _at_places(record, "node_start")
    return np.where(
        record.other_parent[rows] == NONE, record.critical_parent[rows], record.other_parent[rows]
    ), place


def _bundles(record: PathRecord) -> tuple[Any, Any]:
    """Each bundle of a phase lets the next message go, whichever it is."""
    rows = np.flatnonzero(record.is_kind("endpoint_transfers"))
    return record.other_parent[rows], record.critical_parent[rows]


def _halves(record: PathRecord) -> tuple[Any, Any]:
    """The second half of a direct exchange is tried with every bundle, and begins with the first one after
    all messages of the first half."""
    rows = np.flatnonzero(record.is_kind("half"))
    half, tried = record.other_parent[rows], record.critical_parent[rows]
    before = np.where(record.is_kind("endpoint_transfers")[tried], record.other_parent[tried], NONE)
    failed = (before != NONE) & (before < half)
    return np.concatenate((half, before[failed])), np.concatenate((tried, half[failed]))


def _on_buses(record: PathRecord) -> tuple[Any, Any]:
    """Whatever begins or ends on the bus of an actor, one after the other."""
    rows = np.flatnonzero(record.is_kind("bus", "bus_queue"))
    touched = np.concatenate((rows, record.critical_parent[rows], record.other_parent[rows]))
    touched = np.unique(touched[touched != NONE])
    order = np.lexsort((touched, record.end_ns[touched], record.actor[touched]))
    return _one_after_the_other(touched[order], record.actor[touched][order])


def _overtaking(record: PathRecord, start: str, free: str) -> tuple[Any, Any]:
    """What started before others that had come before it had itself come before there was room."""
    starts, place = _at_places(record, start)
    by, span = record.critical_parent[starts], len(record) + 1
    came = np.where(record.other_parent[starts] == NONE, by, record.other_parent[starts])
    order = np.lexsort((starts, place))
    key = (place.astype(np.int64) * span + came)[order]
    first_of_others = np.append(np.minimum.accumulate(key[::-1])[::-1][1:], np.iinfo(np.int64).max)
    overtakes = order[first_of_others[: len(key)] < key]  # those at other places come behind all of its own
    freed = np.where(
        record.is_kind(free)[by] & (record.other_parent[by] != NONE), record.other_parent[by], by
    )
    return came[overtakes], freed[overtakes]


def _waiting_for_a_pass(record: PathRecord) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """What became ready while its rank was issuing waited for the next node of that rank to complete."""
    starts = np.flatnonzero(record.is_kind("node_start"))
    by = record.critical_parent[starts]
    met_lane = record.is_kind("lane")[by]
    end = np.where(met_lane, record.critical_parent[by], by)
    ready = np.where(record.other_parent[starts] == NONE, by, record.other_parent[starts])
    is_lane_its = ~met_lane & (record.resource[end] == record.resource[starts])
    late = record.is_kind("node_end")[end] & (ready < end) & ~is_lane_its
    end, ready = end[late], ready[late]
    nodes = [np.flatnonzero(record.is_kind(what)) for what in ("node_start", "node_end")]
    began, ended = (rows[np.lexsort((record.node_id[rows], record.actor[rows]))] for rows in nodes)
    span = len(record) + 1
    actor = record.actor.astype(np.int64) * span
    passes = np.unique(actor[end] + end)
    first = np.searchsorted(passes, actor[began] + began, side="right")
    count = np.searchsorted(passes, actor[ended] + ended, side="left") - first
    ramp = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    under_way = passes[np.repeat(first, count) + ramp] % span, np.repeat(ended, count)
    by_actor = ended[np.lexsort((ended, record.actor[ended]))]
    before = by_actor[np.maximum(np.searchsorted(actor[by_actor] + by_actor, actor[end] + end) - 1, 0)]
    same = record.actor[before] == record.actor[end]
    return (before[same], ready[same]), under_way


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
