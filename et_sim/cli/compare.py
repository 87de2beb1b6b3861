"""`et-sim compare`: differences between two runs, sweeps or workloads.

For workloads, nodes, operations and bytes are counted by kind of work over all ranks, in whole numbers; only
runs have times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from et_sim.basics.declared_options import Command, Option
from et_sim.basics.errors import UsageError
from et_sim.basics.units import plural
from et_sim.cli.options import parse_share
from et_sim.cli.progress import printing
from et_sim.documents.recognise import FileKind, kind_of

if TYPE_CHECKING:
    from et_sim.trace import Workload
    from et_sim.trace.columns import Trace
    from et_sim.views.compare.changes import Comparison


ROWS = 10
SLOWER = 1
WRITTEN = ("html", "svg", "png")


class Options(Command):
    """Compare run B with A: by operation, group, dimension (with --detail phases) and rank. Two sweeps over
    the same axes are compared at their common points, and two workloads, files of traces or manifests, by
    the work of their ranks. With --threshold, the exit status is 1 if B, or a point of it, is slower than
    A by more than that, or stalled.
    """

    a: Annotated[str, "run, sweep or workload to compare with", "A"]
    b: Annotated[str, "run, sweep or workload that may be slower or faster", "B"]
    threshold: Annotated[
        float | None,
        Option(parse=parse_share),
        "the most that B's makespan may be above A's, such as 2%% or 0.02",
        "SHARE",
    ] = None
    top: Annotated[int, f"lines of each table (default: {ROWS})", "N", Option(least=1)] = ROWS
    json: Annotated[bool, "print data instead of text, with everything in it"] = False
    html: Annotated[Path | None, "write the comparison as an HTML page", "FILE"] = None
    svg: Annotated[Path | None, "draw both timelines on one axis, as SVG, into a file", "FILE"] = None
    png: Annotated[Path | None, "draw both timelines on one axis, as PNG, into a file", "FILE"] = None


def run(options: Options) -> int:
    """Print the comparison."""
    if are_workloads(options.a, options.b):
        return _compare_workloads(options)
    from et_sim.views import open_run
    from et_sim.views.compare.changes import compare
    from et_sim.views.compare.text import comparison_lines
    from et_sim.views.sweep.directory import is_sweep
    from et_sim.views.text import terminal_width

    sweeps = [path for path in (options.a, options.b) if is_sweep(path)]
    if len(sweeps) == 1:
        remedy = "compare two runs, or two sweeps"
        raise UsageError("only one of the two is a sweep", place=sweeps[0], remedy=remedy)
    files = [name for name in WRITTEN if getattr(options, name) is not None]
    if files and options.json:
        raise UsageError(f"--json prints data, and --{files[0]} writes a file", remedy="give one of them")
    if sweeps and files:
        raise UsageError(
            f"sweeps cannot be compared with --{files[0]}", remedy="compare two of their runs (sweep --keep)"
        )
    if sweeps:
        return _compare_sweeps(options)
    comparison = compare(open_run(options.a), open_run(options.b))
    status = SLOWER if options.threshold is not None and comparison.exceeds(options.threshold) else 0
    with printing(status):
        if files:
            _write(comparison, options)
        elif options.json:
            print(json.dumps(comparison.as_dict(), indent=2, ensure_ascii=False))
        else:
            print("\n".join(comparison_lines(comparison, terminal_width(), options.top)))
    return status


def _compare_workloads(options: Options) -> int:
    refused = [name for name in (*WRITTEN, "threshold") if getattr(options, name) is not None]
    if refused:
        raise UsageError(
            f"--{refused[0]} requires times, which workloads do not have", remedy="compare runs of them"
        )
    with printing(0):
        for line in compare_workloads(options):
            print(line)
    return 0


def _write(comparison: Comparison, options: Options) -> None:
    """Write the page and the pictures that are requested."""
    if options.svg is not None or options.png is not None:
        from et_sim.views.drawing.scene import write_picture
        from et_sim.views.drawing.timeline import aligned_picture

        write_picture(aligned_picture(comparison), options.svg, options.png)
    if options.html is not None:
        from et_sim.basics.units import format_bytes
        from et_sim.views.report.compare_page import compare_report
        from et_sim.views.report.page import write_page

        size = write_page(compare_report(comparison), options.html)
        print(f"{options.html}: {format_bytes(size)}; open it in a browser")


def _compare_sweeps(options: Options) -> int:
    from et_sim.views.sweep.comparison import compare_sweeps, sweep_comparison_lines
    from et_sim.views.sweep.directory import open_sweep
    from et_sim.views.text import terminal_width

    comparison = compare_sweeps(open_sweep(options.a), open_sweep(options.b))
    status = SLOWER if options.threshold is not None and comparison.exceeds(options.threshold) else 0
    with printing(status):
        if options.json:
            print(json.dumps(comparison.as_dict(), indent=2, ensure_ascii=False))
        else:
            print("\n".join(sweep_comparison_lines(comparison, terminal_width(), options.top)))
    return status


FIGURES = ("count", "operations", "bytes")
NOTHING = (0, 0, 0)
UNSHAPED = "kernel without a shape"


class ComparedWork(NamedTuple):
    """A kind of work: the word of a shape, a collective, a message, or another action of nodes."""

    name: str
    members: int  # of its group; 0: it has none, or its size is unknown


Done = Mapping[ComparedWork, tuple[int, ...]]  # FIGURES, over all ranks


def are_workloads(*paths: str) -> bool:
    """Return whether paths name workloads, not runs or sweeps."""
    is_workload = [
        kind_of(Path(path)) is FileKind.MANIFEST or Path(f"{path}.0.et").is_file() for path in paths
    ]
    if any(is_workload) and not all(is_workload):
        raise UsageError(
            "only one of the two is a workload",
            place=paths[is_workload.index(True)],
            remedy="compare two workloads, or run it and compare two runs",
        )
    return all(is_workload)


def compare_workloads(options: Options) -> Iterator[str]:
    """Yield the lines of the command."""
    from et_sim.trace import read_workload

    given = [read_workload(path) for path in (options.a, options.b)]
    done = [work_of(workload) for workload in given]
    every = sorted(done[0].keys() | done[1].keys(), key=lambda work: (work.members > 0, work))
    differing = [work for work in every if done[0].get(work) != done[1].get(work)]
    if options.json:
        yield json.dumps(_data(given, done, differing), indent=2, ensure_ascii=False)
        return
    for name, path, workload in zip("AB", (options.a, options.b), given, strict=True):
        yield f"{name}  {path}: {plural(workload.ranks, 'rank')}, {plural(workload.nodes, 'node')}"
    if not differing:
        yield "the same work: as many nodes, operations and bytes of every kind"
        return
    yield from ("", *_table(done, differing, [workload.ranks for workload in given]), "")
    yield "of an average rank, in A → in B; bytes are those of kernels in memory, and of what is communicated"
    if len(differing) < len(every):
        yield f"the other {plural(len(every) - len(differing), 'kind')} of work are the same"


def work_of(workload: Workload) -> Done:
    """Return the work of all ranks."""
    totals: dict[ComparedWork, tuple[int, ...]] = {}
    for trace, ranks in zip(workload.templates, workload.ranks_per_template.tolist(), strict=True):
        for work, figures in _of_trace(workload, trace):
            before = totals.get(work, NOTHING)
            totals[work] = tuple(total + ranks * more for total, more in zip(before, figures, strict=True))
    return totals


def _of_trace(workload: Workload, trace: Trace) -> Iterator[tuple[ComparedWork, tuple[int, ...]]]:
    import numpy as np

    from et_sim.trace.columns import NodeKind

    keys = (trace.kind, trace.layer_shape, trace.datatype, trace.comm_type, trace.group, trace.is_cpu)
    kinds, first, of_row = np.unique(
        np.stack([key.astype(np.int64) for key in keys]), axis=1, return_index=True, return_inverse=True
    )
    is_kernel = trace.kind == NodeKind.COMP
    columns = (
        np.ones(len(trace), np.int64),
        np.where(is_kernel, trace.num_ops, 0),
        np.where(is_kernel, trace.tensor_bytes, trace.comm_bytes),
        is_kernel & ~trace.has("num_ops"),
        is_kernel & ~trace.has("tensor_size"),
    )
    halves = np.zeros((2, len(columns), kinds.shape[1]), np.int64)  # sums of whole columns may overflow
    for at, column in enumerate(columns):
        for half, part in zip(halves, divmod(column.astype(np.int64), 1 << 32), strict=True):
            np.add.at(half[at], of_row.reshape(-1), part)
    high, low = halves.astype(object)
    sums = (high << 32) + low
    for row, (count, operations, size, *lacking) in zip(first.tolist(), sums.T.tolist(), strict=True):
        of_shape = _figures_of_shape(trace, row) if any(lacking) else (0, 0)
        figures = (count, operations + lacking[0] * of_shape[0], size + lacking[1] * of_shape[1])
        yield _work(workload, trace, row), figures


def _figures_of_shape(trace: Trace, row: int) -> tuple[int, int]:
    """Return the operations and bytes of a node's shape; 0 without a shape or a datatype."""
    from et_sim.compute.operations import read_shape
    from et_sim.machine.datatypes import BITS, datatype_named

    text = trace.layer_shapes[int(trace.layer_shape[row])]
    if not text:
        return 0, 0
    operation = read_shape(text, trace.describe(row)).operation
    datatype = datatype_named(trace.datatypes[int(trace.datatype[row])])
    return operation.operations, operation.bytes(BITS[datatype]) if datatype else 0


