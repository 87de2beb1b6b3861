"""What became of a rank's recordings: figures for programs, and lines for people.

Not here: the conversion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from converters.pytorch.columns import DeviceTrace
from converters.pytorch.graph import Column, Link, Role, Rows
from converters.pytorch.longest_path import path_times
from converters.pytorch.nesting import NONE
from converters.pytorch.rank import ConvertedRank
from et_sim.trace.columns import NodeKind
from et_sim.units import format_bytes, format_ns

_NAMED = 5
_WIDTH = 16


def report_on(rank: ConvertedRank, inputs: list[str], output: str, size_bytes: int) -> dict[str, Any]:
    """Everything there is to say about a converted rank."""
    graph = rank.graph
    return {
        "inputs": inputs,
        "output": output,
        "output_bytes": size_bytes,
        "rank": rank.rank if rank.rank >= 0 else None,
        "schema": rank.host.schema if rank.host is not None else None,
        "timed": rank.is_timed,
        "linkage": _linkage(rank),
        "nodes": _nodes(rank),
        "roles": _roles(rank),
        "dependencies": {link.label: _count(graph.kind, link) for link in Link if _count(graph.kind, link)},
        "groups": {name: list(ranks) for name, ranks in rank.groups.items()},
        "communication": _communication(rank),
        "costs": _costs(rank),
        "time": _time(rank) if rank.is_timed else None,
        "remarks": {
            what: {"count": count, "examples": list(rank.examples.get(what, ()))}
            for what, count in sorted(rank.remarks.items())
        },
        "not_converted": _dropped(rank),
    }


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The same for people, without what is nothing."""
    yield f"{' + '.join(report['inputs'])} -> {report['output']}"
    nodes = ", ".join(f"{count:,} {kind}" for kind, count in report["nodes"].items())
    yield _row("nodes", f"{sum(report['nodes'].values()):,}: {nodes}")
    if report["linkage"] is not None:
        yield from _linkage_lines(report["linkage"])
    yield _row(
        "dependencies", ", ".join(f"{count:,} {name}" for name, count in report["dependencies"].items())
    )
    for one in report["communication"]:
        group = f"group {one['group']}" if one["group"] else "all ranks"
        took = f", {format_ns(one['measured_ns'])}" if report["timed"] else ""
        yield _row(one["operation"], f"{format_bytes(one['bytes'])} in {one['count']:,} of {group}{took}")
    costs = report["costs"]
    if costs["kernels"]:
        counted = f"{costs['with_operations']:,} of {costs['kernels']:,} kernels"
        known = f"{costs['operations'] / 1e12:.4g} TFLOP in {counted}"
        yield _row("costs", f"{known}, {format_bytes(costs['bytes'])} in {costs['with_bytes']:,}")
    if report["time"] is not None:
        yield from _time_lines(report["time"])
    else:
        yield _row(
            "time", "none: an execution trace has no times, so this is the host's side without durations"
        )
    for what, remark in report["remarks"].items():
        named = f" ({', '.join(remark['examples'])})" if remark["examples"] else ""
        yield _row("remark", f"{remark['count']:,} x {what}{named}")
    if report["not_converted"]:
        dropped = ", ".join(f"{count:,} {what}" for what, count in report["not_converted"].items())
        yield _row("left out", dropped)


def _row(label: str, text: str) -> str:
    return f"  {label:<{_WIDTH}} {text}"


def _count(column: Any, value: int) -> int:
    return int((column == value).sum())


def _linkage(rank: ConvertedRank) -> dict[str, Any] | None:
    links, host, device = rank.links, rank.host, rank.device
    if links is None or host is None or device is None:
        return None
    return {
        "method": links.method,
        "linked": links.linked,
        "host_operators": links.host_operators,
        "device_operators": links.device_operators,
        "host_orphans": [
            _described(host.names[host.name[row]], int(host.node_id[row]))
            for row in links.host_orphans(host)[:_NAMED]
        ],
        "device_orphans": _first_names(device, rank.device_orphans),
    }


