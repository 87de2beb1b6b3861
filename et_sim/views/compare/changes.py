"""Comparison of two runs: changes by operation, group, dimension and rank.

Runs are compared by their files alone. Ranks with equal figures in both runs share a line. Times by
operation, group and dimension are sums over all ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct, structs

from et_sim.basics.uncertainty import LEVEL
from et_sim.basics.unique import sorted_groups
from et_sim.basics.units import format_ns, format_ranks
from et_sim.tables.summary import Manifest
from et_sim.views.bands import band_of_runs
from et_sim.views.compare.pairs import Parting, first_parting
from et_sim.views.compare.samples import sampled_difference
from et_sim.views.run.directory import RunDirectory
from et_sim.views.summary.operations import operations
from et_sim.views.summary.parts import PARTS
from et_sim.views.summary.phase_totals import phase_totals
from et_sim.views.summary.rank_table import rank_count, ranks_named
from et_sim.views.summary.sentences import scope_text
from et_sim.views.text import percent, shortened


def main_change(comparison: Comparison) -> str:
    """Return the cause of the difference as a sentence without a full stop."""
    before, after = comparison.makespans_ns
    if comparison.is_identical:
        return "every operation, group and rank took as long in both"
    text = "both take as long"
    if before != after:
        word = "longer" if after > before else "less"
        share = percent(before, after)
        text = f"B takes {format_ns(abs(after - before))} {word}{f' ({share})' if share else ''}"
    part, change = largest_part(comparison)
    if change:
        text += (
            f"; the average rank has {format_ns(abs(change))} {'more' if change > 0 else 'less'} of {part}"
        )
    if comparison.operations and comparison.operations[0].difference_ns:
        most = comparison.operations[0]
        kind, name, _ = most.name
        more = "more" if most.difference_ns > 0 else "less"
        named = f'{kind.replace("_", " ")} "{name}"' if name else kind.replace("_", " ")
        text += f"; {named} takes {format_ns(abs(most.difference_ns))} {more}, over all ranks"
    return text


def scopes(comparison: Comparison) -> list[tuple[str, str]]:
    """Return what the figures of the runs include and leave out; once, if it is the same."""
    a, b = (scope_text(run.summary.get("scope")) for run in (comparison.a, comparison.b))
    if a == b:
        return [("includes", a)] if a else []
    return [(f"{name} includes", text) for name, text in (("A", a), ("B", b)) if text]


def largest_part(comparison: Comparison) -> tuple[str, int]:
    """Return the part of the average rank's time that changed most, and its change in nanoseconds."""
    of_each = [averages(run) for run in (comparison.a, comparison.b)]
    changes = {part.text: of_each[1][part.figure] - of_each[0][part.figure] for part in PARTS}
    name = max(changes, key=lambda part: abs(changes[part]))
    return name, changes[name]


