"""Rows of the timeline, one per issued node, from columns of the engine.

Rows are ordered by actor, then by ascending node id.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics import intervals
from et_sim.basics.group_names import shown_group
from et_sim.basics.intervals import COMPUTE, HOST, MEMORY, TRANSFER
from et_sim.compute import Utilisation
from et_sim.engine.outcome import Outcome
from et_sim.engine.state.run import NONE
from et_sim.plan.paces import OWN_PACE
from et_sim.plan.records import LANES, Action, Lane
from et_sim.tables.declaration import COPY, OPAQUE_KINDS
from et_sim.timeline.ready_times import ReadyTimes, cause_rows
from et_sim.timeline.waiting.arrivals import Issued
from et_sim.timeline.waiting.waits import Waited, Waits, peers_and_tags
from et_sim.trace.columns import CollectiveKind, NodeKind, Trace
from et_sim.trace.workload import Workload

LANE_NAMES = ("cpu", "compute", "communication", "receive", "send", "memory", "collective")
# The lane shown: that a node is concurrent no longer matters, and streams are a column.
_SHOWN_LANE = np.arange(len(Lane), dtype=np.uint8)
_SHOWN_LANE[[Lane.FREE_CPU, Lane.FREE_COMPUTE, Lane.FREE_SEND]] = Lane.CPU, Lane.COMPUTE, Lane.SEND
TREATMENT_NAMES = ("modelled", "replayed", "defaulted", "instant")
START_CAUSES = ("begin", "dependency", "lane")
END_CAUSES = ("own", "message")
ROWS_AT_ONCE = 1 << 16  # larger blocks are slower
BEGIN, DEPENDENCY, LANE = range(3)
OWN, MESSAGE = range(2)

NODE_KIND_NAMES = ("invalid", "metadata", "memory_load", "memory_store", "compute", "send", "receive")
COLLECTIVE_NAMES = tuple(kind.name.lower() for kind in CollectiveKind)
UNNAMED_KIND = "communication"  # a collective of unknown type
HOST_KIND_NAMES = ("host", "gap")  # computation of the trace that no device does
KIND_NAMES = NODE_KIND_NAMES + COLLECTIVE_NAMES + HOST_KIND_NAMES + OPAQUE_KINDS + (UNNAMED_KIND, COPY)
MEMORY_KINDS = ("memory_load", "memory_store")
COMMUNICATION_KINDS = ("send", "receive", *COLLECTIVE_NAMES, UNNAMED_KIND)


class Rows(Struct, frozen=True, eq=False):
    """A block of timeline rows as numpy columns; -1 stands for "none"."""

    actor: Any
    at: Any  # row of the plan's table of nodes
    node_id: Any
    name: Any  # index into TimelineSource.names
    kind: Any  # index into KIND_NAMES
    lane: Any
    activity: Any  # kind of activity (`basics.intervals`)
    stream: Any  # index into TimelineSource.stream_names
    recorded_on: Any  # index into TimelineSource.recorded_names
    treatment: Any
    ready_ns: Any
    start_ns: Any
    end_ns: Any
    bytes: Any
    group: Any  # index into TimelineSource.group_names
    sequence: Any
    peer: Any  # actor at the other end of a send or receive
    tag: Any
    queued_ns: Any
    waiting_ns: Any
    moving_ns: Any
    waits_for: Any  # an actor
    start_cause: Any
    start_cause_node: Any  # node id; valid where start_cause is not BEGIN
    end_cause: Any
    end_cause_actor: Any
    end_cause_node: Any  # node id; valid where has_end_node
    has_end_node: Any
    utilisation: Utilisation | None  # NaN: not a kernel timed by the roofline; None: no row is


class _Shared(Struct, frozen=True, eq=False):
    """Columns of nodes of the plan that are equal for all actors of a template and a pace."""

    base: Any  # the first row of their template in the plan's table
    columns: dict[str, Any]  # of `Rows`
    duration_ns: Any
    utilisation: Utilisation | None
    collectives: tuple[Any, Any]  # their indices, and the members of their actors that run them
    messages: tuple[Any, Any, Any]  # their indices, whether each is a send, and their channels
    communication: Any  # indices of both


class TimelineSource:
    """Timeline rows of an outcome, a block of actors at a time."""

    def __init__(self, outcome: Outcome, workload: Workload) -> None:
        self._outcome = outcome
        self._plan = outcome.plan
        self._workload = workload
        self.actors = len(outcome.plan.actors)
        self.waits, self._ready_times = Waits(outcome), ReadyTimes(outcome)
        self._latest: tuple[Any, _Shared] | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the different names of nodes."""
        return tuple(
            dict.fromkeys(chain.from_iterable(stack.trace.names for stack in self._workload.stacks()))
        )

    def name(self, at: int) -> str:
        """Return the name of a node by its row of the plan."""
        return self.names[int(self._names[at])]

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
        plan = self._plan
        template = plan.actors["template"][first_actor:end_actor]
        counts = plan.templates["nodes"][template]
        behind = np.cumsum(counts)
        end = int(behind[-1]) if end is None else end
        before = behind - counts
        counts = np.clip(np.minimum(behind, end) - np.maximum(before, begin), 0, None)
        actor = np.repeat(np.arange(first_actor, end_actor, dtype=np.int32), counts)
        state_first = int(plan.actors["node_first"][first_actor])
        state = self._outcome.nodes[state_first + begin : state_first + end]
        paces = plan.actors["pace_first"][first_actor:end_actor]
        issued, key = state["start_ns"] != NONE, (template.tobytes(), paces.tobytes(), begin, end)
        is_whole = bool(issued.all())
        if is_whole and self._latest is not None and self._latest[0] == key:
            return self._described(actor, self._latest[1], state)
        base = np.repeat(plan.templates["node_first"][template], counts)
        row = np.arange(begin, end) - np.repeat(before, counts)
        at, pace = base + row, np.repeat(paces, counts)
        duration_ns = plan.nodes["duration_ns"][at]
        paced = np.flatnonzero(pace != OWN_PACE)
        duration_ns[paced] = plan.paces[pace[paced] + row[paced]]
        if not is_whole:
            columns = (column[issued] for column in (base, at, duration_ns))
            return self._described(actor[issued], self._shared(*columns), state[issued])
        self._latest = key, self._shared(base, at, duration_ns)
        return self._described(actor, self._latest[1], state)

    def _shared(self, base: Any, at: Any, duration_ns: Any) -> _Shared:
        """Return the columns of the nodes at these rows of the plan's table, which take these times; their
        templates are at `base`.
        """
        is_contiguous = len(at) > 0 and bool((at[1:] == at[:-1] + 1).all())
        these: Any = slice(int(at[0]), int(at[-1]) + 1) if is_contiguous else at  # a slice is not copied
        nodes = np.asarray(self._plan.nodes)[these]
        action, kind = nodes["action"], self._kinds[these]
        lane = self._lanes_of(nodes["lane"], these)
        columns = {
            "at": at,
            "node_id": self.ids[these],
            "name": self._names[these],
            "kind": kind,
            "lane": lane,
            "activity": ACTIVITY_OF[kind, lane],
            "stream": np.maximum(nodes["lane"].astype(np.int32) - LANES, NONE),
            "recorded_on": self._recorded[0][these],
            "treatment": np.ascontiguousarray(nodes["treatment"]),
            "bytes": np.ascontiguousarray(nodes["bytes"]),
        }
        kernels = self._plan.kernels
        used = None if kernels is None else kernels.of_nodes(at, duration_ns)
        of_groups, of_pairs = (
            action == Action.COLLECTIVE,
            (action == Action.SEND) | (action == Action.RECEIVE),
        )
        collectives, messages = np.flatnonzero(of_groups), np.flatnonzero(of_pairs)
        return _Shared(
            base,
            columns,
            duration_ns,
            used,
            (collectives, nodes["member"][collectives]),
            (messages, action[messages] == Action.SEND, nodes["detail"][messages]),
            np.flatnonzero(of_groups | of_pairs),
        )

    def _described(self, actor: Any, shared: _Shared, state: Any) -> Rows:
        """Return the rows of nodes, from their actors and states."""
        group, sequence = self._collective_columns(actor, shared, state["number"])
        peer, tag = self._message_columns(actor, shared)
        cause, cause_row = self._start_cause(state)
        sender, sender_row = np.ascontiguousarray(state["partner"]), np.full(len(actor), NONE, np.int32)
        which = shared.messages[0]
        sender_row[which] = state["number"][which]  # NONE: it is a send, or no message came
        sent = np.flatnonzero(sender_row != NONE)
        sender_node = np.zeros(len(actor), np.uint64)
        if len(sent):
            sender_node[sent] = self.node_ids(sender[sent], sender_row[sent])
        start, end = np.ascontiguousarray(state["start_ns"]), np.ascontiguousarray(state["end_ns"])
        used = shared.utilisation
        if used is not None and len(self._plan.slowdowns):  # they may have taken longer than planned
            used = used.slowed(shared.duration_ns, np.maximum(end - start, 0))
        return Rows(
            actor=actor,
            **shared.columns,
            ready_ns=self._ready_times.of(actor, shared.columns["at"], state),
            start_ns=start,
            end_ns=end,
            group=group,
            sequence=sequence,
            peer=peer,
            tag=tag,
            **self._waited(actor, shared)._asdict(),
            start_cause=cause,
            start_cause_node=self.ids[shared.base + cause_row],
            end_cause=(sender != NONE).view(np.int8),  # OWN or MESSAGE
            end_cause_actor=sender,
            end_cause_node=sender_node,
            has_end_node=sender_row != NONE,
            utilisation=used,
        )

    @property
    def stream_names(self) -> tuple[str, ...]:
        """Return the names of the machine's streams."""
        return self._plan.stream_names

    @property
    def recorded_names(self) -> tuple[str, ...]:
        """Return the names of the recordings' streams and threads."""
        return self._recorded[1]

    @cached_property
    def _recorded(self) -> tuple[Any, tuple[str, ...]]:
        """Return the recorded stream or thread of each node, NONE without one; and the names."""
        index: dict[str, int] = {}
        names_of_nodes = np.full(self._workload.nodes_per_template.sum(), NONE, np.int32)
        first = 0
        for trace in self._recorded_traces():
            for word, attribute, values in (
                ("thread", "tid", trace.thread),
                ("stream", "stream", trace.stream),
            ):
                given = np.flatnonzero(trace.has(attribute))
                if not len(given):
                    continue
                numbers, which = np.unique(values[given], return_inverse=True)
                names = [index.setdefault(f"{word} {number}", len(index)) for number in numbers.tolist()]
                names_of_nodes[first + given] = np.array(names, np.int32)[which]
            first += len(trace)
        return names_of_nodes, tuple(index)

    def _recorded_traces(self) -> Iterator[Trace]:
        """Yield all templates, as stacks where streams and threads were not recorded."""
        for stack in self._workload.stacks():
            is_recorded = any(stack.trace.has(attribute).any() for attribute in ("tid", "stream"))
            yield from stack.traces if is_recorded else [stack.trace]

    def _lanes_of(self, lane: Any, these: Any) -> Any:
        """Return the lanes in which nodes are shown; nodes on streams are shown as without them."""
        if not self.stream_names:
            return _SHOWN_LANE[lane]
        return np.where(lane < LANES, _SHOWN_LANE[np.minimum(lane, LANES - 1)], self._plain_lanes[these])

    @cached_property
    def _plain_lanes(self) -> Any:
        computes, is_cpu = (
            self._of_template("kind", np.int16) == NodeKind.COMP,
            self._of_template("is_cpu", np.bool_),
        )
        plain = np.where(computes, np.uint8(Lane.COMPUTE), np.uint8(Lane.COMMUNICATION))
        return np.where(is_cpu, np.uint8(Lane.CPU), plain)

    def _of_template(self, column: str, dtype: Any) -> Any:
        parts = [getattr(stack.trace, column) for stack in self._workload.stacks()]
        return (np.concatenate(parts) if len(parts) > 1 else parts[0]).astype(dtype, copy=False)

    @cached_property
    def _names(self) -> Any:
        number_of = {name: number for number, name in enumerate(self.names)}.__getitem__
        traces = [stack.trace for stack in self._workload.stacks()]
        return np.concatenate(
            [
                np.fromiter(map(number_of, trace.names), np.int32, len(trace.names))[trace.name]
                for trace in traces
            ]
        )

    @cached_property
    def _kinds(self) -> Any:
        kind = self._of_template("kind", np.int16)
        collective = self._of_template("comm_type", np.int8)
        kinds = np.where(kind == NodeKind.COLL, len(NODE_KIND_NAMES) + collective, kind)
        opaque = np.flatnonzero(kind > NodeKind.COLL)
        first, last = KIND_NAMES.index(OPAQUE_KINDS[0]), KIND_NAMES.index(OPAQUE_KINDS[-1])
        kinds[opaque] = np.minimum(first + kind[opaque] - NodeKind.STORAGE, last)
        is_typed = np.concatenate([stack.trace.has("comm_type") for stack in self._workload.stacks()])
        kinds[(kind == NodeKind.COLL) & ~is_typed] = KIND_NAMES.index(UNNAMED_KIND)
        computes, is_gap = kind == NodeKind.COMP, self._of_template("is_gap", np.bool_)
        kinds[computes & self._of_template("is_copy", np.bool_)] = KIND_NAMES.index(COPY)
        kinds[computes & self._of_template("is_cpu", np.bool_)] = KIND_NAMES.index("host")
        kinds[computes & is_gap] = KIND_NAMES.index("gap")
        return kinds.astype(np.int8)

    @cached_property
    def ids(self) -> Any:
        """Return the ids of the nodes of all templates, as in traces."""
        return self._of_template("node_id", np.uint64)

    def rows_of_plan(self, actor: Any, row: Any) -> Any:
        """Return the rows of the plan's table for nodes of actors."""
        return self._plan.templates["node_first"][self._plan.actors["template"][actor]] + row

    def node_ids(self, actor: Any, row: Any) -> Any:
        """Return the ids that traces give to nodes of actors."""
        return self.ids[self.rows_of_plan(actor, row)]

    def _start_cause(self, state: Any) -> tuple[Any, Any]:
        """Return the cause of a node's start: its last parent, or the node that freed its lane."""
        row, occupied = cause_rows(state)
        cause = (row != NONE).view(np.int8)  # BEGIN or DEPENDENCY
        cause[occupied] = LANE
        return cause, np.maximum(row, 0)

    def _collective_columns(self, actor: Any, shared: _Shared, number: Any) -> tuple[Any, Any]:
        plan, sequence = self._plan, np.full(len(actor), NONE, np.int64)
        group = np.full(len(actor), NONE, np.int32)
        which, member = shared.collectives
        if len(which):
            member_at = plan.actors["first_member"][actor[which]] + member
            group[which] = plan.members["group"][plan.actor_members[member_at]]
            sequence[which] = number[which]
        return group, sequence

    def _message_columns(self, actor: Any, shared: _Shared) -> tuple[Any, Any]:
        peer, tag = np.full(len(actor), NONE, np.int32), np.full(len(actor), NONE, np.int64)
        which, is_send, channel = shared.messages
        if len(which):
            peer[which], tag[which] = peers_and_tags(self._plan, actor[which], channel, is_send)
        return peer, tag

    def _waited(self, actor: Any, shared: _Shared) -> Waited:
        which, at = shared.communication, shared.columns["at"]
        first = self._plan.actors["node_first"]
        if len(which) == len(actor):
            return self.waits.of(Issued(actor, at, first[actor] + at - shared.base))
        queued, waiting, moving = np.full((3, len(actor)), NONE, np.int64)
        waited = Waited(queued, waiting, moving, np.full(len(actor), NONE, np.int32))
        if len(which):
            actors, row = actor[which], (at - shared.base)[which]
            waits_of_some = self.waits.of(Issued(actors, at[which], first[actors] + row))
            for column, values in zip(waited, waits_of_some, strict=True):
                column[which] = values
        return waited


def _activities() -> Any:
    """Return the activity of a row, by kind and lane."""
    of_kind = np.full(len(KIND_NAMES), HOST, np.int8)
    of_kind[np.isin(KIND_NAMES, COMMUNICATION_KINDS)] = TRANSFER
    of_kind[np.isin(KIND_NAMES, MEMORY_KINDS)] = MEMORY
    of_kind[KIND_NAMES.index("compute")] = COMPUTE
    of_kind[KIND_NAMES.index(COPY)] = intervals.COPY
    table = np.repeat(of_kind[:, None], len(Lane), axis=1)
    table[:, Lane.CPU] = HOST
    return table


ACTIVITY_OF = _activities()
