"""Messages of templates by pairs of ranks, without a row per message of every rank.

All that a template sends to one peer, or receives from it, is a bundle: tags, sizes and counts. Two ranks
match if the bundle that one sends equals the bundle that the other receives, so bundles get numbers, and only
these are expanded over ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import groups_of, sorted_groups, unique
from et_sim.trace.columns import TAG_RANGE, NodeKind, Trace
from et_sim.trace.preflight.problem import TemplateIndex
from et_sim.trace.stack import Stack
from et_sim.trace.workload import Workload

_RANK_BITS = 31


class EndpointSet(NamedTuple):
    """The distinct endpoints of a template, ascending by direction, peer, tag and size."""

    row: Any  # the first node
    is_send: Any
    peer: Any  # a rank, or a distance from 0 to the number of ranks
    tag: Any
    size: Any
    count: Any

    def only(self, which: Any) -> EndpointSet:
        """Return some of the endpoints."""
        return EndpointSet(*(column[which] for column in self))


class EndsOf(Mapping[int, EndpointSet]):
    """The endpoints of those templates that have any, by template, ascending."""

    def __init__(self, template: Any, every: EndpointSet) -> None:
        """Store the endpoints; `template` is that of each."""
        self.template, self.every = template, every
        self.templates = template[np.flatnonzero(np.diff(template, prepend=-1))]

    def __len__(self) -> int:
        return len(self.templates)

    def __iter__(self) -> Iterator[int]:
        return iter(self.templates.tolist())

    def __getitem__(self, template: int) -> EndpointSet:
        return self.every.only(self.rows(template))

    def rows(self, template: int) -> slice:
        """Return the slice of the endpoints of a template."""
        begin, end = np.searchsorted(self.template, (template, template + 1)).tolist()
        if begin == end:
            raise KeyError(template)
        return slice(begin, end)

    def only(self, which: Any) -> EndsOf:
        """Return some of the endpoints."""
        return EndsOf(self.template[which], self.every.only(which))


class Pairs(Struct, frozen=True):
    """One row per two ranks with messages from one to the other; -1 if a side has none."""

    key: Any  # both ranks, as `split_key` separates them
    send: Any  # number of the bundle that is sent
    receive: Any  # number of the bundle that is received
    send_part: Any  # template and peer, as a number
    receive_part: Any


def message_rows(trace: Trace) -> Any:
    """Return the sends and receives with a peer and a known size; the plan refuses others or does not match
    them.
    """
    send = (trace.kind == NodeKind.SEND) & (trace.has("comm_dst"))
    receive = (trace.kind == NodeKind.RECV) & (trace.has("comm_src"))
    return np.flatnonzero((send | receive) & ~trace.is_unsized)


def endpoints(trace: Trace, rows: Any, are_distances: Any, ranks: int) -> tuple[Any, Any, Any, Any]:
    """Return whether each message row is a send, its peer, tag and size; distances become positive."""
    is_send = trace.kind[rows] == NodeKind.SEND
    peer = np.where(is_send, trace.comm_dst[rows], trace.comm_src[rows]).astype(np.int64)
    peer = np.where(are_distances, peer % ranks, peer)
    return is_send, peer, trace.comm_tag[rows] % TAG_RANGE, trace.comm_bytes[rows]


def rows_of_templates(workload: Workload, are_wanted: Any) -> Iterator[tuple[Stack, Any, Any]]:
    """Yield stacks, message rows of their wanted templates, and the index of each row's template in the
    stack.
    """
    for stack in workload.stacks():
        rows, of = message_rows(stack.trace), stack.of_row
        rows = rows[stack.share(are_wanted)[of[rows]]]
        yield stack, rows, of[rows]


def ends_of_templates(index: TemplateIndex, templates: Sequence[int]) -> EndsOf:
    """Return the endpoints of those templates that have any, each once."""
    workload, parts = index.workload, []
    are_wanted = np.zeros(len(workload.templates), np.bool_)
    are_wanted[np.array(templates, np.int64)] = True
    for stack, rows, of in rows_of_templates(workload, are_wanted):
        are_distances = stack.share(workload.are_relative)[of]
        is_send, peer, tag, size = endpoints(stack.trace, rows, are_distances, workload.ranks)
        order, first = sorted_groups(of, is_send.astype(np.int64), peer, tag, size)
        count = np.diff(np.append(first, len(order)))
        at = order[first]  # the sort is stable: the lowest row of each group
        own_row = rows[at] - stack.first[of[at]]
        parts.append((of[at] + stack.number, own_row, is_send[at], peer[at], tag[at], size[at], count))
    if not parts:
        return EndsOf(np.zeros(0, np.int64), EndpointSet(*np.zeros((6, 0), np.int64)))
    template, *every = (np.concatenate(column) for column in zip(*parts, strict=True))
    return EndsOf(template, EndpointSet(*every))


def peers_of(index: TemplateIndex, template: int, rank: Any, peer: Any) -> Any:
    """Return the ranks of peers, which may be distances from `rank`."""
    if not index.workload.has_relative_peers(template):
        return np.broadcast_to(peer, np.broadcast_shapes(np.shape(rank), np.shape(peer)))
    return (rank + peer) % index.workload.ranks


def pair_keys(index: TemplateIndex, template: int, users: Any, is_send: Any, peer: Any) -> Any:
    """Return the ranks of source and target as one number, with a row per user and a column per end."""
    other = peers_of(index, template, users[:, None], peer[None, :])
    rank = np.broadcast_to(users[:, None], other.shape)
    return np.where(is_send[None, :], rank << _RANK_BITS | other, other << _RANK_BITS | rank)


def split_key(key: Any) -> tuple[Any, Any]:
    """Return (source, target) of pairs of ranks."""
    return key >> _RANK_BITS, key & ((1 << _RANK_BITS) - 1)


def find_pairs(index: TemplateIndex, ends_of: EndsOf) -> Pairs:
    """Return every pair of ranks that exchange messages, with the bundles on both sides."""
    every = ends_of.every
    bounds = bundle_bounds(ends_of.template, every.is_send, every.peer)
    number, part = _bundle_numbers(every, bounds), np.arange(len(bounds) - 1)
    of, is_send, peer = (column[bounds[:-1]] for column in (ends_of.template, every.is_send, every.peer))
    count = index.counts[of]
    each = np.repeat(part, count)  # every bundle, once for each rank that has it
    turn = np.arange(len(each)) - np.repeat(np.cumsum(count) - count, count)
    rank = index.ranks[index.first[of[each]] + turn]
    are_distances = index.workload.are_relative[of[each]]
    other = np.where(are_distances, (rank + peer[each]) % index.workload.ranks, peer[each])
    key = np.where(is_send[each], rank << _RANK_BITS | other, other << _RANK_BITS | rank)
    sides = {}
    for sends in (True, False):
        mine = is_send[each] == sends
        sides[sends] = _sorted(key[mine], number[each[mine]], each[mine])
    (sent, send, send_part), (received, receive, receive_part) = sides[True], sides[False]
    key = sent if np.array_equal(sent, received) else np.union1d(sent, received)
    return Pairs(
        key=key,
        send=_spread(key, sent, send),
        receive=_spread(key, received, receive),
        send_part=_spread(key, sent, send_part),
        receive_part=_spread(key, received, receive_part),
    )


def bundle_bounds(*columns: Any) -> Any:
    """Return the beginnings of bundles in sorted endpoints, and the end of the last; columns are equal in
    each.
    """
    if not len(columns[0]):
        return np.zeros(1, np.int64)
    new = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.concatenate(([0], np.flatnonzero(new) + 1, [len(new) + 1]))


def _bundle_numbers(ends: EndpointSet, bounds: Any) -> Any:
    """Return a number for each bundle; equal bundles have equal numbers, in all templates."""
    content = groups_of(ends.tag, ends.size, ends.count).of_row
    numbers, sizes = np.empty(len(bounds) - 1, np.int64), np.diff(bounds)
    known = 0
    for size in unique(sizes).tolist():
        bundles = np.flatnonzero(sizes == size)
        if len(bundles) < size:  # few long ones
            seen: dict[bytes, int] = {}
            every = (content[first : first + size].tobytes() for first in bounds[bundles].tolist())
            numbers[bundles] = [known + seen.setdefault(whole, len(seen)) for whole in every]
            known += len(seen)
        else:
            groups = groups_of(*(content[bounds[bundles] + at] for at in range(size)))
            numbers[bundles] = known + groups.of_row
            known += len(groups)
    return numbers


def _sorted(key: Any, *columns: Any) -> tuple[Any, ...]:
    """Return columns by ascending key."""
    order = np.argsort(key, kind="stable")
    return (key[order], *(column[order] for column in columns))


def _spread(key: Any, own_key: Any, values: Any) -> Any:
    """Return values of some keys, ascending, as a column for all keys."""
    if len(own_key) == len(key):
        return values
    column = np.full(len(key), -1, np.int64)
    column[np.searchsorted(key, own_key)] = values
    return column
