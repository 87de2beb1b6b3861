"""Receives without their message, and sends without their receive: which ranks should have provided it.

With rendezvous, a send is held until its target posts a receive from the same rank with the same tag.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from et_sim.engine.stall.state import NodeAt, StalledState
from et_sim.engine.state.kinds import CUSTOM_DONE, CUSTOM_MESSAGE
from et_sim.engine.state.run import NONE
from et_sim.plan.records import Action

Ends = tuple[int, int, int, int]  # source, target, tag, bytes


class OpenMessages:
    """All point-to-point endpoints of the run, sorted by channel."""

    def __init__(self, still: StalledState) -> None:
        self._still = still
        receives, sends = _under_way(still, Action.RECEIVE), _under_way(still, Action.SEND)
        self.in_network = self._kept_by_network(receives, sends)
        self.waiting = [node for node in receives if node not in self.in_network]
        self.held = [node for node in sends if node not in self.in_network]  # by rendezvous
        self._held_within = _within_collectives(still, still.run.handshakes, CUSTOM_MESSAGE, "c")
        self._awaited_within = _within_collectives(still, still.run.channels, CUSTOM_DONE, "a")
        self._send_of: dict[NodeAt, NodeAt] = {}
        self._receive_of: dict[NodeAt, NodeAt] = {}
        if not self.waiting and not self.held:
            return
        owner, rows, sends, channels = _endpoints(still)
        order = np.argsort(channels, kind="stable")
        self._channel = channels[order]
        self._owner, self._row, self._is_send = owner[order], rows[order], sends[order]
        self._pair_up()
        self._pair_held()

    def _kept_by_network(self, receives: list[NodeAt], sends: list[NodeAt]) -> set[NodeAt]:
        """Return sends and receives whose message, or its request, is never delivered."""
        lost = self._still.undelivered
        left = Counter(lost.channels)
        kept = set()
        for node in sends:
            if (node.actor, node.row) in lost.sends or self.channel(node) in lost.requests:
                kept.add(node)
        for node in sorted(receives, key=self._when_issued):
            channel = self.channel(node)
            if left[channel] > 0:
                left[channel] -= 1
                kept.add(node)
        return kept

    def _when_issued(self, node: NodeAt) -> tuple[int, int]:
        return int(self._still.start[self._still.place(node)]), node.row

    def _pair_up(self) -> None:
        """Pair the k-th waiting receive of a channel with its k-th send that was never issued."""
        by_channel: dict[int, list[NodeAt]] = defaultdict(list)
        for node in self.waiting:
            by_channel[self.channel(node)].append(node)
        for channel, receives in by_channel.items():
            receives.sort(key=self._when_issued)
            pending = [node for node in self._ends_of(channel, sends=True) if self._is_to_come(node)]
            self._send_of.update(zip(receives, pending, strict=False))

    def _pair_held(self) -> None:
        """Pair the k-th held send of two ranks with a tag with the k-th receive that was never posted."""
        handshake = self._still.plan.channels["handshake"]
        by_handshake: dict[int, list[NodeAt]] = defaultdict(list)
        for node in self.held:
            by_handshake[int(handshake[self.channel(node)])].append(node)
        order = np.argsort(handshake, kind="stable")
        for number, sends in by_handshake.items():
            first, last = np.searchsorted(handshake[order], (number, number + 1))
            receives = [node for channel in order[first:last] for node in self._ends_of(channel, sends=False)]
            to_come = [node for node in receives if not self._still.is_issued(node)]
            sends.sort(key=self._when_issued)
            to_come.sort(key=lambda node: node.row)
            self._receive_of.update(zip(sends, to_come, strict=False))

    def _is_to_come(self, send: NodeAt) -> bool:
        return send not in self.in_network and not self._still.is_done(send)

    def _ends_of(self, channel: int, *, sends: bool) -> list[NodeAt]:
        first, last = np.searchsorted(self._channel, (channel, channel + 1))
        rows = np.flatnonzero(self._is_send[first:last] == sends) + first
        return [NodeAt(int(self._owner[at]), int(self._row[at])) for at in rows]

    def channel(self, node: NodeAt) -> int:
        """Return the channel of a send or receive."""
        actor = self._still.plan.actors[node.actor]
        detail = self._still.plan.nodes["detail"][self._still.plan_row(node)]
        return int(self._still.plan.actor_channels[actor["channel_first"] + detail])

    def ends(self, channel: int) -> Ends:
        """Return source rank, target rank, tag and bytes of a channel."""
        row = self._still.plan.channels[channel]
        return int(row["source"]), int(row["target"]), int(row["tag"]), int(row["bytes"])

    def send_for(self, receive: NodeAt) -> NodeAt | None:
        """Return the unfinished send of a waiting receive; None if there is none left."""
        return self._send_of.get(receive)

    def receive_for(self, send: NodeAt) -> NodeAt | None:
        """Return the receive that would release a held send; None if there is none left."""
        return self._receive_of.get(send)

    def held_within(self, chunk_row: int) -> list[int]:
        """Return the channels of the messages that a chunk of a custom collective holds."""
        return self._held_within.get(chunk_row, [])

    def awaited_within(self, chunk_row: int) -> list[int]:
        """Return the channels of the messages that a chunk of a custom collective waits for."""
        return self._awaited_within.get(chunk_row, [])


def _under_way(still: StalledState, action: Action) -> list[NodeAt]:
    return [
        NodeAt(actor, row)
        for actor in still.stuck
        for row in still.under_way[actor]
        if still.action(NodeAt(actor, row)) is action
    ]


def _within_collectives(still: StalledState, fifos: Any, kind: int, whose: str) -> dict[int, list[int]]:
    """Return channels of events that wait for custom collectives, by the chunk in field `whose`."""
    events_of: dict[int, list[int]] = defaultdict(list)
    for row, event in _waiting_events(still, fifos):
        if event["kind"] == kind:
            events_of[int(event[whose])].append(row if kind == CUSTOM_DONE else int(event["a"]))
    return events_of


def _waiting_events(still: StalledState, fifos: Any) -> Iterator[tuple[int, Any]]:
    """Yield the row of the fifo and the event, for all events that wait in fifos."""
    for row in np.flatnonzero(fifos["head"] != NONE).tolist():
        at = int(fifos["head"][row])
        while at != NONE:
            yield row, still.run.events[at]
            at = int(still.run.events[at]["next"])


def _endpoints(still: StalledState) -> tuple[Any, Any, Any, Any]:
    """Return actor, row, whether it sends, and channel of every endpoint of the workload."""
    plan = still.plan
    rows, sends = [], []
    for template in range(len(plan.templates)):
        first = int(plan.templates["node_first"][template])
        action = plan.nodes["action"][first : first + int(plan.templates["nodes"][template])]
        transfers = np.flatnonzero((action == Action.SEND) | (action == Action.RECEIVE))
        rows.append(transfers)
        sends.append(action[transfers] == Action.SEND)
    per_actor = np.array([len(rows[template]) for template in still.template])
    owner = np.repeat(np.arange(len(still.template)), per_actor)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(per_actor) - per_actor, per_actor)
    channels = plan.actor_channels[plan.actors["channel_first"][owner] + within]
    every_row = np.concatenate([rows[template] for template in still.template])
    return owner, every_row, np.concatenate([sends[template] for template in still.template]), channels
