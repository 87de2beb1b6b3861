"""Waits: how long communication waits for other ranks to begin, and for which.

A collective waits until the last member that it connects has issued it, and a receive until its send is
issued. With rendezvous, a send waits for its receive. A send that a full buffer holds waits until it starts.
Then bytes move, or queue for a link. In a one-way collective, some members finish before the last one comes;
they wait for those that came before. Waiting within replayed communication is unknown.

`statistics` computes the part of a rank's time that is waiting.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from et_sim.basics.unique import groups_of
from et_sim.engine.outcome import Outcome
from et_sim.engine.state.run import NONE
from et_sim.plan.records import Action, LoweredPlan
from et_sim.timeline.waiting.arrivals import CollectiveArrivals, Issued, arrivals, issued

COMMUNICATION = (Action.COLLECTIVE, Action.SEND, Action.RECEIVE)


class Waited(NamedTuple):
    """Times in which nodes queue behind their rank's communication, wait for another rank, and move bytes.

    NONE: unknown. `waits_for` is an actor that came last; NONE: no other was waited for.
    """

    queued_ns: Any
    waiting_ns: Any
    moving_ns: Any
    waits_for: Any


def peers_and_tags(plan: LoweredPlan, actor: Any, own_channel: Any, is_send: Any) -> tuple[Any, Any]:
    """Return the other actor and the tag of sends and receives of actors, by their own channel numbers."""
    channels = np.asarray(plan.channels)
    channel = plan.actor_channels[np.asarray(plan.actors)["channel_first"][actor] + own_channel]
    rank = np.where(is_send, channels["target"][channel], channels["source"][channel])
    return plan.actor_of_rank[rank.astype(np.int64)], channels["tag"][channel]


def _actions(plan: LoweredPlan) -> Any:
    return np.ascontiguousarray(np.asarray(plan.nodes)["action"])


def _groups_and_pairs(_: LoweredPlan, actions: Any, at: Any) -> tuple[Any, Any]:
    """Return which nodes are collectives, and which are sends and receives."""
    action = actions[at]
    is_of_pair = (action == Action.RECEIVE) | (action == Action.SEND)
    return np.flatnonzero(action == Action.COLLECTIVE), np.flatnonzero(is_of_pair)


class Waits:
    """Waits of the communication of a run."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome, self._plan = outcome, outcome.plan
        self._actions = outcome.plan.derived(_actions)

    def of(self, nodes: Issued) -> Waited:
        """Return how nodes spent the time before their bytes moved."""
        queued, waiting, moving = np.full((3, len(nodes.actor)), NONE, np.int64)
        awaited = np.full(len(nodes.actor), NONE, np.int32)
        of_groups, of_pairs = self._plan.derived(_groups_and_pairs, self._actions, nodes.at)
        if len(of_groups):
            arrived, state_row = self._arrivals, nodes.state_row[of_groups]
            at = arrived.rows(state_row)
            queued[of_groups] = arrived.admitted_ns[at] - self._outcome.nodes["start_ns"][state_row]
            waiting[of_groups] = arrived.until_ns[at] - arrived.admitted_ns[at]
            moving[of_groups] = arrived.moving_ns[at]
            awaited[of_groups] = arrived.actors[arrived.first[arrived.arrival[at]]]
        if len(of_pairs):
            are_all = len(of_pairs) == len(nodes.at)
            pairs = nodes if are_all else nodes.where(of_pairs)
            which = slice(None) if are_all else of_pairs
            queued[which] = 0
            waiting[which], moving[which], awaited[which] = self._of_pairs(pairs)
        awaited[waiting <= 0] = NONE
        return Waited(queued, waiting, moving, awaited)

    def by_class(self, class_of_actor: Any, ranks_per_actor: Any) -> dict[tuple[int, int], int]:
        """Return the total waiting for each pair of a waiting class and the class that it waits for.

        Among several that come last at one time, the lowest class counts, so that sums do not depend on how
        ranks are assigned to actors.
        """
        totals: dict[tuple[int, int], int] = {}
        lowest = self._arrivals.of_lowest_class(class_of_actor)
        for every in issued(self._outcome, COMMUNICATION):
            _, waiting, _, awaited = self.of(every)
            waits = np.flatnonzero(waiting > 0)
            waiting_nodes, waiting, awaited = every.where(waits), waiting[waits], awaited[waits]
            of_groups = np.flatnonzero(self._actions[waiting_nodes.at] == Action.COLLECTIVE)
            if len(of_groups):
                rows = self._arrivals.rows(waiting_nodes.state_row[of_groups])
                awaited[of_groups] = lowest[self._arrivals.arrival[rows]]
            waiter, whom = class_of_actor[waiting_nodes.actor], class_of_actor[awaited]
            pairs = groups_of(waiter, whom)
            sums = pairs.sums(waiting * ranks_per_actor[waiting_nodes.actor])
            keys = zip(waiter[pairs.first].tolist(), whom[pairs.first].tolist(), strict=True)
            for key, total in zip(keys, sums.tolist(), strict=True):
                totals[key] = totals.get(key, 0) + total
        return totals

    @cached_property
    def _arrivals(self) -> CollectiveArrivals:
        return arrivals(self._outcome)

    def _of_pairs(self, nodes: Issued) -> tuple[Any, Any, Any]:
        """Return how long sends and receives waited for each other and moved, and for which actor."""
        state, rows = np.asarray(self._outcome.nodes), nodes.state_row
        start, ended, sent = state["start_ns"][rows], state["end_ns"][rows], state["number"][rows]
        never = ended == NONE
        end = np.where(never, self._outcome.end_ns, ended)
        is_send = self._actions[nodes.at] == Action.SEND
        # A receive whose message never came waits to the end.
        came = np.where(never & ~is_send, end, start)
        came[is_send] = np.maximum(state["admitted_ns"][rows[is_send]], came[is_send])  # if it was held
        if self._plan.rendezvous:
            came[is_send] = self._receives_posted(rows[is_send], end[is_send])
        known = np.flatnonzero(~is_send & (sent != NONE))
        sends = self._plan.actors["node_first"][state["partner"][rows[known]]] + sent[known]
        came[known] = state["start_ns"][sends]
        waiting = np.minimum(np.maximum(came, start), end) - start
        awaited, waits = np.full(len(waiting), NONE, np.int32), np.flatnonzero(waiting > 0)
        channel = np.asarray(self._plan.nodes)["detail"][nodes.at[waits]]
        awaited[waits], _ = peers_and_tags(self._plan, nodes.actor[waits], channel, is_send[waits])
        return waiting, end - start - waiting, awaited

    def _receives_posted(self, sends: Any, end: Any) -> Any:
        """Return when the receives that sends wait for were posted."""
        known, posted = self._posted
        if not len(known):
            return end
        at = np.minimum(np.searchsorted(known, sends), len(known) - 1)
        return np.where(known[at] == sends, posted[at], end)

    @cached_property
    def _posted(self) -> tuple[Any, Any]:
        """Return sends whose messages arrived, by state row, and when their receives were posted."""
        state = self._outcome.nodes
        is_posted = np.zeros(len(state), np.bool_)
        for every in issued(self._outcome, (Action.RECEIVE,)):
            is_posted[every.state_row] = True
        receives = np.flatnonzero(is_posted & (state["number"] != NONE))
        sender, row = state["partner"][receives], state["number"][receives]
        sends, first = np.unique(self._plan.actors["node_first"][sender] + row, return_index=True)
        return sends, state["start_ns"][receives[first]]
