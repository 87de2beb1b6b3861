"""What was an unmatched message probably meant to match?

Each send without a receive is paired with the most similar receive without a send (or the other way
round), the closest pairs first. Not here: finding the channels that do not balance (`messages`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.basics.units import exact_bytes, format_ranks, plural
from et_sim.trace.preflight.problem import SPELLED_OUT, Problem, TemplateIndex


@dataclass(frozen=True, slots=True)
class Channels:
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
        """(how many sends or receives the channel has, the row of the first; -1 if none)."""
        span = slice(int(self.first[channel]), int(self.first[channel + 1]))
        which = np.flatnonzero(self.end_is_send[span] == is_send)
        if not len(which):
            return 0, -1
        rows, counts = self.end_row[span][which], self.end_count[span][which]
        return int(counts.sum()), int(rows.min())


# In what two unmatched ends may differ, the most telling first.
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


def explain_unmatched(index: TemplateIndex, channels: Channels) -> list[Problem]:
    """One problem per unmatched pair of ends, the first ones spelled out."""
    unmatched = np.flatnonzero(channels.surplus)
    spare = np.ones(len(unmatched), bool)
    shown = _shown(channels, unmatched)
    found: dict[int, Problem] = {}
    for same in _RULES:
        for at in shown:
            partner = _partner(channels, unmatched, spare, at, same) if spare[at] else None
            if partner is not None:
                spare[[at, partner]] = False
                found[at] = _mismatch(index, channels, unmatched[at], unmatched[partner], same)
    for at in shown:
        partner = _reversed(channels, unmatched, spare, at) if spare[at] else None
        if partner is not None:
            spare[[at, partner]] = False
            found[at] = _same_side(index, channels, unmatched[at])
        elif spare[at]:
            spare[at] = False
            found[at] = _lonely(index, channels, unmatched[at])
    problems = [found[at] for at in sorted(found)]
    left = unmatched[spare]
    if len(left):
        text = f"{plural(len(left), 'more channel')} with sends and receives that do not match"
        who = format_ranks(np.concatenate((channels.source[left], channels.target[left])))
        remedy = "repair the first ones and check again"
        problems.append(Problem("error", "unmatched-message", who, text, remedy))
    return problems


def _shown(channels: Channels, unmatched: Any) -> list[int]:
    """Places in `unmatched` to explain: sends first, because they say who wants what."""
    by_side = np.argsort(channels.surplus[unmatched] < 0, kind="stable")
    return [int(at) for at in by_side[:SPELLED_OUT]]


def _partner(channels: Channels, unmatched: Any, spare: Any, at: int, same: tuple[str, ...]) -> int | None:
    """Place of the first spare end of the other side that agrees in `same`."""
    fits = spare & ((channels.surplus[unmatched] > 0) != (channels.surplus[unmatched[at]] > 0))
    for name in same:
        column = getattr(channels, name)
        fits = fits & (column[unmatched] == column[unmatched[at]])
    places = np.flatnonzero(fits)
    return int(places[0]) if len(places) else None


def _reversed(channels: Channels, unmatched: Any, spare: Any, at: int) -> int | None:
    """Place of an end of the same side with source and target swapped: both send, or both wait."""
    this = unmatched[at]
    fits = spare & ((channels.surplus[unmatched] > 0) == (channels.surplus[this] > 0))
    fits = fits & (channels.source[unmatched] == channels.target[this])
    fits = fits & (channels.target[unmatched] == channels.source[this])
    fits = fits & (channels.size[unmatched] == channels.size[this]) & (unmatched != this)
    places = np.flatnonzero(fits)
    return int(places[0]) if len(places) else None


def _mismatch(
    index: TemplateIndex, channels: Channels, one: int, other: int, same: tuple[str, ...]
) -> Problem:
    send, receive = (one, other) if channels.surplus[one] > 0 else (other, one)
    source, target = int(channels.source[receive]), int(channels.target[receive])
    wanted = {
        _RULES[0]: exact_bytes(int(channels.size[receive])),
        _RULES[1]: f"tag {channels.tag[receive]}",
        _RULES[2]: f"{exact_bytes(int(channels.size[receive]))} with tag {channels.tag[receive]}",
        _RULES[3]: f"it from rank {source}",
        _RULES[4]: f"it from rank {source}",
    }[same]
    node = _node(index, channels, receive)
    text = f"{_sends(index, channels, send)}; rank {target} expects {wanted} ({node})"
    ranks = {int(channels.source[send]), int(channels.target[send]), source, target}
    return Problem("error", "unmatched-message", format_ranks(ranks), text, _REMEDIES[same])


def _same_side(index: TemplateIndex, channels: Channels, channel: int) -> Problem:
    source, target = int(channels.source[channel]), int(channels.target[channel])
    if channels.surplus[channel] > 0:
        what, others = _sends(index, channels, channel), f"rank {target} also sends to rank {source}"
        text, remedy = f"{what}; {others}, and neither receives", "make one of the two sends a receive"
    else:
        what, others = _expects(index, channels, channel), f"rank {source} also waits for rank {target}"
        text, remedy = f"{what}; {others}, and neither sends", "make one of the two receives a send"
    return Problem("error", "unmatched-message", format_ranks((source, target)), text, remedy)


def _lonely(index: TemplateIndex, channels: Channels, channel: int) -> Problem:
    """Nothing similar is left: too few of the same, or none at all."""
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


def _sends(index: TemplateIndex, channels: Channels, channel: int) -> str:
    sends, receives = channels.end(channel, True)[0], channels.end(channel, False)[0]
    often = f" {_times(sends)}" if sends > 1 or receives else ""
    what = f"{exact_bytes(int(channels.size[channel]))} with tag {channels.tag[channel]}"
    return (
        f"rank {channels.source[channel]} sends {what} to rank {channels.target[channel]}{often}"
        f" ({_node(index, channels, channel)})"
    )


def _expects(index: TemplateIndex, channels: Channels, channel: int) -> str:
    receives, sends = channels.end(channel, False)[0], channels.end(channel, True)[0]
    often = f" {_times(receives)}" if receives > 1 or sends else ""
    what = f"{exact_bytes(int(channels.size[channel]))} with tag {channels.tag[channel]}"
    return (
        f"rank {channels.target[channel]} expects {what} from rank {channels.source[channel]}{often}"
        f" ({_node(index, channels, channel)})"
    )


def _node(index: TemplateIndex, channels: Channels, channel: int) -> str:
    """Node and file of the end that the channel has too many of."""
    is_send = bool(channels.surplus[channel] > 0)
    rank = int((channels.source if is_send else channels.target)[channel])
    count, row = channels.end(channel, is_send)
    first = "first: " if count > 1 else ""
    return f"{first}{index.workload.trace(rank).describe(row)} in {index.file_of(rank)}"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
