"""The explanation of a difference between collectives of two members: its place, and whether it is certain.

A difference in content (a type, a size, a count) cannot be corrected by any order and is an error. The same
collectives in another order are an error only if both orders are certain; if times could still decide, they
are a warning.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from et_sim.basics.units import format_ranks, plural
from et_sim.trace.order import issue_order
from et_sim.trace.preflight.problem import (
    Problem,
    Severity,
    TemplateIndex,
    have,
    not_spelled_out,
    of_ranks,
    ordinal,
)
from et_sim.trace.preflight.streams import SPLIT, CollectiveSequence, ComparedStream, Streams, collective_text


class _Side(NamedTuple):
    """One of the two compared sides."""

    ranks: Any
    template: int
    sequence: CollectiveSequence


def explain_missing(
    index: TemplateIndex, stream: ComparedStream, streams: Streams, usual: Any, lacking: Any
) -> Problem:
    """Return the finding about members that start no collective of a stream that others use."""
    side = _side(index, stream, streams, usual)
    text = (
        f"{index.place(lacking)}: no {stream.noun} in {stream.name}, where {of_ranks(usual)} {have(usual)}"
        f" {len(side.sequence.rows)}; the first is {_at(index, side, 0)}"
    )
    remedy = "add the missing collectives, or leave the ranks out of the group"
    return Problem(_severity(stream), "collectives-missing", format_ranks(lacking), text, remedy)


def explain_more(stream: ComparedStream, ranks: Any) -> Problem:
    """Return the finding that counts further ranks with differences."""
    rest = f"with other {stream.noun}s in {stream.name}"
    return not_spelled_out(_severity(stream), "collectives-differ", len(ranks), "rank", rest, ranks)


def explain_difference(
    index: TemplateIndex, stream: ComparedStream, streams: Streams, usual: Any, unusual: Any
) -> Problem:
    """Return the finding about the first difference of two sequences, with the content of both sides."""
    usual_side, unusual_side = _side(index, stream, streams, usual), _side(index, stream, streams, unusual)
    usual_plain, unusual_plain = usual_side.sequence.plain, unusual_side.sequence.plain
    if np.array_equal(usual_plain, unusual_plain):
        if not np.array_equal(usual_side.sequence.content[:, 3], unusual_side.sequence.content[:, 3]):
            return _roots(index, stream, usual_side, unusual_side)
        return _dimensions(index, stream, usual_side, unusual_side)
    if _counts(usual_plain) == _counts(unusual_plain):
        return _another_order(index, stream, usual_side, unusual_side)
    at = _first_difference(usual_plain, unusual_plain)
    if at == min(len(usual_plain), len(unusual_plain)):
        return _another_count(index, stream, usual_side, unusual_side, streams)
    kind, remedy = _difference(usual_plain[at], unusual_plain[at])
    text = f"{stream.noun}s of {stream.name} differ: {_both(index, usual_side, unusual_side, at)}"
    text += _elsewhere(index, stream, usual_side, unusual_side, at, streams)
    return Problem(_severity(stream), kind, format_ranks(unusual), text, remedy)


def _side(index: TemplateIndex, stream: ComparedStream, streams: Streams, ranks: Any) -> _Side:
    template = int(index.workload.template_of_rank[ranks[0]])
    return _Side(ranks, template, streams[stream][template])


def _severity(stream: ComparedStream) -> Severity:
    return "warning" if stream.is_broadcast else "error"


def _counts(content: Any) -> Counter[tuple[int, ...]]:
    return Counter(map(tuple, content.tolist()))


def _first_difference(first: Any, second: Any) -> int:
    shorter = min(len(first), len(second))
    differs = (first[:shorter] != second[:shorter]).any(axis=1)
    return int(differs.argmax()) if differs.any() else shorter


def _difference(first: Any, second: Any) -> tuple[str, str]:
    if first[0] != second[0]:
        return "collective-type", "give all members the same collectives in the same order"
    if SPLIT in (first[1], second[1]):
        return "collective-splits", "give all members of an all-to-all comm_split_sizes, or none of them"
    remedy = "give all members the same comm_size (et-convert repair --even-sizes gives all the largest)"
    return "collective-size", remedy


def _roots(index: TemplateIndex, stream: ComparedStream, usual: _Side, unusual: _Side) -> Problem:
    at = _first_difference(usual.sequence.content[:, 3:], unusual.sequence.content[:, 3:])
    here, there = (int(side.sequence.content[at, 3]) for side in (usual, unusual))
    names = [f"rank {root}" if root >= 0 else "no rank, so the first member" for root in (here, there)]
    text = (
        f"{stream.noun}s of {stream.name} have different roots: {_both(index, usual, unusual, at)};"
        f" the first names {names[0]}, the other {names[1]}"
    )
    certain = here >= 0 and there >= 0 and not stream.is_broadcast
    severity: Severity = "error" if certain else "warning"
    remedy = "give all members the same comm_src (broadcast, scatter) or comm_dst (reduce, gather)"
    return Problem(severity, "collective-root", format_ranks(unusual.ranks), text, remedy)


def _dimensions(index: TemplateIndex, stream: ComparedStream, usual: _Side, unusual: _Side) -> Problem:
    at = _first_difference(usual.sequence.content, unusual.sequence.content)
    text = (
        f"{stream.noun}s of {stream.name} take part in different dimensions (involved_dim):"
        f" {_both(index, usual, unusual, at)}"
    )
    remedy = "give all members the same involved_dim"
    return Problem("warning", "collective-dimensions", format_ranks(unusual.ranks), text, remedy)


def _another_order(index: TemplateIndex, stream: ComparedStream, usual: _Side, unusual: _Side) -> Problem:
    """Return an error only if neither side can start them in any other order."""
    usual, usual_is_certain = _as_started(index, usual)
    unusual, unusual_is_certain = _as_started(index, unusual)
    certain = usual_is_certain and unusual_is_certain and not stream.is_broadcast
    at = _first_difference(usual.sequence.plain, unusual.sequence.plain)
    fate = "they would be matched by order and hang" if certain else "they hang if they start like this"
    count = len(usual.sequence.rows)
    text = (
        f"{stream.noun}s of {stream.name}: the same {count}, in a different order ({fate}):"
        f" {_both(index, usual, unusual, at)}"
    )
    remedy = "give all members one order, by dependencies or by ascending node ids"
    severity: Severity = "error" if certain else "warning"
    return Problem(severity, "collective-order", format_ranks(unusual.ranks), text, remedy)


def _as_started(index: TemplateIndex, side: _Side) -> tuple[_Side, bool]:
    """Return the side with its collectives in starting order, and whether that is certain."""
    rows, content = side.sequence
    by_id = np.argsort(rows)
    started, is_certain = issue_order(index.workload.templates[side.template], rows[by_id])
    content = content[by_id][np.searchsorted(rows[by_id], started)]
    return side._replace(sequence=CollectiveSequence(started, content)), is_certain


def _another_count(
    index: TemplateIndex, stream: ComparedStream, usual: _Side, unusual: _Side, streams: Streams
) -> Problem:
    """Return the finding about one sequence that is the beginning of the other."""
    shorter, longer = sorted((usual, unusual), key=lambda side: len(side.sequence.rows))
    at = len(shorter.sequence.rows)
    text = (
        f"{index.place(shorter.ranks)} {have(shorter.ranks)} {plural(at, stream.noun)} in {stream.name}, but"
        f" {of_ranks(longer.ranks)} {have(longer.ranks)} {len(longer.sequence.rows)};"
        f" the {ordinal(at + 1)} is {_at(index, longer, at)}"
    )
    text += _elsewhere(index, stream, longer, shorter, at, streams)
    remedy = "give all members the same number of collectives"
    return Problem(_severity(stream), "collective-count", format_ranks(unusual.ranks), text, remedy)


def _elsewhere(
    index: TemplateIndex, stream: ComparedStream, first: _Side, second: _Side, at: int, streams: Streams
) -> str:
    """Return a hint at the same collective in another group, which `second` has more often than `first`."""
    wanted = first.sequence.plain[at]
    for elsewhere in sorted(streams):
        ours, theirs = (_rows_of(wanted, streams[elsewhere].get(side.template)) for side in (first, second))
        if elsewhere != stream and len(theirs) > len(ours):
            node = index.workload.templates[second.template].describe(theirs[0])
            holders = f"{of_ranks(second.ranks)} {have(second.ranks)}"
            return f"; {holders} one like it in {elsewhere.name} ({node})"
    return ""


def _rows_of(wanted: Any, sequence: CollectiveSequence | None) -> list[int]:
    """Return the rows of the collectives of a type and size in a sequence, if there is one."""
    if sequence is None:
        return []
    rows: list[int] = sequence.rows[(sequence.plain == wanted).all(axis=1)].tolist()
    return rows


def _both(index: TemplateIndex, first: _Side, second: _Side, at: int) -> str:
    sides = (f"on {of_ranks(side.ranks)} {_at(index, side, at)}" for side in (first, second))
    return f"the {ordinal(at + 1)} is " + " and ".join(sides)


def _at(index: TemplateIndex, side: _Side, at: int) -> str:
    """Return a collective in words, such as `all_reduce of 1 MiB (node 7 "grads" in x.0.et)`."""
    return collective_text(index, int(side.ranks[0]), side.sequence, at)
