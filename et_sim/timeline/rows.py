"""Rows of the timeline, one per issued node, from columns of the engine.

Rows are ordered by actor, then by ascending node id.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.group_names import shown_group
from et_sim.compute import Utilisation
from et_sim.engine.outcome import Outcome
from et_sim.engine.state.run import NONE
from et_sim.plan.kernel_table import NominalUse
from et_sim.plan.paces import OWN_PACE
from et_sim.plan.records import Action, LoweredPlan
from et_sim.timeline.node_columns import NodeColumns, SharedColumns
from et_sim.timeline.ready_times import ReadyTimes, cause_rows
from et_sim.timeline.waiting.arrivals import Issued
from et_sim.timeline.waiting.waits import Waited, Waits, peers_and_tags
from et_sim.trace.workload import Workload

TREATMENT_NAMES = ("modelled", "replayed", "defaulted", "instant")
START_CAUSES = ("begin", "dependency", "lane")
END_CAUSES = ("own", "message")
ROWS_AT_ONCE = 1 << 16  # larger blocks are slower
BEGIN, DEPENDENCY, LANE = range(3)
OWN, MESSAGE = range(2)


class Rows(Struct, frozen=True, eq=False, dict=True):
    """A block of timeline rows as numpy columns; -1 stands for "none"."""

    source: TimelineSource
    state: Any  # of the nodes
    actor: Any
    base: Any  # row of the plan's table of nodes at which the template begins
    at: Any  # row of the plan's table of nodes
    node_id: Any
    name: Any  # index into TimelineSource.names
    kind: Any  # index into KIND_NAMES
    lane: Any
    activity: Any  # kind of activity (`basics.intervals`)
    stream: Any  # index into TimelineSource.stream_names
    recorded_on: Any  # index into TimelineSource.recorded_names
    treatment: Any
    start_ns: Any
    end_ns: Any
    bytes: Any
    queued_ns: Any
    waiting_ns: Any
    moving_ns: Any
    waits_for: Any  # an actor
    utilisation: Utilisation | None  # NaN: not a kernel timed by the roofline; None: no row is
    shared: SharedColumns

    @cached_property
    def ready_ns(self) -> Any:
        """Return when the nodes became ready."""
        return self.source.ready_times.of(self.actor, self.at, self.state)

    @property
    def group(self) -> Any:
        """Return the groups of collectives, as indices into TimelineSource.group_names."""
        group, (which, member) = np.full(len(self.actor), NONE, np.int32), self.shared.collectives
        if len(which):
            group[which] = self.source.groups_of(self.actor[which], member)
        return group

    @cached_property
    def _peers(self) -> tuple[Any, Any]:
        """Return the actors at the other ends of sends and receives, and their tags."""
        peer, tag = np.full(len(self.actor), NONE, np.int32), np.full(len(self.actor), NONE, np.int64)
        which, is_send, channel = self.shared.messages
        if len(which):
            peer[which], tag[which] = self.source.peers_of(self.actor[which], channel, is_send)
        return peer, tag

    @property
    def peer(self) -> Any:
        """Return the actors at the other ends of sends and receives."""
        return self._peers[0]

    @property
    def tag(self) -> Any:
        """Return the tags of sends and receives."""
        return self._peers[1]

    @property
    def sequence(self) -> Any:
        """Return the numbers of collectives."""
        sequence, which = np.full(len(self.actor), NONE, np.int64), self.shared.collectives[0]
        sequence[which] = self.state["number"][which]
        return sequence

    @cached_property
    def _start(self) -> tuple[Any, Any]:
        """Return the cause of a node's start, and its row: its last parent, or what freed its lane."""
        row, occupied = cause_rows(self.state)
        cause = (row != NONE).view(np.int8)  # BEGIN or DEPENDENCY
        cause[occupied] = LANE
        return cause, np.maximum(row, 0)

    @property
    def start_cause(self) -> Any:
        """Return the causes of the nodes' starts."""
        return self._start[0]

    @property
    def start_cause_node(self) -> Any:
        """Return node ids, valid where `start_cause` is not BEGIN."""
        return self.source.ids[self.base + self._start[1]]

    @cached_property
    def end_cause_actor(self) -> Any:
        """Return the senders of messages, by actor."""
        return np.ascontiguousarray(self.state["partner"])

    @property
    def end_cause(self) -> Any:
        """Return the causes of the nodes' ends: OWN or MESSAGE."""
        return (self.end_cause_actor != NONE).view(np.int8)

    @cached_property
    def _sender_row(self) -> Any:
        """Return the rows of sends; NONE: it is a send, or no message came."""
        row, which = np.full(len(self.actor), NONE, np.int32), self.shared.messages[0]
        row[which] = self.state["number"][which]
        return row

    @property
    def has_end_node(self) -> Any:
        """Return where a message came."""
        return self._sender_row != NONE

    @property
    def end_cause_node(self) -> Any:
        """Return node ids of sends, valid where `has_end_node`."""
        sent, node = np.flatnonzero(self.has_end_node), np.zeros(len(self.actor), np.uint64)
        if len(sent):
            node[sent] = self.source.node_ids(self.end_cause_actor[sent], self._sender_row[sent])
        return node


