"""Do ranks wait for each other's messages in a circle?

The k-th receive of a channel cannot end before the k-th send of it has started, and that not before the
nodes it depends on have ended. Nodes of all ranks are vertices here; dependencies, and the steps from a
send to its receive, are edges: a cycle hangs, whatever things last. Where the order of a channel's sends
or receives is not certain, nothing is said.

Not here: messages without a match (`messages`), waits for a lane, and circles through collectives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from et_sim.trace.columns import TAG_RANGE, NodeKind, Trace
from et_sim.trace.preflight.cycles import find_knots
from et_sim.trace.preflight.messages import message_rows, sorted_groups
from et_sim.trace.preflight.order import edges, fits_row_order, issue_order
from et_sim.trace.preflight.problem import Problem, Sharing, counted
from et_sim.units import format_ranks

_KNOTS = 3  # so many are spelled out
_LEGS = 8  # longer circles are cut short


class _Ends(NamedTuple):
    """Sends and receives, those of one end of a channel in the order in which they start."""

    row: Any
    is_send: Any
    peer: Any
    tag: Any
    size: Any
    certain: Any  # whether nothing can change that order


class _Board(NamedTuple):
    """The nodes of all ranks that send or receive, as vertices."""

    sharing: Sharing
    templates: list[int]
    base: Any  # per rank: the vertex of its first row
    vertices: int


class _Pairs(NamedTuple):
    send: Any
    receive: Any
    certain: Any


def check_circles(sharing: Sharing) -> list[Problem]:
    """Circles of messages, in a workload in which every message has a sender and a receiver."""
    board = _board(sharing)
    parent, child = _dependencies(board)
    pairs = _pairs(board, thorough=False)
    if not _knots(board, parent, child, pairs):
        return []
    sure = _pairs(board, thorough=True)
    sure = _Pairs(*(column[sure.certain] for column in sure))
    mate = dict(zip(sure.receive.tolist(), sure.send.tolist(), strict=True))
    knots = _knots(board, parent, child, sure)
    problems = [_circle(board, cycle, mate) for cycle, _ in knots[:_KNOTS]]
    if len(knots) > _KNOTS:
        text = f"{counted(len(knots) - _KNOTS, 'more circle')} of messages"
        remedy = "repair the first ones and check again"
        problems.append(Problem("error", "message-circle", "", text, remedy))
    return problems


def _board(sharing: Sharing) -> _Board:
    workload = sharing.workload
    templates = [t for t in sharing.used_templates() if len(message_rows(workload.templates[t]))]
    sizes = np.zeros(workload.ranks, np.int64)
    for template in templates:
        sizes[sharing.ranks_of(template)] = len(workload.templates[template])
    return _Board(sharing, templates, np.cumsum(sizes) - sizes, int(sizes.sum()))


def _dependencies(board: _Board) -> tuple[Any, Any]:
    """(parents, children) over all ranks."""
    columns: tuple[list[Any], list[Any]] = ([], [])
    for template in board.templates:
        base = board.base[board.sharing.ranks_of(template)][:, None]
        for column, rows in zip(columns, edges(board.sharing.workload.templates[template]), strict=True):
            column.append((base + rows).reshape(-1))
    parent, child = (np.concatenate([np.empty(0, np.int64), *column]) for column in columns)
    return parent, child


def _knots(board: _Board, parent: Any, child: Any, pairs: _Pairs) -> list[tuple[list[int], int]]:
    row = np.int32 if board.vertices < 2**31 else np.int64  # the first is compiled already
    before: Any = np.concatenate((parent, pairs.send)).astype(row)
    return find_knots(before, np.concatenate((child, pairs.receive)).astype(row), board.vertices)


def _pairs(board: _Board, *, thorough: bool) -> _Pairs:
    """Every send with its receive; all channels have as many of the ones as of the others."""
    columns: list[list[Any]] = [[np.empty(0, np.int64)] for _ in range(7)]
    for template in board.templates:
        users = board.sharing.ranks_of(template)
        ends = _ends(board.sharing.workload.templates[template], thorough=thorough)
        own = np.repeat(users, len(ends.row))
        is_send, peer, tag, size, certain = (np.tile(column, len(users)) for column in ends[1:])
        vertex = (board.base[users][:, None] + ends.row).reshape(-1)
        source, target = np.where(is_send, own, peer), np.where(is_send, peer, own)
        found = (is_send, source, target, tag, size, vertex, certain)
        for column, values in zip(columns, found, strict=True):
            column.append(values)
    is_send, source, target, tag, size, vertex, certain = (np.concatenate(column) for column in columns)
    order = np.lexsort((size, tag, target, source, is_send))  # stable: each end keeps its order
    half = len(order) // 2
    receives, sends = order[:half], order[half:]
    return _Pairs(vertex[sends], vertex[receives], (certain[sends] & certain[receives]).astype(bool))


def _ends(trace: Trace, *, thorough: bool) -> _Ends:
    """The messages of a trace; unless `thorough`, the order is only as good as the ids' where these fit."""
    rows = message_rows(trace)
    is_send = trace.kind[rows] == NodeKind.SEND
    peer = np.where(is_send, trace.comm_dst[rows], trace.comm_src[rows]).astype(np.int64)
    tag, size = trace.comm_tag[rows] % TAG_RANGE, trace.comm_bytes[rows]
    order, first = sorted_groups(is_send.astype(np.int64), peer, tag, size)
    certain = np.ones(len(rows), bool)
    ordered = rows[order]
    if thorough or not fits_row_order(*edges(trace)):
        for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(order)], strict=True):
            if end - begin > 1:
                ordered[begin:end], is_forced = issue_order(trace, ordered[begin:end])
                certain[begin:end] = is_forced
    return _Ends(ordered, is_send[order], peer[order], tag[order], size[order], certain)


