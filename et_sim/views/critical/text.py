"""The critical path as text and JSON: its causes, sensitivities, and the slack of operations.

Slack is the time by which a node could complete later without a longer run. In a fixed order of service it is
exact for one node at a time; it is a bound if the delay lets others overtake the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins

from et_sim.basics.units import format_ns, plural
from et_sim.views.critical.path import CriticalPath, PathHop, operation_of
from et_sim.views.critical.record import PathRecord
from et_sim.views.critical.sensitivity import Sensitivities, Sensitivity
from et_sim.views.run.columns import together
from et_sim.views.run.directory import RunDirectory, open_run
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.text import bar, not_shown, share, shortened, signed, terminal_width
from et_sim.views.view import Forms


class OperationSlack(Struct, frozen=True):
    """Slack of all nodes of one operation, on all actors."""

    kind: str
    name: str
    group: str | None
    nodes: int
    critical: int  # number of nodes without slack
    least_ns: int
    median_ns: int


def slack_of_operations(record: PathRecord) -> list[OperationSlack]:
    """Return one entry per operation, the one with the least slack first."""
    rows, slack = record.slack
    nodes = record.nodes
    shape = (len(nodes.kind.texts), len(nodes.stem.texts), len(nodes.group.texts))
    code = np.ravel_multi_index((nodes.kind.codes, nodes.stem.codes, nodes.group.codes), shape)[rows]
    order = np.lexsort((slack, code))
    firsts = np.flatnonzero(np.diff(code[order], prepend=-1))
    slacks = []
    for of_one in np.split(order, firsts[1:]) if len(order) else []:
        kind, name, group = operation_of(nodes, int(rows[of_one[0]]))
        ns = slack[of_one]
        critical, least, median = int((ns == 0).sum()), int(ns[0]), int(ns[len(ns) // 2])
        slacks.append(OperationSlack(kind, name, group, len(ns), critical, least, median))
    return sorted(
        slacks, key=lambda entry: (entry.least_ns, entry.median_ns, entry.kind, entry.name, entry.group or "")
    )


LINES = 10  # of each table
MOST_NODES = 1000  # in JSON
BAR_WIDTH, SHORT_BAR_WIDTH = 30, 5
SMALLEST_CHANGE = 0.0005
EXACT_OR_NOT = (
    "Exact on this path, except for the rounding of durations. An estimate beyond the range in which it is "
    "good, and if the order of service changes. --verify simulates the changes."
)
ESTIMATE = (
    "An estimate: what shares links or memory, or slows kernels, affects others when it gets faster, and may "
    "then wait elsewhere. --verify simulates the changes."
)
ADAPTS = (
    "An estimate: collectives are chosen by the figures of the machine, so other figures change their "
    "messages. --verify simulates the changes."
)
NOT_COMPLETE = "the run did not complete, so changes of its makespan are unknown"


def critical_path_text(path: Any, top: int | None = None, width: int | None = None) -> str:
    """Return the whole report, as wide as the terminal."""
    run, width = open_run(path), width or terminal_width()
    critical = CriticalPath(PathRecord(run))
    most = LINES if top is None else top
    tables = [
        ("Time by cause", _causes(critical)),
        ("Time by operation", _operations(critical, most, width)),
        ("Links on the path", _links(critical, most, width)),
        (
            "Messages on the path, and the link that set the rate of each last",
            _messages(critical, most, width),
        ),
    ]
    if not critical.record.is_complete:
        critical.record.keep(None)
        tables.append((NOT_COMPLETE, []))
    else:
        changes = _sensitivities(Sensitivities(critical), most, width)
        tables.append(("Changes of the makespan", changes))
    if critical.record.is_complete and critical.record.is_exact:
        later = "Slack of operations, in the same order of service"
        slack = slack_of_operations(critical.record)
        tables.append((later, _cut(SLACK.lines(slack[:most], width), slack, most)))
    tables.append(("The longest stretches, in the order of the path", _hops(run, critical, most, width)))
    sections = [[title, *lines] for title, lines in tables if lines or title[0].islower()]
    return "\n\n".join("\n".join(lines) for lines in (_head(critical), *sections))


def critical_path_data(path: Any, top: int | None = None) -> dict[str, Any]:
    """Return the report for `--json`, without a limit of lines."""
    run = open_run(path)
    critical, ranks = CriticalPath(PathRecord(run)), run.actors()["ranks"].to_pylist()
    predicted = critical.record.is_complete
    if not predicted:
        critical.record.keep(None)
    return {
        "makespan_ns": critical.makespan_ns,
        "events": _events(critical),
        "causes": critical.by_cause(),
        "operations": [
            {"kind": kind, "name": name, "group": group, "ns": ns}
            for kind, name, group, ns in critical.by_operation()[:top]
        ],
        "groups": dict(critical.by_group()),
        "links": critical.by_link(),
        "single_links": critical.by_single_link()[:top],
        "messages": critical.by_message()[:top],
        "sensitivities_are_exact": critical.record.is_exact and not critical.record.adapts,
        "sensitivities": [entry.as_dict() for entry in Sensitivities(critical).all()][:top]
        if predicted
        else None,
        "slack_of_operations": [to_builtins(entry) for entry in slack_of_operations(critical.record)][:top]
        if critical.record.is_exact
        else None,
        "slack_of_nodes": _slack_of_nodes(critical.record, MOST_NODES if top is None else top)
        if critical.record.is_exact
        else None,
        "hops": [{**hop.as_dict(), "ranks": ranks_of(hop, ranks)} for hop in critical.hops()],
    }


def _slack_of_nodes(record: PathRecord, most: int) -> list[dict[str, Any]]:
    """Return the nodes with the least slack, in the order of their ends."""
    rows, slack = record.slack
    least = np.sort(np.argsort(slack, kind="stable")[:most])
    nodes = record.nodes
    return [
        {
            "actor": int(nodes.actor[row]),
            "node": int(nodes.node[row]),
            "name": nodes.name.texts[nodes.name.codes[row]],
            "slack_ns": int(node_slack_ns),
        }
        for row, node_slack_ns in zip(rows[least].tolist(), slack[least].tolist(), strict=True)
    ]


def _events(path: CriticalPath) -> int:
    """Return the number of events of the path that take time."""
    return int(np.count_nonzero(path.spent_ns))


def _head(path: CriticalPath) -> list[str]:
    events = plural(_events(path), "event")
    return [f"critical path: {format_ns(path.makespan_ns)} ({path.makespan_ns:,} ns) in {events}"]


def _causes(path: CriticalPath) -> list[str]:
    causes, whole = path.by_cause(), path.makespan_ns
    sheet = Sheet(
        (
            SheetColumn("cause", 0, "<"),
            SheetColumn("time", lambda cause: format_ns(cause[1])),
            SheetColumn("", lambda cause: share(cause[1], whole)),
            SheetColumn("", lambda cause: bar([("█", cause[1])], whole, BAR_WIDTH), "<"),
        )
    )
    return sheet.lines(sorted(causes.items(), key=lambda cause: -cause[1]))


def _operations(path: CriticalPath, most: int, width: int) -> list[str]:
    operations = path.by_operation()
    sheet = Sheet(
        (
            SheetColumn("kind", 0, "<"),
            SheetColumn("operation", 1, "<"),
            SheetColumn("group", lambda operation: operation[2] or "", "<"),
            SheetColumn("time", lambda operation: format_ns(operation[3])),
            SheetColumn("", lambda operation: share(operation[3], path.makespan_ns)),
        ),
        cut={"operation": 20, "group": 8, "kind": 10},
        names=("operation", "group"),
    )
    return _cut(sheet.lines(operations[:most], width), operations, most)


def _links(path: CriticalPath, most: int, width: int) -> list[str]:
    """Return the table of classes of links and, in the link model, of single links."""
    classes, single = path.by_link(), path.by_single_link()
    if not classes:
        return []
    rows = [*classes, *({**link, "latency": None} for link in single[:most])]
    return _cut(LINKS.lines(rows, width), single, most)


def _messages(path: CriticalPath, most: int, width: int) -> list[str]:
    """Return the table of the longest messages, in the order of the path."""
    messages, whole = path.by_message(), path.makespan_ns
    if not messages:
        return []
    longest = sorted(range(len(messages)), key=lambda at: messages[at]["start_ns"] - messages[at]["end_ns"])
    sheet = Sheet(
        (
            SheetColumn("from", "start_ns"),
            SheetColumn("takes", lambda message: format_ns(message["end_ns"] - message["start_ns"])),
            SheetColumn("", lambda message: share(message["end_ns"] - message["start_ns"], whole)),
            SheetColumn("link", side="<"),
        ),
        cut={"link": 16},
        names=("link",),
    )
    return _cut(sheet.lines([messages[at] for at in sorted(longest[:most])], width), messages, most)


def _sensitivities(of_run: Sensitivities, most: int, width: int) -> list[str]:
    sensitivities, record = of_run.all(), of_run.path.record
    is_exact = record.is_exact and not record.adapts
    largest = max((abs(sensitivity.better.one_percent_ns) for sensitivity in sensitivities), default=0.0)

    def length(sensitivity: Sensitivity) -> str:
        return bar([("█", round(abs(sensitivity.better.one_percent_ns)))], round(largest), SHORT_BAR_WIDTH)

    def good_until(sensitivity: Sensitivity) -> str:
        return _good_until(sensitivity.worse.same_path_until, sensitivity.better.same_path_until)

    sheet = Sheet(
        (
            SheetColumn("parameter", side="<"),
            SheetColumn("1 % better", lambda sensitivity: signed(sensitivity.better.one_percent_ns)),
            SheetColumn("1 % worse", lambda sensitivity: signed(sensitivity.worse.one_percent_ns)),
            SheetColumn("", length, "<", key="bar"),
            *([SheetColumn("good until", good_until, "<")] if is_exact else []),
        ),
        cut={"parameter": 16},
        drop=("bar",),
        names=("parameter",),
    )
    table = sheet.lines(sensitivities[:most], width)
    note = EXACT_OR_NOT if is_exact else ADAPTS if record.is_exact else ESTIMATE
    return [*_cut(table, sensitivities, most), *wrap(note, width)]


def _good_until(first: float, second: float) -> str:
    """Return the range of one path in words; both ends are multiples of the parameter's value."""
    low, high = sorted((first, second))
    down = "" if low == 0 else "no lower" if 1 - low < SMALLEST_CHANGE else f"down to {_multiple(low)}"
    up = "" if high == np.inf else "no higher" if high - 1 < SMALLEST_CHANGE else f"up to {_multiple(high)}"
    return ", ".join(filter(None, (down, up))) or "any value"


