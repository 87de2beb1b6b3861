"""Which rank sends what to which: the messages of templates, without a row per message of every rank.

What a template sends to one peer, or receives from it, is a bundle: tags, sizes and how often. Two ranks
understand each other if the bundle that one sends is the bundle that the other receives, so bundles get
numbers, and only these are laid out over ranks.

Not here: what to say about ranks that do not (`messages`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from et_sim.trace.columns import TAG_RANGE, NodeKind, Trace
from et_sim.trace.preflight.problem import TemplateIndex

_RANK_BITS = 31


class Ends(NamedTuple):
    """The distinct endpoints of a template, ascending by direction, peer, tag and size."""

    row: Any  # the first node
    is_send: Any
    peer: Any  # a rank, or a distance from 0 to the number of ranks
    tag: Any
    size: Any
    count: Any

    def only(self, which: Any) -> Ends:
        """Some of them."""
        return Ends(*(column[which] for column in self))


class Pairs(Struct, frozen=True):
    """One row per two ranks of which one expects something of the other; -1 where a side has nothing."""

    key: Any  # both ranks, as `split_key` takes them apart
    send: Any  # number of the bundle that is sent
    receive: Any  # and of the one that is received
    send_part: Any  # template and peer, as a number
    receive_part: Any


def message_rows(trace: Trace) -> Any:
    """Sends and receives that name their peer; the plan refuses others, and does not pair unknown sizes."""
    send = (trace.kind == NodeKind.SEND) & (trace.has("comm_dst"))
    receive = (trace.kind == NodeKind.RECV) & (trace.has("comm_src"))
    return np.flatnonzero((send | receive) & ~trace.is_unsized)


def endpoints(index: TemplateIndex, template: int, rows: Any) -> tuple[Any, Any, Any, Any]:
    """(is it a send, peer, tag, size) of every message row; distances are made positive."""
    trace = index.workload.templates[template]
    is_send = trace.kind[rows] == NodeKind.SEND
    peer = np.where(is_send, trace.comm_dst[rows], trace.comm_src[rows]).astype(np.int64)
    if index.workload.has_relative_peers(template):
        peer %= index.workload.ranks
    return is_send, peer, trace.comm_tag[rows] % TAG_RANGE, trace.comm_bytes[rows]


def distinct_ends(index: TemplateIndex, template: int, rows: Any) -> Ends:
    """The endpoints of a template, each once."""
    is_send, peer, tag, size = endpoints(index, template, rows)
    order, first = sorted_groups(is_send.astype(np.int64), peer, tag, size)
    count = np.diff(np.append(first, len(order)))
    at = order[first]  # the sort is stable: the lowest row of each group
    return Ends(rows[at], is_send[at], peer[at], tag[at], size[at], count)


def sorted_groups(*keys: Any) -> tuple[Any, Any]:
    """(a stable order that sorts by the keys, where in it each group of equal keys begins)."""
    order = np.lexsort(keys[::-1])
    if not len(order):
        return order, np.empty(0, np.int64)
    new = np.zeros(len(order), bool)
    new[0] = True
    for key in keys:
        ordered = key[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    return order, np.flatnonzero(new)


def peers_of(index: TemplateIndex, template: int, own: Any, peer: Any) -> Any:
    """The ranks that peers are, seen from the ranks `own`."""
    if not index.workload.has_relative_peers(template):
        return np.broadcast_to(peer, np.broadcast_shapes(np.shape(own), np.shape(peer)))
    return (own + peer) % index.workload.ranks


def pair_keys(index: TemplateIndex, template: int, users: Any, is_send: Any, peer: Any) -> Any:
    """A row for each user, a column for each end: the ranks of source and target as one number."""
    other = peers_of(index, template, users[:, None], peer[None, :])
    own = np.broadcast_to(users[:, None], other.shape)
    return np.where(is_send[None, :], own << _RANK_BITS | other, other << _RANK_BITS | own)


def split_key(key: Any) -> tuple[Any, Any]:
    """(source, target) of pairs of ranks."""
    return key >> _RANK_BITS, key & ((1 << _RANK_BITS) - 1)


def find_pairs(index: TemplateIndex, ends_of: dict[int, Ends]) -> Pairs:
    """Every pair of ranks that exchange anything, with the bundles on both sides."""
    numbers: dict[bytes, int] = {}
    sides: dict[bool, list[tuple[Any, Any, Any]]] = {True: [], False: []}
    parts = 0
    for template, ends in ends_of.items():
        first = bundle_bounds(ends.is_send, ends.peer)[:-1]
        number = _bundle_numbers(ends, numbers)
        users = index.ranks_of(template)
        for is_send in (True, False):
            which = np.flatnonzero(ends.is_send[first] == is_send)
            at = first[which]
            keys = pair_keys(index, template, users, ends.is_send[at], ends.peer[at])
            sides[is_send].append(
                (
                    keys.reshape(-1),
                    np.tile(number[which], len(users)),
                    np.tile(parts + which, len(users)),
                )
            )
        parts += len(first)
    (sent, send, send_part), (received, receive, receive_part) = (
        _sorted(sides[is_send]) for is_send in (True, False)
    )
    key = sent if np.array_equal(sent, received) else np.union1d(sent, received)
    return Pairs(
        key=key,
        send=_spread(key, sent, send),
        receive=_spread(key, received, receive),
        send_part=_spread(key, sent, send_part),
        receive_part=_spread(key, received, receive_part),
    )


def bundle_bounds(is_send: Any, peer: Any) -> Any:
    """Where in sorted endpoints each bundle begins, and the end of the last."""
    if not len(peer):
        return np.zeros(1, np.int64)
    new = (is_send[1:] != is_send[:-1]) | (peer[1:] != peer[:-1])
    return np.concatenate(([0], np.flatnonzero(new) + 1, [len(peer)]))


def _bundle_numbers(ends: Ends, numbers: dict[bytes, int]) -> Any:
    """Equal bundles have equal numbers, in all templates."""
    content = np.stack((ends.tag, ends.size, ends.count.astype(np.int64)), axis=1)
    text, width = content.tobytes(), content.itemsize * 3
    bounds = (bundle_bounds(ends.is_send, ends.peer) * width).tolist()
    return np.array([numbers.setdefault(text[a:b], len(numbers)) for a, b in pairwise(bounds)], np.int64)


def _sorted(columns: list[tuple[Any, Any, Any]]) -> tuple[Any, Any, Any]:
    """All templates' columns as one, by ascending key."""
    joined = [np.concatenate([np.empty(0, np.int64), *parts]) for parts in zip(*columns, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    key, number, part = (column[order] for column in joined)
    return key, number, part


def _spread(key: Any, own: Any, values: Any) -> Any:
    """Values of some keys, ascending, as a column for all keys."""
    if len(own) == len(key):
        return values
    column = np.full(len(key), -1, np.int64)
    column[np.searchsorted(key, own)] = values
    return column
