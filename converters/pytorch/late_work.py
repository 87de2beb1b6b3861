"""Work that began late without a recorded reason, and its likely cause: other work that had just ended.

The cause is accepted if the other stream ends work so seldom that the coincidence is unlikely, or if a wait
had been called for. The recording determines the longest time between cause and start.

Work without a launch in the recording that began before all launched work of its stream was launched before
the recording, and could have begun when the recording did.

When work begins late, another stream has last ended work some time before. If that was the cause, the time
between is the latency of the device; if not, it is a coincidence, whose typical distance grows as ends become
rarer. So distances accumulate at the latencies. The reach is the distance at which their number exceeds four
times that of expected coincidences by most; longer distances cannot be distinguished from coincidences. If
other streams end work all the time, a distance has little weight.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from converters.pytorch.calls import Flags
from converters.pytorch.columns import NONE
from converters.pytorch.events import Launches
from converters.pytorch.graph import Column
from converters.pytorch.latencies import before_on_stream
from et_sim.basics.units import format_ns

SELDOM = 0.25  # greatest share of coincidences that is accepted
_USUAL_NS = 10_000  # of other recordings
_ENOUGH = 5  # samples that permit a shorter reach than usual
_LONGEST_NS = 100_000  # a longer time is no latency


class LongestDelay(Struct, frozen=True):
    """The longest time from an end to the start of work that awaited it."""

    ns: int
    samples: int = 0  # within the reach; 0: the usual reach of other recordings is taken
    accidents: float = 0.0  # expected share of coincidences among the samples

    def __str__(self) -> str:
        within = f"within {format_ns(self.ns)} of the awaited work"
        if not self.samples:
            return f"{within}, the usual value, as the recording has too few samples"
        return f"{within}, as {self.samples:,} that began late; {100 * self.accidents:.0f} % by accident"


def find_reach(distance: Column, ends: Column, window: Column) -> LongestDelay:
    """Return the reach of samples: the distance from the last end, the number of ends, and the time in which
    they fell.
    """
    order = np.argsort(distance, kind="stable")
    distance, rate = distance[order], (ends / np.maximum(window, 1))[order]
    weight = 1 / (1 + rate * _LONGEST_NS)
    total = np.cumsum(weight)
    passed = np.cumsum(weight * rate * distance)  # coincidences expected up to each distance
    rest = np.append(np.cumsum((weight * rate)[::-1])[::-1], 0)[1:]
    accidents = passed + rest * distance
    excess = np.where(distance <= _LONGEST_NS, total - accidents / SELDOM, 0)
    at = int(np.argmax(excess)) if len(excess) else 0
    if not len(excess) or excess[at] <= 0 or (at + 1 < _ENOUGH and distance[at] < _USUAL_NS):
        return LongestDelay(_USUAL_NS)
    return LongestDelay(int(distance[at]), at + 1, float(accidents[at] / total[at]))


_LATE_NS = 15_000  # delay after all known causes from which work is late


class _Ends(Struct, frozen=True, eq=False):
    """The ends of another stream while late work could have begun but did not, by piece of late work."""

    cause: Column  # the last work that ended, or NONE
    end_ns: Column  # its end; meaningless without a cause
    count: Column  # number of ends


class LateWork(Struct, frozen=True, eq=False):
    """Work that began late, and the time from which it could have begun."""

    launches: Launches
    row: Column
    opened_ns: Column

    @property
    def _start_ns(self) -> Column:
        return self.launches.work.start_ns[self.row]

    def reach(self) -> LongestDelay:
        """Return the longest time from the end of work to the start of work that awaited it."""
        last, count = np.full(len(self.row), NONE), np.zeros(len(self.row), np.int64)
        for other in self._other_streams():
            last = np.maximum(last, np.where(other.cause != NONE, other.end_ns, NONE))
            count += np.where(other.cause != NONE, other.count, 0)
        answered = np.flatnonzero(last != NONE)
        start = self._start_ns[answered]
        return find_reach(start - last[answered], count[answered], start - self.opened_ns[answered])

    def causes(self, reach_ns: int, calls_for_waits: Column) -> list[tuple[int, int]]:
        """Return pairs of a likely cause and late work; `calls_for_waits` are times."""
        start, window = self._start_ns, self._start_ns - self.opened_ns
        had_wait_call = self._had_wait_call(calls_for_waits)
        best, moment = np.full(len(self.row), NONE), np.full(len(self.row), NONE)
        for other in self._other_streams():
            fits = (other.cause != NONE) & (other.end_ns >= start - reach_ns) & (other.end_ns > moment)
            fits &= had_wait_call | (other.count * reach_ns <= SELDOM * window)
            best, moment = np.where(fits, other.cause, best), np.where(fits, other.end_ns, moment)
        caused = np.flatnonzero(best != NONE)
        return list(zip(best[caused].tolist(), self.row[caused].tolist(), strict=True))

    def _had_wait_call(self, calls_for_waits: Column) -> Flags:
        """Return a mask of the work for which a wait was called since the launch before on its stream."""
        work, launched = self.launches.work, self.launches.launched_ns
        since = np.zeros(len(self.row), np.int64)
        for lane, (times, _) in self.launches.by_lane.items():
            of_lane = np.flatnonzero(work.lane[self.row] == lane)
            place = np.searchsorted(times, launched[self.row[of_lane]])
            since[of_lane] = np.where(place > 0, np.array(times)[np.maximum(place - 1, 0)], 0)
        until = np.searchsorted(calls_for_waits, launched[self.row])
        had_call: Flags = np.searchsorted(calls_for_waits, since) < until
        return had_call

    def _other_streams(self) -> Iterator[_Ends]:
        work, launched = self.launches.work, self.launches.launched_ns
        for lane, (_, several) in self.launches.by_lane.items():
            rows = np.array(several)[np.argsort(work.end_ns[several], kind="stable")]
            ends = work.end_ns[rows]
            count = np.searchsorted(ends, self._start_ns, "right")
            cause = rows[np.maximum(count - 1, 0)]
            before = np.searchsorted(ends, self.opened_ns, "right")
            fits = (count > before) & (work.lane[self.row] != lane) & (launched[cause] < launched[self.row])
            yield _Ends(np.where(fits, cause, NONE), work.end_ns[cause], count - before)


def find_late_work(launches: Launches, arrival_ns: Column, awaited: list[tuple[int, int]]) -> LateWork:
    """Return the work that began long after its launch had arrived and its stream and awaited work
    had ended.
    """
    work = launches.work
    known = np.maximum(before_on_stream(work), np.where(launches.is_early, 0, arrival_ns))
    for before, after in awaited:
        known[after] = max(int(known[after]), int(work.end_ns[before]))
    is_launched = (work.launch != NONE) | launches.is_early
    row = np.flatnonzero(launches.on_device & is_launched & (work.start_ns - known >= _LATE_NS))
    return LateWork(launches, row, known[row])
