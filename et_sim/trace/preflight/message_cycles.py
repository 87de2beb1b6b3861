"""The search for ranks that wait for each other's messages in a cycle.

The k-th receive of a channel cannot end before the k-th send of it has started, which needs the end of that
send's dependencies. In the graph the nodes of all ranks are vertices; dependencies, and the steps from a send
to its receive, are edges: a cycle stalls for all durations. Channels with an uncertain order of sends or
receives are ignored. If ranks share templates, the templates are checked first: if their nodes have no cycle,
those of the ranks have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import sorted_groups, unique_rows
from et_sim.basics.units import format_ranks
from et_sim.trace.order import edges, fits_row_order, issue_order
from et_sim.trace.preflight.cycles import Knot, find_knots
from et_sim.trace.preflight.pairs import (
    bundle_bounds,
    endpoints,
    ends_of_templates,
    find_pairs,
    message_rows,
    peers_of,
)
from et_sim.trace.preflight.problem import Problem, TemplateIndex, not_checked, not_spelled_out

_KNOTS = 3  # cycles that are printed
_MOST_VERTICES = 5_000_000  # nodes of all ranks; larger jobs are not checked
_LEGS = 8  # longer cycles are cut short


class _Ends(NamedTuple):
    """Sends and receives, those of one end of a channel in starting order."""

    row: Any
    is_send: Any
    peer: Any
    tag: Any
    size: Any
    certain: Any  # whether that order is fixed


class _Board(Struct, frozen=True):
    """The nodes of all ranks that send or receive, as vertices."""

    programs: TemplateIndex
    templates: list[int]
    base: Any  # per rank: the vertex of its first row
    vertices: int


class _Pairs(NamedTuple):
    send: Any
    receive: Any
    certain: Any


def check_message_cycles(index: TemplateIndex) -> list[Problem]:
    """Return findings about cycles of messages, for a workload in which all messages match."""
    if _is_settled_by_templates(index):
        return []
    board = _board(index)
    if board.vertices > _MOST_VERTICES:
        return [not_checked("ranks wait for each other's messages in a circle", f"{board.vertices:,} nodes")]
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
        more = len(knots) - _KNOTS
        problems.append(not_spelled_out("error", "message-circle", more, "circle", "of messages"))
    return problems


def _is_settled_by_templates(index: TemplateIndex) -> bool:
    """Return whether the nodes of templates, with all messages between any two ranks, have no cycle."""
    templates = _templates_with_messages(index)
    if all(len(index.ranks_of(template)) == 1 for template in templates):
        return False  # no template is shared: a check of the ranks costs the same
    columns: list[list[Any]] = [[np.empty(0, np.int64)], [np.empty(0, np.int64)]]
    parts: list[Any] = []  # per bundle of a template: its nodes, in starting order
    base = 0
    for template in templates:
        trace = index.workload.templates[template]
        for column, rows in zip(columns, edges(trace), strict=True):
            column.append(base + rows.astype(np.int64))
        ends = _ends(index, template, thorough=False)
        parts += np.split(base + ends.row, bundle_bounds(ends.is_send, ends.peer)[1:-1])
        base += len(trace)
    pairs = find_pairs(index, ends_of_templates(index, templates))
    meetings = unique_rows(pairs.send_part, pairs.receive_part).tolist()
    for column, side in zip(columns, zip(*meetings, strict=True), strict=True):
        column += [parts[part] for part in side]
    row: Any = np.int32 if base < 2**31 else np.int64  # the first is compiled already
    parent, child = (np.concatenate(column).astype(row) for column in columns)
    return not find_knots(parent, child, base)


def _templates_with_messages(index: TemplateIndex) -> list[int]:
    traces = index.workload.templates
    return [template for template in index.used_templates() if len(message_rows(traces[template]))]


def _board(index: TemplateIndex) -> _Board:
    workload = index.workload
    templates = _templates_with_messages(index)
    sizes = np.zeros(workload.ranks, np.int64)
    for template in templates:
        sizes[index.ranks_of(template)] = len(workload.templates[template])
    return _Board(index, templates, np.cumsum(sizes) - sizes, int(sizes.sum()))


def _dependencies(board: _Board) -> tuple[Any, Any]:
    """Return (parents, children) over all ranks."""
    columns: tuple[list[Any], list[Any]] = ([], [])
    for template in board.templates:
        base = board.base[board.programs.ranks_of(template)][:, None]
        for column, rows in zip(columns, edges(board.programs.workload.templates[template]), strict=True):
            column.append((base + rows).reshape(-1))
    parent, child = (np.concatenate([np.empty(0, np.int64), *column]) for column in columns)
    return parent, child


def _knots(board: _Board, parent: Any, child: Any, pairs: _Pairs) -> list[Knot]:
    row = np.int32 if board.vertices < 2**31 else np.int64  # the first is compiled already
    before: Any = np.concatenate((parent, pairs.send)).astype(row)
    return find_knots(before, np.concatenate((child, pairs.receive)).astype(row), board.vertices)


def _pairs(board: _Board, *, thorough: bool) -> _Pairs:
    """Return every send with its receive; all channels have equal numbers of both."""
    columns: list[list[Any]] = [[np.empty(0, np.int64)] for _ in range(7)]
    for template in board.templates:
        users = board.programs.ranks_of(template)
        ends = _ends(board.programs, template, thorough=thorough)
        user = np.repeat(users, len(ends.row))
        is_send, peer, tag, size, certain = (np.tile(column, len(users)) for column in ends[1:])
        peer = peers_of(board.programs, template, user, peer)
        vertex = (board.base[users][:, None] + ends.row).reshape(-1)
        source, target = np.where(is_send, user, peer), np.where(is_send, peer, user)
        ends_here = (is_send, source, target, tag, size, vertex, certain)
        for column, values in zip(columns, ends_here, strict=True):
            column.append(values)
    is_send, source, target, tag, size, vertex, certain = (np.concatenate(column) for column in columns)
    order = np.lexsort((size, tag, target, source, is_send))  # stable: each end keeps its order
    half = len(order) // 2
    receives, sends = order[:half], order[half:]
    return _Pairs(vertex[sends], vertex[receives], (certain[sends] & certain[receives]).astype(bool))


def _ends(index: TemplateIndex, template: int, *, thorough: bool) -> _Ends:
    """Return the messages of a trace; unless `thorough`, their order is taken from ids that fit
    dependencies.
    """
    trace = index.workload.templates[template]
    rows = message_rows(trace)
    is_relative = index.workload.has_relative_peers(template)
    is_send, peer, tag, size = endpoints(trace, rows, is_relative, index.workload.ranks)
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
    """Return (rank, row of a send, row of the receive it waits for), each receive from the rank of
    the next.
    """
    turns = [k for k, vertex in enumerate(cycle) if mate.get(cycle[k - 1]) == vertex]
    starts = [cycle[k] for k in turns]
    ends = [cycle[k - 1] for k in [*turns[1:], turns[0]]]
    legs = list(zip(starts, ends, strict=True))
    lowest = legs.index(min(legs))
    for send, receive in legs[lowest:] + legs[:lowest]:
        rank = _rank(board, send)
        yield rank, send - int(board.base[rank]), receive - int(board.base[rank])


def _rank(board: _Board, vertex: int) -> int:
    """Return the rank of a vertex. Ranks without messages have no vertices: of equal bases, the last
    one has.
    """
    return int(np.searchsorted(board.base, vertex, side="right")) - 1


def _in_words(board: _Board, leg: tuple[int, int, int]) -> str:
    rank, send, receive = leg
    index, template = board.programs, int(board.programs.workload.template_of_rank[rank])
    trace = index.workload.templates[template]
    target, source = (
        int(peers_of(index, template, rank, int(peer)))
        for peer in (trace.comm_dst[send], trace.comm_src[receive])
    )
    return (
        f"rank {rank} ({index.file_of(rank)}) sends to rank {target} ({trace.describe(send)})"
        f" only after it received from rank {source} ({trace.describe(receive)})"
    )
