"""The report of a conversion: nodes by kind, bytes by operation, and everything changed or left out.

Files with equal reports share one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from converters.records import Dropped
from et_sim.basics.unique import unique
from et_sim.basics.units import format_bytes, plural
from et_sim.trace.columns import CollectiveKind, NodeKind, Trace, collective_name

_LABEL_WIDTH = 14
_MISSING_SHOWN = 3
# Attributes that a run requires.
_NEEDED = (
    (NodeKind.COLL, "comm_type"),
    (NodeKind.COLL, "comm_size"),
    (NodeKind.SEND, "comm_size"),
    (NodeKind.SEND, "comm_dst"),
    (NodeKind.SEND, "comm_tag"),
    (NodeKind.RECV, "comm_size"),
    (NodeKind.RECV, "comm_src"),
    (NodeKind.RECV, "comm_tag"),
)


class ConversionReport(Struct, frozen=True):
    """The figures of one trace, and the changes that the conversion made."""

    nodes: dict[str, int]
    operations: dict[str, tuple[int, int]]  # name -> (nodes, bytes)
    notes: tuple[tuple[str, str], ...]  # (label, sentence)
    is_total: bool = False  # of all files together


class Converted(Struct, frozen=True):
    """One input and the outputs made of it."""

    source: str
    format: str
    outputs: tuple[str, ...]
    report: ConversionReport


def make_report(trace: Trace, dropped: Dropped, notes: Iterable[tuple[str, str]] = ()) -> ConversionReport:
    """Count the nodes of `trace`; `notes` are further remarks of the converter."""
    remarks = list(notes)
    if dropped:
        remarks.append(("dropped", _dropped_text(dropped)))
    lacking = _lacking(trace)
    if lacking:
        remarks.append(("lacking", f"{', '.join(lacking)}; et-sim run needs them to simulate communication"))
    communication = np.isin(trace.kind, [NodeKind.SEND, NodeKind.RECV, NodeKind.COLL])
    on_cpu = int((communication & trace.is_cpu).sum())
    if on_cpu:
        nodes = f"{plural(on_cpu, 'communication node')} with is_cpu_op set"
        remarks.append(("on the CPU", f"{nodes}; et-sim run simulates communication of devices only"))
    if trace.ignored_attributes:
        remarks.append(("kept, unused", _unused_text(trace.ignored_attributes)))
    return ConversionReport(trace.kind_counts, _operations(trace), tuple(remarks))


def _as_text(conversions: list[Converted]) -> Iterable[str]:
    """Yield a short table per input; inputs with equal reports share one."""
    alike: dict[str, list[Converted]] = {}
    for conversion in conversions:
        alike.setdefault(repr((conversion.format, conversion.report)), []).append(conversion)
    for group in alike.values():
        inputs = _first_to_last([conversion.source for conversion in group])
        outputs = _first_to_last([path for conversion in group for path in conversion.outputs])
        yield f"{inputs} ({group[0].format}) -> {outputs}"
        each = " in each file" if sum(len(conversion.outputs) for conversion in group) > 1 else ""
        each = " in all" if group[0].report.is_total else each
        yield from _table(group[0].report, each)


def report_lines(
    conversions: list[Converted], notices: Iterable[str] = (), *, as_json: bool, **figures: Any
) -> Iterator[str]:
    """Yield the report as text or JSON; `figures` are further keys of the JSON form."""
    if as_json:
        files = [
            {
                "input": conversion.source,
                "format": conversion.format,
                "outputs": list(conversion.outputs),
                "nodes": conversion.report.nodes,
                "operations": {
                    name: {"nodes": count, "bytes": size}
                    for name, (count, size) in conversion.report.operations.items()
                },
                "notes": [{"about": label, "text": text} for label, text in conversion.report.notes],
            }
            for conversion in conversions
        ]
        content = {"files": files, "notices": list(notices), **figures}
        yield json.dumps(content, indent=2, ensure_ascii=False)
        return
    yield from _as_text(conversions)
    yield from (f"note: {notice}" for notice in notices)


def _table(report: ConversionReport, each: str) -> Iterable[str]:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in report.nodes.items())
    total = sum(report.nodes.values())
    yield _row("nodes", f"{total:,}{each}: {kinds}" if total else f"none{each}")
    for name, (count, size) in report.operations.items():
        yield _row(name, f"{format_bytes(size)} in {plural(count, 'node')}")
    for label, text in report.notes:
        yield _row(label, text)


def _row(label: str, text: str) -> str:
    return f"  {label:<{_LABEL_WIDTH}} {text}"


def _first_to_last(paths: list[str]) -> str:
    if len(paths) == 1:
        return paths[0]
    return f"{paths[0]} and {paths[1]}" if len(paths) == 2 else f"{paths[0]} to {paths[-1]} ({len(paths)})"


def _dropped_text(dropped: Dropped) -> str:
    counts = [(dropped.control, "control"), (dropped.data, "data")]
    total = " and ".join(f"{count:,} {kind}" for count, kind in counts if count)
    noun = "dependency" if len(dropped) == 1 else "dependencies"
    targets = dropped.missing.most_common(_MISSING_SHOWN)
    listed = ", ".join(f"{node_id} ({count:,})" for node_id, count in targets)
    more = len(dropped.missing) - len(targets)
    rest = f" and {more:,} more" if more else ""
    return f"{total} {noun} on nodes that are not in the file: {listed}{rest}"


def _unused_text(attributes: dict[str, int]) -> str:
    """Return the attributes that the simulator does not use, grouped by their number of nodes."""
    by_count: dict[int, list[str]] = {}
    for name, count in sorted(attributes.items()):
        by_count.setdefault(count, []).append(name)
    return "; ".join(
        f"{', '.join(names)} ({plural(count, 'node')}{' each' if len(names) > 1 else ''})"
        for count, names in by_count.items()
    )


def _operations(trace: Trace) -> dict[str, tuple[int, int]]:
    """Return nodes and bytes of each collective and of messages; collectives without a type are separate."""
    operations: dict[str, tuple[int, int]] = {}
    collective = trace.kind == NodeKind.COLL
    typed = trace.has("comm_type")
    for number in unique(trace.comm_type[collective & typed]).tolist():
        which = collective & typed & (trace.comm_type == number)
        operations[collective_name(number)] = _nodes_and_bytes(trace, which)
    operations["no comm_type"] = _nodes_and_bytes(trace, collective & ~typed)
    operations["send"] = _nodes_and_bytes(trace, trace.kind == NodeKind.SEND)
    operations["receive"] = _nodes_and_bytes(trace, trace.kind == NodeKind.RECV)
    return {name: (count, size) for name, (count, size) in operations.items() if count}


def _nodes_and_bytes(trace: Trace, which: Any) -> tuple[int, int]:
    # Python's integers: the sum of sizes near 2^63 must not wrap around.
    return int(which.sum()), sum(trace.comm_bytes[which].tolist())


def _lacking(trace: Trace) -> list[str]:
    counts: Counter[tuple[str, str]] = Counter()
    broadcast = (trace.comm_type == CollectiveKind.BROADCAST) & (trace.has("comm_type"))
    for kind, attribute in _NEEDED:
        without = (trace.kind == kind) & ~broadcast & ~trace.is_unsized & ~trace.has(attribute)
        counts[attribute, kind.name] += int(without.sum())
    return [
        f"{attribute} on {plural(count, f'{kind} node')}"
        for (attribute, kind), count in counts.items()
        if count
    ]
