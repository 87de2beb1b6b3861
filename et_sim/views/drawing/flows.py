"""Arrows: pairs of sends and receives, and the members of collectives.

The timeline records what completed a node, so these arrows are facts: a receive completed by its message
names the send. A receive that found its message already there is paired in order, as the network does: the
first such send of one actor to another with a tag and size belongs to the first such receive. Members of a
collective are joined if a message of one completed the other; in the group of all ranks, all are joined.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.unique import groups_of, unique_rows
from et_sim.views.drawing.nodes import NONE, Nodes
from et_sim.views.run.columns import coded, integers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Window

ALL_RANKS = "all"


def messages(nodes: Nodes) -> tuple[Any, Any]:
    """Return rows of sends, and of the receives that belong to them."""
    sends = np.flatnonzero(_is_kind(nodes, "send"))
    receives = np.flatnonzero(_is_kind(nodes, "receive"))
    named = receives[nodes.end_cause_node[receives] != NONE]
    cause = find(nodes, sends, nodes.end_cause_actor[named], nodes.end_cause_node[named])
    named, cause = named[cause != NONE], cause[cause != NONE]
    others = np.setdiff1d(sends, cause), np.setdiff1d(receives, named)
    rest = _in_order(nodes, *(rows[nodes.completed[rows]] for rows in others))
    pairs = np.concatenate((cause, rest[0])), np.concatenate((named, rest[1]))
    order = np.lexsort((pairs[1], nodes.start_ns[pairs[0]]))
    return pairs[0][order], pairs[1][order]


def exchanges(run: RunDirectory, nodes: Nodes, window: Window) -> tuple[Any, Any]:
    """Return pairs of rows of collectives, one of which sends messages to the other, from messages.arrow."""
    rows = np.flatnonzero(nodes.sequence != NONE)
    pairs = np.zeros((0, 2), np.int64)
    for batch in run.batches("messages", ("actor", "node", "kind", "peer", "ready_ns", "arrived_ns")):
        kinds = np.array([text == "collective" for text in batch["kind"].dictionary.to_pylist()] + [False])
        columns = (integers(batch[name], missing=NONE) for name in ("actor", "node", "peer"))
        ready, arrived = (integers(batch[name], missing=NONE) for name in ("ready_ns", "arrived_ns"))
        kept = kinds[coded(batch["kind"])] & (ready < window[1]) & (arrived > window[0])
        actor, node, peer = (column[kept] for column in columns)
        sender = find(nodes, rows, actor, node)
        peer, sender = peer[sender != NONE], sender[sender != NONE]
        pairs = unique_rows(*np.concatenate((pairs, np.stack((sender, peer), axis=1))).T)
    sender, peer = pairs.T
    # The peer's node has the sender's group and sequence number; if several groups share a name, its own.
    like = groups_of(nodes.group[rows], nodes.sequence[rows]).of_row
    of_row = np.full(len(nodes), NONE)
    of_row[rows] = like
    keys, wanted = _keys((like, nodes.actor[rows]), (of_row[sender], peer))
    order = np.argsort(keys, kind="stable")
    at = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), max(len(order) - 1, 0))]
    met = (keys[at] == wanted) & (rows[at] != sender)  # in a folded run, messages go from an actor to itself
    sender, receiver = sender[met], rows[at[met]]
    order = np.lexsort((receiver, nodes.start_ns[sender]))
    return sender[order], receiver[order]


def _is_kind(nodes: Nodes, kind: str) -> Any:
    return nodes.kind == (nodes.kinds.index(kind) if kind in nodes.kinds else NONE)


def find(nodes: Nodes, among: Any, actor: Any, node: Any) -> Any:
    """Return the rows of these actors and nodes; -1 if there is none."""
    if not len(among) or not len(actor):
        return np.full(len(actor), NONE)
    keys, wanted = _keys((nodes.actor[among], nodes.node[among]), (actor, node))
    order = np.argsort(keys)
    at = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(order) - 1)]
    return np.where(keys[at] == wanted, among[at], NONE)


def _keys(*pairs: tuple[Any, Any]) -> list[Any]:
    """Combine pairs of numbers (the first small, and not negative) into keys that sort like the pairs."""
    _, code = np.unique(np.concatenate([second for _, second in pairs]), return_inverse=True)
    span = int(code.max(initial=0)) + 1
    codes = np.split(code.reshape(-1), np.cumsum([len(second) for _, second in pairs])[:-1])
    return [first.astype(np.int64) * span + second for (first, _), second in zip(pairs, codes, strict=True)]


def _in_order(nodes: Nodes, sends: Any, receives: Any) -> tuple[Any, Any]:
    """Pair the n-th send of a channel with the n-th receive."""
    ends = (
        (nodes.actor, nodes.peer),
        (nodes.peer, nodes.actor),
        (nodes.tag, nodes.tag),
        (nodes.bytes, nodes.bytes),
    )
    columns = (np.concatenate((source[sends], target[receives])) for source, target in ends)
    channel = groups_of(*columns).of_row
    numbered = []
    for rows, of_row in ((sends, channel[: len(sends)]), (receives, channel[len(sends) :])):
        order = np.lexsort((rows, nodes.start_ns[rows], of_row))
        first = np.searchsorted(of_row[order], of_row[order])
        numbered.append((rows[order], of_row[order], np.arange(len(order)) - first))
    keys = _keys(*((of_row, number) for _, of_row, number in numbered))
    _, send, receive = np.intersect1d(*keys, return_indices=True)
    return numbered[0][0][send], numbered[1][0][receive]


def collectives(nodes: Nodes) -> list[Any]:
    """Return rows of nodes of each collective, by their start; single nodes are left out."""
    rows, label = members(nodes)
    order = np.lexsort((rows, nodes.start_ns[rows], label))
    bounds = np.flatnonzero(np.diff(label[order])) + 1
    return [part for part in np.split(rows[order], bounds) if len(part) > 1]


def members(nodes: Nodes) -> tuple[Any, Any]:
    """Return rows of members of collectives, and a number for each one's collective."""
    rows = np.flatnonzero(nodes.sequence != NONE)
    if not len(rows):
        return rows, rows
    # Several groups may share a name, and so their collectives group and number.
    like = groups_of(nodes.group[rows], nodes.sequence[rows]).of_row
    order = np.lexsort((nodes.actor[rows], like))
    rows, like = rows[order], like[order]
    keys, wanted = _keys((like, nodes.actor[rows]), (like, nodes.end_cause_actor[rows]))
    at = np.minimum(np.searchsorted(keys, wanted), len(rows) - 1)
    joined = keys[at] == wanted
    first, second = np.flatnonzero(joined), at[joined]
    together = np.flatnonzero(nodes.group[rows] == _code(nodes.groups, ALL_RANKS))
    firsts = np.searchsorted(like, like[together])
    return rows, _components(len(rows), np.append(first, together), np.append(second, firsts))


def _code(texts: tuple[str | None, ...], text: str) -> int:
    return texts.index(text) if text in texts else NONE


def _components(count: int, first: Any, second: Any) -> Any:
    """Return, for each row, the least index of the rows that it is joined to, directly or through others."""
    label = np.arange(count)
    while True:
        least = np.minimum(label[first], label[second])
        lowered = label.copy()
        np.minimum.at(lowered, label[first], least)
        np.minimum.at(lowered, label[second], least)
        lowered = lowered[lowered]
        if np.array_equal(lowered, label):
            return label
        label = lowered