class _Part(Struct, frozen=True, eq=False):
    """Some rows of some actors, issued or not."""

    actor: Any
    states: slice
    template: Any  # of each actor; and its pace
    pace: Any
    counts: Any  # of rows
    row: Any  # where those of each actor begin: its first row, and the first one of the part
    alike: tuple[Any, ...]  # equal for parts of actors with the same templates and paces


class _Timed(Struct, frozen=True, eq=False):
    """Columns of nodes with the times that they take if nothing slows them."""

    shared: SharedColumns
    duration_ns: Any
    used: Utilisation | None


def _part_of(plan: LoweredPlan, first_actor: int, end_actor: int, begin: int, end: int | None) -> _Part:
    template = plan.actors["template"][first_actor:end_actor]
    pace = plan.actors["pace_first"][first_actor:end_actor]
    counts = plan.templates["nodes"][template]
    behind = np.cumsum(counts)
    end = int(behind[-1]) if end is None else end
    before = behind - counts
    counts = np.clip(np.minimum(behind, end) - np.maximum(before, begin), 0, None)
    actor = np.repeat(np.arange(first_actor, end_actor, dtype=np.int32), counts)
    first = int(plan.actors["node_first"][first_actor])
    alike = template.tobytes(), pace.tobytes(), begin, end
    return _Part(actor, slice(first + begin, first + end), template, pace, counts, (before, begin), alike)


def _rows_of(part: _Part) -> Any:
    """Return the rows of a part, each within its actor."""
    before, begin = part.row
    return np.arange(begin, begin + len(part.actor)) - np.repeat(before, part.counts)


def _places(plan: LoweredPlan, part: _Part) -> tuple[Any, Any]:
    """Return the first rows of the templates of a part's rows in the plan's table of nodes, and their own."""
    base = np.repeat(plan.templates["node_first"][part.template], part.counts)
    return base, base + _rows_of(part)


def _durations(plan: LoweredPlan, part: _Part) -> Any:
    duration_ns = plan.nodes["duration_ns"][_places(plan, part)[1]]
    pace = np.repeat(part.pace, part.counts)
    paced = np.flatnonzero(pace != OWN_PACE)
    duration_ns[paced] = plan.paces[pace[paced] + _rows_of(part)[paced]]
    return duration_ns


def _whole(plan: LoweredPlan, nodes: NodeColumns, part: _Part) -> SharedColumns:
    """Return the columns of a part all of whose nodes were issued."""
    return nodes.shared(*_places(plan, part))


def _timed(plan: LoweredPlan, part: _Part, shared: SharedColumns, *_: Any) -> _Timed:
    """Return these columns with the times of the plan, which are given."""
    duration_ns, nominal = _durations(plan, part), plan.derived(_nominal, shared)
    return _Timed(shared, duration_ns, None if nominal is None else nominal.of(duration_ns))


def _communication_of(plan: LoweredPlan, actor: Any, shared: SharedColumns) -> Issued:
    """Return the communication among rows."""
    which, at, row = shared.communication, shared.at, shared.at - shared.base
    if len(which) < len(actor):
        actor, at, row = actor[which], at[which], row[which]
    return Issued(actor, at, plan.actors["node_first"][actor] + row)


def _nominal(plan: LoweredPlan, shared: SharedColumns) -> NominalUse | None:
    return None if plan.kernels is None else plan.kernels.nominal(shared.at)


