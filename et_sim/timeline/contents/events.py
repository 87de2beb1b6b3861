"""Events that were logged during the run: phases of collectives, messages, and causal events.

The columns of phases, messages and path. `et_sim.engine.observe` logs them, `et_sim.views.critical` evaluates
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from et_sim.basics.unique import groups_of
from et_sim.engine.state.cause_tables import CauseKind
from et_sim.engine.state.run import NONE
from et_sim.engine.state.traffic_tables import Sent
from et_sim.machine.remote_memory import stage_name
from et_sim.plan.records import IN_GROUP, NO_AXIS, LoweredPlan
from et_sim.tables.collective_tables import PHASES_OF_LAYERS
from et_sim.tables.declaration import SHARED_LINKS
from et_sim.timeline.content import Block, Nullable, TableContent, Texts
from et_sim.timeline.node_columns import COLLECTIVE_NAMES
from et_sim.timeline.recorded import RecordedRun

if TYPE_CHECKING:
    from et_sim.timeline.spool import CausalEvents, MessageSpool, Phases


SENT_NAMES = tuple(sent.name.lower() for sent in Sent)
CAUSE_NAMES = tuple(kind.name.lower() for kind in CauseKind)
OF_MESSAGES: tuple[str, ...] = ("actor", "peer", "chunk", "phase", "step", "dimension", "bytes")
OF_MESSAGES += ("ready_ns", "sent_ns", "start_ns", "left_ns", "arrived_ns")
SYSTEM = 0  # the group of all ranks


def messages_content(run: RecordedRun) -> TableContent | None:
    """Return messages.arrow."""
    return None if run.messages is None else TableContent(_messages(run, run.messages))


def _messages(run: RecordedRun, messages: MessageSpool) -> Iterator[Block]:
    source = run.measurement.source
    for log in messages.blocks():
        nodes, named = np.zeros(len(log), np.uint64), np.flatnonzero(log["node"] >= 0)
        nodes[named] = source.node_ids(log["actor"][named], log["node"][named])
        columns = {
            **{name: log[name] for name in OF_MESSAGES},
            "kind": Texts(log["kind"].astype(np.int8), SENT_NAMES),
            "node": Nullable(nodes, log["node"] < 0),
            "link_wait_ns": log["waited_ns"] if run.outcome.has_contention else np.full(len(log), -1),
        }
        yield Block(columns, log["actor"], log["ready_ns"], log["arrived_ns"])


def path_content(run: RecordedRun) -> TableContent | None:
    """Return path.arrow, which is never filtered."""
    if run.causal_events is None:
        return None
    resources = run.outcome.resources
    is_shared = len(run.outcome.plan.slowdowns) > 0 or (resources is not None and resources.are_shared)
    return TableContent(_path(run, run.causal_events), {SHARED_LINKS: "yes"} if is_shared else {})


def _path(run: RecordedRun, causal_events: CausalEvents) -> Iterator[Block]:
    source, plan, resources = run.measurement.source, run.outcome.plan, run.outcome.resources
    first, classes = plan.actors["node_first"], resources.class_names if resources else ()
    # Classes of links, then kinds of switches, which have numbers below NONE.
    link_names = (*classes, *plan.switch_classes, *(stage_name(stage) for stage in plan.pool_units.stages))
    for events in causal_events.blocks():
        node, link = events["node"].astype(np.int64), events["link"]
        actor, is_none = np.searchsorted(first, node, side="right") - 1, node == NONE
        link = np.where(link < NONE, len(classes) + NONE - 1 - link, link)
        ids, named = np.zeros(len(node), np.uint64), np.flatnonzero(~is_none)
        ids[named] = source.node_ids(actor[named], node[named] - first[actor[named]])
        names = ("critical_parent", "other_parent", "start_ns", "end_ns", "resource")
        yield Block(
            {
                **{name: events[name] for name in names},
                "kind": Texts(events["kind"], CAUSE_NAMES),
                "actor": Nullable(actor.astype(np.int32), is_none),
                "node": Nullable(ids, is_none),
                "link": Texts(link, link_names),
            }
        )


def phases_content(run: RecordedRun) -> TableContent | None:
    """Return phases.arrow; for a layer file with the layers."""
    if run.phases is None:
        return None
    return TableContent(_phases(run, run.phases), without=() if run.layers else ("layer", "layer_phase"))


def _phases(run: RecordedRun, phases: Phases) -> Iterator[Block]:
    plan, source, crossed = run.outcome.plan, run.measurement.source, CrossedDimensions(run.outcome.plan)
    for log in phases.blocks():
        rows, node = plan.phases[log["phase_row"]], log["node"]
        columns = {
            **{name: log[name] for name in ("actor", "chunk", "phase", "messages")},
            "node": source.node_ids(log["actor"], node),
            "dimension": crossed.of_phases(rows, log["actor"], source.rows_of_plan(log["actor"], node)),
            "operation": Texts(rows["operation"].astype(np.int8), COLLECTIVE_NAMES),
            "bytes": rows["bytes"],
            **{name: log[name] for name in ("queued_ns", "start_ns", "end_ns")},
            "message_wait_ns": log["waited_ns"],
        }
        if run.layers is not None:  # the workload has one trace
            of = run.layers.layer_of
            columns |= {"layer": of.layer[node], "layer_phase": Texts(of.phase[node], PHASES_OF_LAYERS)}
        yield Block(columns, log["actor"], log["queued_ns"], log["end_ns"])


class CrossedDimensions:
    """Dimensions of the network that phases cross; NONE: several."""

    def __init__(self, plan: LoweredPlan) -> None:
        self._plan, self._known = plan, dict[tuple[int, int], int]()

    def of_phases(self, rows: Any, actor: Any, node: Any) -> Any:
        """Return the dimensions for phases of these nodes."""
        plan, dimensions = self._plan, rows["dimension"].copy()
        system = np.flatnonzero(rows["axis"] == plan.dimensions)
        if len(system):
            dimensions[system] = self._real_dimension
        in_group = plan.axes["members_first"][rows["axis"]] == IN_GROUP
        on_axis = np.flatnonzero((rows["axis"] == NO_AXIS) | in_group)
        if len(on_axis):
            member = plan.actors["first_member"][actor[on_axis]] + plan.nodes["member"][node[on_axis]]
            group, axis = plan.members["group"][plan.actor_members[member]], rows["axis"][on_axis]
            pairs = groups_of(group, axis)
            firsts = zip(group[pairs.first].tolist(), axis[pairs.first].tolist(), strict=True)
            dimensions[on_axis] = np.array([self._of_group(*pair) for pair in firsts])[pairs.of_row]
        return dimensions

    @cached_property
    def _real_dimension(self) -> int:
        """Return the only dimension with several NPUs; the first if none has several; NONE if
        there are more.
        """
        return _only(self._plan.axes["members"][: self._plan.dimensions] > 1)

    def _of_group(self, group: int, axis: int) -> int:
        """Return the only dimension in which members of a group differ along an axis; NONE if there are
        several.
        """
        if group == SYSTEM:
            return self._real_dimension
        if (group, axis) not in self._known:
            first, count = (int(self._plan.groups[name][group]) for name in ("members_first", "members"))
            ranks = self._plan.group_ranks[first : first + count][None, :]
            if axis != NO_AXIS:
                stride, line = (int(self._plan.axes[name][axis]) for name in ("stride", "members"))
                ranks = np.moveaxis(ranks.reshape(-1, line, stride), 1, -1).reshape(-1, line)
            axes = self._plan.axes[: self._plan.dimensions]
            places = ranks[..., None] // axes["stride"] % axes["members"]
            self._known[group, axis] = _only((places != places[:, :1]).any(axis=(0, 1)))
        return self._known[group, axis]


def _only(are_crossed: Any) -> int:
    """Return the one dimension that is crossed, the first if none is; NONE if there are several."""
    crossed = np.flatnonzero(are_crossed).tolist() or [0]
    return crossed[0] if len(crossed) == 1 else NONE
