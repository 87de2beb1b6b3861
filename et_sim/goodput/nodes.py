"""Nodes of many months: spares, repairs, and nodes without which an elastic job goes on."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.goodput.setting import Setting


class Nodes:
    """The times at which spare nodes are usable, and at which missing nodes return."""

    def __init__(self, setting: Setting, months: int) -> None:
        self._hot, self._cold_time = setting.hot, setting.recovery.cold
        self._spares = np.zeros((months, setting.hot + setting.cold))
        self._most = max((part.nodes for part in setting.parts), default=0)
        self.missing = np.full((months, len(setting.fewer)), np.inf)

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
        if not len(rows) or not self._most:
            return np.zeros(len(rows))
        spares = self._spares[rows]
        ready = np.maximum(spares, now[:, None])
        ready[:, self._hot :] += self._cold_time
        repaired = now + repair
        is_lost = np.arange(self._most) < lost[:, None]
        candidates = np.concatenate([ready, np.where(is_lost, repaired[:, None], np.inf)], axis=1)
        order = np.argsort(candidates, axis=1, kind="stable")
        rank = np.argsort(order, axis=1, kind="stable")
        chosen = rank < lost[:, None]
        width = spares.shape[1]
        self._spares[rows] = np.where(chosen[:, :width], repaired[:, None], spares)
        taken = np.where(chosen, candidates, -np.inf)
        return self._wait(rows, now, taken)

    def _wait(self, rows: Any, now: Any, taken: Any) -> Any:
        """Return the wait until no more nodes are missing than the job can do without."""
        missing = self.missing[rows]
        allowed = missing.shape[1]
        due = np.concatenate([np.where(np.isfinite(missing), missing, -np.inf), taken], axis=1)
        due = -np.sort(-due, axis=1)
        wait = np.maximum(due[:, allowed] - now, 0.0) if due.shape[1] > allowed else np.zeros(len(rows))
        still = due[:, :allowed]
        self.missing[rows] = np.where(still > (now + wait)[:, None], still, np.inf)
        return wait
