"""The page's sections on the origin of figures: machine, coverage, notices, inputs.

The machine is that of run.json: dimensions side by side, and every other key. Values are shown as they were
given (bare bandwidths of dimensions in GB/s); keys that were not given are not shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from et_sim.basics.units import format_bandwidth, plural
from et_sim.tables.registry import table_named
from et_sim.tables.summary import Notice
from et_sim.views.markup import bar, more, section, tag, text
from et_sim.views.run.directory import RunDirectory
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.summary.facts import factors_text
from et_sim.views.text import share

PARTS = ("network", "system", "memory", "groups")
SIZES = ("npus_count", "units-count")  # keys of the sizes of dimensions, in files of 2.x and 1.0
ALGORITHM = "-implementation"
BANDWIDTHS = ("bandwidth", "link-bandwidth")  # bare numbers are in units of 2^30 bytes per second
LATENCIES = ("latency", "link-latency")
GIB = 1.073741824  # in units of 10^9
MOST_ENTRIES, MOST_ROWS, MOST_OPEN = 16, 300, 24
Row = tuple[str, str]


def machine_section(run: RunDirectory) -> str:
    """Return the machine; empty if run.json does not describe it."""
    known: Mapping[str, Any] | None = run.manifest.get("configuration")
    if known is None:
        return ""
    columns = _by_dimension(known)
    shown = []
    for part in PARTS:
        left = {key: value for key, value in known.get(part, {}).items() if (part, key) not in columns}
        if rows := [*_rows(left)]:
            shown.append(_keys(part, rows))
    summary = run.summary
    description = (
        f"{plural(summary['ranks'], 'rank')}, {summary['model']} network, profile {summary['profile']}"
    )
    note = tag("p", text(f"{description}; figures are as they were given"), class_="note")
    return section("machine", "Machine", note, _dimensions(columns), *shown)


def _by_dimension(known: Mapping[str, Any]) -> dict[tuple[str, str], list[Any]]:
    """Return values with an entry for each dimension, by part and key: network keys and algorithms."""
    network, system = known["network"], known["system"]
    sizes: list[Any] = next((network[key] for key in SIZES if isinstance(network.get(key), list)), [])
    rows = {("network", key): value for key, value in network.items() if _is_row(value, len(sizes))}
    if not rows:
        return {}
    algorithms = {key: value for key, value in system.items() if key.endswith(ALGORITHM)}
    return rows | {("system", key): v for key, v in algorithms.items() if _is_row(v, len(sizes))}


def _is_row(value: Any, entries: int) -> bool:
    """Return whether a value is a list with this many plain values."""
    is_list = isinstance(value, list) and 0 < len(value) == entries <= MOST_ENTRIES
    return is_list and not any(isinstance(entry, list | dict) for entry in value)


def _dimensions(columns: Mapping[tuple[str, str], list[Any]]) -> str:
    if not columns:
        return ""
    rows = [
        (key.removesuffix(ALGORITHM), *(_with_unit(key, value) for value in values))
        for (_, key), values in columns.items()
    ]
    return _texts("dimension", *map(str, range(len(rows[0]) - 1))).table(rows)


def _texts(*heads: str) -> Sheet:
    """Return a sheet of rows that are texts."""
    return Sheet(tuple(SheetColumn(head, at, "<") for at, head in enumerate(heads)))


def _keys(part: str, rows: list[Row]) -> str:
    """Return all other keys of a part; long lists are folded."""
    left = len(rows) - MOST_ROWS
    listed = _texts(part, "value").table(rows[:MOST_ROWS])
    listed += tag("p", f"and {left:,} more in run.json", class_="note") if left > 0 else ""
    return more(f"{part}: {plural(len(rows), 'figure')}", listed) if len(rows) > MOST_OPEN else listed


def _rows(content: Mapping[str, Any]) -> Iterator[Row]:
    """Yield keys with plain values; keys of objects follow a dot; long lists are counted."""
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
    """Return an entry of a dimension; a bare number gets the unit in which such figures are shown."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _shown(value)
    if key in BANDWIDTHS:
        return format_bandwidth(value * GIB)
    return f"{value:g} ns" if key in LATENCIES else str(value)


