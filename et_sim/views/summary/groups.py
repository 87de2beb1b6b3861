"""What each communicator group did: its collectives added up, over all of its ranks.

Not here: single operations (`operations`), and phases of chunks (`phase_totals`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from et_sim.units import format_bytes, format_ns, plural
from et_sim.views.run.columns import coded, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.summary.operations import operations
from et_sim.views.text import fitted


@dataclass(slots=True)
class GroupTotal:
    """One kind of collective of one group; times and bytes are sums over ranks."""

    group: str
    kind: str
    ranks: int
    count: int = 0
    total_ns: int = 0
    longest_ns: int = 0
    bytes: int = 0

    @property
    def bytes_per_second(self) -> float | None:
        """Payload over time, waiting for others included."""
        return self.bytes * 1e9 / self.total_ns if self.bytes and self.total_ns else None

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), "bytes_per_second": self.bytes_per_second}


def group_totals(run: RunDirectory, part: Selection = EVERYTHING) -> list[GroupTotal]:
    """By group and kind, the one with the most time first."""
    members = _members(run, part)
    found: dict[tuple[str, str], GroupTotal] = {}
    for one in operations(run, part):
        if one.group is None:
            continue
        total = found.setdefault(
            (one.group, one.kind), GroupTotal(one.group, one.kind, members.get(one.group, 0))
        )
        total.count += one.count
        total.total_ns += one.total_ns
        total.longest_ns = max(total.longest_ns, one.longest_ns)
        total.bytes += one.bytes
    return sorted(found.values(), key=lambda one: (-one.total_ns, one.group, one.kind))


def _members(run: RunDirectory, part: Selection) -> dict[str, int]:
    """How many of the selected ranks issue collectives in each group."""
    weights = part.weights(run)
    pairs: set[tuple[int, int]] = set()
    names: list[str] = []
    for rows in run.batches("timeline", ("actor", "group")):
        names = names or rows["group"].dictionary.to_pylist()
        group = coded(rows["group"])
        has_group = group < len(names)
        key = np.unique(numbers(rows["actor"])[has_group] * np.int64(len(names) or 1) + group[has_group])
        pairs.update(
            zip((key // (len(names) or 1)).tolist(), (key % (len(names) or 1)).tolist(), strict=True)
        )
    members: dict[str, int] = {}
    for actor, number in pairs:
        members[names[number]] = members.get(names[number], 0) + int(weights[actor])
    return members


def group_lines(found: list[GroupTotal], part: Selection, width: int) -> list[str]:
    """One line for each kind of collective of each group."""
    if not found:
        return ["no rank took part in a collective"]
    rows = [("group", "kind", "ranks", "count", "total", "mean", "longest", "bytes each", "bandwidth")]
    shown = part.cut(found)
    rows += [
        (
            one.group,
            one.kind,
            f"{one.ranks:,}",
            f"{one.count:,}",
            format_ns(one.total_ns),
            format_ns(one.total_ns / one.count),
            format_ns(one.longest_ns),
            format_bytes(one.bytes / one.count),
            f"{format_bytes(one.bytes_per_second)}/s" if one.bytes_per_second else "",
        )
        for one in shown
    ]
    lines = fitted(rows, "<<>>>>>>>", width, shrink={0: 8, 1: 10}, drop=(6, 7))
    if len(shown) < len(found):
        lines.append(f"… and {plural(len(found) - len(shown), 'more line')}: --top")
    return [
        *lines,
        "count, total and bytes are over all ranks; bandwidth is payload by time, waiting included",
    ]
