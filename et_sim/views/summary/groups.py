"""What each communicator group did: its collectives added up, over all of its ranks.

Not here: single operations (`operations`), and phases of chunks (`phase_totals`).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.basics.units import format_bytes, format_ns
from et_sim.views.run.bus_bandwidth import LEGEND, Bandwidth, bandwidth
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.groups import GroupCounts
from et_sim.views.run.rows import Grouped
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.sheet import Column, Sheet, rate
from et_sim.views.summary.exposure import without_kernel
from et_sim.views.summary.operations import operations
from et_sim.views.text import prose, share
from et_sim.views.view import Forms


@quick_dataclass()
class GroupTotal:
    """One kind of collective of one group; times and bytes are sums over ranks."""

    group: str
    kind: str
    ranks: int
    members: int | None  # of each of the groups of this name
    count: int = 0
    total_ns: int = 0
    longest_ns: int = 0
    queued_ns: int = 0
    waiting_ns: int = 0
    without_kernel_ns: int = 0  # of the total: no kernel of the rank ran
    bytes: int = 0

    @property
    def bandwidth(self) -> Bandwidth:
        """Over the time of transfers."""
        return bandwidth(
            self.kind, self.members, self.bytes, self.total_ns - self.queued_ns - self.waiting_ns
        )

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), **self.bandwidth.as_dict()}


def group_totals(run: RunDirectory, part: Selection = EVERYTHING) -> list[GroupTotal]:
    """By group and kind, the one with the most time first."""
    members = _members(run, part)
    alone, found = without_kernel(run, part), dict[tuple[str, str], GroupTotal]()
    for one in operations(run, part):
        if one.group is None:
            continue
        total = found.setdefault(
            (one.group, one.kind), GroupTotal(one.group, one.kind, members.get(one.group, 0), one.members)
        )
        total.count += one.count
        total.total_ns += one.total_ns
        total.longest_ns = max(total.longest_ns, one.longest_ns)
        total.queued_ns += one.queued_ns
        total.waiting_ns += one.waiting_ns
        total.without_kernel_ns += alone[one.kind, one.name, one.group]
        total.bytes += one.bytes
    return sorted(found.values(), key=lambda one: (-one.total_ns, one.group, one.kind))


def _members(run: RunDirectory, part: Selection) -> dict[str, int]:
    """How many of the selected ranks issue collectives in each group."""
    groups, found = GroupCounts(run, part), set[tuple[int, int]]()
    for rows in run.batches("timeline", ("actor", "group")):
        pairs = Grouped(groups.keys(rows), groups.of(rows)).keys
        found.update(map(tuple, pairs[pairs[:, 0] >= 0].tolist()))
    members: dict[str, int] = {}
    for _, number in found:
        for name, ranks in groups.counts[number]:
            members[str(name)] = members.get(str(name), 0) + ranks
    return members


def group_data(run: RunDirectory, part: Selection) -> Any:
    """For `--json`."""
    return [one.as_dict() for one in part.cut(group_totals(run, part))]


def group_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """One line for each kind of collective of each group."""
    found = group_totals(run, part)
    if not found:
        none = "no rank took part in a collective that was simulated (ops shows what was replayed)"
        return prose([none], width)
    lines = SHEET.shown(found, part, width)
    note = (
        "count, total and bytes are over all ranks; waiting: for others to begin, as a share of the total; "
        f"no kernel: while none of the rank ran (as HTA counts); {LEGEND}"
    )
    return prose([*lines, note], width)


SHEET = Sheet(
    (
        Column("group", side="<"),
        Column("kind", side="<"),
        Column("ranks"),
        Column("count"),
        Column("total", "total_ns"),
        Column("mean", lambda one: format_ns(one.total_ns / one.count)),
        Column("longest", "longest_ns"),
        Column("waiting", lambda one: share(one.waiting_ns, one.total_ns)),
        Column("no kernel", lambda one: share(one.without_kernel_ns, one.total_ns)),
        Column("bytes each", lambda one: format_bytes(one.bytes / one.count)),
        Column("bandwidth", lambda one: rate(one.bandwidth.algorithm)),
        Column("bus bw", lambda one: rate(one.bandwidth.bus)),
    ),
    cut={"group": 8, "kind": 10},
    drop=("longest", "bytes each", "bandwidth", "mean", "no kernel"),
    names=("group",),
)
GROUPS = Forms(group_lines, group_data)
