"""Does every message have a sender and a receiver?

A channel is (source, target, tag, bytes); its k-th send meets its k-th receive and nothing else ever
matches, so a channel is sound when both counts are equal. Templates are reduced to their distinct
endpoints first; only then do ranks come in, as columns.

Not here: what an unmatched message was probably meant to match (`nearest`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.trace.columns import TAG_RANGE, Has, NodeKind, Trace
from et_sim.trace.preflight.nearest import Channels, explain_unmatched
from et_sim.trace.preflight.problem import Problem, Sharing, counted
from et_sim.units import format_ranks


@dataclass(frozen=True, slots=True)
class _Ends:
    """The distinct endpoints of a template: what it sends and receives, and how often."""

    row: Any  # the first node
    is_send: Any
    peer: Any
    tag: Any
    size: Any
    count: Any


def check_messages(sharing: Sharing, ranks: int) -> list[Problem]:
    """Peers that do not exist, messages to oneself, empty messages, and unmatched ones."""
    problems: list[Problem] = []
    sound: list[tuple[int, _Ends]] = []
    for template in sharing.used_templates():
        trace = sharing.workload.templates[template]
        rows = message_rows(trace)
        if not len(rows):
            continue
        ends = _distinct_ends(trace, rows)
        problems += _outside(sharing, template, ends, ranks)
        problems += _foreign(sharing, template, rows)
        problems += _to_oneself(sharing, template, ends)
        problems += _empty(sharing, template, ends)
        inside = (ends.peer >= 0) & (ends.peer < ranks)
        sound.append((template, _Ends(*(getattr(ends, name)[inside] for name in _Ends.__slots__))))
    if sound:
        problems += explain_unmatched(sharing, _channels(sharing, sound))
    return problems


def message_rows(trace: Trace) -> Any:
    """Sends and receives that name their peer; the plan refuses the others."""
    send = (trace.kind == NodeKind.SEND) & ((trace.present & int(Has.COMM_DST)) != 0)
    receive = (trace.kind == NodeKind.RECV) & ((trace.present & int(Has.COMM_SRC)) != 0)
    return np.flatnonzero(send | receive)


def _distinct_ends(trace: Trace, rows: Any) -> _Ends:
    is_send = trace.kind[rows] == NodeKind.SEND
    peer = np.where(is_send, trace.comm_dst[rows], trace.comm_src[rows]).astype(np.int64)
    tag, size = trace.comm_tag[rows] % TAG_RANGE, trace.comm_bytes[rows]
    order, first = sorted_groups(is_send.astype(np.int64), peer, tag, size)
    count = np.diff(np.append(first, len(order)))
    at = order[first]  # the sort is stable: the lowest row of each group
    return _Ends(rows[at], is_send[at], peer[at], tag[at], size[at], count)


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


def _channels(sharing: Sharing, sound: list[tuple[int, _Ends]]) -> Channels:
    """All endpoints of all ranks, sorted into channels."""
    columns: dict[str, list[Any]] = {name: [] for name in ("own", *_Ends.__slots__)}
    for template, ends in sound:
        users = sharing.ranks_of(template)
        columns["own"].append(np.repeat(users, len(ends.row)))
        for name in _Ends.__slots__:
            columns[name].append(np.tile(getattr(ends, name), len(users)))
    of = {name: np.concatenate(parts) for name, parts in columns.items()}
    source = np.where(of["is_send"], of["own"], of["peer"])
    target = np.where(of["is_send"], of["peer"], of["own"])
    order, first = sorted_groups(source, target, of["tag"], of["size"])
    signed = np.where(of["is_send"], of["count"], -of["count"])[order]
    at = order[first]
    return Channels(
        source=source[at],
        target=target[at],
        tag=of["tag"][at],
        size=of["size"][at],
        surplus=np.add.reduceat(signed, first) if len(first) else signed,
        first=np.append(first, len(order)),
        end_is_send=of["is_send"][order],
        end_row=of["row"][order],
        end_count=of["count"][order],
    )


def _outside(sharing: Sharing, template: int, ends: _Ends, ranks: int) -> list[Problem]:
    wrong = np.flatnonzero((ends.peer < 0) | (ends.peer >= ranks))
    if not len(wrong):
        return []
    first = wrong[np.argmin(ends.row[wrong])]
    verb = "sends to" if ends.is_send[first] else "receives from"
    text = (
        f"{_node(sharing, template, ends.row[first])} {verb} rank {ends.peer[first]}, and there are"
        f" ranks 0 to {ranks - 1}{_more(ends.count[wrong].sum() - 1)}"
    )
    remedy = "correct comm_dst or comm_src, or give all the ranks"
    return [Problem("error", "unknown-peer", format_ranks(sharing.ranks_of(template)), text, remedy)]


def _foreign(sharing: Sharing, template: int, rows: Any) -> list[Problem]:
    """Nodes that say another rank than the one that runs them is their own end."""
    trace = sharing.workload.templates[template]
    is_send = trace.kind[rows] == NodeKind.SEND
    said = (trace.present[rows] & np.where(is_send, int(Has.COMM_SRC), int(Has.COMM_DST))) != 0
    own = np.where(is_send, trace.comm_src[rows], trace.comm_dst[rows])[said]
    rows = rows[said]
    users = sharing.ranks_of(template)
    for at in np.unique(own, return_index=True)[1]:
        others = users[users != own[at]]
        if len(others):
            what = "comm_src" if trace.kind[rows[at]] == NodeKind.SEND else "comm_dst"
            text = (
                f"{sharing.place(others)}: {trace.describe(int(rows[at]))} says that its own end is rank"
                f" {own[at]} ({what}), but runs elsewhere"
            )
            remedy = f"leave {what} out, or give every rank its own trace file"
            return [Problem("error", "foreign-end", format_ranks(others), text, remedy)]
    return []


def _to_oneself(sharing: Sharing, template: int, ends: _Ends) -> list[Problem]:
    users = sharing.ranks_of(template)
    own = np.flatnonzero(np.isin(ends.peer, users))
    if not len(own):
        return []
    first = own[np.argmin(ends.row[own])]
    rank = int(ends.peer[first])
    verb = "sends to" if ends.is_send[first] else "receives from"
    trace = sharing.workload.templates[template]
    text = (
        f"{sharing.place([rank])}: {trace.describe(int(ends.row[first]))} {verb} its own rank"
        f"{_more(ends.count[own].sum() - 1)}"
    )
    remedy = "a copy within a rank is not a message: check the peer"
    return [Problem("warning", "message-to-oneself", format_ranks(ends.peer[own]), text, remedy)]


def _empty(sharing: Sharing, template: int, ends: _Ends) -> list[Problem]:
    empty = np.flatnonzero(ends.size == 0)
    if not len(empty):
        return []
    first = empty[np.argmin(ends.row[empty])]
    verb = "sends" if ends.is_send[first] else "receives"
    text = f"{_node(sharing, template, ends.row[first])} {verb} 0 bytes{_more(ends.count[empty].sum() - 1)}"
    remedy = "check comm_size if data should move"
    return [Problem("warning", "empty-message", format_ranks(sharing.ranks_of(template)), text, remedy)]


def _node(sharing: Sharing, template: int, row: int) -> str:
    trace = sharing.workload.templates[template]
    return f"{sharing.place(sharing.ranks_of(template))}: {trace.describe(int(row))}"


def _more(count: int) -> str:
    return f", and {counted(int(count), 'more node')} likewise" if count > 0 else ""
