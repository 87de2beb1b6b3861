"""The record of causes on its way from the engine to path.arrow: kept in a file, so that memory stays flat.

Not here: what moments are (`engine.causes`), and what can be learned from them (`views`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from et_sim.engine.cause_tables import MOMENT, What
from et_sim.engine.drive import Outcome
from et_sim.engine.state import NONE
from et_sim.timeline.spool import Spool
from et_sim.trace.workload import Workload

WHAT_NAMES = tuple(what.name.lower() for what in What)


class Moments(Spool):
    """All moments of a run, in the order in which they came about."""

    def __init__(self) -> None:
        super().__init__(MOMENT)


class PathSource:
    """Makes the columns of path.arrow."""

    def __init__(self, moments: Moments, outcome: Outcome, workload: Workload) -> None:
        self._moments, self._plan, self._workload = moments, outcome.plan, workload
        self.link_names = outcome.resources.class_names if outcome.resources else ()

    def blocks(self) -> Iterator[dict[str, Any]]:
        """Columns of all moments, block by block; -1 stands for none."""
        first = self._plan.actors["node_first"]
        for moments in self._moments.blocks():
            node = moments["node"].astype(np.int64)
            actor = np.searchsorted(first, node, side="right") - 1
            template = self._plan.actors["template"][actor]
            at = self._plan.templates["node_first"][template] + node - first[actor]
            columns = {
                name: moments[name] for name in ("by", "also", "start_ns", "end_ns", "link", "place", "what")
            }
            columns["actor"] = np.where(node == NONE, NONE, actor).astype(np.int32)
            columns["node"] = np.zeros(len(node), np.uint64)
            columns["node"][node != NONE] = self._ids[at[node != NONE]]
            yield columns

    @cached_property
    def _ids(self) -> Any:
        return np.concatenate([trace.node_id for trace in self._workload.templates]).astype(np.uint64)
