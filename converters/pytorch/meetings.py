"""Comparison of the ranks of a job: the start of each, and sizes that some ranks lack.

Collectives with an input from every rank end at the same time on all ranks of their group. Their ends show
the differences between clocks, and the accuracy of these. The n-th collective of a group on one rank matches
the n-th on the others, if all have the same number and kinds in the same order; other groups are ignored. If
collectives do not connect all ranks, messages between kernels are used, too: both ends finish together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field

from converters.pytorch.clocks import Clocks, fit_clocks
from converters.pytorch.columns import NONE
from converters.pytorch.graph import Column, RunPart
from converters.pytorch.rank import ConvertedRank
from et_sim.basics.unique import unique
from et_sim.basics.units import format_ns
from et_sim.trace.columns import CollectiveKind, NodeKind

JOINT = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
    CollectiveKind.BARRIER,
)
_ENOUGH = 2  # common ends of two ranks that permit a comparison
_CLEAR = 5  # recorded clocks are corrected if corrected ones agree this many times better
_VAGUE = 0.05  # of the time recorded: clocks that agree no better do not determine the starts


class Series(Struct, frozen=True, eq=False):
    """The collectives of one group on one rank, in order."""

    kind: Column  # CollectiveKind
    node: Column  # ids in the trace
    begin_ns: Column  # by the clock of the recording
    end_ns: Column
    bytes: Column  # NONE: unknown


class Meetings(Struct, frozen=True, eq=False):
    """The collectives of one rank, and the time of its recording."""

    begin_ns: int
    end_ns: int
    of_group: dict[tuple[int, ...] | str, Series]  # by members; groups without a description by name
    # ends of the messages of kernels, by sender and receiver
    of_pair: dict[tuple[int, int], Column] = field(default_factory=dict)


def meetings_of(rank: ConvertedRank) -> Meetings:
    """Return the collectives and messages of a converted rank."""
    graph = rank.graph
    rows = np.flatnonzero(rank.communication != NONE)
    rows = rows[np.lexsort((rows, graph.start_ns[rows]))]
    which = rank.communication[rows]
    collective = [communication.operation.collective for communication in rank.communications]
    kind = np.array(
        [NONE if kind_or_none is None else int(kind_or_none) for kind_or_none in collective] or [NONE],
        np.int64,
    )[which]
    size = [
        NONE if communication.is_unsized else communication.comm_bytes
        for communication in rank.communications
    ]
    sizes = np.array(size or [NONE], np.int64)[which]
    names = np.array([communication.group for communication in rank.communications] or [""], object)[which]
    series: dict[tuple[int, ...] | str, Series] = {}
    for name in dict.fromkeys(names.tolist()):
        at = np.flatnonzero((names == name) & (kind != NONE))
        if len(at):
            series[rank.groups.get(name) or name] = Series(
                kind[at],
                rows[at] + 1,
                graph.start_ns[rows[at]] + rank.begin_ns,
                graph.end_ns[rows[at]] + rank.begin_ns,
                sizes[at],
            )
    return Meetings(rank.begin_ns, rank.begin_ns + rank.measured_ns, series, _messages(rank, rows, which))


def _messages(rank: ConvertedRank, rows: Column, which: Column) -> dict[tuple[int, int], Column]:
    """Return the ends of the messages among the rows, in order."""
    ends_of: dict[tuple[int, int], list[int]] = {}
    for row, at in zip(rows.tolist(), which.tolist(), strict=True):
        communication = rank.communications[at]
        if (
            communication.operation.collective is not None
            or rank.graph.role[row] != RunPart.KERNEL
            or communication.peer < 0
        ):
            continue
        ends = (
            (rank.rank, communication.peer)
            if communication.operation.node == NodeKind.SEND
            else (communication.peer, rank.rank)
        )
        ends_of.setdefault(ends, []).append(int(rank.graph.end_ns[row]) + rank.begin_ns)
    return {ends: np.array(moments, np.int64) for ends, moments in ends_of.items()}


class Settled(Struct):
    """The results of the comparison, by rank in the order given."""

    start_ns: list[int]
    starts_text: str = ""  # the differences between starts, or why they are unknown
    sizes: list[dict[int, int]] = field(default_factory=list)  # bytes by node
    estimates: list[set[int]] = field(default_factory=list)  # nodes whose bytes are estimates


def settle(ranks: Sequence[Meetings]) -> Settled:
    """Compare the recordings of the ranks of a job."""
    groups = list(_matched(ranks))
    settled = Settled([0] * len(ranks))
    _find_starts(settled, ranks, groups)
    _find_sizes(settled, ranks, groups)
    return settled


_Group = tuple[list[int], list[Series]]  # positions of ranks, and the series of each


def _matched(ranks: Sequence[Meetings]) -> Iterator[_Group]:
    """Yield the groups whose present ranks all have the same collectives."""
    for key in dict.fromkeys(key for rank in ranks for key in rank.of_group):
        positions = [at for at, rank in enumerate(ranks) if key in rank.of_group]
        series = [ranks[at].of_group[key] for at in positions]
        if all(np.array_equal(other.kind, series[0].kind) for other in series[1:]):
            yield positions, series


def _find_starts(settled: Settled, ranks: Sequence[Meetings], groups: Sequence[_Group]) -> None:
    if len(ranks) < 2:
        return
    ends: list[tuple[list[int], Any]] = []
    for positions, series in groups:
        joint = np.isin(series[0].kind, [int(kind) for kind in JOINT])
        if len(positions) > 1 and joint.sum() >= _ENOUGH:
            ends.append((positions, np.array([rank_series.end_ns[joint] for rank_series in series])))
    collectives = len(ends)
    if len(_compared(ends)) < len(ranks):
        ends += _message_ends(ranks)
    missing = len(ranks) - len(_compared(ends))
    if missing:
        settled.starts_text = f"not known: {missing} of {len(ranks)} ranks share no collectives with others"
        return
    begins = np.array([rank.begin_ns for rank in ranks], np.int64)
    offset, apart, clocks = corrections(ends, begins)
    if apart > _VAGUE * min(rank.end_ns - rank.begin_ns for rank in ranks):
        settled.starts_text = f"not known: ends of collectives that are one disagree by {format_ns(apart)}"
        return
    starts = begins + offset
    starts -= starts.min()
    settled.start_ns = starts.tolist()
    count = sum(values.shape[1] for _, values in ends)
    noun = "collectives" if len(ends) == collectives else "collectives and messages"
    moved = f", after clocks are set by up to {format_ns(int(np.abs(offset).max()))}" if offset.any() else ""
    if clocks is not None:
        moved += precision(clocks, begins)
    settled.starts_text = (
        f"ranks begin up to {format_ns(int(starts.max()))} apart; the ends of {count:,} {noun} agree "
        f"within {format_ns(apart)}{moved}"
    )


def corrections(ends: Sequence[tuple[list[int], Any]], begins: Any) -> tuple[Any, int, Clocks | None]:
    """Return what corrects the begin of each rank, how far ends are apart then, and the fitted clocks.

    Clocks stay as recorded, unless ends agree much better with offsets, or with offsets and drifts.
    """
    nothing = np.zeros(len(begins), np.int64)
    offset = _offsets(ends, len(begins))
    apart, apart_raw = _disagreement(ends, offset), _disagreement(ends, nothing)
    clocks = fit_clocks(ends, offset)
    if clocks is not None and clocks.drifts:
        offset = -np.rint(clocks.ahead_ns(begins)).astype(np.int64)
        corrected = [
            (positions, values - np.rint(clocks.ahead_ns(values, positions)).astype(np.int64))
            for positions, values in ends
        ]
        apart = _disagreement(corrected, nothing)
    return (nothing, apart_raw, None) if apart_raw <= _CLEAR * apart else (offset, apart, clocks)


def precision(clocks: Clocks, begins: Any) -> str:
    """Return drifts and the error of the clocks in words."""
    parts_per_million = 1e6 * float(np.abs(clocks.drift).max())
    drift = f", with drifts of up to {parts_per_million:.3g} ppm" if clocks.drifts else ""
    error = format_ns(max(round(float(clocks.error_ns(begins).max())), 1))
    return f"{drift}; their error is {error} (95 %)"


def _compared(ends: Sequence[tuple[list[int], Any]]) -> set[int]:
    return {at for positions, _ in ends for at in positions}


def _message_ends(ranks: Sequence[Meetings]) -> list[tuple[list[int], Any]]:
    """Return both ends of messages between two ranks that recorded the same number of them."""
    ends_of_pairs: list[tuple[list[int], Any]] = []
    for ends in dict.fromkeys(ends for rank in ranks for ends in rank.of_pair):
        positions = [at for at, rank in enumerate(ranks) if ends in rank.of_pair]
        moments = [ranks[at].of_pair[ends] for at in positions]
        if len(positions) == 2 and len(moments[0]) == len(moments[1]) >= _ENOUGH:
            ends_of_pairs.append((positions, np.array(moments)))
    return ends_of_pairs


def _offsets(ends: Sequence[tuple[list[int], Any]], ranks: int) -> Any:
    """Return the correction of each rank's clock for ends to agree, group by group; the median is 0."""
    offset, is_set = np.zeros(ranks, np.int64), np.zeros(ranks, np.bool_)
    left = list(ends)
    while left:
        # A group with some corrected clocks determines the others; without any, its first rank's clock is
        # taken.
        positions, values = left.pop(
            next((at for at, group_ends in enumerate(left) if is_set[group_ends[0]].any()), 0)
        )
        if not is_set[positions].any():
            is_set[positions[0]] = True
        known = is_set[positions]
        right = np.median((values + offset[positions][:, None])[known], axis=0)
        fresh = np.flatnonzero(~known)
        offset[np.array(positions)[fresh]] = np.median(right - values[fresh], axis=1).astype(np.int64)
        is_set[positions] = True
    return offset - int(np.median(offset))


