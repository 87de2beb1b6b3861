"""Times at which nodes became ready, which follow from the ends of their parents.

The engine keeps one cause of a node's start: its last parent, or the node that had occupied its lane.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.engine.outcome import Outcome
from et_sim.engine.state.records import OCCUPIED
from et_sim.engine.state.run import NONE


class ReadyTimes:
    """Times at which the issued nodes of a run became ready."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome, self._plan = outcome, outcome.plan
        self._latest: tuple[Any, Any, Any] = (None, None, None)

    def of(self, actor: Any, at: Any, state: Any) -> Any:
        """Return the times of nodes, from their actors, rows of the plan's table of nodes, and states."""
        plan, ends = self._plan, self._outcome.nodes["end_ns"]
        first, cause = plan.actors["node_first"][actor], state["caused_by"]
        ready = plan.actors["start_ns"][actor].astype(np.int64)  # of nodes without parents
        of_parent = np.flatnonzero(cause >= 0)
        ready[of_parent] = ends[first[of_parent] + cause[of_parent]]
        waited = np.flatnonzero(cause <= OCCUPIED)
        if not len(waited):
            return ready
        low, begin, parents = self._parents(at[waited])
        counts = begin[at[waited] - low + 1] - begin[at[waited] - low]
        has_parents = np.flatnonzero(counts)
        some, counts = waited[has_parents], counts[has_parents]
        if len(some):
            behind = np.cumsum(counts)
            shift = begin[at[some] - low] - (behind - counts)
            parent = parents[np.arange(int(behind[-1])) + np.repeat(shift, counts)]
            ended = ends[np.repeat(first[some], counts) + parent]
            ready[some] = np.maximum.reduceat(ended, behind - counts)
        return ready

    def _parents(self, at: Any) -> tuple[int, Any, Any]:
        """Return a row of the plan's table, and the parents of all nodes from it to the last given one: where
        those of each begin, and their rows within templates.
        """
        plan = self._plan
        templates = np.searchsorted(plan.templates["node_first"], (at.min(), at.max()), side="right") - 1
        key = tuple(templates.tolist())
        if self._latest[0] != key:
            rows = plan.templates[key[0] : key[1] + 1]
            low, high = int(rows["node_first"][0]), int(rows["node_first"][-1] + rows["nodes"][-1])
            base = np.repeat(rows["node_first"], rows["nodes"])
            counts = plan.nodes["children"][low:high]
            behind = np.cumsum(counts, dtype=np.int64)
            at_child = np.arange(int(behind[-1]))
            at_child += np.repeat(plan.nodes["children_first"][low:high] - (behind - counts), counts)
            child = plan.children[at_child] + np.repeat(base, counts) - low
            parent = np.repeat(np.arange(low, high) - base, counts)
            begin = np.concatenate(([0], np.cumsum(np.bincount(child, minlength=high - low))))
            self._latest = key, low, (begin, parent[np.argsort(child, kind="stable")])
        _, low, (begin, parents) = self._latest
        return low, begin, parents


def cause_rows(state: Any) -> tuple[Any, Any]:
    """Return the rows of nodes that caused the starts of others, NONE without one, and whether each had
    occupied the lane.
    """
    cause = state["caused_by"]
    occupied = cause <= OCCUPIED
    return np.where(occupied, OCCUPIED - cause, np.maximum(cause, NONE)), occupied
