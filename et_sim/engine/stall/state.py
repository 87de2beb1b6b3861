"""The state of a run that got stuck, with the queries of the stall report.

Vertices of the wait-for graph are defined here: a node of an actor, a chunk of a collective, a phase of a
chunk that the ranks along an axis share. Everything is read from the finished run; nothing here changes it or
derives waits (`messages`, `collectives`, `graph`).

Dependency cycles inside one trace are nodes that can never become ready: a property of a template, the same
for all ranks that run it. Undelivered are messages that a network with packets never delivers: packets were
lost, or ports pause in a circle.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from msgspec import Struct, field

from et_sim.basics.units import plural
from et_sim.engine.containers import free_rows
from et_sim.engine.outcome import Outcome, Ports
from et_sim.engine.stall.failures import why_lost
from et_sim.engine.state.kinds import MESSAGE, REQUESTED_MESSAGE
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.network_seam import LOWEST_31_BITS
from et_sim.plan.records import Action, LoweredPlan
from et_sim.trace.columns import NodeKind, Trace, collective_name
from et_sim.trace.preflight.cycles import find_knots
from et_sim.trace.workload import Workload


class Undelivered(Struct, frozen=True):
    """Messages that are still in the network after the last event."""

    cause: str = ""  # in one sentence; empty: there are none
    remedy: str = ""
    fate: str = ""  # description of such a message
    sends: frozenset[tuple[int, int]] = frozenset()  # of the trace: actor and row
    channels: Counter[int] = field(default_factory=Counter)  # number of messages, or requests, per channel
    requests: frozenset[int] = frozenset()  # channels


def undelivered(outcome: Outcome) -> Undelivered:
    """Return the undelivered messages of a run: lost packets, or a path that stayed dead."""
    ports, lost = outcome.ports, outcome.lost
    if outcome.network is not None:
        rows = [] if lost is None else lost.rows
        cause, remedy, fate = why_lost(outcome)
    else:
        rows = [] if ports is None else _messages_left(outcome.run)
        if ports is None or not rows:
            return Undelivered()
        cause, remedy, fate = _why(ports, len(rows))
    held = outcome.run.messages[rows]
    sent, asked = held["kind"] == MESSAGE, held["kind"] == REQUESTED_MESSAGE
    return Undelivered(
        cause,
        remedy,
        fate,
        frozenset(zip((held["c"][sent] & LOWEST_31_BITS).tolist(), held["b"][sent].tolist(), strict=True)),
        Counter(held["a"][sent | asked].tolist()),
        frozenset(held["a"][asked].tolist()),
    )


def _messages_left(run: Run) -> list[int]:
    """Return rows of the pool of messages that are not free."""
    in_use: Any = np.ones(len(run.messages), bool)
    in_use[free_rows(run.messages, run.clock[0].free_messages)] = False
    return [int(row) for row in np.flatnonzero(in_use)]


def _why(ports: Ports, messages: int) -> tuple[str, str, str]:
    """Return the cause, its remedy, and the fate of the messages."""
    stay = f"{plural(messages, 'message')} never {'arrives' if messages == 1 else 'arrive'}"
    lost, pauses = ports.totals["lost"], ports.totals["pauses"]
    if lost:
        most = ports.resources.port_names[ports.resources.port[int(np.argmax(ports.columns["lost"]))]]
        were = f"{plural(lost, 'packet')} {'was' if lost == 1 else 'were'} lost, most at {most}"
        other = "a larger buffer" if pauses else "pauses: true"
        return (
            f"{stay}: {were}, and lost packets are not sent again",
            f"give protocol a retransmission-timeout, or {other}",
            "of which packets were lost",
        )
    circle = f": {', '.join(ports.circle)}, and so on" if ports.circle else ""
    return (
        f"{stay}: paused ports wait for each other{circle}",
        "give protocol a larger buffer, or pauses: false and a retransmission-timeout",
        "whose packets wait at ports that pause",
    )


LONGEST_NAME = 48


def short(name: str) -> str:
    """Return a name cut to a line."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def node_text(trace: Trace, row: int) -> str:
    """Return the operation, name and id of a node, as in `all_reduce "grad" (node 5)`."""
    return f'{operation(trace, row)} "{short(trace.node_name(row))}" (node {int(trace.node_id[row])})'


