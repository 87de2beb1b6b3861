"""Comparison of two sweeps over the same axes: points that became slower or faster, and failures."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_ns
from et_sim.views.bands import BAND, Band, band_text, contains_none, notes, percent_text
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.sweep.directory import COMPLETE, SweepDirectory
from et_sim.views.sweep.scales import band_of_points, shown
from et_sim.views.sweep.summary import NARROWEST
from et_sim.views.text import not_shown, percent, signed

Key = tuple[Any, ...]


class PointPair(Struct, frozen=True):
    """A point in both sweeps; times are None unless it is complete."""

    values: Key
    statuses: tuple[str, str]
    a_ns: int | None
    b_ns: int | None
    band: Band | None = None  # of B's makespan by A's, less one; None: unknown

    @property
    def ratio(self) -> float:
        """Return the ratio of B's makespan to A's; 1 unless both are known."""
        return 1.0 if self.a_ns is None or self.b_ns is None else self.b_ns / max(self.a_ns, 1)


class SweepComparison(Struct, frozen=True):
    """The points of both, the largest changes first, and the numbers of points in only one."""

    axes: tuple[str, ...]
    pairs: tuple[PointPair, ...]
    only_a: int
    only_b: int

    def exceeds(self, threshold: float) -> bool:
        """Return whether any point of B is slower than A's by more than a share, or no longer complete."""
        return any(
            pair.ratio > 1 + threshold or (pair.a_ns is not None and pair.b_ns is None) for pair in self.pairs
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it for `--json`."""
        points = [
            {
                "axes": dict(zip(self.axes, pair.values, strict=True)),
                "status": list(pair.statuses),
                "makespan_ns": [pair.a_ns, pair.b_ns],
                **({} if pair.band is None else {"relative_band": list(pair.band)}),
            }
            for pair in self.pairs
        ]
        return {"points": points, "only_a": self.only_a, "only_b": self.only_b}


def compare_sweeps(a: SweepDirectory, b: SweepDirectory) -> SweepComparison:
    """Find the points that both have."""
    if set(a.axes) != set(b.axes):
        others = sorted(set(a.axes) ^ set(b.axes))
        raise UsageError(
            f"only one of the two sweeps varies {', '.join(others)}",
            place=str(b.path),
            remedy="compare sweeps with axes of the same names",
        )
    before, after = _by_values(a, a.axes), _by_values(b, a.axes)
    pairs = [_pair(key, row, after[key]) for key, row in before.items() if key in after]
    if not pairs:
        raise UsageError(
            "the two sweeps have no point with equal values of all axes",
            place=str(b.path),
            remedy="compare sweeps that have points in common",
        )
    pairs.sort(key=lambda pair: -max(pair.ratio, 1 / pair.ratio if pair.ratio else 1.0))
    return SweepComparison(a.axes, tuple(pairs), len(before) - len(pairs), len(after) - len(pairs))


def _by_values(sweep: SweepDirectory, axes: tuple[str, ...]) -> dict[Key, Mapping[str, Any]]:
    return {tuple(row[axis] for axis in axes): row for row in sweep.table.to_pylist()}


def _pair(key: Key, a: Mapping[str, Any], b: Mapping[str, Any]) -> PointPair:
    makespans = a["makespan_ns"], b["makespan_ns"]
    return PointPair(key, (a["status"], b["status"]), *makespans, band_of_points(a, b))


def sweep_comparison_lines(comparison: SweepComparison, width: int, top: int) -> list[str]:
    """Return the changes, at most `top` points of each kind."""
    known = [pair for pair in comparison.pairs if pair.a_ns is not None and pair.b_ns is not None]
    changed = [pair for pair in known if pair.a_ns != pair.b_ns]
    lines = [f"points       {_counted(comparison)}"]
    if known:
        slower = sum(pair.ratio > 1 for pair in changed)
        same = len(known) - len(changed)
        lines.append(f"makespan     {slower:,} slower, {len(changed) - slower:,} faster, {same:,} as before")
        if any(pair.band for pair in changed):
            unclear = sum(contains_none(pair.band) for pair in changed)
            lines.append(f"uncertainty  {unclear:,} of these changes may be none, by their {BAND}")
        lines.append(f"best         {_best(known)}")
    if changed:
        lines += ["", *_table(comparison.axes, changed, width, top)]
    return lines + _statuses(comparison, top)


def _counted(comparison: SweepComparison) -> str:
    text = f"{len(comparison.pairs):,} in both"
    for count, whose in ((comparison.only_a, "A"), (comparison.only_b, "B")):
        text += f", {count:,} only in {whose}" if count else ""
    return text


def _best(known: list[PointPair]) -> str:
    """Return the best makespans of the points that both completed."""
    before, after = min(pair.a_ns or 0 for pair in known), min(pair.b_ns or 0 for pair in known)
    if before == after:
        return f"{format_ns(before)} in both"
    text = f"{format_ns(before)}, then {format_ns(after)}"
    return f"{text}: {signed(after - before)} ({percent(before, after)})"


def _table(axes: tuple[str, ...], changed: list[PointPair], width: int, top: int) -> list[str]:
    columns = [
        SheetColumn(axis, partial(_value, at), "<", key=f"axis {axis}") for at, axis in enumerate(axes)
    ]
    names = [column.name for column in columns]
    sheet = Sheet(
        (
            *columns,
            SheetColumn("before", lambda pair: format_ns(pair.a_ns or 0)),
            SheetColumn("after", lambda pair: format_ns(pair.b_ns or 0)),
            SheetColumn("difference", lambda pair: signed((pair.b_ns or 0) - (pair.a_ns or 0))),
            SheetColumn("", lambda pair: percent_text(pair.a_ns or 0, pair.b_ns or 0, pair.band)),
            SheetColumn(BAND, lambda pair: band_text(pair.band), is_optional=True),
        ),
        cut=dict.fromkeys(names, NARROWEST),
        drop=("before", BAND),
        names=tuple(names),
    )
    more = not_shown(len(changed) - top, "smaller change", ": --top, or --json")
    return [*sheet.lines(changed[:top], width), *more, *notes(pair.band for pair in changed[:top])]


def _value(at: int, pair: PointPair) -> str:
    return shown(pair.values[at])


def _statuses(comparison: SweepComparison, top: int) -> list[str]:
    """Return points that became complete, or no longer are."""
    differing = [
        pair for pair in comparison.pairs if COMPLETE in pair.statuses and len(set(pair.statuses)) > 1
    ]
    lines = [""] * bool(differing)
    for pair in differing[:top]:
        values = ", ".join(f"{axis} {shown(v)}" for axis, v in zip(comparison.axes, pair.values, strict=True))
        lines.append(f"{values}: {pair.statuses[0]}, then {pair.statuses[1]}")
    lines += not_shown(len(differing) - top, "point", " more: --top, or --json")
    return lines