def _circle(board: _Board, cycle: list[int], mate: dict[int, int]) -> Problem:
    legs = list(_legs(board, cycle, mate))
    parts = [_in_words(board, leg) for leg in legs]
    if len(parts) > _LEGS:
        parts[_LEGS - 2 : -1] = [f"… {len(parts) - _LEGS + 1} more …"]
    text = f"messages wait for each other in a circle (their ranks hang): {'; '.join(parts)}"
    remedy = "let one of these ranks send before it waits for its receive"
    return Problem("error", "message-circle", format_ranks(rank for rank, _, _ in legs), text, remedy)


def _legs(board: _Board, cycle: list[int], mate: dict[int, int]) -> Iterator[tuple[int, int, int]]:
    """(rank, row of a send, row of the receive it waits for), each receive from the rank of the next."""
    turns = [k for k, vertex in enumerate(cycle) if mate.get(cycle[k - 1]) == vertex]
    starts = [cycle[k] for k in turns]
    ends = [cycle[k - 1] for k in [*turns[1:], turns[0]]]
    legs = list(zip(starts, ends, strict=True))
    lowest = legs.index(min(legs))
    for send, receive in legs[lowest:] + legs[:lowest]:
        rank = _rank(board, send)
        yield rank, send - int(board.base[rank]), receive - int(board.base[rank])


def _rank(board: _Board, vertex: int) -> int:
    """Ranks without messages have no vertices: of equal bases, the last is the one that has."""
    return int(np.searchsorted(board.base, vertex, side="right")) - 1


def _in_words(board: _Board, leg: tuple[int, int, int]) -> str:
    rank, send, receive = leg
    trace = board.sharing.workload.trace(rank)
    return (
        f"rank {rank} ({board.sharing.file_of(rank)}) sends to rank {trace.comm_dst[send]}"
        f" ({trace.describe(send)}) only after it received from rank {trace.comm_src[receive]}"
        f" ({trace.describe(receive)})"
    )