def _disagreement(ends: Sequence[tuple[list[int], Any]], offset: Any) -> int:
    """Return the typical distance of an end from the others of its collective."""
    off = []
    for positions, values in ends:
        now = values + offset[positions][:, None]
        off.append(np.abs(now - np.median(now, axis=0)).ravel())
    return int(np.median(np.concatenate(off)))


def _find_sizes(settled: Settled, ranks: Sequence[Meetings], groups: Sequence[_Group]) -> None:
    """Find sizes that other ranks recorded, and estimate the others from the usual rate of the group."""
    settled.sizes, settled.estimates = [{} for _ in ranks], [set() for _ in ranks]
    for positions, series in groups:
        known = np.max([rank_series.bytes for rank_series in series], axis=0)
        took = np.min([rank_series.end_ns - rank_series.begin_ns for rank_series in series], axis=0)
        guessed = np.zeros(len(known), np.bool_)
        for kind in unique(series[0].kind[known == NONE]).tolist():
            sample = (series[0].kind == kind) & (known > 0) & (took > 0)
            wanted = (series[0].kind == kind) & (known == NONE) & (took > 0)
            if sample.any():
                rate = float(np.median(known[sample] / took[sample]))
                known[wanted] = np.maximum(np.rint(rate * took[wanted]), 1).astype(np.int64)
                guessed |= wanted
        for at, rank_series in zip(positions, series, strict=True):
            for place in np.flatnonzero((rank_series.bytes == NONE) & (known != NONE)).tolist():
                settled.sizes[at][int(rank_series.node[place])] = int(known[place])
                if guessed[place]:
                    settled.estimates[at].add(int(rank_series.node[place]))
