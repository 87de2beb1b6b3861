"""Operations as text: all of them, kernels with their use of the machine, and exposed communication."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from et_sim.basics.units import format_bytes, format_ns
from et_sim.tables.declaration import NOT_COMMUNICATION
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import Key
from et_sim.views.run.selection import Selection
from et_sim.views.sheet import Sheet, SheetColumn, rate
from et_sim.views.summary.operations import OperationTotal, operations, without_kernel
from et_sim.views.text import by_byte, not_shown, share
from et_sim.views.view import Forms

AVERAGES = ("compute_bound_share", "compute_utilisation", "memory_utilisation", "operational_intensity")
USE_HEAD = ("compute bound", "of peak compute", "of bandwidth", "ops/byte")
USE_LEGEND = "averages over the kernels' time; bandwidth is that of local memory"
ALONE_LEGEND = "without kernel: transfer or waiting while no kernel of the rank ran (HTA)"


def operations_text(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return all operations."""
    every = operations(run, part)
    cut = part.cut(every)
    lines = operation_lines(cut, width)
    lines += not_shown(len(every) - len(cut), "more line", ": --top")
    for table in (_kernel_lines(cut, width), _exposure_lines(cut, without_kernel(run, part), width)):
        lines += ["", *table] if table else []
    return lines


def operations_data(run: RunDirectory, part: Selection) -> Any:
    """Return all operations for `--json`."""
    without_kernel_ns, cut = without_kernel(run, part), part.cut(operations(run, part))
    return [
        {
            **operation.as_dict(),
            "without_kernel_ns": without_kernel_ns[operation.kind, operation.name, operation.group],
        }
        for operation in cut
    ]


OPERATIONS = Forms(operations_text, operations_data)


def operation_lines(totals: Sequence[OperationTotal], width: int) -> list[str]:
    """Return one line per operation, in the order given; totals are sums over ranks."""
    has_groups = any(operation.group not in (None, "all") for operation in totals)
    return (SHEET if has_groups else SHEET.without("group")).lines(totals, width)


def _count(operation: OperationTotal) -> str:
    unended = f" ({operation.never_completed:,} never ended)" if operation.never_completed else ""
    return f"{operation.count:,}{unended}"


def _mean(operation: OperationTotal) -> str:
    return format_ns(operation.mean_ns) if operation.count > operation.never_completed else "-"


def _bytes_each(operation: OperationTotal) -> str:
    completed = operation.count - operation.never_completed
    return format_bytes(operation.bytes / completed) if operation.bytes else ""


def _waiting(operation: OperationTotal) -> str:
    return share(operation.waiting_ns, operation.total_ns) if operation.bytes else ""


SHEET = Sheet(
    (
        SheetColumn("kind", side="<"),
        SheetColumn("operation", "name", "<"),
        SheetColumn("group", side="<"),
        SheetColumn("count", _count),
        SheetColumn("total", "total_ns"),
        SheetColumn("mean", _mean),
        SheetColumn("waiting", _waiting),
        SheetColumn("bytes each", _bytes_each),
        SheetColumn("bandwidth", lambda operation: rate(operation.bandwidth.algorithm)),
        SheetColumn("bus bw", lambda operation: rate(operation.bandwidth.bus)),
    ),
    cut={"operation": 16, "kind": 10, "group": 6},
    drop=("bytes each", "bandwidth", "mean", "waiting", "bus bw"),
    names=("operation", "group"),
)


def use_columns(figures_of: Callable[[Any], Mapping[str, Any]]) -> tuple[SheetColumn, ...]:
    """Return columns of the machine's use by kernels; averages over their time."""

    def cell(name: str, row: Any) -> str:
        figures = figures_of(row)
        if figures["compute_utilisation"] is None:
            return "-"
        return by_byte(figures[name]) if name == "operational_intensity" else share(figures[name], 1)

    return tuple(
        SheetColumn(head, partial(cell, name)) for head, name in zip(USE_HEAD, AVERAGES, strict=True)
    )


def _kernel_lines(totals: Sequence[OperationTotal], width: int) -> list[str]:
    """Return one line per operation that the roofline timed."""
    timed = [operation for operation in totals if operation.bound]
    return [*KERNELS.lines(timed, width), USE_LEGEND] if timed else []


def _most(spent: dict[str, int]) -> str:
    """Return the word with the most time, with its share if there are others."""
    if not spent:
        return "-"
    word = max(spent, key=lambda word: (spent[word], word))
    return f"{word} {share(spent[word], sum(spent.values()))}" if len(spent) > 1 else word


KERNELS = Sheet(
    (
        SheetColumn("kernel", "name", "<"),
        SheetColumn("total", "total_ns"),
        SheetColumn("timed by", lambda operation: _most(operation.timed_by), "<"),
        SheetColumn("bound", lambda operation: _most(operation.bound), "<"),
        *use_columns(OperationTotal.averages)[1:],
    ),
    cut={"kernel": 10},
    names=("kernel",),
)


def _exposure_lines(
    totals: Sequence[OperationTotal], without_kernel_ns: Counter[Key], width: int
) -> list[str]:
    """Return one line per operation that communicates."""
    communication = [operation for operation in totals if operation.kind not in NOT_COMMUNICATION]
    if not communication:
        return []

    def exposed(operation: OperationTotal) -> int:
        return without_kernel_ns[operation.kind, operation.name, operation.group]

    sheet = Sheet(
        (
            SheetColumn("communication", "name", "<"),
            SheetColumn("group", side="<"),
            SheetColumn("total", "total_ns"),
            SheetColumn("without kernel", lambda operation: format_ns(exposed(operation))),
            SheetColumn("", lambda operation: share(exposed(operation), operation.total_ns)),
        ),
        cut={"communication": 10, "group": 6},
        names=("communication", "group"),
    )
    return [*sheet.lines(communication, width), ALONE_LEGEND]
