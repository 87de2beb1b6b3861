"""What became of a rank's recordings, in lines for people.

Not here: the figures (`totals`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from et_sim.units import format_bytes, format_ns

_WIDTH = 16


def lines(report: dict[str, Any]) -> Iterator[str]:
    """What the figures say, without what is nothing."""
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