def _work(workload: Workload, trace: Trace, row: int) -> ComparedWork:
    from et_sim.trace.columns import NodeKind, collective_name, kind_name

    kind, group = int(trace.kind[row]), trace.group_names[int(trace.group[row])]
    if kind == NodeKind.COLL:
        rule = workload.group_rules.get(group)
        named = workload.job_groups.get(group, ())
        members = (rule.count if rule else len(named)) if group else workload.ranks
        return ComparedWork(collective_name(int(trace.comm_type[row])), members)
    if kind == NodeKind.COMP and not trace.is_cpu[row]:
        return ComparedWork(trace.layer_shapes[int(trace.layer_shape[row])].partition(" ")[0] or UNSHAPED, 0)
    names: dict[int, str] = {NodeKind.COMP: "host", NodeKind.SEND: "send", NodeKind.RECV: "receive"}
    return ComparedWork(names.get(kind) or kind_name(kind).lower(), 0)


def _data(given: list[Workload], done: list[Done], differing: list[ComparedWork]) -> dict[str, Any]:
    return {
        "ranks": {name: workload.ranks for name, workload in zip("ab", given, strict=True)},
        "work": [
            {
                "kind": work.name,
                "members": work.members or None,
                **{
                    figure: {
                        name: totals.get(work, NOTHING)[at] for name, totals in zip("ab", done, strict=True)
                    }
                    for at, figure in enumerate(FIGURES)
                },
            }
            for work in differing
        ],
    }


def _table(done: list[Done], differing: list[ComparedWork], ranks: list[int]) -> list[str]:
    from et_sim.views.sheet import Sheet, SheetColumn

    def figure(at: int, work: ComparedWork) -> str:
        pair = (totals.get(work, NOTHING)[at] for totals in done)
        return " → ".join(dict.fromkeys(_average(total, of) for total, of in zip(pair, ranks, strict=True)))

    sheet = Sheet(
        (
            SheetColumn("work", "name", "<"),
            SheetColumn("group of", lambda work: f"{work.members:,}" if work.members else ""),
            *(SheetColumn(name, partial(figure, at)) for at, name in enumerate(FIGURES)),
        )
    )
    return sheet.lines(differing)


def _average(total: int, ranks: int) -> str:
    return f"{total // ranks:,}" if total % ranks == 0 else f"{total / ranks:,.1f}"
