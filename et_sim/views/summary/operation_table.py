"""Operations as a text table. Not here: how they are added up (`operations`)."""

from __future__ import annotations

from collections.abc import Sequence

from et_sim.basics.units import format_bandwidth, format_bytes, format_ns
from et_sim.views.summary.operations import Operation
from et_sim.views.text import fitted, share

HEAD = (
    "kind",
    "operation",
    "group",
    "count",
    "total",
    "mean",
    "waiting",
    "bytes each",
    "bandwidth",
    "bus bw",
)
ALIGNMENT = "<<<>>>>>>>"


def operation_lines(found: Sequence[Operation], width: int) -> list[str]:
    """One line per operation, in the order given; totals are sums over ranks."""
    rows = [HEAD, *(_row(operation) for operation in found)]
    if any(operation.group not in (None, "all") for operation in found):
        return fitted(rows, ALIGNMENT, width, shrink={1: 16, 0: 10, 2: 6}, drop=(7, 8, 5, 6, 9), names=(1, 2))
    without = [(*row[:2], *row[3:]) for row in rows]
    return fitted(without, ALIGNMENT[1:], width, shrink={1: 16, 0: 10}, drop=(6, 7, 4, 5, 8), names=(1,))


def _row(operation: Operation) -> tuple[str, ...]:
    completed = operation.count - operation.never_completed
    each = format_bytes(operation.bytes / completed) if operation.bytes else ""
    rate = operation.bandwidth
    count = f"{operation.count:,}"
    if operation.never_completed:
        count += f" ({operation.never_completed:,} never ended)"
    return (
        operation.kind,
        operation.name,
        operation.group or "",
        count,
        format_ns(operation.total_ns),
        format_ns(operation.mean_ns) if completed else "-",
        share(operation.waiting_ns, operation.total_ns) if operation.bytes else "",
        each,
        *(format_bandwidth(one / 1e9) if one else "" for one in (rate.algorithm, rate.bus)),
    )
