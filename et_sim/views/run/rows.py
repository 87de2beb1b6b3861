"""Rows of the timeline for all views: times, operations and groups of nodes, and exact sums over equal rows.

The timeline names a group as the actor's first rank does; other ranks of the actor may be in another group
(groups.arrow). This module resolves the difference for all views.

Sums use numpy, because importing Arrow's compute functions takes longer than a small simulation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import UsageError
from et_sim.basics.unique import groups_of, unique, unique_rows
from et_sim.basics.units import parse_ranks
from et_sim.tables.declaration import NOT_COMMUNICATION
from et_sim.views.run.columns import Words, coded, integers, numbers, words
from et_sim.views.run.directory import AGAIN, RunDirectory
from et_sim.views.run.names import stems_of
from et_sim.views.run.selection import EVERYTHING, Selection

if TYPE_CHECKING:
    from fractions import Fraction

Text = str | None
Counts = tuple[tuple[Text, int], ...]
NO_GROUP = -1


class RunGroups:
    """The groups of a run, looked up by actor and by the code of the timeline's text."""

    def __init__(self, run: RunDirectory) -> None:
        table = run.table("groups", ("actor", "group", "ranks", "name", "size"))
        group, ranks, name = (words(table[column]) for column in ("group", "ranks", "name"))
        actor, self._number = numbers(table["actor"]), {text: at for at, text in enumerate(group.texts)}
        self._texts = group.texts
        keys = actor * np.int64(len(self._texts)) + group.codes
        self.keys = unique(keys)  # one number per actor and group of the timeline
        self.parts: dict[int, list[tuple[str, str]]] = {}  # by key, (ranks, name) of split groups
        for row in np.flatnonzero(ranks.codes < len(ranks.texts) - 1).tolist():
            part = str(ranks.texts[ranks.codes[row]]), str(name.texts[name.codes[row]])
            self.parts.setdefault(int(keys[row]), []).append(part)
        self._place = str(run.table_path("groups"))
        self.sizes = _sizes(name, numbers(table["size"]))  # by name, if all are equal

    @property
    def actors(self) -> Any:
        """Return the actor of each key."""
        return self.keys // len(self._texts)

    @property
    def names(self) -> list[Text]:
        """Return the timeline's name of the group of each key."""
        return [self._texts[code] for code in (self.keys % len(self._texts)).tolist()]

    def at(self, actor: Any, code: Any, texts: Sequence[Text]) -> Any:
        """Return indices into `keys` for groups given by actors and codes of texts."""
        unknown = len(self._texts)
        number = [NO_GROUP if text is None else self._number.get(text, unknown) for text in texts]
        of_code = np.array(number, np.int64)[code]
        at, in_group = np.full(len(of_code), NO_GROUP, np.int64), np.flatnonzero(of_code != NO_GROUP)
        if not len(in_group):
            return at
        of_code = of_code[in_group]
        keys = actor[in_group].astype(np.int64) * unknown + of_code
        at[in_group] = known = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        if (of_code == unknown).any() or (self.keys[known] != keys).any():
            raise UsageError("lacks groups that the timeline names", place=self._place, remedy=AGAIN)
        return at

    def together(self, actor: Any, code: Any, texts: Sequence[Text]) -> Words:
        """Return names for rows that stand for all ranks of an actor, such as `1 or 2`."""
        names = _Names(texts, code)
        if self.parts:
            at = self.at(actor, code, texts)
            for key in self._split_among(at):
                label = " or ".join(dict.fromkeys(name for _, name in self.parts[key]))
                names.put(np.flatnonzero(at == np.searchsorted(self.keys, key)), label)
        return names.words()

    def of_ranks(self, rank: Any, actor: Any, code: Any, texts: Sequence[Text]) -> Words:
        """Return names for rows that stand for one rank of an actor."""
        names = _Names(texts, code)
        if self.parts:
            at = self.at(actor, code, texts)
            for key in self._split_among(at):
                here = np.flatnonzero(at == np.searchsorted(self.keys, key))
                for ranks, name in self.parts[key]:
                    mine = np.any([_within(rank[here], span) for span in parse_ranks(ranks)], axis=0)
                    names.put(here[mine], name)
        return names.words()

    def _split_among(self, at: Any) -> list[int]:
        """Return the keys of these groups that differ between ranks of an actor."""
        there = self.keys[unique(at[at != NO_GROUP])]
        return [key for key in there.tolist() if key in self.parts]


def _sizes(name: Words, size: Any) -> dict[str, int]:
    pairs = unique_rows(name.codes, size).tolist()
    sizes: dict[str, set[int]] = {}
    for code, members in pairs:
        sizes.setdefault(str(name.texts[int(code)]), set()).add(int(members))
    return {text: members.pop() for text, members in sizes.items() if len(members) == 1}