def operation(trace: Trace, row: int) -> str:
    """Return the operation of a node in one word."""
    kind = int(trace.kind[row])
    if kind == NodeKind.COLL:
        return collective_name(int(trace.comm_type[row]))
    words = {
        NodeKind.SEND: "send",
        NodeKind.RECV: "receive",
        NodeKind.COMP: "compute",
        NodeKind.MEM_LOAD: "load",
        NodeKind.MEM_STORE: "store",
        NodeKind.METADATA: "metadata",
        NodeKind.STORAGE: "storage",
        NodeKind.BATCH: "batch",
        NodeKind.CHECKPOINT: "checkpoint",
    }
    return words.get(NodeKind(kind), "node") if kind in NodeKind.__members__.values() else "node"


class Cycles(Struct, frozen=True):
    """Minimal cycles (each row comes after the next one in its list), one per knot of dependencies."""

    minimal: list[list[int]]
    home: dict[int, int]  # every row of a knot -> the first row of its cycle
    parent: dict[int, int]  # rows of the minimal cycles -> the row they come after


def find_cycles(plan: LoweredPlan, template: int) -> Cycles:
    """Return the dependency cycles of a template; linear, and at once where ids follow the dependencies."""
    knots = find_knots(*_edges(plan, template), int(plan.templates["nodes"][template]))
    home = {row: knot.cycle[0] for knot in knots for row in knot.rows}
    cycles = sorted(knot.cycle for knot in knots)
    after = {row: cycle[at - len(cycle) + 1] for cycle in cycles for at, row in enumerate(cycle)}
    return Cycles(cycles, home, after)


def _edges(plan: LoweredPlan, template: int) -> tuple[Any, Any]:
    """Return parents and children of all dependencies."""
    first, count = int(plan.templates["node_first"][template]), int(plan.templates["nodes"][template])
    parent = np.repeat(np.arange(count, dtype=np.int32), plan.nodes["children"][first : first + count])
    if not len(parent):
        return parent, parent
    begin = int(plan.nodes["children_first"][first])
    return parent, plan.children[begin : begin + len(parent)].astype(np.int32)


class NodeAt(Struct, frozen=True):
    """A node of an actor: the row is the row in its trace."""

    actor: int
    row: int


class Chunk(Struct, frozen=True):
    """A chunk of a collective under way: a row of the run's chunks."""

    row: int


class SharedPhase(Struct, frozen=True):
    """A phase of one chunk, which the ranks along one axis must go through together."""

    axis: int
    base: int  # the rank at position zero; of a side of a group, the place of its member there
    group: int
    sequence: int
    phase: int
    direction: int  # of the waiting members around the ring
    first_sequence: int  # of the collective, as the waiting members number it
    collective: int  # as the waiting members run it
    place: int = NONE  # place of the only waiting member, in a tree that goes one way only


Vertex = NodeAt | Chunk | SharedPhase


