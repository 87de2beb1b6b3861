"""The critical path as text: what it is made of, what would change it, how far everything else is from it.

Not here: any of the figures (`path`, `sensitivity`, `slack`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from et_sim.units import format_ns, plural
from et_sim.views.critical.path import CriticalPath, Hop
from et_sim.views.critical.record import PathRecord
from et_sim.views.critical.sensitivity import Sensitivities, Sensitivity
from et_sim.views.critical.slack import OperationSlack, slack_of_nodes, slack_of_operations
from et_sim.views.run.directory import RunDirectory, open_run
from et_sim.views.text import aligned, bar, share, shortened

LINES = 10  # of each table
MOST_NODES = 1000  # in JSON
BAR_WIDTH = 30
SMALLEST_CHANGE = 0.0005
LEGEND = "exact while things keep their order (--verify tells); ranges are multiples"
NOT_COMPLETE = "the run did not complete, so what would have made it shorter is not known"


def critical_path_text(path: Any, top: int | None = None) -> str:
    """Everything, in 80 columns."""
    run = open_run(path)
    found = CriticalPath(PathRecord(run))
    most = LINES if top is None else top
    sections = [_head(found), _causes(found), _operations(found, most), _links(found, most)]
    if found.record.is_complete:
        sections += [_sensitivities(Sensitivities(found).all(), most), _slack(found, most)]
    else:
        sections.append([NOT_COMPLETE])
    sections.append(_hops(run, found, most))
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def critical_path_data(path: Any, top: int | None = None) -> dict[str, Any]:
    """The same for `--json`, and more of it."""
    found = CriticalPath(PathRecord(open_run(path)))
    complete = found.record.is_complete
    return {
        "makespan_ns": found.makespan_ns,
        "events": len(found.rows),
        "causes": found.by_cause(),
        "operations": [
            {"kind": kind, "name": name, "group": group, "ns": ns}
            for kind, name, group, ns in found.by_operation()[:top]
        ],
        "groups": dict(found.by_group()),
        "links": found.by_link(),
        "single_links": found.by_single_link()[:top],
        "sensitivities": [one.as_dict() for one in Sensitivities(found).all()][:top] if complete else None,
        "slack_of_operations": [_as_dict(one) for one in slack_of_operations(found.record)][:top],
        "slack_of_nodes": _slack_of_nodes(found.record, MOST_NODES if top is None else top),
        "hops": [hop.as_dict() for hop in found.hops()],
    }


def _as_dict(one: OperationSlack) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__slots__}


def _slack_of_nodes(record: PathRecord, most: int) -> list[dict[str, Any]]:
    """The nodes with the least slack, in the order in which they complete."""
    rows, slack = slack_of_nodes(record)
    least = np.sort(np.argsort(slack, kind="stable")[:most])
    nodes = record.nodes
    return [
        {
            "actor": int(nodes.actor[row]),
            "node": int(nodes.node[row]),
            "name": nodes.name.texts[nodes.name.codes[row]],
            "slack_ns": int(own),
        }
        for row, own in zip(rows[least].tolist(), slack[least].tolist(), strict=True)
    ]


def _head(found: CriticalPath) -> list[str]:
    events = plural(int(np.count_nonzero(found.spent_ns)), "event")
    return [f"critical path: {format_ns(found.makespan_ns)} ({found.makespan_ns:,} ns) in {events}"]


def _causes(found: CriticalPath) -> list[str]:
    causes, whole = found.by_cause(), found.makespan_ns
    rows = [
        (name, format_ns(ns), share(ns, whole), bar([("█", ns)], whole, BAR_WIDTH))
        for name, ns in sorted(causes.items(), key=lambda one: -one[1])
    ]
    return aligned([("cause", "time", "", ""), *rows], "<>><")


def _operations(found: CriticalPath, most: int) -> list[str]:
    operations = found.by_operation()
    rows = [
        (
            shortened(kind, 14),
            shortened(name, 30),
            shortened(group or "", 12),
            format_ns(ns),
            share(ns, found.makespan_ns),
        )
        for kind, name, group, ns in operations[:most]
    ]
    return _cut(aligned([("kind", "operation", "group", "time", ""), *rows], "<<<>>"), operations, most)


def _links(found: CriticalPath, most: int) -> list[str]:
    """Classes of links; of the link model, single links, too."""
    classes = [
        (one["link"], *(format_ns(one[name]) for name in ("latency", "serialisation", "queueing")))
        for one in found.by_link()
    ]
    if not classes:
        return []
    single = found.by_single_link()
    rows = [(one["link"], "", *(format_ns(one[n]) for n in ("serialisation", "queueing"))) for one in single]
    head = ("links", "latency", "serialisation", "queueing")
    return _cut(aligned([head, *classes, *rows[:most]], "<>>>"), single, most)


def _sensitivities(found: Sequence[Sensitivity], most: int) -> list[str]:
    rows = [
        (
            shortened(one.parameter, 27),
            _signed(one.better.one_percent_ns),
            _signed(one.worse.one_percent_ns),
            _range(one.worse.same_path_until, one.better.same_path_until),
        )
        for one in found[:most]
    ]
    head = ("what would change it", "1 % better", "1 % worse", "same path")
    return [*_cut(aligned([head, *rows], "<>>>"), found, most), LEGEND]


def _signed(change: float) -> str:
    ns = round(change)
    return "0 ns" if ns == 0 else f"{'-' if ns < 0 else '+'}{format_ns(abs(ns))}"


def _range(one: float, other: float) -> str:
    low, high = sorted((one, other))
    if low == 0 and high == np.inf:
        return "always"
    return f"{_multiple(low)} to {_multiple(high)}"


def _multiple(factor: float) -> str:
    if factor in (0, np.inf):
        return "∞" if factor else "0"
    if abs(factor - 1) < SMALLEST_CHANGE:
        return "now"
    return f"{factor:.3f}" if 0.9 < factor < 1.1 else f"{factor:.3g}"


def _slack(found: CriticalPath, most: int) -> list[str]:
    slack = slack_of_operations(found.record)
    rows = [
        (
            shortened(one.kind, 14),
            shortened(one.name, 26),
            f"{one.nodes:,}",
            f"{one.critical:,}",
            format_ns(one.least_ns),
            format_ns(one.median_ns),
        )
        for one in slack[:most]
    ]
    head = ("kind", "operation", "nodes", "critical", "least slack", "median")
    return _cut(aligned([head, *rows], "<<>>>>"), slack, most)


def _hops(run: RunDirectory, found: CriticalPath, most: int) -> list[str]:
    """The longest stretches, in the order of the path."""
    hops = found.hops()
    longest = sorted(range(len(hops)), key=lambda at: hops[at].start_ns - hops[at].end_ns)[:most]
    ranks = run.actors()["ranks"].to_pylist()
    rows = [
        (
            format_ns(hop.start_ns),
            format_ns(hop.end_ns - hop.start_ns),
            _where(hop, ranks),
            shortened(hop.name, 26),
            hop.after,
        )
        for hop in (hops[at] for at in sorted(longest))
    ]
    head = ("from", "takes", "ranks", "hop", "after")
    return _cut(aligned([head, *rows], ">><<<"), hops, most)


def _where(hop: Hop, ranks: Sequence[str]) -> str:
    if len(hop.actors) == 1:
        return shortened(ranks[hop.actors[0]], 12) if hop.actors[0] >= 0 else ""
    return f"{len(hop.actors)} actors"


def _cut(lines: list[str], of: Sequence[Any], most: int) -> list[str]:
    """Say how many lines are missing."""
    hidden = len(of) - most
    return [*lines, f"… and {plural(hidden, 'shorter line')}: --top {len(of)}"] if hidden > 0 else lines
