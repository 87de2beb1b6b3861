"""The report on the conversion of a rank, as figures and as lines of text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from converters.pytorch.columns import NONE, DeviceTrace, EventKind
from converters.pytorch.graph import Column, Link, RecordedGraph, Rows, RunPart, longest_path
from converters.pytorch.groups import DEFAULT
from converters.pytorch.rank import ConvertedRank, Lookup, explained
from et_sim.basics.unique import unique
from et_sim.basics.units import format_bytes, format_ns, plural
from et_sim.trace.columns import NodeKind

_NAMED = 5
_STEP = re.compile(r"ProfilerStep#(\d+)")
_EPOCH_NS = 10**18  # of 2001; smaller times have another origin
_KINDS = (NodeKind.METADATA, NodeKind.COMP, NodeKind.COLL, NodeKind.SEND, NodeKind.RECV)


def report_on(rank: ConvertedRank, inputs: list[str], output: str, size_bytes: int) -> dict[str, Any]:
    """Return all figures of a converted rank."""
    nodes, links = _nodes(rank), np.bincount(rank.graph.kind, minlength=len(Link)).tolist()
    return {
        "inputs": inputs,
        "output": output,
        "output_bytes": size_bytes,
        "rank": rank.rank if rank.rank >= 0 else None,
        "schema": rank.host.schema if rank.host is not None else None,
        "timed": rank.is_timed,
        "recorded": _recorded(rank),
        "linkage": _linkage(rank),
        "nodes": {kind.name: nodes[kind] for kind in _KINDS if nodes[kind]},
        "roles": _roles(rank.graph),
        "dependencies": {link.label: count for link, count in zip(Link, links, strict=True) if count},
        "groups": {name: list(ranks) for name, ranks in rank.groups.items()},
        "communication": _communication(rank),
        "unsized": {"count": _unsized(rank), "estimated": 0, "of_other_ranks": 0},
        "costs": _costs(rank),
        "memory": _memory(rank),
        "time": _time(rank) if rank.is_timed else None,
        "remarks": {
            subject: {"count": count, "examples": rank.tally.examples.get(subject, [])}
            for subject, count in sorted(rank.tally.counts.items())
        },
        "not_converted": {**_dropped(rank), **rank.left_out_events},
    }


def _recorded(rank: ConvertedRank) -> dict[str, Any]:
    """Return the world, the steps and the times (of the epoch) of a recording."""
    device, host = rank.device, rank.host
    groups = host.groups if host is not None else ()
    sizes = [device.world_size] if device is not None else []
    sizes += [group.size for group in groups if group.name == DEFAULT]
    names = unique(device.name[device.kind == EventKind.ANNOTATION]).tolist() if device is not None else []
    steps = (_STEP.fullmatch(device.names[name]) for name in names) if device is not None else ()
    begin = rank.begin_ns if rank.begin_ns > _EPOCH_NS else None
    return {
        "world_size": next((size for size in sizes if size > 0), None),
        "steps": sorted(int(step.group(1)) for step in steps if step),
        "begin_ns": begin,
        "end_ns": None if begin is None else begin + rank.measured_ns,
    }


def _roles(graph: RecordedGraph) -> dict[str, dict[str, int]]:
    duration = graph.end_ns - graph.start_ns
    totals = {}
    for role in RunPart:
        of_role = graph.role == role
        if of_role.any():
            totals[_plain_name(role)] = {"nodes": int(of_role.sum()), "ns": int(duration[of_role].sum())}
    return totals


def _communication(rank: ConvertedRank) -> list[dict[str, Any]]:
    """Return figures by operation and group, in the order of their first node."""
    rows = np.flatnonzero(rank.communication != NONE)
    duration = (rank.graph.end_ns - rank.graph.start_ns)[rows].tolist()
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    for which, took in zip(rank.communication[rows].tolist(), duration, strict=True):
        communication = rank.communications[which]
        key = communication.operation.label, communication.group
        entry = entries.setdefault(
            key,
            {"operation": key[0], "group": key[1], "count": 0, "unsized": 0, "bytes": 0, "measured_ns": 0},
        )
        entry["count"] += 1
        entry["unsized"] += communication.is_unsized
        entry["bytes"] += communication.comm_bytes
        entry["measured_ns"] += took
    return list(entries.values())


def _unsized(rank: ConvertedRank) -> int:
    """Return the number of collectives and messages without a recorded size."""
    is_unsized = np.array(
        [communication.is_unsized for communication in rank.communications] or [False], np.bool_
    )
    return int(is_unsized[rank.communication[rank.communication != NONE]].sum())


def _linkage(rank: ConvertedRank) -> dict[str, Any] | None:
    """Return the number of linked operators of the two recordings, and the first that are not linked."""
    links, host, device = rank.links, rank.host, rank.device
    if links is None or host is None or device is None:
        return None
    orphans = links.host_orphans
    orphans = orphans[np.argsort(host.node_id[orphans], kind="stable")[:_NAMED]].tolist()
    return {
        "method": links.method if links.linked else "nothing fits",
        "linked": links.linked,
        "host_operators": links.host_operators,
        "device_operators": links.device_operators,
        "host_orphans": [f'node {int(host.node_id[row])} "{host.names[host.name[row]]}"' for row in orphans],
        "device_orphans": _first_names(device, rank.device_orphans),
    }


def _time(rank: ConvertedRank) -> dict[str, Any]:
    """Return the measured and the replayed time, and their differences."""
    graph = rank.graph
    ends, decisive = graph.replayed()
    replayed = int(ends.max(initial=0))
    path = _path(graph, ends, decisive)
    return {
        "measured_ns": rank.measured_ns,
        "replayed_ns": replayed,
        "difference_ns": replayed - rank.measured_ns,
        "late_nodes": int((ends > graph.end_ns).sum()),
        "early_nodes": int((ends < graph.end_ns).sum()),
        "devices_busy_ns": _busy(graph),
        "longest_path_ns": _by_role(graph, path),
        "explained": explained(graph, rank.device, rank.event, path),
    }


def _busy(graph: RecordedGraph) -> int:
    """Return the time in which some device worked."""
    rows = np.flatnonzero((graph.work != NONE) & (graph.role != RunPart.COMMUNICATION))
    until = np.maximum.accumulate(graph.end_ns[rows])
    before = np.insert(until[:-1], 0, 0) if len(rows) else until
    return int(np.maximum(until - np.maximum(graph.start_ns[rows], before), 0).sum())


def _path(graph: RecordedGraph, ends: Column, decisive: Rows) -> Rows:
    """Return the nodes that determined the end of the last one, the last first."""
    path = np.empty(len(graph), np.int32)
    decided_by = np.where(decisive >= 0, graph.before[decisive] if len(graph.before) else decisive, NONE)
    length = longest_path(int(np.argmax(ends)), decided_by, path) if len(ends) else 0
    nodes: Rows = path[:length]
    return nodes


def _by_role(graph: RecordedGraph, path: Rows) -> dict[str, int]:
    """Return the time by role along a path."""
    times = np.zeros(len(RunPart), np.int64)
    np.add.at(times, graph.role[path], (graph.end_ns - graph.start_ns)[path])
    total = dict(zip(RunPart, times.tolist(), strict=True))
    order = sorted(total, key=lambda role: (-total[role], role.name))
    return {_plain_name(role): total[role] for role in order if total[role]}


def _nodes(rank: ConvertedRank) -> Counter[NodeKind]:
    is_metadata = rank.graph.role == RunPart.METADATA
    communicates = rank.communication != NONE
    counts = Counter(
        {
            NodeKind.METADATA: int(is_metadata.sum()),
            NodeKind.COMP: int((~is_metadata & ~communicates).sum()),
        }
    )
    which = rank.communication[communicates]
    of = np.array([int(communication.operation.node) for communication in rank.communications] or [0])[which]
    counts.update({kind: int((of == kind).sum()) for kind in (NodeKind.COLL, NodeKind.SEND, NodeKind.RECV)})
    return counts


def _costs(rank: ConvertedRank) -> dict[str, int]:
    is_kernel = np.isin(rank.graph.role, (RunPart.KERNEL, RunPart.COPY, RunPart.FILL)) & (
        rank.communication == NONE
    )
    nothing = Lookup(rank.graph.role)
    operations, size = (rank.numbers.get(name, nothing)[is_kernel] for name in ("num_ops", "tensor_size"))
    took = (rank.graph.end_ns - rank.graph.start_ns)[is_kernel]
    return {
        "kernels": int(is_kernel.sum()),
        "kernels_ns": int(took.sum()),
        "with_operations": int((operations > 0).sum()),
        "operations": sum(operations[operations > 0].tolist()),
        "with_bytes": int((size >= 0).sum()),
        "bytes": sum(size[size >= 0].tolist()),
        "without_figures": int((size < 0).sum()),
        "without_figures_ns": int(took[size < 0].sum()),
    }


def _memory(rank: ConvertedRank) -> dict[str, int] | None:
    """Return the recorded memory of devices; None: not recorded."""
    memory = rank.memory
    if memory is None:
        return None
    return {
        "tensors": sum(len(words) // 2 for of in (memory.reads, memory.writes) for words in of.values()),
        "begin_bytes": memory.begin_bytes,
        "peak_bytes": memory.peak_bytes,
        "peak_ns": memory.peak_ns,
        "reserved_bytes": memory.reserved_bytes,
    }


def _first_names(device: DeviceTrace, rows: Column) -> list[str]:
    """Return the first names of some events, each once, in the order of time."""
    rows = rows[np.argsort(device.ts_ns[rows], kind="stable")]
    names, first = np.unique(device.name[rows], return_index=True)
    return [device.names[name] for name in names[np.argsort(first)][:_NAMED].tolist()]


def _dropped(rank: ConvertedRank) -> dict[str, int]:
    """Return the counts of events left out in reading, by category."""
    dropped: dict[str, int] = {}
    for trace in (rank.device, rank.host):
        for subject, count in sorted(trace.dropped.items() if trace is not None else ()):
            dropped[_plain(subject)] = dropped.get(_plain(subject), 0) + count
        if trace is not None and trace.repaired:
            dropped["blocks of a file that were corrected"] = (
                dropped.get("blocks of a file that were corrected", 0) + trace.repaired
            )
    return dropped


def _plain(subject: str) -> str:
    """Return the readers' "phase/category" in words."""
    phase, _, category = subject.partition("/")
    if phase in ("s", "f", "t"):
        return f"ends of {category} arrows"
    known = {"M": "events of metadata", "i": "instants", "I": "instants", "C": "counters"}
    return known.get(phase, f"events of category {category}" if category else subject)


