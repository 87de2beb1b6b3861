"""Checks of senders and receivers of messages, and likely partners of unmatched ones.

A channel is (source, target, tag, bytes). Its k-th send matches its k-th receive only, so a channel is
correct if both counts are equal. Messages are examined one by one only between ranks with a mismatch. Each
send without a receive is paired with the most similar receive without a send (or the other way round), the
closest pairs first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import are_paired, sorted_groups
from et_sim.basics.units import exact_bytes, format_ranks, plural
from et_sim.trace.columns import NodeKind
from et_sim.trace.preflight.pairs import (
    EndpointSet,
    EndsOf,
    bundle_bounds,
    endpoints,
    ends_of_templates,
    find_pairs,
    message_rows,
    pair_keys,
    peers_of,
    rows_of_templates,
    split_key,
)
from et_sim.trace.preflight.problem import SPELLED_OUT, Problem, TemplateIndex, not_spelled_out

_EXPLAINED = 10_000  # pairs of ranks with a mismatch that are examined
_NO_MATCH = "with sends and receives that do not match"


def check_messages(index: TemplateIndex, ranks: int) -> list[Problem]:
    """Return findings about missing peers, messages to the own rank, empty messages, and unmatched ones."""
    if _all_match(index, ranks):
        return []
    problems: list[Problem] = []
    sound = ends_of_templates(index, index.used_templates())
    exists = np.ones(len(sound.template), np.bool_)  # whether the peer of an end exists
    for template in _doubtful(index, sound, ranks):
        ends = sound[template]
        problems += _outside(index, template, ends, ranks)
        problems += _wrong_own_ends(index, template, message_rows(index.workload.templates[template]))
        problems += _to_oneself(index, template, ends)
        problems += _empty(index, template, ends)
        exists[sound.rows(template)] = (ends.peer >= 0) & (ends.peer < _peers(index, template, ranks))
    sound = sound.only(exists)
    if sound:
        problems += _unmatched(index, sound)
    return problems


def _all_match(index: TemplateIndex, ranks: int) -> bool:
    """Return whether each template is that of one rank, and all messages are certainly right and have their
    other end.
    """
    if not (_are_of_one_rank(index) | (index.counts == 0)).all():
        return False
    parts = []
    for _, is_wrong, *ends in _messages_of_one_rank(index, ranks):
        if is_wrong.any():
            return False
        parts.append(ends)
    if not parts:
        return True
    is_send, *channel = (np.concatenate(column) for column in zip(*parts, strict=True))
    return are_paired(is_send, *channel)


def _doubtful(index: TemplateIndex, ends_of: EndsOf, ranks: int) -> list[int]:
    """Return the templates that need a check of their own: all but those of one rank that are certainly
    right.
    """
    are_doubtful = ~_are_of_one_rank(index)
    for template, is_wrong, *_ in _messages_of_one_rank(index, ranks):
        are_doubtful[template[is_wrong]] = True
    doubtful: list[int] = ends_of.templates[are_doubtful[ends_of.templates]].tolist()
    return doubtful


def _are_of_one_rank(index: TemplateIndex) -> Any:
    return (index.counts == 1) & ~index.workload.are_relative


def _messages_of_one_rank(index: TemplateIndex, ranks: int) -> Iterator[tuple[Any, ...]]:
    """Yield the messages of templates of one rank: template, whether it may be wrong, whether it is a send,
    source, target, tag and size.
    """
    for stack, rows, of in rows_of_templates(index.workload, _are_of_one_rank(index)):
        lowest_rank = index.ranks[np.minimum(stack.share(index.first), len(index.ranks) - 1)]
        trace, own = stack.trace, lowest_rank[of]
        is_send, peer, tag, size = endpoints(trace, rows, False, ranks)
        is_given = np.where(is_send, trace.has("comm_src", rows), trace.has("comm_dst", rows))
        own_end = np.where(is_send, trace.comm_src[rows], trace.comm_dst[rows])
        is_right = (peer >= 0) & (peer < ranks) & (peer != own) & (size > 0)
        is_wrong = ~is_right | (is_given & (own_end != own))
        channel = np.where(is_send, own, peer), np.where(is_send, peer, own), tag, size
        yield stack.number + of, is_wrong, is_send, *channel


def _peers(index: TemplateIndex, template: int, ranks: int) -> int:
    """Return the number of possible peers: any distance leads to a rank of the workload."""
    return index.workload.ranks if index.workload.has_relative_peers(template) else ranks


def _unmatched(index: TemplateIndex, sound: EndsOf) -> list[Problem]:
    pairs = find_pairs(index, sound)
    differing = pairs.key[pairs.send != pairs.receive]
    if not len(differing):
        return []
    problems = explain_unmatched(index, _channels(index, sound, differing[:_EXPLAINED]))
    left = differing[_EXPLAINED:]
    if len(left):
        rest, ranks_left = f"of ranks {_NO_MATCH}", np.concatenate(split_key(left))
        problems.append(not_spelled_out("error", "unmatched-message", len(left), "pair", rest, ranks_left))
    return problems


def _channels(index: TemplateIndex, sound: EndsOf, wanted: Any) -> MessageChannels:
    """Return all endpoints of the wanted pairs of ranks, sorted into channels."""
    columns: dict[str, list[Any]] = {name: [] for name in ("key", *EndpointSet._fields)}
    for template, ends in sound.items():
        users = index.ranks_of(template)
        bundles = bundle_bounds(ends.is_send, ends.peer)[:-1]
        keys = pair_keys(index, template, users, ends.is_send[bundles], ends.peer[bundles])
        users = users[np.isin(keys, wanted).any(axis=1)]
        keys = pair_keys(index, template, users, ends.is_send, ends.peer).reshape(-1)
        which = np.isin(keys, wanted)
        columns["key"].append(keys[which])
        for name, column in zip(EndpointSet._fields, ends, strict=True):
            columns[name].append(np.tile(column, len(users))[which])
    of = {name: np.concatenate(parts) for name, parts in columns.items()}
    source, target = split_key(of["key"])
    order, first = sorted_groups(source, target, of["tag"], of["size"])
    signed = np.where(of["is_send"], of["count"], -of["count"])[order]
    at = order[first]
    return MessageChannels(
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


def _outside(index: TemplateIndex, template: int, ends: EndpointSet, ranks: int) -> list[Problem]:
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


def _wrong_own_ends(index: TemplateIndex, template: int, rows: Any) -> list[Problem]:
    """Return findings about nodes whose own end is another rank than the one that runs them."""
    trace = index.workload.templates[template]
    is_send = trace.kind[rows] == NodeKind.SEND
    is_given = np.where(is_send, trace.has("comm_src", rows), trace.has("comm_dst", rows))
    named_end = np.where(is_send, trace.comm_src[rows], trace.comm_dst[rows])[is_given]
    rows = rows[is_given]
    if not len(rows):
        return []
    users = index.ranks_of(template)
    for at in np.unique(named_end, return_index=True)[1]:
        others = users[peers_of(index, template, users, named_end[at]) != users]
        if len(others):
            attribute = "comm_src" if trace.kind[rows[at]] == NodeKind.SEND else "comm_dst"
            end = int(peers_of(index, template, others, named_end[at])[0])
            text = (
                f"{index.place(others)}: {trace.describe(int(rows[at]))} has the own end rank"
                f" {end} ({attribute}), but runs elsewhere"
            )
            remedy = f"leave {attribute} out, or give every rank its own trace file"
            return [Problem("error", "foreign-end", format_ranks(others), text, remedy)]
    return []


def _to_oneself(index: TemplateIndex, template: int, ends: EndpointSet) -> list[Problem]:
    users = index.ranks_of(template)
    is_relative = index.workload.has_relative_peers(template)
    if is_relative:
        to_itself = np.flatnonzero(ends.peer == 0)
    else:
        to_itself = np.flatnonzero(ends.peer == users[0] if len(users) == 1 else np.isin(ends.peer, users))
    if not len(to_itself):
        return []
    first = to_itself[np.argmin(ends.row[to_itself])]
    verb = "sends to" if ends.is_send[first] else "receives from"
    trace = index.workload.templates[template]
    text = (
        f"{index.place(users if is_relative else ends.peer[[first]])}:"
        f" {trace.describe(int(ends.row[first]))} {verb} its own rank{_more(ends.count[to_itself].sum() - 1)}"
    )
    remedy = "a copy within a rank is not a message: check the peer"
    own_ranks = format_ranks(users if is_relative else ends.peer[to_itself])
    return [Problem("warning", "message-to-oneself", own_ranks, text, remedy)]


def _empty(index: TemplateIndex, template: int, ends: EndpointSet) -> list[Problem]:
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


class MessageChannels(Struct, frozen=True):
    """One row per channel; `end_*` columns hold the endpoints, channel by channel from `first`."""

    source: Any
    target: Any
    tag: Any
    size: Any
    surplus: Any  # sends minus receives
    first: Any
    end_is_send: Any
    end_row: Any
    end_count: Any

    def end(self, channel: int, is_send: bool) -> tuple[int, int]:
        """Return the number of sends or receives of the channel, and the row of the first; -1 if none."""
        span = slice(int(self.first[channel]), int(self.first[channel + 1]))
        which = np.flatnonzero(self.end_is_send[span] == is_send)
        if not len(which):
            return 0, -1
        rows, counts = self.end_row[span][which], self.end_count[span][which]
        return int(counts.sum()), int(rows.min())


# fields in which two unmatched ends may differ, the most significant first
_RULES: tuple[tuple[str, ...], ...] = (
    ("source", "target", "tag"),
    ("source", "target", "size"),
    ("source", "target"),
    ("target", "tag", "size"),
    ("source", "tag", "size"),
)
_REMEDIES = {
    _RULES[0]: "give both ends the same comm_size",
    _RULES[1]: "give both ends the same comm_tag",
    _RULES[2]: "give both ends the same comm_size and comm_tag",
    _RULES[3]: "correct comm_dst of the send or comm_src of the receive",
    _RULES[4]: "correct comm_dst of the send, or move the receive to the other rank",
}


def explain_unmatched(index: TemplateIndex, channels: MessageChannels) -> list[Problem]:
    """Return one problem per unmatched pair of ends, the first ones printed in full."""
    unmatched = np.flatnonzero(channels.surplus)
    spare = np.ones(len(unmatched), bool)
    shown = _shown(channels, unmatched)
    problem_of: dict[int, Problem] = {}
    for same in _RULES:
        for at in shown:
            partner = _partner(channels, unmatched, spare, at, same) if spare[at] else None
            if partner is not None:
                spare[[at, partner]] = False
                problem_of[at] = _mismatch(index, channels, unmatched[at], unmatched[partner], same)
    for at in shown:
        partner = _reversed(channels, unmatched, spare, at) if spare[at] else None
        if partner is not None:
            spare[[at, partner]] = False
            problem_of[at] = _same_side(index, channels, unmatched[at])
        elif spare[at]:
            spare[at] = False
            problem_of[at] = _lonely(index, channels, unmatched[at])
    problems = [problem_of[at] for at in sorted(problem_of)]
    left = unmatched[spare]
    if len(left):
        ranks_left = np.concatenate((channels.source[left], channels.target[left]))
        problems.append(
            not_spelled_out("error", "unmatched-message", len(left), "channel", _NO_MATCH, ranks_left)
        )
    return problems


def _shown(channels: MessageChannels, unmatched: Any) -> list[int]:
    """Return places in `unmatched` to explain: sends first, because they name the target."""
    by_side = np.argsort(channels.surplus[unmatched] < 0, kind="stable")
    return [int(at) for at in by_side[:SPELLED_OUT]]


def _partner(
    channels: MessageChannels, unmatched: Any, spare: Any, at: int, same: tuple[str, ...]
) -> int | None:
    """Return the place of the first spare end of the other side that agrees in `same`."""
    fits = spare & ((channels.surplus[unmatched] > 0) != (channels.surplus[unmatched[at]] > 0))
    for name in same:
        column = getattr(channels, name)
        fits = fits & (column[unmatched] == column[unmatched[at]])
    places = np.flatnonzero(fits)
    return int(places[0]) if len(places) else None


def _reversed(channels: MessageChannels, unmatched: Any, spare: Any, at: int) -> int | None:
    """Return the place of an end of the same side with source and target swapped: both send, or both wait."""
    this = unmatched[at]
    fits = spare & ((channels.surplus[unmatched] > 0) == (channels.surplus[this] > 0))
    fits = fits & (channels.source[unmatched] == channels.target[this])
    fits = fits & (channels.target[unmatched] == channels.source[this])
    fits = fits & (channels.size[unmatched] == channels.size[this]) & (unmatched != this)
    places = np.flatnonzero(fits)
    return int(places[0]) if len(places) else None


def _mismatch(
    index: TemplateIndex, channels: MessageChannels, channel: int, partner: int, same: tuple[str, ...]
) -> Problem:
    send, receive = (channel, partner) if channels.surplus[channel] > 0 else (partner, channel)
    source, target = int(channels.source[receive]), int(channels.target[receive])
    wanted = {
        _RULES[0]: exact_bytes(int(channels.size[receive])),
        _RULES[1]: f"tag {channels.tag[receive]}",
        _RULES[2]: f"{exact_bytes(int(channels.size[receive]))} with tag {channels.tag[receive]}",
        _RULES[3]: f"it from rank {source}",
        _RULES[4]: f"it from rank {source}",
    }[same]
    node = _node_of_channel(index, channels, receive)
    text = f"{_sends(index, channels, send)}; rank {target} expects {wanted} ({node})"
    ranks = {int(channels.source[send]), int(channels.target[send]), source, target}
    return Problem("error", "unmatched-message", format_ranks(ranks), text, _REMEDIES[same])


def _same_side(index: TemplateIndex, channels: MessageChannels, channel: int) -> Problem:
    source, target = int(channels.source[channel]), int(channels.target[channel])
    if channels.surplus[channel] > 0:
        fact, others = _sends(index, channels, channel), f"rank {target} also sends to rank {source}"
        text, remedy = f"{fact}; {others}, and neither receives", "make one of the two sends a receive"
    else:
        fact, others = _expects(index, channels, channel), f"rank {source} also waits for rank {target}"
        text, remedy = f"{fact}; {others}, and neither sends", "make one of the two receives a send"
    return Problem("error", "unmatched-message", format_ranks((source, target)), text, remedy)


def _lonely(index: TemplateIndex, channels: MessageChannels, channel: int) -> Problem:
    """Return the finding about an end without a similar one: too few partners, or none."""
    source, target = int(channels.source[channel]), int(channels.target[channel])
    sends, receives = channels.end(channel, True)[0], channels.end(channel, False)[0]
    if sends > receives:
        does = f"receives {_times(receives)}" if receives else "never receives it"
        text = f"{_sends(index, channels, channel)}; rank {target} {does}"
        remedy = "add the missing receive, or remove the send"
    else:
        does = f"sends it {_times(sends)}" if sends else "never sends it"
        text = f"{_expects(index, channels, channel)}; rank {source} {does}"
        remedy = "add the missing send, or remove the receive"
    return Problem("error", "unmatched-message", format_ranks((source, target)), text, remedy)


def _sends(index: TemplateIndex, channels: MessageChannels, channel: int) -> str:
    sends, receives = channels.end(channel, True)[0], channels.end(channel, False)[0]
    often = f" {_times(sends)}" if sends > 1 or receives else ""
    message = f"{exact_bytes(int(channels.size[channel]))} with tag {channels.tag[channel]}"
    return (
        f"rank {channels.source[channel]} sends {message} to rank {channels.target[channel]}{often}"
        f" ({_node_of_channel(index, channels, channel)})"
    )


def _expects(index: TemplateIndex, channels: MessageChannels, channel: int) -> str:
    receives, sends = channels.end(channel, False)[0], channels.end(channel, True)[0]
    often = f" {_times(receives)}" if receives > 1 or sends else ""
    message = f"{exact_bytes(int(channels.size[channel]))} with tag {channels.tag[channel]}"
    return (
        f"rank {channels.target[channel]} expects {message} from rank {channels.source[channel]}{often}"
        f" ({_node_of_channel(index, channels, channel)})"
    )


def _node_of_channel(index: TemplateIndex, channels: MessageChannels, channel: int) -> str:
    """Return node and file of the end that the channel has too many of."""
    is_send = bool(channels.surplus[channel] > 0)
    rank = int((channels.source if is_send else channels.target)[channel])
    count, row = channels.end(channel, is_send)
    first = "first: " if count > 1 else ""
    return f"{first}{index.workload.trace(rank).describe(row)} in {index.file_of(rank)}"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
