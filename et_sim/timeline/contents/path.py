"""Causal events: the columns of path.arrow.

Not here: what they are (`et_sim.engine.observe.causes`), and what can be learned from them
(`et_sim.views.critical`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from et_sim.engine.outcome import Outcome
from et_sim.engine.state.cause_tables import CauseKind
from et_sim.engine.state.run import NONE
from et_sim.machine.pool import stage_name
from et_sim.tables.kinds import SHARED_LINKS
from et_sim.timeline.content import Content, Texts, not_negative, unless
from et_sim.timeline.output_filter import OutputFilter
from et_sim.timeline.recorded import RecordedRun
from et_sim.timeline.spool import CausalEvents
from et_sim.trace.workload import Workload

KIND_NAMES = tuple(kind.name.lower() for kind in CauseKind)


class PathSource:
    """Makes the columns of path.arrow."""

    def __init__(self, causal_events: CausalEvents, outcome: Outcome, workload: Workload) -> None:
        self._causal_events, self._plan, self._workload = causal_events, outcome.plan, workload
        classes = outcome.resources.class_names if outcome.resources else ()
        stages = [stage_name(stage) for stage in outcome.plan.pool_units.stages]
        self._link_names, self._classes = (*classes, *outcome.plan.switch_sorts, *stages), len(classes)

    def blocks(self) -> Iterator[dict[str, Any]]:
        """Columns of all causal events, block by block."""
        first = self._plan.actors["node_first"]
        for events in self._causal_events.blocks():
            node = events["node"].astype(np.int64)
            actor = np.searchsorted(first, node, side="right") - 1
            template = self._plan.actors["template"][actor]
            at = self._plan.templates["node_first"][template] + node - first[actor]
            ids = np.zeros(len(node), np.uint64)
            ids[node != NONE] = self._ids[at[node != NONE]]
            yield {
                "critical_parent": not_negative(events["critical_parent"]),
                "other_parent": not_negative(events["other_parent"]),
                "start_ns": events["start_ns"],
                "end_ns": events["end_ns"],
                "kind": Texts(events["kind"], KIND_NAMES),
                "actor": unless(actor.astype(np.int32), node == NONE),
                "node": unless(ids, node == NONE),
                "link": Texts(self._links(events["link"]), self._link_names),
                "resource": not_negative(events["resource"]),
            }

    def _links(self, link: Any) -> Any:
        """Classes of links, and then sorts of switches, which have numbers below NONE."""
        return np.where(link < NONE, self._classes + NONE - 1 - link, link)

    @cached_property
    def _ids(self) -> Any:
        return np.concatenate([trace.node_id for trace in self._workload.templates]).astype(np.uint64)


def path_content(run: RecordedRun, _: OutputFilter) -> Content | None:
    """path.arrow; always all of it."""
    if run.causal_events is None:
        return None
    source = PathSource(run.causal_events, run.outcome, run.workload)
    resources = run.outcome.resources
    is_shared = len(run.outcome.plan.slowdowns) > 0 or (resources is not None and resources.are_shared)
    return Content(source.blocks(), metadata={SHARED_LINKS: "yes"} if is_shared else {})