def _plain_name(role: RunPart) -> str:
    return role.name.lower().replace("_", " ")


_WIDTH = 16
_GAPS_SHOWN = 3


def lines_of_ranks(
    reports: Sequence[dict[str, Any]], notes: Sequence[str], *, as_json: bool
) -> Iterator[str]:
    """Yield the reports of all ranks and notes, as text or JSON."""
    if as_json:
        yield json.dumps({"ranks": reports, "notes": notes}, indent=2, ensure_ascii=False)
        return
    for report in reports:
        yield from lines(report)
    yield from (f"note: {note}" for note in notes)


def lines(report: dict[str, Any]) -> Iterator[str]:
    """Yield the report as text, without figures that are zero."""
    yield f"{' + '.join(report['inputs'])} -> {report['output']}"
    nodes = ", ".join(f"{count:,} {kind}" for kind, count in report["nodes"].items())
    yield _row("nodes", f"{sum(report['nodes'].values()):,}: {nodes}")
    if report["linkage"] is not None:
        yield from _linkage_lines(report["linkage"])
    yield _row(
        "dependencies", ", ".join(f"{count:,} {name}" for name, count in report["dependencies"].items())
    )
    for entry in report["communication"]:
        group = f"group {entry['group']}" if entry["group"] else "all ranks"
        took = f", {format_ns(entry['measured_ns'])}" if report["timed"] else ""
        yield _row(entry["operation"], f"{_sizes(entry)} of {group}{took}")
    yield from _unsized_lines(report["unsized"])
    costs = report["costs"]
    if costs["kernels"]:
        counted = f"{costs['with_operations']:,} of {costs['kernels']:,} kernels"
        known = f"{costs['operations'] / 1e12:.4g} TFLOP in {counted}"
        yield _row("costs", f"{known}, {format_bytes(costs['bytes'])} in {costs['with_bytes']:,}")
        if costs["without_figures"]:
            share = 100 * costs["without_figures_ns"] / max(costs["kernels_ns"], 1)
            none = f"{plural(costs['without_figures'], 'kernel')} ({share:.0f} % of their time)"
            yield _row("no costs", f"{none}, of which a roofline replays the time")
    if costs["kernels"] or report["memory"] is not None:
        yield _row("memory", _memory_text(report["memory"]))
    if report["time"] is not None:
        yield from _time_lines(report["time"])
    else:
        yield _row(
            "time", "none: an execution trace has no times, so this is the host's side without durations"
        )
    for subject, remark in report["remarks"].items():
        named = f" ({', '.join(remark['examples'])})" if remark["examples"] else ""
        yield _row("remark", f"{remark['count']:,} x {subject}{named}")
    if report["not_converted"]:
        dropped = ", ".join(f"{count:,} {subject}" for subject, count in report["not_converted"].items())
        yield _row("left out", dropped)