def _first_names(device: DeviceTrace, rows: Column) -> list[str]:
    """The first names of some events, each once."""
    names, first = np.unique(device.name[rows], return_index=True)
    return [device.names[name] for name in names[np.argsort(first)][:_NAMED].tolist()]


def _described(name: str, node_id: int) -> str:
    return f'node {node_id} "{name}"'


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


def _nodes(rank: ConvertedRank) -> dict[str, int]:
    is_metadata = rank.graph.role == Role.METADATA
    communicates = rank.communication != NONE
    found = {
        NodeKind.METADATA.name: int(is_metadata.sum()),
        NodeKind.COMP.name: int((~is_metadata & ~communicates).sum()),
    }
    which = rank.communication[communicates]
    of = np.array([int(one.operation.node) for one in rank.communications] or [0])[which]
    for kind in (NodeKind.COLL, NodeKind.SEND, NodeKind.RECV):
        found[kind.name] = int((of == kind).sum())
    return {kind: count for kind, count in found.items() if count}


def _roles(rank: ConvertedRank) -> dict[str, dict[str, int]]:
    """Nodes and their time by what they stand for."""
    graph = rank.graph
    duration = graph.end_ns - graph.start_ns
    return {
        role.name.lower().replace("_", " "): {
            "nodes": _count(graph.role, role),
            "ns": int(duration[graph.role == role].sum()),
        }
        for role in Role
        if _count(graph.role, role)
    }


