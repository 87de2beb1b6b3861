"""The part of the page about the machine, as run.json has it: dimensions side by side, and every other key.

A value stands here as it was given (bare bandwidths of dimensions in GB/s), and what was not given does not.
Not here: what keys mean, and which defaults were taken (`origins`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from et_sim.basics.units import format_bandwidth, plural
from et_sim.views.report.markup import more, section, table, tag, text
from et_sim.views.run.directory import RunDirectory

PARTS = ("network", "system", "memory", "groups")
SIZES = ("npus_count", "units-count")  # of dimensions, in files of 2.x and 1.0
ALGORITHM = "-implementation"
BANDWIDTHS = ("bandwidth", "link-bandwidth")  # bare numbers are in units of 2^30 bytes per second
LATENCIES = ("latency", "link-latency")
GIB = 1.073741824  # in units of 10^9
MOST_ENTRIES, MOST_ROWS, MOST_OPEN = 16, 300, 24
Row = tuple[str, str]


def machine_section(run: RunDirectory) -> str:
    """The machine; nothing if the run does not say what it was."""
    known = run.manifest.get("configuration")
    if known is None:
        return ""
    columns = _by_dimension(known)
    shown = []
    for part in PARTS:
        left = {key: value for key, value in known.get(part, {}).items() if (part, key) not in columns}
        rows = [(text(key), text(value)) for key, value in _rows(left)]
        if rows:
            shown.append(_keys(part, rows))
    summary = run.summary
    said = f"{plural(summary['ranks'], 'rank')}, {summary['model']} network, profile {summary['profile']}"
    note = tag(
        "p",
        text(f"{said}; figures are as they were given"),
        class_="note",
    )
    return section("machine", "Machine", note, _dimensions(columns), *shown)


def _by_dimension(known: Mapping[str, Any]) -> dict[tuple[str, str], list[Any]]:
    """What has an entry for each dimension, by part and key: of the network, and algorithms."""
    network, system = known["network"], known["system"]
    sizes: list[Any] = next((network[key] for key in SIZES if isinstance(network.get(key), list)), [])
    found = {("network", key): value for key, value in network.items() if _is_row(value, len(sizes))}
    if not found:
        return {}
    algorithms = {key: value for key, value in system.items() if key.endswith(ALGORITHM)}
    return found | {("system", key): v for key, v in algorithms.items() if _is_row(v, len(sizes))}


def _is_row(value: Any, entries: int) -> bool:
    """Whether it is a list of so many plain values."""
    is_list = isinstance(value, list) and 0 < len(value) == entries <= MOST_ENTRIES
    return is_list and not any(isinstance(entry, list | dict) for entry in value)


def _dimensions(columns: Mapping[tuple[str, str], list[Any]]) -> str:
    if not columns:
        return ""
    entries = [*columns.items()]
    head = ["dimension", *map(str, range(len(entries[0][1])))]
    rows = [
        (text(key.removesuffix(ALGORITHM)), *(text(_with_unit(key, value)) for value in values))
        for (_, key), values in entries
    ]
    return table("", head, rows, "<" * len(head))


def _keys(part: str, rows: list[Row]) -> str:
    """All other keys of a part; many are folded away."""
    left = len(rows) - MOST_ROWS
    listed = table("", (text(part), "value"), rows[:MOST_ROWS], "<<")
    listed += tag("p", f"and {left:,} more in run.json", class_="note") if left > 0 else ""
    return more(f"{part}: {plural(len(rows), 'figure')}", listed) if len(rows) > MOST_OPEN else listed


def _rows(content: Mapping[str, Any]) -> Iterator[Row]:
    """Keys with plain values, those of objects behind a dot; long lists are counted."""
    waiting = [*reversed([*content.items()])]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict) and value:
            waiting += [(f"{key}.{name}", entry) for name, entry in reversed([*value.items()])]
        elif not isinstance(value, list):
            yield key, _shown(value)
        elif len(value) > MOST_ENTRIES:
            yield key, plural(len(value), "entry", "entries")
        elif any(isinstance(entry, list | dict) for entry in value):
            waiting += [(f"{key}[{at}]", entry) for at, entry in reversed([*enumerate(value)])]
        else:
            yield key, ", ".join(_shown(entry) for entry in value)


def _with_unit(key: str, value: Any) -> str:
    """An entry of a dimension; a bare number in the unit in which such figures are shown."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _shown(value)
    if key in BANDWIDTHS:
        return format_bandwidth(value * GIB)
    return f"{value:g} ns" if key in LATENCIES else str(value)


def _shown(value: Any) -> str:
    """A plain value as its file has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "nothing"
    return str(value)
