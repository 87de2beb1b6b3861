"""Communicator groups: their collectives added up over all ranks."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from et_sim.basics.units import format_bytes, format_ns
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import GroupCounts, Grouped
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.sheet import Sheet, SheetColumn, rate
from et_sim.views.summary.operations import LEGEND, Bandwidth, bandwidth, operations, without_kernel
from et_sim.views.text import prose, share
from et_sim.views.view import Forms


class GroupTotal(Struct):
    """Totals of one kind of collective of one group; times and bytes are sums over ranks."""

    group: str
    kind: str
    ranks: int
    members: int | None  # of each group with this name
    count: int = 0
    total_ns: int = 0
    longest_ns: int = 0
    queued_ns: int = 0
    waiting_ns: int = 0
    moving_ns: int = 0
    without_kernel_ns: int = 0  # part of the total in which no kernel of the rank ran
    bytes: int = 0

    @property
    def bandwidth(self) -> Bandwidth:
        """Return the bandwidth over the time in which bytes move."""
        return bandwidth(self.kind, self.members, self.bytes, self.moving_ns)

    def as_dict(self) -> dict[str, Any]:
        """Return it for `--json`."""
        return {**asdict(self), **self.bandwidth.as_dict()}


def group_totals(run: RunDirectory, part: Selection = EVERYTHING) -> list[GroupTotal]:
    """Return totals by group and kind, the longest first."""
    members = _members(run, part)
    without_kernel_ns, totals = without_kernel(run, part), dict[tuple[str, str], GroupTotal]()
    for operation in operations(run, part):
        if operation.group is None:
            continue
        total = totals.setdefault(
            (operation.group, operation.kind),
            GroupTotal(operation.group, operation.kind, members.get(operation.group, 0), operation.members),
        )
        total.count += operation.count
        total.total_ns += operation.total_ns
        total.longest_ns = max(total.longest_ns, operation.longest_ns)
        total.queued_ns += operation.queued_ns
        total.waiting_ns += operation.waiting_ns
        total.moving_ns += operation.moving_ns
        total.without_kernel_ns += without_kernel_ns[operation.kind, operation.name, operation.group]
        total.bytes += operation.bytes
    return sorted(totals.values(), key=lambda group: (-group.total_ns, group.group, group.kind))


def _members(run: RunDirectory, part: Selection) -> dict[str, int]:
    """Return the number of selected ranks that issue collectives in each group."""
    groups, ranks_of_groups = GroupCounts(run, part), set[tuple[int, int]]()
    for rows in run.batches("timeline", ("actor", "group")):
        pairs = Grouped(groups.keys(rows), groups.of(rows)).keys
        ranks_of_groups.update(map(tuple, pairs[pairs[:, 0] >= 0].tolist()))
    members: dict[str, int] = {}
    for _, number in ranks_of_groups:
        for name, ranks in groups.counts[number]:
            members[str(name)] = members.get(str(name), 0) + ranks
    return members


def group_data(run: RunDirectory, part: Selection) -> Any:
    """Return the totals for `--json`."""
    return [total.as_dict() for total in part.cut(group_totals(run, part))]


def group_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return one line for each kind of collective of each group."""
    totals = group_totals(run, part)
    if not totals:
        none = "no rank took part in a collective that was simulated (ops shows what was replayed)"
        return prose([none], width)
    lines = SHEET.shown(totals, part, width)
    note = (
        "count, total and bytes are over all ranks; waiting: for others to begin, as a share of the total; "
        f"no kernel: while none of the rank ran (as HTA counts); {LEGEND}"
    )
    return prose([*lines, note], width)


SHEET = Sheet(
    (
        SheetColumn("group", side="<"),
        SheetColumn("kind", side="<"),
        SheetColumn("ranks"),
        SheetColumn("count"),
        SheetColumn("total", "total_ns"),
        SheetColumn("mean", lambda total: format_ns(total.total_ns / total.count)),
        SheetColumn("longest", "longest_ns"),
        SheetColumn("waiting", lambda total: share(total.waiting_ns, total.total_ns)),
        SheetColumn("no kernel", lambda total: share(total.without_kernel_ns, total.total_ns)),
        SheetColumn("bytes each", lambda total: format_bytes(total.bytes / total.count)),
        SheetColumn("bandwidth", lambda total: rate(total.bandwidth.algorithm)),
        SheetColumn("bus bw", lambda total: rate(total.bandwidth.bus)),
    ),
    cut={"group": 8, "kind": 10},
    drop=("longest", "bytes each", "bandwidth", "mean", "no kernel"),
    names=("group",),
)
GROUPS = Forms(group_lines, group_data)
