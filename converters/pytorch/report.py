"""What became of a rank's recordings, in lines for people.

Not here: the figures (`totals`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from et_sim.basics.units import format_bytes, format_ns, plural

_WIDTH = 16
_GAPS_SHOWN = 3


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
        yield _row(one["operation"], f"{_sizes(one)} of {group}{took}")
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


def _sizes(one: dict[str, Any]) -> str:
    """The bytes of operations, as far as the recording gives them, and how many these are."""
    unsized, known = one["unsized"], one["count"] - one["unsized"]
    sized = [f"{format_bytes(one['bytes'])} in {known:,}"] if known else []
    return " and ".join(sized + ([f"unknown size in {unsized:,}"] if unsized else []))


def _unsized_lines(unsized: dict[str, int]) -> Iterator[str]:
    """How many sizes are not recorded, and what is taken instead."""
    if not unsized["count"]:
        return
    left = unsized["count"] - unsized["estimated"] - unsized["of_other_ranks"]
    how = (
        (unsized["of_other_ranks"], "taken from other ranks"),
        (unsized["estimated"], "estimated from how long they took"),
        (left, "marked as unknown: they take their recorded time"),
    )
    said = ", ".join(f"{count:,} {what}" for count, what in how if count)
    yield _row("unknown sizes", f"{unsized['count']:,} collectives and messages: {said}")


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
    yield from _explained_lines(time["explained"])


def _explained_lines(explained: dict[str, Any]) -> Iterator[str]:
    """How much of the longest path is known for what it was, and where the rest is."""
    whole, gaps = max(explained["path_ns"], 1), explained["gaps_ns"]
    text = f"{100 * (whole - gaps) / whole:.0f} % of the longest path"
    if gaps:
        shown = [f"{format_ns(one['ns'])} {one['name']}" for one in explained["gaps"][:_GAPS_SHOWN]]
        more = ["…"] if len(explained["gaps"]) > _GAPS_SHOWN else []
        text += f"; the rest is fixed: {', '.join(shown + more)}"
    yield _row("explained", text)
    for gap in explained["longest"][:1]:
        if gap["ns"] >= max(explained["path_ns"] // 50, 1):
            before = f' before "{gap["before"][:60]}"' if gap["before"] else ""
            yield _row("longest gap", f"{format_ns(gap['ns'])} at {format_ns(gap['start_ns'])}{before}")
