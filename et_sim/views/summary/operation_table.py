"""Operations as text: all of them, what kernels of them make of the machine, and what no kernel hides.

Not here: the figures (`operations`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from et_sim.basics.units import format_bandwidth, format_bytes, format_ns
from et_sim.tables.declaration import NOT_COMMUNICATION
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import Key
from et_sim.views.run.selection import Selection
from et_sim.views.summary.operations import OperationTotal, operations, without_kernel
from et_sim.views.summary.roofline import by_byte
from et_sim.views.text import fitted, not_shown, share
from et_sim.views.view import Forms

AVERAGES = ("compute_bound_share", "compute_utilisation", "memory_utilisation", "operational_intensity")
USE_HEAD = ("compute bound", "of peak compute", "of bandwidth", "ops/byte")
USE_LEGEND = "averages over the kernels' time; bandwidth is that of local memory"
ALONE_LEGEND = "without kernel: transfer or waiting while no kernel of the rank ran (HTA)"


def operations_text(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """All operations."""
    every = operations(run, part)
    cut = part.cut(every)
    lines = operation_lines(cut, width)
    lines += not_shown(len(every) - len(cut), "more line", ": --top")
    for table in (_kernel_lines(cut, width), _exposure_lines(cut, without_kernel(run, part), width)):
        lines += ["", *table] if table else []
    return lines


def operations_data(run: RunDirectory, part: Selection) -> Any:
    """For `--json`."""
    without_kernel_ns, cut = without_kernel(run, part), part.cut(operations(run, part))
    return [
        {
            **operation.as_dict(),
            "without_kernel_ns": without_kernel_ns[operation.kind, operation.name, operation.group],
        }
        for operation in cut
    ]


OPERATIONS = Forms(operations_text, operations_data)

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


def operation_lines(totals: Sequence[OperationTotal], width: int) -> list[str]:
    """One line per operation, in the order given; totals are sums over ranks."""
    rows = [HEAD, *(_row(operation) for operation in totals)]
    if any(operation.group not in (None, "all") for operation in totals):
        return fitted(rows, ALIGNMENT, width, shrink={1: 16, 0: 10, 2: 6}, drop=(7, 8, 5, 6, 9), names=(1, 2))
    without = [(*row[:2], *row[3:]) for row in rows]
    return fitted(without, ALIGNMENT[1:], width, shrink={1: 16, 0: 10}, drop=(6, 7, 4, 5, 8), names=(1,))


def _row(operation: OperationTotal) -> tuple[str, ...]:
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
        *(format_bandwidth(bandwidth / 1e9) if bandwidth else "" for bandwidth in (rate.algorithm, rate.bus)),
    )


def _kernel_lines(totals: Sequence[OperationTotal], width: int) -> list[str]:
    """One line per operation that the roofline timed."""
    rows = [
        (
            operation.name,
            format_ns(operation.total_ns),
            *map(_most, (operation.timed_by, operation.bound)),
            *use_cells(operation.averages())[1:],
        )
        for operation in totals
        if operation.bound
    ]
    if not rows:
        return []
    head = ("kernel", "total", "timed by", "bound", *USE_HEAD[1:])
    table = fitted([head, *rows], "<><<>>>", width, shrink={0: 10}, names=(0,))
    return [*table, USE_LEGEND]


def _most(spent: dict[str, int]) -> str:
    """The word with the most time; whether there are others."""
    if not spent:
        return "-"
    word = max(spent, key=lambda word: (spent[word], word))
    return f"{word} {share(spent[word], sum(spent.values()))}" if len(spent) > 1 else word


def use_cells(figures: Mapping[str, Any]) -> tuple[str, ...]:
    """How much kernels use of the machine; averages over their time."""
    bound, compute, memory, intensity = (figures[name] for name in AVERAGES)
    if compute is None:
        return ("-",) * len(AVERAGES)
    return share(bound, 1), share(compute, 1), share(memory, 1), by_byte(intensity)


def _exposure_lines(
    totals: Sequence[OperationTotal], without_kernel_ns: Counter[Key], width: int
) -> list[str]:
    """One line per operation that communicates."""
    rows = [
        (
            operation.name,
            operation.group or "",
            format_ns(operation.total_ns),
            format_ns(ns),
            share(ns, operation.total_ns),
        )
        for operation in totals
        if operation.kind not in NOT_COMMUNICATION
        for ns in [without_kernel_ns[operation.kind, operation.name, operation.group]]
    ]
    if not rows:
        return []
    head = ("communication", "group", "total", "without kernel", "")
    return [*fitted([head, *rows], "<<>>>", width, shrink={0: 10, 1: 6}, names=(0, 1)), ALONE_LEGEND]
