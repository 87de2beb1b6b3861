"""Does every message have a sender and a receiver?

A channel is (source, target, tag, bytes); its k-th send meets its k-th receive and nothing else ever
matches, so a channel is sound when both counts are equal. Only ranks that do not understand each other
are looked at message by message.

Not here: who talks to whom (`pairs`), and what an unmatched message was probably meant to match (`nearest`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.units import format_ranks, plural
from et_sim.trace.columns import NodeKind
from et_sim.trace.preflight.nearest import Channels, explain_unmatched
from et_sim.trace.preflight.pairs import (
    Ends,
    bundle_bounds,
    distinct_ends,
    find_pairs,
    message_rows,
    pair_keys,
    peers_of,
    sorted_groups,
    split_key,
)
from et_sim.trace.preflight.problem import Problem, TemplateIndex

_EXPLAINED = 10_000  # so many pairs of ranks that do not understand each other are looked into


def check_messages(index: TemplateIndex, ranks: int) -> list[Problem]:
    """Peers that do not exist, messages to oneself, empty messages, and unmatched ones."""
    problems: list[Problem] = []
    sound: dict[int, Ends] = {}
    for template in index.used_templates():
        rows = message_rows(index.workload.templates[template])
        if not len(rows):
            continue
        ends = distinct_ends(index, template, rows)
        problems += _outside(index, template, ends, ranks)
        problems += _foreign(index, template, rows)
        problems += _to_oneself(index, template, ends)
        problems += _empty(index, template, ends)
        sound[template] = ends.only((ends.peer >= 0) & (ends.peer < _peers(index, template, ranks)))
    if sound:
        problems += _unmatched(index, sound)
    return problems


def _peers(index: TemplateIndex, template: int, ranks: int) -> int:
    """How many there can be: any distance leads to a rank of the workload."""
    return index.workload.ranks if index.workload.has_relative_peers(template) else ranks


def _unmatched(index: TemplateIndex, sound: dict[int, Ends]) -> list[Problem]:
    pairs = find_pairs(index, sound)
    differing = pairs.key[pairs.send != pairs.receive]
    if not len(differing):
        return []
    problems = explain_unmatched(index, _channels(index, sound, differing[:_EXPLAINED]))
    left = differing[_EXPLAINED:]
    if len(left):
        text = f"{plural(len(left), 'more pair')} of ranks with sends and receives that do not match"
        who = format_ranks(np.concatenate(split_key(left)))
        remedy = "repair the first ones and check again"
        problems.append(Problem("error", "unmatched-message", who, text, remedy))
    return problems


def _channels(index: TemplateIndex, sound: dict[int, Ends], wanted: Any) -> Channels:
    """All endpoints of the wanted pairs of ranks, sorted into channels."""
    columns: dict[str, list[Any]] = {name: [] for name in ("key", *Ends._fields)}
    for template, ends in sound.items():
        users = index.ranks_of(template)
        bundles = bundle_bounds(ends.is_send, ends.peer)[:-1]
        keys = pair_keys(index, template, users, ends.is_send[bundles], ends.peer[bundles])
        users = users[np.isin(keys, wanted).any(axis=1)]
        keys = pair_keys(index, template, users, ends.is_send, ends.peer).reshape(-1)
        which = np.isin(keys, wanted)
        columns["key"].append(keys[which])
        for name, column in zip(Ends._fields, ends, strict=True):
            columns[name].append(np.tile(column, len(users))[which])
    of = {name: np.concatenate(parts) for name, parts in columns.items()}
    source, target = split_key(of["key"])
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


def _outside(index: TemplateIndex, template: int, ends: Ends, ranks: int) -> list[Problem]:
    wrong = np.flatnonzero((ends.peer < 0) | (ends.peer >= _peers(index, template, ranks)))
    if not len(wrong):
        return []
    first = wrong[np.argmin(ends.row[wrong])]
    verb = "sends to" if ends.is_send[first] else "receives from"
    text = (
        f"{_node(index, template, ends.row[first])} {verb} rank {ends.peer[first]}, and there are"
        f" ranks 0 to {ranks - 1}{_more(ends.count[wrong].sum() - 1)}"
    )
    remedy = "correct comm_dst or comm_src, or give all the ranks"
    return [Problem("error", "unknown-peer", format_ranks(index.ranks_of(template)), text, remedy)]


def _foreign(index: TemplateIndex, template: int, rows: Any) -> list[Problem]:
    """Nodes that say another rank than the one that runs them is their own end."""
    trace = index.workload.templates[template]
    is_send = trace.kind[rows] == NodeKind.SEND
    said = np.where(is_send, trace.has("comm_src", rows), trace.has("comm_dst", rows))
    own = np.where(is_send, trace.comm_src[rows], trace.comm_dst[rows])[said]
    rows = rows[said]
    if not len(rows):
        return []
    users = index.ranks_of(template)
    for at in np.unique(own, return_index=True)[1]:
        others = users[peers_of(index, template, users, own[at]) != users]
        if len(others):
            what = "comm_src" if trace.kind[rows[at]] == NodeKind.SEND else "comm_dst"
            end = int(peers_of(index, template, others, own[at])[0])
            text = (
                f"{index.place(others)}: {trace.describe(int(rows[at]))} says that its own end is rank"
                f" {end} ({what}), but runs elsewhere"
            )
            remedy = f"leave {what} out, or give every rank its own trace file"
            return [Problem("error", "foreign-end", format_ranks(others), text, remedy)]
    return []


def _to_oneself(index: TemplateIndex, template: int, ends: Ends) -> list[Problem]:
    users = index.ranks_of(template)
    is_relative = index.workload.has_relative_peers(template)
    if is_relative:
        own = np.flatnonzero(ends.peer == 0)
    else:
        own = np.flatnonzero(ends.peer == users[0] if len(users) == 1 else np.isin(ends.peer, users))
    if not len(own):
        return []
    first = own[np.argmin(ends.row[own])]
    verb = "sends to" if ends.is_send[first] else "receives from"
    trace = index.workload.templates[template]
    text = (
        f"{index.place(users if is_relative else ends.peer[[first]])}:"
        f" {trace.describe(int(ends.row[first]))} {verb} its own rank{_more(ends.count[own].sum() - 1)}"
    )
    remedy = "a copy within a rank is not a message: check the peer"
    who = format_ranks(users if is_relative else ends.peer[own])
    return [Problem("warning", "message-to-oneself", who, text, remedy)]


def _empty(index: TemplateIndex, template: int, ends: Ends) -> list[Problem]:
    empty = np.flatnonzero(ends.size == 0)
    if not len(empty):
        return []
    first = empty[np.argmin(ends.row[empty])]
    verb = "sends" if ends.is_send[first] else "receives"
    text = f"{_node(index, template, ends.row[first])} {verb} 0 bytes{_more(ends.count[empty].sum() - 1)}"
    remedy = "check comm_size if data should move"
    return [Problem("warning", "empty-message", format_ranks(index.ranks_of(template)), text, remedy)]


def _node(index: TemplateIndex, template: int, row: int) -> str:
    trace = index.workload.templates[template]
    return f"{index.place(index.ranks_of(template))}: {trace.describe(int(row))}"


def _more(count: int) -> str:
    return f", and {plural(int(count), 'more node')} likewise" if count > 0 else ""