class TimelineSource:
    """Timeline rows of an outcome, a block of actors at a time."""

    def __init__(self, outcome: Outcome, workload: Workload) -> None:
        self._outcome = outcome
        self._plan = outcome.plan
        self._nodes = outcome.plan.derived(NodeColumns, workload)
        self.actors = len(outcome.plan.actors)
        self.waits, self.ready_times = Waits(outcome), ReadyTimes(outcome)
        self._latest: tuple[Any, _Timed] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the different names of nodes."""
        return self._nodes.names

    @property
    def ids(self) -> Any:
        """Return the ids of the nodes of all templates, as in traces."""
        return self._nodes.ids

    def name(self, at: int) -> str:
        """Return the name of a node by its row of the plan."""
        return self.names[int(self._nodes.name_numbers[at])]

    @cached_property
    def library_choices(self) -> tuple[str, ...]:
        """Return the different choices of the collective library, the empty text first; (): there is no
        library.
        """
        return tuple(sorted({"", *self._plan.library_choices})) if self._plan.library_choices else ()

    def choices_of(self, at: Any) -> Any:
        """Return the choices of nodes, by their rows of the plan, as indices into `library_choices`."""
        choices, nodes = np.zeros(len(at), np.int32), self._plan.nodes
        which = np.flatnonzero(nodes["action"][at] == Action.COLLECTIVE)
        choices[which] = self._choice_of_collective[nodes["detail"][at[which]]]
        return choices

    @cached_property
    def _choice_of_collective(self) -> Any:
        numbers = {text: number for number, text in enumerate(self.library_choices)}
        return np.array([numbers[text] for text in self._plan.library_choices], np.int32)

    @cached_property
    def group_names(self) -> tuple[str, ...]:
        """Return the names of the plan's groups; the whole system is "all"."""
        return tuple(map(shown_group, self._plan.group_names))

    def blocks(self) -> Iterator[Rows]:
        """Yield all issued nodes, in blocks of whole actors."""
        for first, until in self.spans():
            yield self.rows(first, until)

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of actors, each with a limited number of nodes but at least one actor."""
        first = self._plan.actors["node_first"]
        starts = np.concatenate((first, [len(self._outcome.nodes)]))
        actor = 0
        while actor < self.actors:
            until = int(np.searchsorted(starts, starts[actor] + ROWS_AT_ONCE, side="right")) - 1
            until = max(until, actor + 1)
            yield actor, until
            actor = until

    def pieces(self, first_actor: int, end_actor: int) -> Iterator[Rows]:
        """Yield the issued nodes of some actors in blocks that fit in the processor's cache."""
        template = self._plan.actors["template"][first_actor:end_actor]
        rows = int(self._plan.templates["nodes"][template].sum())
        for begin in range(0, rows, ROWS_AT_ONCE):
            yield self.rows(first_actor, end_actor, begin, min(begin + ROWS_AT_ONCE, rows))

    def rows(self, first_actor: int, end_actor: int, begin: int = 0, end: int | None = None) -> Rows:
        """Return the issued nodes among the rows from `begin` to `end` of some actors."""
        part = self._plan.derived(_part_of, first_actor, end_actor, begin, end)
        state = self._outcome.nodes[part.states]
        issued = state["start_ns"] != NONE
        if not issued.all():
            base, at = (column[issued] for column in _places(self._plan, part))
            duration_ns = _durations(self._plan, part)[issued]
            nominal = None if self._plan.kernels is None else self._plan.kernels.of_nodes(at, duration_ns)
            timed = _Timed(self._nodes.shared(base, at), duration_ns, nominal)
            return self._described(part.actor[issued], timed, state[issued])
        if self._latest is None or self._latest[0] != part.alike:
            shared = self._plan.derived(_whole, self._nodes, part)
            times = self._plan.nodes, self._plan.paces
            self._latest = part.alike, self._plan.derived(_timed, part, shared, *times)
        return self._described(part.actor, self._latest[1], state)

    def _described(self, actor: Any, timed: _Timed, state: Any) -> Rows:
        """Return the rows of nodes, from their actors and states."""
        start, end = np.ascontiguousarray(state["start_ns"]), np.ascontiguousarray(state["end_ns"])
        used, shared = timed.used, timed.shared
        if used is not None and len(self._plan.slowdowns):  # they may have taken longer than planned
            used = used.slowed(timed.duration_ns, np.maximum(end - start, 0))
        return Rows(
            source=self,
            shared=shared,
            state=state,
            actor=actor,
            base=shared.base,
            **shared.columns,
            start_ns=start,
            end_ns=end,
            **self._waited(actor, shared)._asdict(),
            utilisation=used,
        )

    @property
    def stream_names(self) -> tuple[str, ...]:
        """Return the names of the machine's streams."""
        return self._plan.stream_names

    @property
    def recorded_names(self) -> tuple[str, ...]:
        """Return the names of the recordings' streams and threads."""
        return self._nodes.recorded[1]

    def rows_of_plan(self, actor: Any, row: Any) -> Any:
        """Return the rows of the plan's table for nodes of actors."""
        return self._plan.templates["node_first"][self._plan.actors["template"][actor]] + row

    def node_ids(self, actor: Any, row: Any) -> Any:
        """Return the ids that traces give to nodes of actors."""
        return self.ids[self.rows_of_plan(actor, row)]

    def groups_of(self, actor: Any, member: Any) -> Any:
        """Return the groups of members, by their own numbers at their actors."""
        plan = self._plan
        return plan.members["group"][plan.actor_members[plan.actors["first_member"][actor] + member]]

    def peers_of(self, actor: Any, own_channel: Any, is_send: Any) -> tuple[Any, Any]:
        """Return the other actors and the tags of sends and receives, by channel numbers of their actors."""
        return peers_and_tags(self._plan, actor, own_channel, is_send)

    def _waited(self, actor: Any, shared: SharedColumns) -> Waited:
        issued, which = self._plan.derived(_communication_of, actor, shared), shared.communication
        if len(which) == len(actor):
            return self.waits.of(issued)
        queued, waiting, moving = np.full((3, len(actor)), NONE, np.int64)
        waited = Waited(queued, waiting, moving, np.full(len(actor), NONE, np.int32))
        if len(which):
            for column, values in zip(waited, self.waits.of(issued), strict=True):
                column[which] = values
        return waited