def _sizes(entry: dict[str, Any]) -> str:
    """Return the recorded bytes of operations, and the number of operations."""
    unsized, known = entry["unsized"], entry["count"] - entry["unsized"]
    sized = [f"{format_bytes(entry['bytes'])} in {known:,}"] if known else []
    return " and ".join(sized + ([f"unknown size in {unsized:,}"] if unsized else []))


def _unsized_lines(unsized: dict[str, int]) -> Iterator[str]:
    """Yield the number of unrecorded sizes, and their replacements."""
    if not unsized["count"]:
        return
    left = unsized["count"] - unsized["estimated"] - unsized["of_other_ranks"]
    how = (
        (unsized["of_other_ranks"], "taken from other ranks"),
        (unsized["estimated"], "estimated from how long they took"),
        (left, "marked as unknown: they take their recorded time"),
    )
    details = ", ".join(f"{count:,} {reason}" for count, reason in how if count)
    yield _row("unknown sizes", f"{unsized['count']:,} collectives and messages: {details}")


def _row(label: str, text: str) -> str:
    return f"  {label:<{_WIDTH}} {text}"


def _memory_text(memory: dict[str, int] | None) -> str:
    if memory is None:
        return "not recorded: record with profile_memory=True"
    peak = f"peak {format_bytes(memory['peak_bytes'])} at {format_ns(memory['peak_ns'])}"
    begin, reserved = format_bytes(memory["begin_bytes"]), format_bytes(memory["reserved_bytes"])
    held = f"; {reserved} reserved by the allocator" if memory["reserved_bytes"] else ""
    return f"{peak}, {begin} at the beginning{held}"


