"""The stall in single statements: each wait, and each hop of the knot.

A statement has a placeholder `{who}` for its ranks, so that equal statements of many ranks can be reported as
one.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from et_sim.basics.units import exact_bytes, ranks_text
from et_sim.engine.stall.graph import WaitGraph
from et_sim.engine.stall.laggards import Lag
from et_sim.engine.stall.state import Chunk, NodeAt, SharedPhase, Vertex, node_text, operation
from et_sim.plan.records import LANES, Action, Lane
from et_sim.trace.columns import CollectiveKind

RANKS = "{who}"
COLLECTIVE = "{what}"

LAG_WORDS = {
    Lag.ELSEWHERE: f"{RANKS} to issue the {COLLECTIVE}",
    Lag.BEHIND: f"{RANKS} to come as far in the {COLLECTIVE}",
    Lag.QUEUED: f"{RANKS}, where a chunk of the {COLLECTIVE} waits behind another one",
    Lag.ABSENT: f"{RANKS} to issue the {COLLECTIVE}, which is not in the trace there",
    Lag.MISMATCH: f"{RANKS}, where something else runs in place of the {COLLECTIVE}",
    Lag.RENUMBERED: f"{RANKS}, where the {COLLECTIVE} runs under another number",
    Lag.TURNED: f"{RANKS}, where the ring of the {COLLECTIVE} turns the other way",
}
# When members lag for several reasons, a wait names those of the most final one.
GRAVITY = (Lag.MISMATCH, Lag.RENUMBERED, Lag.ABSENT, Lag.TURNED, Lag.ELSEWHERE, Lag.QUEUED, Lag.BEHIND)
LANE_WORDS = {
    Lane.CPU: "the CPU",
    Lane.COMPUTE: "the compute lane",
    Lane.COMMUNICATION: "the communication lane",
    Lane.RECEIVE: "its turn to receive",
    Lane.SEND: "the lane of sends",
    Lane.MEMORY: "the lane of remote memory",
    Lane.COLLECTIVE: "its turn",
    Lane.FREE_CPU: "its turn",
    Lane.FREE_COMPUTE: "its turn",
    Lane.FREE_SEND: "its turn",
}


class Wait(Struct, frozen=True):
    """A waiting node of a rank."""

    rank: int
    node_id: int
    node_name: str
    operation: str
    kind: str
    sentence: str  # with {who} where the providing ranks go
    provider: tuple[int, ...]
    since_ns: int
    is_within_collective: bool = False  # it waits for a message of a custom collective

    @property
    def text(self) -> str:
        """Return what the node waits for, in words."""
        return self.sentence.replace(RANKS, ranks_text(self.provider))


class KnotHop(NamedTuple):
    """One step of the knot: a rank, the rank it waits for, and why."""

    rank: int
    waits_for: int
    reason: str


class WaitDescriber:
    """Descriptions of the vertices of a wait-for graph in words."""

    def __init__(self, graph: WaitGraph) -> None:
        self._graph, self._still = graph, graph.still
        self._messages, self._collectives = graph.messages, graph.collectives
        self._ranks: dict[tuple[SharedPhase, Lag], tuple[int, ...]] = {}
        for shared, laggards in graph.laggards.items():
            for lag in {laggard.lag for laggard in laggards}:
                self._ranks[shared, lag] = self._still.ranks_of(a.actor for a in laggards if a.lag is lag)

    def node(self, node: NodeAt) -> str:
        """Return a node as `send "x" (node 3)`."""
        return node_text(self._still.trace(node.actor), node.row)

    def waits(self) -> list[Wait]:
        """Return every wait of every unfinished actor; ready nodes of one lane are reported once."""
        waits: list[Wait] = []
        for actor in self._still.stuck:
            before = len(waits)
            waits += [self._issued_wait(NodeAt(actor, row)) for row in self._still.under_way[actor]]
            waits += self._lane_waits(actor)
            waits += [self._cycle_wait(actor, cycle) for cycle in self._still.cycles(actor).minimal]
            if len(waits) == before:
                waits.append(Wait(int(self._still.rank[actor]), 0, "", "", "unknown", "nothing", (), 0))
        return waits

    def _wait(
        self,
        node: NodeAt,
        kind: str,
        sentence: str,
        provider: tuple[int, ...],
        since_ns: int | None = None,
        is_within_collective: bool = False,
    ) -> Wait:
        trace = self._still.trace(node.actor)
        return Wait(
            rank=int(self._still.rank[node.actor]),
            node_id=int(trace.node_id[node.row]),
            node_name=trace.node_name(node.row),
            operation=operation(trace, node.row),
            kind=kind,
            sentence=sentence,
            provider=provider,
            since_ns=int(self._still.start[self._still.place(node)]) if since_ns is None else since_ns,
            is_within_collective=is_within_collective,
        )

    def _issued_wait(self, node: NodeAt) -> Wait:
        action = self._still.action(node)
        if action is Action.RECEIVE:
            return self._receive_wait(node)
        if action is Action.SEND:
            return self._held_wait(node)
        if action is Action.COLLECTIVE:
            return self._collective_wait(node)
        if action is Action.MEMORY:
            return self._memory_wait(node)
        return self._wait(node, "unknown", "something that never happened", ())

    def _memory_wait(self, node: NodeAt) -> Wait:
        """Return the wait of a memory request; only a request of a group can wait for ever."""
        missing = self._still.absent_from_joint(node)
        if not missing:
            return self._wait(node, "memory", "its turn at the memory server", ())
        access = operation(self._still.trace(node.actor), node.row)
        sentence = f"{RANKS} to {access} with it, as members of one group"
        return self._wait(node, "memory", sentence, missing)

    def _receive_wait(self, node: NodeAt) -> Wait:
        source, _, tag, size = self._messages.ends(self._messages.channel(node))
        message = f"{exact_bytes(size)} with tag {tag} from {RANKS}"
        if node in self._messages.in_network:
            return self._wait(node, "undelivered", f"{message}, {self._still.undelivered.fate}", (source,))
        if self._messages.send_for(node) is None:
            return self._wait(node, "send-missing", f"{message}, which never sent it", (source,))
        return self._wait(node, "send-pending", f"{message}, which has yet to send it", (source,))

    def _held_wait(self, node: NodeAt) -> Wait:
        """Return the wait of a send that rendezvous holds, or whose packets do not arrive."""
        _, target, tag, size = self._messages.ends(self._messages.channel(node))
        if node in self._messages.in_network:
            message = f"{RANKS} to get {exact_bytes(size)} with tag {tag}"
            return self._wait(node, "undelivered", f"{message}, {self._still.undelivered.fate}", (target,))
        receive = f"{RANKS} to post the receive of {exact_bytes(size)} with tag {tag} (rendezvous)"
        if self._messages.receive_for(node) is None:
            return self._wait(
                node, "receive-missing", f"{receive}, which is not in the trace there", (target,)
            )
        return self._wait(node, "receive-pending", receive, (target,))

    def _within_wait(self, node: NodeAt, chunks: list[Vertex]) -> Wait | None:
        """Return the wait for the first held or missing message within a custom collective."""
        messages, rows = self._messages, [c.row for c in chunks if isinstance(c, Chunk)]
        held = [channel for chunk_row in rows for channel in messages.held_within(chunk_row)]
        if held:
            _, target, tag, size = messages.ends(held[0])
            receive = f"{RANKS} to post the receive of {exact_bytes(size)} with tag {tag}"
            sentence = f"{receive} within the {self.collective(node)} (rendezvous)"
            return self._wait(node, "receive-pending", sentence, (target,), is_within_collective=True)
        awaited = [channel for chunk_row in rows for channel in messages.awaited_within(chunk_row)]
        if awaited:
            source, _, tag, size = messages.ends(awaited[0])
            message = f"{exact_bytes(size)} with tag {tag} from {RANKS}"
            sentence = f"{message} within the {self.collective(node)}, which has yet to send it"
            return self._wait(node, "send-pending", sentence, (source,), is_within_collective=True)
        return None

    def _collective_wait(self, node: NodeAt) -> Wait:
        chunks = list(self._graph.graph.successors(node))
        shared_phases = [
            s for chunk in chunks for s in self._graph.graph.successors(chunk) if isinstance(s, SharedPhase)
        ]
        by_lag = {lag: self._laggards(shared_phases, lag) for lag in GRAVITY}
        lags = [lag for lag in GRAVITY if by_lag[lag]]
        if not shared_phases:
            return self._wait(node, "queue-closed", "a queue that may not run any chunk", ())
        if not lags:
            fate = self._still.undelivered.fate
            never = f"messages {fate}" if fate else "messages that never came, though all members are in it"
            return self._within_wait(node, chunks) or self._wait(node, "unknown", never, ())
        sentence = LAG_WORDS[lags[0]].replace(COLLECTIVE, self.collective(node))
        return self._wait(node, f"member-{lags[0]}", sentence, by_lag[lags[0]])

    def _laggards(self, shared_phases: list[SharedPhase], lag: Lag) -> tuple[int, ...]:
        """Return the ranks that hold any of these phases up for one reason; all waits share one tuple."""
        ranks_of_phases = {
            self._ranks[shared, lag] for shared in shared_phases if (shared, lag) in self._ranks
        }
        if len(ranks_of_phases) == 1:
            return ranks_of_phases.pop()
        return tuple(sorted({rank for ranks in ranks_of_phases for rank in ranks}))

    def _lane_waits(self, actor: int) -> list[Wait]:
        by_lane: dict[int, list[NodeAt]] = {}
        for row in self._still.ready[actor]:
            node = NodeAt(actor, row)
            by_lane.setdefault(self._still.lane(node), []).append(node)
        waits = []
        for lane, nodes in by_lane.items():
            holder = self._still.holder(nodes[0])
            held = f", which {self.node(holder)} occupies" if holder else ""
            more = f" (and {len(nodes) - 1} more nodes with it)" if len(nodes) > 1 else ""
            since = int(self._still.ready_ns[self._still.place(nodes[0])])
            sentence = f"{self._lane_words(lane)}{held}{more}"
            waits.append(self._wait(nodes[0], "lane", sentence, (int(self._still.rank[actor]),), since))
        return waits

    def _lane_words(self, lane: int) -> str:
        streams = self._still.plan.stream_names
        return LANE_WORDS[Lane(lane)] if lane < LANES else f'the stream "{streams[lane - LANES]}"'

    def _cycle_wait(self, actor: int, cycle: list[int]) -> Wait:
        ids = [int(self._still.trace(actor).node_id[row]) for row in cycle]
        shown = ids if len(ids) <= 8 else [*ids[:6], "…", ids[-1]]
        path = " after ".join(str(node_id) for node_id in [*shown, ids[0]])
        sentence = f"a dependency cycle in the trace to end: node {path}"
        return self._wait(NodeAt(actor, cycle[0]), "cycle", sentence, (int(self._still.rank[actor]),), 0)

    def collective(self, node: NodeAt) -> str:
        """Return a collective as `all_reduce of 1 MiB over group 3`."""
        trace = self._still.trace(node.actor)
        name = self._collectives.group_name(node)
        over = f" over group {name}" if name else ""
        return f"{operation(trace, node.row)} of {exact_bytes(int(trace.comm_bytes[node.row]))}{over}"

    def hops(self, cycle: list[Vertex]) -> list[KnotHop]:
        """Return a cycle of the graph as hops from rank to rank."""
        legs: list[list[Vertex]] = []
        for vertex in cycle:
            if isinstance(vertex, SharedPhase):
                continue
            same = legs and self._graph.actor(legs[-1][-1]) == self._graph.actor(vertex)
            if same:
                legs[-1].append(vertex)
            else:
                legs.append([vertex])
        if len(legs) == 1:
            return self._inner_hops(legs[0])
        after = [*legs[1:], legs[0]]
        return [self._hop(leg, following) for leg, following in zip(legs, after, strict=True)]

    def _inner_hops(self, leg: list[Vertex]) -> list[KnotHop]:
        rank = int(self._still.rank[self._graph.actor(leg[0])])
        after = [*leg[1:], leg[0]]
        return [
            KnotHop(rank, rank, f"{self.vertex(here)} comes after {self.vertex(there)}")
            for here, there in zip(leg, after, strict=True)
        ]

    def _hop(self, leg: list[Vertex], following: list[Vertex]) -> KnotHop:
        here, there = (int(self._still.rank[self._graph.actor(v)]) for v in (leg[-1], following[0]))
        reason = self.vertex(leg[-1])
        if isinstance(leg[-1], Chunk) and isinstance(following[0], Chunk):
            reason += f", {self._chunk(leg[-1])} on dimension {self._collectives.dimension(leg[-1])}"
        if len(following) > 1:
            reason += f"; there {self._obstacle(following[0], following[1])}"
        return KnotHop(here, there, reason)

    def _obstacle(self, wanted: Vertex, first: Vertex) -> str:
        """Return why the awaited rank does not reach what it should do."""
        if isinstance(wanted, Chunk) and isinstance(first, Chunk):
            dimension = self._collectives.dimension(wanted)
            return (
                f"{self._chunk(wanted)} waits behind {self._chunk(first)} in a queue of dimension {dimension}"
            )
        return f"{self.vertex(wanted)} is not reached"

    def _chunk(self, chunk: Chunk) -> str:
        """Return a chunk as `chunk 1 (all_gather)`, with the operation of its phase."""
        collectives = self._collectives
        operation_word = CollectiveKind(collectives.operation(chunk)).name.lower()
        return f"chunk {collectives.number_of(chunk)} ({operation_word})"

    def vertex(self, vertex: Vertex) -> str:
        """Return a node, or the collective of a chunk, in words."""
        if isinstance(vertex, SharedPhase):
            return "a phase"
        node = self._collectives.node_of(vertex) if isinstance(vertex, Chunk) else vertex
        if self._still.action(node) is not Action.COLLECTIVE:
            return self.node(node)
        name = self._collectives.group_name(node)
        return self.node(node) + (f" of group {name}" if name else "")