class _Names:
    """Names of rows by code; names of some rows can be replaced."""

    def __init__(self, texts: Sequence[Text], code: Any) -> None:
        self._number: dict[Text, int] = {}
        first = [self._number.setdefault(text, len(self._number)) for text in texts]
        self._codes = np.array(first, np.int64)[code]

    def put(self, rows: Any, text: str) -> None:
        self._codes[rows] = self._number.setdefault(text, len(self._number))

    def words(self) -> Words:
        """Return the names, with None as the last one."""
        none = self._number.setdefault(None, len(self._number))
        codes = self._codes
        texts = tuple(text for text in self._number if text is not None)
        return Words((*texts, None), np.where(codes == none, len(texts), codes - (codes > none)))


def _within(rank: Any, span: range) -> Any:
    return (rank >= span.start) & (rank < span.stop) & ((rank - span.start) % span.step == 0)


class GroupCounts:
    """Numbers of selected ranks by group, for rows of the timeline.

    `counts` holds the distinct results; the methods return indices into it.
    """

    def __init__(self, run: RunDirectory, part: Selection = EVERYTHING) -> None:
        self._groups, weights = RunGroups(run), part.weights(run)
        distinct, number_of_weight = np.unique(weights, return_inverse=True)
        self._of_no_group = number_of_weight.reshape(-1)  # by actor, for rows in no group
        number: dict[Counts, int] = {((None, weight),): at for at, weight in enumerate(distinct.tolist())}
        actors = weights[self._groups.actors].tolist()
        plain = ((pair,) for pair in zip(self._groups.names, actors, strict=True))
        of_key = [number.setdefault(counts, len(number)) for counts in plain]
        for key, parts in self._groups.parts.items():
            counts = tuple((name, part.count(ranks)) for ranks, name in parts)
            present = tuple(count for count in counts if count[1])
            of_key[int(np.searchsorted(self._groups.keys, key))] = number.setdefault(present, len(number))
        self._of_key = np.array(of_key, np.int64)
        self.counts: tuple[Counts, ...] = tuple(number)

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of ranks of the groups of a name, if all have the same."""
        return self._groups.sizes

    def split_ranks(self) -> dict[tuple[int, Text], list[str]]:
        """Return the lists of ranks with one group each, by actor and timeline group, where groups differ."""
        ranks_of: dict[tuple[int, Text], list[str]] = {}
        keys, actors = self._groups.keys, self._groups.actors
        for key, parts in self._groups.parts.items():
            actor = int(actors[np.searchsorted(keys, key)])
            for ranks, name in parts:
                ranks_of.setdefault((actor, name), []).append(ranks)
        return ranks_of

    def keys(self, rows: Any) -> Any:
        """Return an index for the actor and the group of each row of a batch; -1: no group."""
        return self._groups.at(numbers(rows["actor"]), coded(rows["group"]), _texts(rows))

    def of(self, rows: Any) -> Any:
        """Return the index into `counts` of each row of a batch of the timeline."""
        return self.of_groups(numbers(rows["actor"]), coded(rows["group"]), _texts(rows))

    def of_groups(self, actor: Any, code: Any, texts: Sequence[Text]) -> Any:
        """Return the indices into `counts` of groups of actors."""
        at, counts = self._groups.at(actor, code, texts), self._of_no_group[actor]
        in_group = np.flatnonzero(at != NO_GROUP)
        counts[in_group] = self._of_key[at[in_group]]
        return counts


def _texts(rows: Any) -> tuple[Text, ...]:
    return (*rows["group"].dictionary.to_pylist(), None)


TIMES = ("start_ns", "end_ns", "queued_ns", "waiting_ns", "moving_ns")  # columns that `spans` needs
OPERATION = ("actor", "kind", "name", "group")  # and `OperationKeys`
Key = tuple[str, str, str | None]  # kind, stem of the name, and group of an operation


def communicates(kind: str | None) -> bool:
    """Return whether nodes of this kind move data between ranks."""
    return kind is not None and kind not in NOT_COMMUNICATION


class Spans(Struct, frozen=True, eq=False):
    """Times of nodes: start, end of waiting for the own rank, end of waiting for other ranks, end.

    `moving` is how long bytes moved; for a node that moves none, the time without waiting.
    """

    start: Any
    admitted: Any
    moved: Any
    end: Any
    completed: Any  # whether they ended
    moving: Any  # a duration

    def take(self, rows: Any) -> Spans:
        """Return the times of some of the nodes."""
        return Spans(*(getattr(self, name)[rows] for name in self.__struct_fields__))

    def cut(self, part: Selection) -> Spans:
        """Return the times cut to the window."""
        if part.window is None:
            return self
        times = (self.start, self.admitted, self.moved, self.end)
        start, admitted, moved, end = (np.clip(time, *part.window) for time in times)
        share = (end - start) / np.maximum(self.end - self.start, 1)
        moving = np.rint(self.moving * share).astype(np.int64)
        return Spans(start, admitted, moved, end, self.completed, moving)


def spans(rows: Any, unended_ns: int = 0) -> Spans:
    """Return the times of the rows; a node that did not end ends at `unended_ns`, or at its start."""
    start, end = numbers(rows["start_ns"]), integers(rows["end_ns"], missing=-1)
    completed = end >= 0
    end = np.maximum(np.where(completed, end, unended_ns), start)
    admitted = np.minimum(start + integers(rows["queued_ns"], missing=0), end)
    moved = np.minimum(admitted + integers(rows["waiting_ns"], missing=0), end)
    moving = integers(rows["moving_ns"], missing=-1)
    moving = np.where(completed & (moving >= 0), moving, end - moved)
    return Spans(start, admitted, moved, end, completed, moving)


class Grouped:
    """Groups of rows that agree in some columns; `keys` has one row per group, in ascending order."""

    def __init__(self, *columns: Any) -> None:
        groups = groups_of(*columns)
        self.keys = np.stack([np.asarray(column)[groups.first] for column in columns], axis=1)
        self.of_row = groups.of_row

    def total(self, values: Any) -> Any:
        """Return the exact sum of whole numbers by group."""
        return total_by(self.of_row, len(self.keys), values)

    def with_keys(self, *figures: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Return each key with its figures, or with its figure if there is only one."""
        columns = [figure.tolist() for figure in figures]
        rows = columns[0] if len(columns) == 1 else zip(*columns, strict=True)
        return zip(map(tuple, self.keys.tolist()), rows, strict=True)