def _communication(rank: ConvertedRank) -> list[dict[str, Any]]:
    """By operation and group, in the order of their first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    rows = np.flatnonzero(rank.communication != NONE)
    duration = (rank.graph.end_ns - rank.graph.start_ns)[rows].tolist()
    for which, took in zip(rank.communication[rows].tolist(), duration, strict=True):
        one = rank.communications[which]
        key = one.operation.label, one.group
        entry = found.setdefault(
            key, {"operation": key[0], "group": key[1], "count": 0, "bytes": 0, "measured_ns": 0}
        )
        entry["count"] += 1
        entry["bytes"] += one.comm_bytes
        entry["measured_ns"] += took
    return list(found.values())


def _costs(rank: ConvertedRank) -> dict[str, int]:
    is_kernel = np.isin(rank.graph.role, (Role.KERNEL, Role.COPY, Role.FILL)) & (rank.communication == NONE)
    if not rank.is_timed:
        return {"kernels": 0, "with_operations": 0, "operations": 0, "with_bytes": 0, "bytes": 0}
    kernels = np.flatnonzero(is_kernel)
    operations, size = rank.numbers["num_ops"][kernels], rank.numbers["tensor_size"][kernels]
    return {
        "kernels": len(kernels),
        "with_operations": int((operations > 0).sum()),
        "operations": sum(operations[operations > 0].tolist()),
        "with_bytes": int((size >= 0).sum()),
        "bytes": sum(size[size >= 0].tolist()),
    }


def _time(rank: ConvertedRank) -> dict[str, Any]:
    """Measured against replayed, and what the longest path consists of."""
    ends, decisive = rank.graph.replayed()
    replayed = int(ends.max(initial=0))
    return {
        "measured_ns": rank.measured_ns,
        "replayed_ns": replayed,
        "difference_ns": replayed - rank.measured_ns,
        "late_nodes": int((ends > rank.graph.end_ns).sum()),
        "early_nodes": int((ends < rank.graph.end_ns).sum()),
        "devices_busy_ns": _busy(rank),
        "longest_path_ns": _path(rank, ends, decisive),
        "longest_gap": _longest_gap(rank),
    }


def _busy(rank: ConvertedRank) -> int:
    """Time in which some device worked."""
    graph = rank.graph
    rows = np.flatnonzero((graph.work != NONE) & (graph.role != Role.COMMUNICATION))
    if not len(rows):
        return 0
    start, end = graph.start_ns[rows], np.maximum.accumulate(graph.end_ns[rows])
    before = np.insert(end[:-1], 0, 0)
    return int(np.maximum(end - np.maximum(start, before), 0).sum())


def _path(rank: ConvertedRank, ends: Column, decisive: Rows) -> dict[str, int]:
    """Time by role along the nodes that decided when the last one ended."""
    graph = rank.graph
    times = np.zeros(len(Role), np.int64)
    if len(ends):
        last = int(np.argmax(ends))
        path_times(last, graph.start_ns, graph.end_ns, graph.role, graph.before, decisive, times)
    total = dict(zip(Role, times.tolist(), strict=True))
    order = sorted(total, key=lambda role: (-total[role], role.name))
    return {role.name.lower().replace("_", " "): total[role] for role in order if total[role]}


def _longest_gap(rank: ConvertedRank) -> dict[str, Any] | None:
    """The longest time for which a stream waited and nothing recorded says for what."""
    graph = rank.graph
    rows = np.flatnonzero(np.isin(graph.role, (Role.STREAM_GAP, Role.LAUNCH_GAP)))
    if not len(rows):
        return None
    duration = graph.end_ns[rows] - graph.start_ns[rows]
    row = int(rows[np.argmax(duration)])
    follows = graph.after[graph.before == row]
    name = ""
    if len(follows) and rank.device is not None and rank.event[follows[0]] != NONE:
        name = rank.device.names[rank.device.name[rank.event[follows[0]]]]
    return {"ns": int(duration.max()), "start_ns": int(graph.start_ns[row]), "before": name}


def _time_lines(time: dict[str, Any]) -> Iterator[str]:
    measured, replayed = time["measured_ns"], time["replayed_ns"]
    off = time["difference_ns"]
    said = f"{format_ns(abs(off))} {'more' if off > 0 else 'less'}" if off else "the same"
    yield _row("measured", f"{format_ns(measured)} ({measured:,} ns)")
    yield _row("replayed", f"{format_ns(replayed)} ({replayed:,} ns), {said}")
    if time["devices_busy_ns"]:
        share = 100 * time["devices_busy_ns"] / measured if measured else 0
        yield _row("devices busy", f"{format_ns(time['devices_busy_ns'])} ({share:.0f} %)")
    whole = max(replayed, 1)
    shares = ((name, 100 * ns / whole) for name, ns in time["longest_path_ns"].items())
    path = ", ".join(f"{name} {share:.0f} %" for name, share in shares if share >= 0.5)
    yield _row("longest path", path)
    gap = time["longest_gap"]
    if gap is not None and gap["ns"] >= max(measured // 50, 1):
        before = f' before "{gap["before"][:60]}"' if gap["before"] else ""
        yield _row(
            "longest gap", f"{format_ns(gap['ns'])} of a stream at {format_ns(gap['start_ns'])}{before}"
        )


def _dropped(rank: ConvertedRank) -> dict[str, int]:
    """Events and nodes that are no part of the graph, by category."""
    found: dict[str, int] = {}
    for trace in (rank.device, rank.host):
        for what, count in sorted(trace.dropped.items() if trace is not None else ()):
            found[_plain(what)] = found.get(_plain(what), 0) + count
        if trace is not None and trace.repaired:
            found["blocks of a file that were mended"] = (
                found.get("blocks of a file that were mended", 0) + trace.repaired
            )
    return {**found, **rank.left_out_events}


def _plain(what: str) -> str:
    """What the readers call "phase/category" in words."""
    phase, _, category = what.partition("/")
    if phase in ("s", "f", "t"):
        return f"ends of {category} arrows"
    known = {"M": "events of metadata", "i": "instants", "I": "instants", "C": "counters"}
    return known.get(phase, f"events of category {category}" if category else what)
