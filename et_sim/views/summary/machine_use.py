"""How well kernels use compute and memory of their machine, and how much memory ranks need, as text.

Not here: what the ranks do with their time (`rank_table`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from et_sim.basics.units import format_bytes, format_ns, plural
from et_sim.views.summary.operations import Operation
from et_sim.views.summary.rank_table import called, rank_count
from et_sim.views.text import fitted, share, shortened

AVERAGES = ("compute_bound_share", "compute_utilisation", "memory_utilisation", "operational_intensity")
KERNEL_HEAD = ("compute bound", "of peak compute", "of bandwidth", "ops/byte")
LEGEND = "averages over the kernels' time; bandwidth is that of local memory"

Entry = dict[str, Any]


def kernel_sentence(entries: Sequence[Entry]) -> str:
    """The averages over the kernels of all ranks; empty if the roofline timed none."""
    used = [entry for entry in entries if entry["compute_utilisation"] is not None]
    weights = [rank_count(entry["ranks"]) * entry["compute_ns"] for entry in used]
    if not sum(weights):
        return ""
    bound, compute, memory = (
        sum(entry[name] * weight for entry, weight in zip(used, weights, strict=True)) / sum(weights)
        for name in AVERAGES[:3]
    )
    return (
        f"{share(bound, 1)} of their time compute bound; they use {share(compute, 1)} of peak compute, "
        f"{share(memory, 1)} of bandwidth"
    )


def memory_sentence(entries: Sequence[Entry]) -> str:
    """The highest peak, and the range of all; empty if memory was not tracked."""
    tracked = [entry for entry in entries if entry["peak_memory_bytes"] is not None]
    if not tracked:
        return ""
    highest = max(tracked, key=lambda entry: int(entry["peak_memory_bytes"]))
    lowest = min(int(entry["peak_memory_bytes"]) for entry in tracked)
    text = f"peak {format_bytes(highest['peak_memory_bytes'])}"
    if lowest == highest["peak_memory_bytes"]:
        return f"{text} on every rank"
    return f"{text} on {called(highest['ranks'], 24)}; the lowest is {format_bytes(lowest)}"


def spilled_sentence(summary: Mapping[str, Any]) -> str:
    """What moved to remote memory and back on all ranks; empty where tensors never do."""
    moved = summary.get("spilled")
    if moved is None:
        return ""
    if not moved["stores"] and not moved["loads"]:
        return "nothing: local memory suffices"
    stores = plural(moved["stores"], "move")
    return (
        f"{format_bytes(moved['stored_bytes'])} stored in {stores}, "
        f"{format_bytes(moved['loaded_bytes'])} loaded in {moved['loads']:,}, on all ranks together"
    )


def use_lines(entries: Sequence[Entry], width: int) -> list[str]:
    """One line per entry, with what was measured; nothing if nothing was."""
    kernels = any(entry["compute_utilisation"] is not None for entry in entries)
    memory = any(entry["peak_memory_bytes"] is not None for entry in entries)
    if not kernels and not memory:
        return []
    head = ("ranks", *(KERNEL_HEAD if kernels else ()), *(("peak memory",) if memory else ()))
    rows = [
        (
            shortened(entry["ranks"], 16),
            *(_averages(entry) if kernels else ()),
            *((_size(entry["peak_memory_bytes"]),) if memory else ()),
        )
        for entry in entries
    ]
    table = fitted([head, *rows], "<" + ">" * (len(head) - 1), width, shrink={0: 6})
    return [*table, *([LEGEND] if kernels else [])]


def kernel_lines(found: Sequence[Operation], width: int) -> list[str]:
    """One line per operation that the roofline timed."""
    rows = [
        (
            one.name,
            format_ns(one.total_ns),
            *map(_most, (one.timed_by, one.bound)),
            *_averages(one.averages())[1:],
        )
        for one in found
        if one.bound
    ]
    if not rows:
        return []
    head = ("kernel", "total", "timed by", "bound", *KERNEL_HEAD[1:])
    table = fitted([head, *rows], "<><<>>>", width, shrink={0: 10}, names=(0,))
    return [*table, LEGEND]


def _most(spent: dict[str, int]) -> str:
    """The word with the most time; whether there are others."""
    if not spent:
        return "-"
    word = max(spent, key=lambda one: (spent[one], one))
    return f"{word} {share(spent[word], sum(spent.values()))}" if len(spent) > 1 else word


def _averages(figures: Entry) -> tuple[str, ...]:
    bound, compute, memory, intensity = (figures[name] for name in AVERAGES)
    if compute is None:
        return ("-",) * len(AVERAGES)
    return share(bound, 1), share(compute, 1), share(memory, 1), _intensity(intensity)


def _intensity(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _size(size: int | None) -> str:
    return "-" if size is None else format_bytes(size)