def averages(run: RunDirectory) -> dict[str, int]:
    """Return every part of the average rank's time, in whole nanoseconds."""
    sums = dict.fromkeys((part.figure for part in PARTS), 0)
    for entry in run.summary["per_rank"]:
        count = rank_count(entry["ranks"])
        for part in PARTS:
            sums[part.figure] += count * entry[part.figure]
    return {name: total // max(run.summary["ranks"], 1) for name, total in sums.items()}


CHANGE_FIGURES = ("a_ns", "b_ns", "difference_ns", "a_count", "b_count")
RULES = ("profile", "profile_named_by", "corrections", "switched", "other_profile", "model_note", "scope")
NOT_SETTINGS = (
    *RULES,
    *("accuracy", "configuration", "inputs", "command", "warnings", "defaults", "other_software"),
)
LONGEST = 60  # letters of a value
RANK_FIGURES = ("finish_ns", *(part.figure for part in PARTS))


class TimeChange(Struct, frozen=True):
    """One thing in both runs; None if a run lacks it."""

    name: tuple[str, ...]
    a_ns: int | None
    b_ns: int | None
    a_count: int
    b_count: int

    @property
    def differs(self) -> bool:
        """Return whether its time or its count changed."""
        return self.a_ns != self.b_ns or self.a_count != self.b_count

    @property
    def difference_ns(self) -> int:
        """Return the second run's time less the first run's."""
        return (self.b_ns or 0) - (self.a_ns or 0)

    def as_dict(self, *keys: str) -> dict[str, Any]:
        """Return it for `--json`, with the parts of the name under these keys."""
        figures = {name: getattr(self, name) for name in CHANGE_FIGURES}
        return {**dict(zip(keys, self.name, strict=True)), **figures}


class RankChange(Struct, frozen=True):
    """Ranks with equal figures in both runs: (first, second) by figure; None: never."""

    ranks: str
    figures: Mapping[str, tuple[int | None, int | None]]

    @property
    def difference_ns(self) -> int:
        """Return how much later they finish in the second run; 0 if they never finish in one run."""
        before, after = self.figures["finish_ns"]
        return 0 if before is None or after is None else after - before

    def as_dict(self) -> dict[str, Any]:
        """Return it for `--json`."""
        named = {name: {"a": a, "b": b} for name, (a, b) in self.figures.items()}
        return {"ranks": self.ranks, "difference_ns": self.difference_ns, **named}


class Comparison(Struct, frozen=True, eq=False):
    """The whole comparison, the largest changes first; things without change are included."""

    a: RunDirectory
    b: RunDirectory
    inputs: tuple[str, ...]  # differences of the inputs
    operations: tuple[TimeChange, ...]  # by kind, name, group
    groups: tuple[TimeChange, ...]
    dimensions: tuple[TimeChange, ...] | None  # None: not both runs recorded phases
    ranks: tuple[RankChange, ...] | None  # None: the runs have different numbers of ranks
    parting: Parting | None  # the first difference; None: there is none, or the ranks differ

    @property
    def makespans_ns(self) -> tuple[int, int]:
        """Return the makespans of both runs."""
        return self.a.summary["makespan_ns"], self.b.summary["makespan_ns"]

    @property
    def relative(self) -> float:
        """Return the relative change of the makespan: 0.02 is two percent."""
        before, after = self.makespans_ns
        return (after - before) / before if before else float(after > 0)

    @property
    def relative_band(self) -> dict[str, float] | None:
        """Return the band of the change on a real machine; None if either run states no uncertainty."""
        band = band_of_runs(self.a.summary, self.b.summary)
        return None if band is None else {"level": LEVEL, "low": band[0], "high": band[1]}

    @property
    def is_identical(self) -> bool:
        """Return whether all compared figures are equal."""
        changes = (*self.operations, *self.groups, *(self.dimensions or ()))
        return (
            self.makespans_ns[0] == self.makespans_ns[1]
            and self.a.summary["status"] == self.b.summary["status"]
            and self.ranks is not None
            and all(change.a_ns == change.b_ns and change.a_count == change.b_count for change in changes)
            and all(before == after for rank in self.ranks for before, after in rank.figures.values())
        )

    def exceeds(self, threshold: float) -> bool:
        """Return whether the second run is slower by more than a share, or alone did not complete."""
        stopped = self.b.summary["status"] != "complete" and self.a.summary["status"] == "complete"
        return stopped or self.relative > threshold

    def as_dict(self) -> dict[str, Any]:
        """Return it for `--json`."""
        return {
            "identical": self.is_identical,
            "makespan_ns": dict(zip("ab", self.makespans_ns, strict=True)),
            "relative": self.relative,
            **({} if (band := self.relative_band) is None else {"relative_band": band}),
            **({} if (longer := sampled_difference(self.a, self.b)) is None else {"samples": longer}),
            "status": {"a": self.a.summary["status"], "b": self.b.summary["status"]},
            "inputs": list(self.inputs),
            "operations": [operation.as_dict("kind", "name", "group") for operation in self.operations],
            "groups": [group.as_dict("group") for group in self.groups],
            "dimensions": self.dimensions
            and [dimension.as_dict("dimension") for dimension in self.dimensions],
            "first_difference": self.parting and structs.asdict(self.parting),
            "ranks": self.ranks and [rank.as_dict() for rank in self.ranks],
        }


def compare(a: RunDirectory, b: RunDirectory) -> Comparison:
    """Compare the second run with the first."""
    of_runs = operations(a, beside=b), operations(b, beside=a)
    # Collectives with recorded times have no group: such a run is compared without groups.
    has_groups = all(any(o.group for o in ops) for ops in of_runs)
    by_operation = [
        _totals(((o.kind, o.name, (has_groups and o.group) or ""), o.total_ns, o.count) for o in ops)
        for ops in of_runs
    ]
    by_group = [
        _totals(((o.group,), o.total_ns, o.count) for o in ops if o.group and has_groups) for ops in of_runs
    ]
    phases = phase_totals(a), phase_totals(b)
    by_dimension = [
        _totals(((total.called,), total.running_ns, total.count) for total in totals)
        for totals in phases
        if totals is not None
    ]
    has_same_ranks = a.summary["ranks"] == b.summary["ranks"]
    return Comparison(
        a=a,
        b=b,
        inputs=_differing_inputs(a.manifest, b.manifest),
        operations=_changes(*by_operation),
        groups=_changes(*by_group),
        dimensions=_changes(*by_dimension) if len(by_dimension) == 2 else None,
        ranks=_rank_changes(a, b) if has_same_ranks else None,
        parting=first_parting(a, b) if has_same_ranks else None,
    )


Totals = dict[tuple[str, ...], tuple[int, int]]


def _totals(rows: Iterable[tuple[tuple[str, ...], int, int]]) -> Totals:
    totals: Totals = {}
    for name, time_ns, count in rows:
        before = totals.get(name, (0, 0))
        totals[name] = before[0] + time_ns, before[1] + count
    return totals


def _changes(a: Totals, b: Totals) -> tuple[TimeChange, ...]:
    changes = []
    for name in a.keys() | b.keys():
        (a_ns, a_count), (b_ns, b_count) = a.get(name, (None, 0)), b.get(name, (None, 0))
        changes.append(TimeChange(name, a_ns, b_ns, a_count, b_count))
    return tuple(sorted(changes, key=lambda change: (-abs(change.difference_ns), change.name)))


def _rank_changes(a: RunDirectory, b: RunDirectory) -> tuple[RankChange, ...]:
    """Return one entry for all ranks with equal figures in both runs."""
    entry = np.stack([_entry_of_rank(run) for run in (a, b)], axis=1)
    order, first = sorted_groups(*entry.T)
    pairs, members = entry[order[first]], np.split(order, first[1:])
    alike: dict[tuple[Any, ...], list[Any]] = {}
    for (in_a, in_b), ranks in zip(pairs.tolist(), members, strict=True):
        before, after = a.summary["per_rank"][in_a], b.summary["per_rank"][in_b]
        alike.setdefault(tuple((before[name], after[name]) for name in RANK_FIGURES), []).append(ranks)
    together = {figures: np.sort(np.concatenate(ranks)) for figures, ranks in alike.items()}
    in_order = sorted(together.items(), key=lambda pair: int(pair[1][0]))
    changes = [
        RankChange(format_ranks(ranks), dict(zip(RANK_FIGURES, figures, strict=True)))
        for figures, ranks in in_order
    ]
    return tuple(sorted(changes, key=lambda change: -abs(change.difference_ns)))


def _entry_of_rank(run: RunDirectory) -> Any:
    """Return the index of the entry of `per_rank` of every rank."""
    of_rank = np.full(run.summary["ranks"], -1, np.int32)
    for number, entry in enumerate(run.summary["per_rank"]):
        of_rank[ranks_named(entry["ranks"])] = number
    return of_rank


def _differing_inputs(a: Manifest, b: Manifest) -> tuple[str, ...]:
    """Return the inputs that differ, such as `model: analytical, then link`."""
    differences = _differing_rules(a, b)
    differences += [
        f"{key}: {_value(a.get(key))}, then {_value(b.get(key))}"
        for key in sorted(a.keys() | b.keys())
        if key not in NOT_SETTINGS and a.get(key) != b.get(key)
    ]
    differences += _differing_keys(a.get("configuration", {}), b.get("configuration", {}))
    files = [{(file["file"], file["sha256"]) for file in manifest["inputs"]} for manifest in (a, b)]
    changed = [
        sorted(file for file, _ in files[0] - files[1]),
        sorted(file for file, _ in files[1] - files[0]),
    ]
    differences += [f"{name}: another content" for name in sorted(set(changed[0]) & set(changed[1]))]
    only = [
        [name for name in names if name not in other]
        for names, other in zip(changed, changed[::-1], strict=True)
    ]
    if only[0] or only[1]:
        differences.append(f"files: {', '.join(only[0]) or 'none'}, then {', '.join(only[1]) or 'none'}")
    return tuple(differences)


def _differing_rules(a: Manifest, b: Manifest) -> list[str]:
    """Return differences of the profile, and of corrections that options switched."""
    differences = []
    if a.get("profile") != b.get("profile"):
        differences.append(f"profile: {a.get('profile')}, then {b.get('profile')}")
    switched = [
        [
            f"{name} {'on' if name in manifest['corrections'] else 'off'}"
            for name in manifest.get("switched", ())
        ]
        for manifest in (a, b)
    ]
    if switched[0] != switched[1]:
        differences.append(f"switched: {_value(switched[0])}, then {_value(switched[1])}")
    return differences


def _differing_keys(a: Any, b: Any) -> list[str]:
    """Return keys of the files with different values, such as `network.bandwidth: 200Gbps, then 400Gbps`."""
    differences: list[str] = []
    pairs = [("", a, b)]
    while pairs:
        name, first, second = pairs.pop()
        if isinstance(first, dict) and isinstance(second, dict):
            keys = sorted(first.keys() | second.keys(), reverse=True)
            pairs += [(f"{name}.{key}".lstrip("."), first.get(key), second.get(key)) for key in keys]
        elif first != second and name.rpartition(".")[2] not in RULES:
            values = (
                "not given" if value is None else shortened(_value(value), LONGEST)
                for value in (first, second)
            )
            differences.append(f"{name}: {', then '.join(values)}")
    return differences


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key} {inner}" for key, inner in value.items())
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