def _linkage_lines(linkage: dict[str, Any]) -> Iterator[str]:
    linked = linkage["linked"]
    for side, of in (("host", "the execution trace"), ("device", "the timeline")):
        total = linkage[f"{side}_operators"]
        rate = f"{100 * linked / total:.2f} %" if total else "none"
        how = f", by {linkage['method']}" if side == "host" else ""
        yield _row("linked", f"{linked:,} of {total:,} operators of {of} ({rate}){how}")
        orphans = linkage[f"{side}_orphans"]
        if orphans:
            more = ", …" if total - linked > len(orphans) else ""
            yield _row("not linked", f"{total - linked:,}: {', '.join(orphans)}{more}")


def _time_lines(time: dict[str, Any]) -> Iterator[str]:
    measured, replayed = time["measured_ns"], time["replayed_ns"]
    off = time["difference_ns"]
    difference = f"{format_ns(abs(off))} {'more' if off > 0 else 'less'}" if off else "the same"
    yield _row("measured", f"{format_ns(measured)} ({measured:,} ns)")
    yield _row("replayed", f"{format_ns(replayed)} ({replayed:,} ns), {difference}")
    if time["devices_busy_ns"]:
        share = 100 * time["devices_busy_ns"] / measured if measured else 0
        yield _row("devices busy", f"{format_ns(time['devices_busy_ns'])} ({share:.0f} %)")
    whole = max(replayed, 1)
    shares = ((name, 100 * ns / whole) for name, ns in time["longest_path_ns"].items())
    path = ", ".join(f"{name} {share:.0f} %" for name, share in shares if share >= 0.5)
    yield _row("longest path", path)
    yield from _explained_lines(time["explained"])


def _explained_lines(explained: dict[str, Any]) -> Iterator[str]:
    """Yield the explained share of the longest path, and its gaps."""
    whole, gaps = max(explained["path_ns"], 1), explained["gaps_ns"]
    text = f"{100 * (whole - gaps) / whole:.0f} % of the longest path"
    if gaps:
        shown = [f"{format_ns(gap['ns'])} {gap['name']}" for gap in explained["gaps"][:_GAPS_SHOWN]]
        more = ["…"] if len(explained["gaps"]) > _GAPS_SHOWN else []
        text += f"; the rest is fixed: {', '.join(shown + more)}"
    yield _row("explained", text)
    for gap in explained["longest"][:1]:
        if gap["ns"] >= max(explained["path_ns"] // 50, 1):
            before = f' before "{gap["before"][:60]}"' if gap["before"] else ""
            yield _row("longest gap", f"{format_ns(gap['ns'])} at {format_ns(gap['start_ns'])}{before}")