def _multiple(factor: float) -> str:
    return f"{factor:.3f} times" if 0.9 < factor < 1.1 else f"{factor:.3g} times"


def _hops(run: RunDirectory, path: CriticalPath, most: int, width: int) -> list[str]:
    """Return the longest stretches, in the order of the path."""
    hops = path.hops()
    longest = sorted(range(len(hops)), key=lambda at: hops[at].start_ns - hops[at].end_ns)[:most]
    ranks = run.actors()["ranks"].to_pylist()
    sheet = Sheet(
        (
            SheetColumn("from", "start_ns"),
            SheetColumn("takes", lambda hop: format_ns(hop.end_ns - hop.start_ns)),
            SheetColumn("ranks", lambda hop: shortened(ranks_of(hop, ranks), 12), "<"),
            SheetColumn("hop", "name", "<"),
            SheetColumn("after", side="<"),
        ),
        cut={"hop": 16},
        names=("hop",),
    )
    return _cut(sheet.lines([hops[at] for at in sorted(longest)], width), hops, most)


def ranks_of(hop: PathHop, ranks: Sequence[str]) -> str:
    """Return the ranks of all actors of a hop; empty if it has none."""
    passed = [ranks[actor] for actor in hop.actors if actor >= 0]
    return together(passed) if passed else ""


def _cut(lines: list[str], of: Sequence[Any], most: int) -> list[str]:
    """Append the number of lines that are left out."""
    return [*lines, *not_shown(len(of) - most, "shorter line", f": --top {len(of)}")]


LINKS = Sheet(
    (
        SheetColumn("links", "link", "<"),
        SheetColumn("latency", lambda link: "" if link["latency"] is None else format_ns(link["latency"])),
        SheetColumn("serialisation", lambda link: format_ns(link["serialisation"])),
        SheetColumn("queueing", lambda link: format_ns(link["queueing"])),
    ),
    cut={"links": 16},
    names=("links",),
)
SLACK = Sheet(
    (
        SheetColumn("kind", side="<"),
        SheetColumn("operation", "name", "<"),
        SheetColumn("nodes"),
        SheetColumn("critical"),
        SheetColumn("least slack", "least_ns"),
        SheetColumn("median", "median_ns"),
    ),
    cut={"operation": 16, "kind": 10},
    drop=("median",),
    names=("operation",),
)
CRITICAL_PATH = Forms(
    lambda run, part, width: critical_path_text(run.path, part.top, width).split("\n"),
    lambda run, part: critical_path_data(run.path, part.top),
)