def _shown(value: Any) -> str:
    """Return a plain value as its file has it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return "nothing" if isinstance(value, dict) else str(value)


TREATMENTS = (
    ("modelled", "from the machine"),
    ("replayed", "as the trace recorded it"),
    ("defaulted", "1 ns: the trace records no duration"),
    ("instant", "takes no time"),
    ("not_executed", "never issued"),
)
COULD_SHOW = (
    ("path", "the critical path"),
    ("phases", "dimensions in use over time"),
    ("links", "links in use over time"),
    ("memory", "local memory"),
)
OF_PACKETS = ("queues", "queues and pauses")
MOST_LETTERS = 60  # of a fact that shares a line with others


def coverage_section(run: RunDirectory) -> str:
    """Return the origin of the nodes' times, and the notices."""
    summary = run.summary
    coverage: Mapping[str, Any] = summary["coverage"]
    nodes = coverage["nodes"]
    sheet = Sheet(
        (
            SheetColumn("", lambda row: row[0].replace("_", " "), "<", key="treatment"),
            SheetColumn("its time comes", 1, "<"),
            SheetColumn("nodes", lambda row: f"{coverage[row[0]]:,}"),
            SheetColumn("", lambda row: share(coverage[row[0]], nodes), key="share"),
        )
    )
    parts = [(f"treatment-{name}", name.replace("_", " "), coverage[name]) for name, _ in TREATMENTS]
    content = [_notices("warning", summary["warnings"]), _notices("default", summary["defaults"])]
    ignored = coverage["ignored_attributes"]
    if ignored:
        entries = (tag("li", f"{text(name)}: {count:,} nodes") for name, count in sorted(ignored.items()))
        counted = plural(len(ignored), "attribute without effect", "attributes without effect")
        content.append(more(counted, tag("ul", "".join(entries))))
    return section(
        "coverage",
        "Coverage",
        tag("p", "origin of the time of each node", class_="note"),
        bar(parts, nodes),
        sheet.table([treatment for treatment in TREATMENTS if coverage[treatment[0]]]),
        *content,
    )


def _notices(kind: str, notices: Sequence[Notice]) -> str:
    """Return a table of notices; warnings are visible at once, defaults are folded."""
    if not notices:
        return ""
    heads = (("where", "place"), ("key", "key"), (kind, "text"))
    content = Sheet(tuple(SheetColumn(head, key, "<") for head, key in heads)).table(notices)
    if kind == "warning":
        return tag("h3", text(plural(len(notices), kind))) + content
    return more(plural(len(notices), "default taken", "defaults taken"), content)


FILE = (
    SheetColumn("file", side="<"),
    SheetColumn("SHA-256", "sha256", "<", markup=lambda file: tag("code", text(file["sha256"]))),
)


def configuration_section(run: RunDirectory) -> str:
    """Return the inputs and options of the run."""
    manifest, summary = run.manifest, run.summary
    corrections = ", ".join(summary["corrections"]) or "none"
    facts = [
        ("et-sim", manifest["et_sim"]),
        ("network model", summary["model"]),
        ("profile", summary["profile"]),
        ("corrections", corrections),
        ("ranks", f"{summary['ranks']:,}"),
        ("distinct traces", f"{manifest['distinct_traces']:,}"),
        (
            "uneven",
            f"{plural(summary['uneven']['ranks'], 'rank')}, {plural(summary['uneven']['links'], 'link')}",
        ),
        *(("what if", factors) for factors in [factors_text(run)] if factors),
    ]
    listed = "".join(_fact(name, str(value)) for name, value in facts)
    inputs = manifest["inputs"]
    files = more(plural(len(inputs), "input file"), Sheet(FILE).table(inputs)) if inputs else ""
    facts_of_run = tag("dl", listed, class_="facts")
    return section("configuration", "Configuration", facts_of_run, files, _not_recorded(run))


def _fact(name: str, value: str) -> str:
    wide = {"class_": "wide"} if len(value) > MOST_LETTERS else {}
    return tag("div", tag("dt", text(name)) + tag("dd", text(value)), **wide)


def _not_recorded(run: RunDirectory) -> str:
    """Return a note on tables that were not recorded, and how to record them."""
    could_show = COULD_SHOW if run.summary["packets"] is None else (*COULD_SHOW, OF_PACKETS)
    lacking = [(part, table_named(name).how_to_get_it) for name, part in could_show if not run.holds(name)]
    listed = "; ".join(f"{part}: {remedy}" for part, remedy in lacking)
    return tag("p", text(f"Not recorded: {listed}."), class_="note") if lacking else ""
