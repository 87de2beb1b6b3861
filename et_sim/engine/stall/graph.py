"""The wait-for graph of a run that got stuck, and its knot.

Every edge leads to something that must happen first, so any cycle is a deadlock; a terminal strongly
connected component with a cycle is the knot that holds all the others. Where a chain ends without a cycle, no
rank can ever provide what is missing.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import networkx as nx

from et_sim.engine.stall.laggards import IssuedCollectives, Laggard
from et_sim.engine.stall.messages import OpenMessages
from et_sim.engine.stall.state import Chunk, NodeAt, SharedPhase, StalledState, Vertex
from et_sim.plan.records import Action
from et_sim.trace.preflight.cycles import shortest_cycle

# A shortest cycle is searched from this many vertices of the knot.
STARTS_TRIED = 16


class WaitGraph:
    """The graph over nodes, chunks and phases, explored from all waiting nodes."""

    def __init__(self, still: StalledState) -> None:
        self.still = still
        self.messages, self.collectives = OpenMessages(still), IssuedCollectives(still)
        self.laggards: dict[SharedPhase, list[Laggard]] = {}
        self.graph: nx.DiGraph[Vertex] = nx.DiGraph()
        self._explore(self._starts())

    def _starts(self) -> list[Vertex]:
        starts: list[Vertex] = []
        for actor in self.still.stuck:
            rows = self.still.under_way[actor] + self.still.ready[actor][:1]
            rows += [cycle[0] for cycle in self.still.cycles(actor).minimal]
            starts.extend(NodeAt(actor, row) for row in rows)
        return starts

    def _explore(self, starts: list[Vertex]) -> None:
        self.graph.add_nodes_from(starts)
        pending = deque(starts)
        while pending:
            vertex = pending.popleft()
            for provider in self._providers(vertex):
                if provider not in self.graph:
                    pending.append(provider)
                self.graph.add_edge(vertex, provider)

    def _providers(self, vertex: Vertex) -> list[Vertex]:
        if isinstance(vertex, NodeAt):
            return self._providers_of_node(vertex)
        if isinstance(vertex, Chunk):
            return self._providers_of_chunk(vertex)
        return list(dict.fromkeys(lag.vertex for lag in self.laggards[vertex] if lag.vertex is not None))

    def _providers_of_node(self, node: NodeAt) -> list[Vertex]:
        still = self.still
        if still.is_done(node):
            return []
        if not still.is_issued(node):
            return self._providers_of_unissued(node)
        action = still.action(node)
        if node in self.messages.in_network:
            return []
        if action is Action.RECEIVE:
            send = self.messages.send_for(node)
            return [] if send is None else [send]
        if action is Action.SEND:  # held
            receive = self.messages.receive_for(node)
            return [] if receive is None else [receive]
        if action is Action.COLLECTIVE:
            return [Chunk(chunk_row) for chunk_row in self.collectives.chunks(node)]
        return []

    def _providers_of_unissued(self, node: NodeAt) -> list[Vertex]:
        after = self.still.cycles(node.actor).parent.get(node.row)
        if after is not None:
            return [NodeAt(node.actor, after)]
        if self.still.is_ready(node):
            holder = self.still.holder(node)
            return [] if holder is None else [holder]
        blocker = self.still.blocker(node)
        return [] if blocker == node else [blocker]

    def _providers_of_chunk(self, chunk: Chunk) -> list[Vertex]:
        if not self.collectives.is_started(chunk):
            return [other for other in self.collectives.occupants(chunk) if other != chunk]
        shared = self.collectives.phase_of(chunk)
        if shared not in self.laggards:
            self.laggards[shared] = self.collectives.laggards(shared, chunk)
        return [shared] if self.laggards[shared] else [shared, *self._partners(shared, chunk)]

    def _partners(self, shared: SharedPhase, chunk: Chunk) -> list[Vertex]:
        """Return the chunks that a chunk of a custom collective needs for its held and awaited messages."""
        held, awaited = self.messages.held_within(chunk.row), self.messages.awaited_within(chunk.row)
        ranks = [self.messages.ends(channel)[1] for channel in held]
        ranks += [self.messages.ends(channel)[0] for channel in awaited]
        actors = dict.fromkeys(int(self.still.plan.actor_of_rank[rank]) for rank in ranks)
        chunks = (self.collectives.chunk_of(shared, actor) for actor in actors)
        return [partner for partner in chunks if partner is not None]

    def actor(self, vertex: Vertex) -> int:
        """Return the actor of a node or chunk; a phase belongs to many."""
        if isinstance(vertex, NodeAt):
            return vertex.actor
        return self.collectives.node_of(vertex).actor if isinstance(vertex, Chunk) else -1

    def knots(self) -> list[list[Vertex]]:
        """Return a shortest cycle of every knot, terminal ones first, then by lowest rank."""
        knots: list[tuple[bool, int, list[Vertex]]] = []
        for component in nx.strongly_connected_components(self.graph):
            owned = sorted(
                (self._order(v) for v in component if not isinstance(v, SharedPhase)), key=lambda o: o[:3]
            )
            first = owned[0][3] if owned else next(iter(component))
            if len(component) == 1 and not self.graph.has_edge(first, first):
                continue
            leaves = any(after not in component for v in component for after in self.graph.successors(v))
            starts: list[Any] = [order[3] for order in owned[:STARTS_TRIED]]
            cycle = shortest_cycle(self.graph.subgraph(component).adj, starts)
            knots.append((leaves, owned[0][0], self._rotated(cycle)))
        knots.sort(key=lambda entry: entry[:2])
        return [cycle for _, _, cycle in knots]

    def _order(self, vertex: Vertex) -> tuple[int, int, int, Vertex]:
        number = vertex.row if isinstance(vertex, Chunk | NodeAt) else 0
        return self.actor(vertex), isinstance(vertex, Chunk), number, vertex

    def _rotated(self, cycle: list[Vertex]) -> list[Vertex]:
        """Return the cycle from the first vertex of the lowest actor on."""
        actors = [self.actor(vertex) for vertex in cycle]
        lowest = min(actor for actor in actors if actor >= 0)
        starts = [k for k, actor in enumerate(actors) if actor == lowest and actors[k - 1] != lowest]
        at = starts[0] if starts else 0
        return cycle[at:] + cycle[:at]
