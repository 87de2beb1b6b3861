"""Nodes of many months: spares, repairs, and nodes without which an elastic job goes on; and the state of
months since their last interruptions. Both are columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from et_sim.goodput.setting import PHASES, Setting


class Nodes:
    """The times at which spare nodes are usable, and at which missing nodes return."""

    def __init__(self, settings: Sequence[Setting], months: int) -> None:
        """Create the nodes of as many months of each setting."""
        width = max(each.hot + each.cold for each in settings)
        number = np.arange(width)
        usable = [np.where(number < each.hot + each.cold, 0.0, np.inf) for each in settings]
        delay = [np.where(number < each.hot, 0.0, each.recovery.cold) for each in settings]
        self._spares = np.repeat(np.array(usable), months, axis=0)
        self._delay = np.repeat(np.array(delay), months, axis=0)
        self.missing = np.full((len(settings) * months, len(settings[0].fewer)), np.inf)

    def next_return(self) -> Any:
        """Return the time of each month at which a missing node returns; infinite without one."""
        if not self.missing.shape[1]:
            return np.full(len(self.missing), np.inf)
        return self.missing.min(axis=1)

    def absent(self) -> Any:
        """Return the number of missing nodes of each month."""
        return np.isfinite(self.missing).sum(axis=1)

    def bring_back(self, rows: Any, now: Any) -> None:
        """Note that nodes which are usable by now are no longer missing."""
        missing = self.missing[rows]
        self.missing[rows] = np.where(missing <= now[:, None], np.inf, missing)

    def replace(self, rows: Any, now: Any, lost: Any, repair: Any) -> Any:
        """Replace lost nodes by those that are usable first, and return the time until enough are.

        Candidates are spares and the repaired nodes themselves; a lost node takes the place of the spare.
        """
        wait = np.zeros(len(rows))
        is_lost = lost > 0
        if is_lost.any():
            wait[is_lost] = self._replace(rows[is_lost], now[is_lost], lost[is_lost], repair[is_lost])
        return wait

    def _replace(self, rows: Any, now: Any, lost: Any, repair: Any) -> Any:
        """Replace at least one node of each month."""
        ready = np.maximum(self._spares[rows], now[:, None])
        ready += self._delay[rows]
        repaired = now + repair
        most = int(lost.max())
        if most == 1:
            return self._replace_one(rows, now, ready, repaired)
        is_lost = np.arange(most) < lost[:, None]
        candidates = np.concatenate([ready, np.where(is_lost, repaired[:, None], np.inf)], axis=1)
        rank = np.argsort(np.argsort(candidates, axis=1, kind="stable"), axis=1, kind="stable")
        chosen = rank < lost[:, None]
        width = ready.shape[1]
        self._spares[rows] = np.where(chosen[:, :width], repaired[:, None], self._spares[rows])
        return self._wait(rows, now, np.where(chosen, candidates, -np.inf))

    def _replace_one(self, rows: Any, now: Any, ready: Any, repaired: Any) -> Any:
        """Replace one node of each month."""
        if not ready.shape[1]:
            return self._wait(rows, now, repaired[:, None])
        spare = ready.argmin(axis=1)
        first = ready[np.arange(len(rows)), spare]
        is_spare = first <= repaired
        self._spares[rows[is_spare], spare[is_spare]] = repaired[is_spare]
        return self._wait(rows, now, np.minimum(first, repaired)[:, None])

    def _wait(self, rows: Any, now: Any, taken: Any) -> Any:
        """Return the wait until no more nodes are missing than the job can do without."""
        missing = self.missing[rows]
        allowed = missing.shape[1]
        if not allowed:
            return np.maximum(taken.max(axis=1) - now, 0.0)
        due = np.concatenate([np.where(np.isfinite(missing), missing, -np.inf), taken], axis=1)
        due = -np.sort(-due, axis=1)
        wait = np.maximum(due[:, allowed] - now, 0.0)
        still = due[:, :allowed]
        self.missing[rows] = np.where(still > (now + wait)[:, None], still, np.inf)
        return wait


class Point(NamedTuple):
    """Kept steps of each month: their seconds, and their number on the healthy machine."""

    seconds: Any
    steps: Any

    def where(self, mask: Any, other: Point) -> Point:
        """Return another point where a mask is not set."""
        return Point(*(np.where(mask, mine, theirs) for mine, theirs in zip(self, other, strict=True)))


class State:
    """The state of all months since the last interruption."""

    def __init__(self, settings: Sequence[Setting], of_each: int) -> None:
        setting, months = settings[0], len(settings) * of_each
        zero = np.zeros(months)
        self.nodes = Nodes(settings, of_each)
        self.since = zero.copy()  # of the restart
        self.phases = np.zeros((months, PHASES))
        self.begin = zero.copy()  # of training, as if the first cycle had begun then
        self.ready = zero.copy()  # when enough nodes are usable
        self.noticed = zero.copy()  # when all failures are noticed
        self.found = zero.copy()  # when all failed parts are found, too
        self.extra = zero.copy()  # seconds of the first cycle beyond those at the present speed
        self.step = np.full(months, setting.step)
        self.share = np.ones(months)  # tokens of a step
        self.restored = Point(zero.copy(), zero.copy())  # kept before `begin`
        self.stored = Point(zero.copy(), zero.copy())
        self.clean = Point(zero.copy(), zero.copy())  # stored before the corruption
        self.is_corrupt = np.zeros(months, np.bool_)
        self.cleared = zero.copy() - 1.0  # when the last corruption was undone
        self.eviction = np.full(months, np.inf)  # of a slow node
        self.slow_step = zero.copy()  # with this node
        self.evicted_part = np.zeros(months, np.int32)
        self.owner = np.full(months, len(setting.parts), np.int32)  # the part that caused the restart