def total_by(of_row: Any, count: int, values: Any) -> Any:
    """Return the sum of whole numbers for each of `count` groups, exactly."""
    totals = np.zeros(count, np.int64)
    np.add.at(totals, of_row, values)
    return totals


MANTISSA, LOW = 53, 27  # bits


def exact_total_by(of_row: Any, count: int, values: Any) -> list[Fraction | float]:
    """Return the exact sum of figures for each of `count` groups, independent of the order of rows.

    Figures become whole numbers times powers of two; the two halves of their sums fit 64 bits. Only sums that
    are not finite are not fractions.
    """
    totals: list[Fraction | float] = [0] * count
    counted = np.flatnonzero(values)
    if not len(counted):
        return totals
    from fractions import Fraction

    of_row, values = of_row[counted], values[counted]
    is_finite = np.isfinite(values)
    share, exponent = np.frexp(np.where(is_finite, values, 0.0))
    whole = (share * (1 << MANTISSA)).astype(np.int64)
    equal = groups_of(exponent)
    powers, place = exponent[equal.first], of_row * len(equal) + equal.of_row
    high, low = (
        total_by(place, count * len(powers), part) for part in (whole >> LOW, whole & ((1 << LOW) - 1))
    )
    for at in np.flatnonzero((high != 0) | (low != 0)).tolist():
        group, power = divmod(at, len(powers))
        scale = Fraction(2) ** (int(powers[power]) - MANTISSA)
        totals[group] += ((int(high[at]) << LOW) + int(low[at])) * scale
    for group in np.unique(of_row[~is_finite]).tolist():
        totals[group] = float(np.sum(values[~is_finite & (of_row == group)]))
    return totals


def most_by(of_row: Any, count: int, values: Any, least: int = 0) -> Any:
    """Return the largest of whole numbers for each of `count` groups, and `least` for an empty group."""
    most = np.full(count, least, np.int64)
    np.maximum.at(most, of_row, values)
    return most


class OperationKeys:
    """Operations of rows of the timeline, and numbers of selected ranks by group.

    `beside` holds names of another run; both runs get the same stems.
    """

    def __init__(self, run: RunDirectory, part: Selection, beside: Iterable[str | None] = ()) -> None:
        self._run, self._beside = run, beside
        self.groups = GroupCounts(run, part)
        self.kinds = self.stems = Words((), np.zeros(0, np.int64))

    def columns(self, rows: Any) -> tuple[Any, Any, Any]:
        """Return the codes of the kind, of the stem, and of the group counts of every row."""
        if not self.kinds.texts:  # all batches share their texts
            self.kinds = words(rows["kind"])
            self.stems = stems_of(words(rows["name"]), self._beside) if self._beside else self._run.stems
        return coded(rows["kind"]), self.stems.codes[coded(rows["name"])], self.groups.of(rows)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Return the number of codes of each column."""
        return len(self.kinds.texts), len(self.stems.texts), len(self.groups.counts)

    def named(self, kind: int, stem: int, counts: int) -> tuple[str, str, Counts]:
        """Return the kind, the name, and the groups with selected ranks that these codes stand for."""
        there = tuple((group, ranks) for group, ranks in self.groups.counts[counts] if ranks)
        return str(self.kinds.texts[kind]), str(self.stems.texts[stem]), there

    def operations(self, kind: int, stem: int, counts: int) -> Iterator[tuple[Key, int]]:
        """Return each operation that these codes stand for, with its number of ranks."""
        kind_name, name, groups = self.named(kind, stem, counts)
        return (((kind_name, name, group), ranks) for group, ranks in groups)
