"""Differences between ranks in an operation: its duration on each of them, and when they begin it.

A rank's duration is the sum over its nodes, without queueing and waiting for other ranks; its begin is the
mean over its nodes. Actors count as often as they have selected ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins

from et_sim.basics.unique import groups_of
from et_sim.basics.units import format_ns
from et_sim.tables.declaration import NOT_COMMUNICATION
from et_sim.views.run.columns import numbers, together
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import OPERATION, TIMES, GroupCounts, Key, OperationKeys, spans
from et_sim.views.run.selection import EVERYTHING, Selection, recorded_part
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.summary.rank_table import called
from et_sim.views.text import prose
from et_sim.views.view import Forms

COLUMNS = (*OPERATION, *TIMES)
ROWS = 20
LEGEND = (
    "durations are sums over the nodes of a rank, without queueing and waiting; later: how much the last "
    "rank begins after the first, on average over its nodes",
    "cost: of computation, how much longer the slowest rank takes than the average one; of communication, "
    "how long the average rank waits for others to begin",
)

NOTHING = "no operation has completed on several ranks"


class Distribution(Struct, frozen=True):
    """A distribution over ranks; a quantile is the least value that so many ranks do not exceed."""

    least: int
    quarter: int
    median: int
    three_quarters: int
    most: int
    mean: float
    deviation: float  # standard deviation
    most_ranks: str  # ranks with the largest value


class OperationSpread(Struct, frozen=True):
    """An operation of several ranks."""

    kind: str
    name: str
    group: str | None
    ranks: int
    count: int  # nodes, over all ranks
    duration_ns: Distribution
    begin_ns: Distribution
    waiting_ns: float  # of the average rank
    cost_ns: float

    @property
    def called(self) -> str:
        """Return the operation for one cell."""
        return f"{self.name}, {self.kind}" + (f" in {self.group}" if self.group else "")


class _Ranks(Struct, frozen=True, eq=False):
    """Figures of an operation with one row per actor: sums over its nodes in one of its ranks."""

    actor: Any
    weight: Any
    count: Any
    duration: Any
    waiting: Any
    begin: Any


def spreads(run: RunDirectory, part: Selection = EVERYTHING) -> list[OperationSpread]:
    """Return the spreads of all operations of several selected ranks, the costliest first."""
    keys = OperationKeys(run, part)
    names = _RankNames(run, part, keys.groups)
    ranks_of: dict[Key, list[_Ranks]] = {}
    for codes, sums in _sums(run, part, keys):
        for key, ranks in keys.operations(*codes):
            of_actors = _Ranks(sums[0], np.full(len(sums[0]), ranks, np.int64), *sums[1:])
            ranks_of.setdefault(key, []).append(of_actors)
    every = [_spread(key, parts, names) for key, parts in ranks_of.items()]
    several = [operation for operation in every if operation.ranks > 1]
    return sorted(
        several,
        key=lambda operation: (-operation.cost_ns, operation.kind, operation.name, operation.group or ""),
    )


def _sums(
    run: RunDirectory, part: Selection, operations: OperationKeys
) -> Iterator[tuple[tuple[int, int, int], tuple[Any, ...]]]:
    """Yield codes of operations with their actors, and by actor: nodes, time, waiting and mean begin."""
    keys, sums = [], []
    for rows in run.batches("timeline", COLUMNS):
        chosen, figures = _figures(rows, part)
        columns = (*operations.columns(rows), numbers(rows["actor"]))
        these, totals = _added(np.stack([column[chosen].astype(np.int64) for column in columns], 1), figures)
        keys.append(these)
        sums.append(totals)
    if not keys:
        return
    distinct, totals = _added(np.concatenate(keys), np.concatenate(sums))
    if not len(distinct):
        return
    firsts = np.flatnonzero(np.any(np.diff(distinct[:, :3], axis=0, prepend=-1) != 0, axis=1))
    for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(distinct)], strict=True):
        count, duration, waiting, begin = totals[first:end].T
        begin = np.rint(begin / count) + (part.window or (0,))[0]
        yield tuple(distinct[first, :3].tolist()), (distinct[first:end, 3], count, duration, waiting, begin)


def _figures(rows: Any, part: Selection) -> tuple[Any, Any]:
    """Return which nodes completed in the window, and 1, time, waiting and begin of each."""
    times = spans(rows)
    chosen = np.flatnonzero(times.completed & part.touches(times.start, times.end))
    times = times.take(chosen).cut(part)
    waiting = times.moved - times.admitted
    duration = times.end - times.admitted - waiting
    figures = (np.ones(len(chosen)), duration, waiting, times.start - (part.window or (0,))[0])
    return chosen, np.stack(
        [figure.astype(np.float64) for figure in figures], 1
    )  # sums below 2**53 are exact


def _added(keys: Any, figures: Any) -> tuple[Any, Any]:
    """Return the distinct rows of keys in ascending order, and the sums of their figures."""
    equal = groups_of(*keys.T)
    return keys[equal.first], np.stack([equal.sums(column) for column in figures.T], 1)


class _RankNames:
    """Names of the selected ranks of actors in a group."""

    def __init__(self, run: RunDirectory, part: Selection, groups: GroupCounts) -> None:
        self._ranks, self._part = run.actors()["ranks"].to_pylist(), part
        self._split = groups.split_ranks()
        self._known: dict[tuple[bytes, str | None], str] = {}

    def of(self, actors: Any, group: str | None) -> str:
        """Return the ranks of several actors."""
        key = (actors.tobytes(), group)
        if key not in self._known:
            self._known[key] = self._together(actors, group)
        return self._known[key]

    def _together(self, actors: Any, group: str | None) -> str:
        several = (self._split.get((actor, group), [self._ranks[actor]]) for actor in actors.tolist())
        named = (self._part.names(text) for texts in several for text in texts)
        return together([text for text in dict.fromkeys(named) if text])


def _spread(key: Key, parts: list[_Ranks], names: _RankNames) -> OperationSpread:
    actor, weight, count, duration, waiting, begin = (
        np.concatenate([getattr(part, column) for part in parts]) for column in _Ranks.__struct_fields__
    )
    ranks = int(weight.sum())
    durations, begins = (_distribution(column, weight, actor, key[2], names) for column in (duration, begin))
    waited = float((waiting * weight).sum() / ranks)
    cost = durations.most - durations.mean if key[0] in NOT_COMMUNICATION else waited
    return OperationSpread(
        *key, ranks, int((count * weight).sum()), durations, begins, waited, max(cost, 0.0)
    )


def _distribution(values: Any, weight: Any, actor: Any, group: str | None, names: _RankNames) -> Distribution:
    order = np.argsort(values, kind="stable")
    reached, total = np.cumsum(weight[order]), int(weight.sum())
    at = [int(np.searchsorted(reached, quarters * total / 4)) for quarters in range(5)]
    least, quarter, median, three_quarters, most = values[order][at].astype(np.int64).tolist()
    different, which = np.unique(values, return_inverse=True)
    times = np.bincount(which.reshape(-1), weight)  # by distinct value, so that sums do not depend on folding
    apart = different - median  # small, so that sums are exact
    mean = float((apart * times).sum() / total)
    deviation = float((((apart - mean) ** 2) * times).sum() / total) ** 0.5
    named = names.of(actor[values == most], group)
    return Distribution(least, quarter, median, three_quarters, most, median + mean, deviation, named)


def spread_data(run: RunDirectory, part: Selection) -> list[dict[str, Any]]:
    """Return the spreads for `--json`."""
    return [to_builtins(operation) for operation in part.cut(spreads(run, part))]


def notes_of(run: RunDirectory) -> list[str]:
    """Return a note on the recorded part."""
    kept = recorded_part(run)
    return [f"only of the recorded part: {kept}"] if kept else []


def spread_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return a line for each operation."""
    every = spreads(run, part)
    if not every:
        return prose([NOTHING], width)
    lines = SHEET.shown(every, part, width)
    return prose([*lines, *LEGEND, *notes_of(run)], width)


def _most(of: Distribution) -> str:
    """Return the ranks with the largest value, if values differ."""
    return called(of.most_ranks, 16) if of.most > of.least else ""


SHEET = Sheet(
    (
        SheetColumn("operation", "called", "<"),
        SheetColumn("cost", "cost_ns"),
        SheetColumn("ranks"),
        SheetColumn("shortest", lambda operation: format_ns(operation.duration_ns.least)),
        SheetColumn("median", lambda operation: format_ns(operation.duration_ns.median)),
        SheetColumn("longest", lambda operation: format_ns(operation.duration_ns.most)),
        SheetColumn("of", lambda operation: _most(operation.duration_ns), "<"),
        SheetColumn("later", lambda operation: format_ns(operation.begin_ns.most - operation.begin_ns.least)),
        SheetColumn("last", lambda operation: _most(operation.begin_ns), "<"),
    ),
    cut={"operation": 20},
    drop=("ranks", "shortest", "last", "later"),
    names=("operation",),
    rows=ROWS,
    more="line",
    hint=" of less cost: --top",
)
SPREAD = Forms(spread_lines, spread_data)