class StalledState:
    """The state of all actors after the last event."""

    def __init__(self, outcome: Outcome, workload: Workload) -> None:
        self.outcome, self.plan, self.run, self.workload = outcome, outcome.plan, outcome.run, workload
        plan = outcome.plan
        self.rank = plan.actors["rank"]
        self.node_first = plan.actors["node_first"]
        self.template = plan.actors["template"]
        self.start, self.end = outcome.nodes["start_ns"], outcome.nodes["end_ns"]
        self.ready_ns = outcome.nodes["admitted_ns"]  # of nodes that were not issued
        self._template_first = plan.templates["node_first"]
        self._action, self._lane = plan.nodes["action"], plan.nodes["lane"]
        self.stuck: list[int] = np.flatnonzero(outcome.finish_ns < 0).tolist()
        self.under_way: dict[int, list[int]] = {}
        self.ready: dict[int, list[int]] = {}
        self._find_frontier()
        distinct = {int(self.template[actor]) for actor in self.stuck}
        self._cycles: dict[int, Cycles] = {row: find_cycles(plan, row) for row in sorted(distinct)}
        self._blocker: dict[NodeAt, NodeAt] = {}
        self.undelivered = undelivered(outcome)

    def _find_frontier(self) -> None:
        """Sort the unfinished nodes of every stuck actor into issued and ready ones."""
        sizes = self.plan.templates["nodes"][self.template]
        for actor in self.stuck:
            places = slice(int(self.node_first[actor]), int(self.node_first[actor] + sizes[actor]))
            waits = self.end[places] == NONE
            issued = self.start[places] != NONE
            self.under_way[actor] = np.flatnonzero(waits & issued).tolist()
            self.ready[actor] = np.flatnonzero(waits & ~issued & (self.ready_ns[places] != NONE)).tolist()

    def place(self, node: NodeAt) -> int:
        """Return the row of the node's state."""
        return int(self.node_first[node.actor]) + node.row

    def plan_row(self, node: NodeAt) -> int:
        """Return the row of the node in the plan."""
        return int(self._template_first[self.template[node.actor]]) + node.row

    def action(self, node: NodeAt) -> Action:
        """Return the action of the node."""
        return Action(int(self._action[self.plan_row(node)]))

    def lane(self, node: NodeAt) -> int:
        """Return the lane of the node."""
        return int(self._lane[self.plan_row(node)])

    def absent_from_joint(self, node: NodeAt) -> tuple[int, ...]:
        """Return the ranks that have not joined a node's request to a memory pool."""
        plan, actor = self.plan, self.plan.actors[node.actor]
        row = plan.nodes[self.plan_row(node)]
        if not len(plan.joint_requests) or row.member == NONE:
            return ()
        member = plan.members[plan.actor_members[actor.first_member + row.member]]
        group = plan.groups[member.group]
        first = int(group.members_first)
        ranks = (
            plan.group_ranks[first : first + int(group.members)] if member.group else np.arange(plan.ranks)
        )
        joint = self.run.joints[plan.first_joint[member.group] + row.occurrence]
        asked, at = set(), int(joint.head) - 1
        while at != NONE:
            asked.add(int(self.rank[self.run.requests[at].actor]))
            at = int(self.run.requests[at].next)
        return tuple(rank for rank in ranks.tolist() if rank not in asked)

    def is_finished(self, actor: int) -> bool:
        """Return whether the actor completed all its nodes."""
        return bool(self.outcome.finish_ns[actor] >= 0)

    def is_done(self, node: NodeAt) -> bool:
        """Return whether the node completed."""
        return bool(self.end[self.place(node)] != NONE)

    def is_issued(self, node: NodeAt) -> bool:
        """Return whether the node was ever issued."""
        return bool(self.start[self.place(node)] != NONE)

    def is_ready(self, node: NodeAt) -> bool:
        """Return whether all parents of the node are done."""
        return self.is_issued(node) or bool(self.ready_ns[self.place(node)] != NONE)

    def holder(self, node: NodeAt) -> NodeAt | None:
        """Return the node that occupies the lane a ready node waits for."""
        lane = self.lane(node)
        for row in self.under_way.get(node.actor, ()):
            other = NodeAt(node.actor, row)
            if self.lane(other) == lane:
                return other
        return None

    def trace(self, actor: int) -> Trace:
        """Return the trace of an actor."""
        return self.workload.templates[int(self.template[actor])]

    def cycles(self, actor: int) -> Cycles:
        """Return the dependency cycles among an unfinished actor's nodes."""
        return self._cycles[int(self.template[actor])]

    def blocker(self, node: NodeAt) -> NodeAt:
        """Return the node at the far end of a chain of unfinished parents: issued, ready, or on a cycle."""
        cycles = self.cycles(node.actor)
        frontier = self.under_way[node.actor] + self.ready[node.actor]
        if len(frontier) == 1 and not cycles.home:
            return NodeAt(node.actor, frontier[0])
        path: list[NodeAt] = []
        at = node
        while at not in self._blocker:
            if at.row in cycles.home:
                self._blocker[at] = NodeAt(at.actor, cycles.home[at.row])
                break
            parent = None if self.is_ready(at) else self._unfinished_parent(at)
            if parent is None:
                self._blocker[at] = at
                break
            path.append(at)
            at = parent
        end = self._blocker[at]
        for visited in path:
            self._blocker[visited] = end
        return end

    def _unfinished_parent(self, node: NodeAt) -> NodeAt | None:
        trace, first = self.trace(node.actor), int(self.node_first[node.actor])
        lists = ((trace.data_start, trace.data_deps), (trace.ctrl_start, trace.ctrl_deps))
        for start, parents in lists:
            for parent in parents[start[node.row] : start[node.row + 1]].tolist():
                if self.end[first + parent] == NONE:
                    return NodeAt(node.actor, parent)
        return None

    def ranks_of(self, actors: Any) -> tuple[int, ...]:
        """Return the lowest ranks of actors, ascending."""
        return tuple(sorted(int(self.rank[actor]) for actor in actors))
