"""Queues at ports, incasts (messages of several ranks at one port), and the spread of pauses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field, to_builtins

from et_sim.basics.unique import unique
from et_sim.basics.units import format_bytes, format_ns, format_ranks, parse_ranks, plural
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.run.slices import COUNTED, FlowTable, PortTable, flow_table, port_table
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.text import cut, not_shown, prose, share
from et_sim.views.view import Forms

COLUMNS, SHOWN, SHOWN_INCASTS = 20, 20, 10
LEVELS = " ▁▂▃▄▅▆▇█"
HOT = 2  # an incast lasts while the queue is at least this part of its port's deepest


class QueueUse(Struct, frozen=True):
    """Queue of one port."""

    resource: int  # index of its link
    link: str
    tier: str
    deepest_bytes: int
    mean_bytes: float  # over the time
    most_messages: int | None  # None: unknown
    lost: int
    marked: int
    pauses: int
    paused_ns: int
    deepest_over_time: tuple[int, ...]  # bytes


class Incast(Struct, frozen=True):
    """Messages of several ranks that meet at a port while its queue is deep."""

    resource: int
    link: str
    begin_ns: int
    end_ns: int
    deepest_bytes: int
    messages: int
    ranks: str  # ranks that send them


def queue_uses(run: RunDirectory, part: Selection = EVERYTHING, columns: int = COLUMNS) -> list[QueueUse]:
    """Return ports with any traffic, the deepest queue first."""
    table = port_table(run)
    return [] if table is None else _uses(run, table, part, columns)


def _uses(run: RunDirectory, table: PortTable, part: Selection, columns: int) -> list[QueueUse]:
    table = table.where(part.touches(table.figures["start_ns"], table.figures["end_ns"]))
    begin, length = part.window[0] if part.window else 0, max(part.length_ns(run.summary["makespan_ns"]), 1)
    start, end = part.clipped(table.figures["start_ns"], table.figures["end_ns"])
    filled = np.zeros(len(table.resource))
    np.add.at(filled, table.of_row, table.figures["mean_bytes"] * (end - start))
    deepest, messages = table.most("deepest_bytes"), table.most("most_messages")
    counted = {name: table.total(name) for name in COUNTED}
    over_time = table.deepest_by_column(columns, begin, length)
    uses = [
        QueueUse(
            resource=int(table.resource[at]),
            link=table.name[at],
            tier=table.tier[at],
            deepest_bytes=int(deepest[at]),
            mean_bytes=round(float(filled[at]) / length, 3),
            most_messages=None if messages[at] < 0 else int(messages[at]),
            deepest_over_time=tuple(over_time[at].tolist()),
            **{name: int(figures[at]) for name, figures in counted.items()},
        )
        for at in unique(table.of_row).tolist()
    ]
    return sorted(uses, key=lambda use: (-use.deepest_bytes, -use.mean_bytes, use.resource))


def incasts(run: RunDirectory, part: Selection = EVERYTHING) -> list[Incast]:
    """Return where messages of at least two ranks met while a queue was deep, the deepest first."""
    table, flows = port_table(run), flow_table(run)
    if table is None or flows is None or not len(flows):
        return []
    table = table.where(part.touches(table.figures["start_ns"], table.figures["end_ns"]))
    messages, links = flows.crossing()
    order = np.argsort(links, kind="stable")
    messages, links = messages[order], links[order]
    most, met = table.most("deepest_bytes"), []
    bounds = np.searchsorted(table.of_row, np.arange(len(table.resource) + 1))
    for at in np.flatnonzero((most > 0) & (table.most("most_messages") > 1)).tolist():
        span = np.searchsorted(links, (table.resource[at], table.resource[at] + 1))
        rows, own_messages = slice(*bounds[at : at + 2].tolist()), messages[slice(*span.tolist())]
        met += _of_port(table, at, rows, flows, own_messages, int(most[at]))
    return sorted(met, key=lambda incast: (-incast.deepest_bytes, incast.begin_ns, incast.resource))


def _of_port(
    table: PortTable, at: int, rows: slice, flows: FlowTable, messages: Any, most: int
) -> list[Incast]:
    start, end, deep = (table.figures[name][rows] for name in ("start_ns", "end_ns", "deepest_bytes"))
    hot = np.flatnonzero(deep * HOT >= most)
    pieces = np.split(hot, np.flatnonzero((np.diff(hot) > 1) | (start[hot[1:]] != end[hot[:-1]])) + 1)
    begun, arrived, source = (flows.figures[name][messages] for name in ("begin_ns", "arrived_ns", "source"))
    meetings = []
    for piece in pieces:
        first, last = int(start[piece[0]]), int(end[piece[-1]])
        there = (begun < last) & (arrived > first)
        ranks = unique(source[there]).tolist()
        if len(ranks) > 1:
            port, deepest = int(table.resource[at]), int(deep[piece].max())
            met = (int(there.sum()), format_ranks(ranks))
            meetings.append(Incast(port, table.name[at], first, last, deepest, *met))
    return meetings


def queues_data(run: RunDirectory, part: Selection = EVERYTHING) -> dict[str, Any]:
    """Return ports and incasts for `--json`."""
    ports, met = part.cut(queue_uses(run, part)), part.cut(incasts(run, part))
    return {"ports": [to_builtins(use) for use in ports], "incasts": [to_builtins(use) for use in met]}


def queue_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return one line for each port, then one for each incast."""
    uses = queue_uses(run, part)
    if not uses:
        return prose(["nothing waited at any port"], width)
    length = part.length_ns(run.summary["makespan_ns"])
    deepest = max(use.deepest_bytes for use in uses)
    columns = (
        SheetColumn("link", side="<"),
        SheetColumn("deepest", "deepest_bytes"),
        SheetColumn("mean", lambda use: format_bytes(round(use.mean_bytes))),
        SheetColumn("messages", "most_messages", is_optional=True),
        SheetColumn("lost", lambda use: f"{use.lost:,}" if use.lost else "", is_optional=True),
        SheetColumn("marked", lambda use: f"{use.marked:,}" if use.marked else "", is_optional=True),
        SheetColumn(
            "paused", lambda use: share(use.paused_ns, length) if use.pauses else "", is_optional=True
        ),
        SheetColumn("over time", lambda use: f"|{_track(use.deepest_over_time, deepest)}|", "<"),
    )
    hint = " with less: --top, or --json"
    sheet = Sheet(columns, {"link": 12}, ("mean", "over time"), ("link",), SHOWN, "port", hint)
    lines = sheet.shown(uses, part, width)
    lines.append(
        f"over time: the most bytes at a time, in {COLUMNS} parts; a full bar is {format_bytes(deepest)}"
    )
    if uses[0].most_messages is None:
        lines.append("bytes are those on the link and in the buffer at its end, which credits keep free")
    else:
        lines.append("messages: the most that were on the link at a time")
    return prose(lines + _incast_lines(incasts(run, part), part, width), width)


def _track(depths: Sequence[int], deepest: int) -> str:
    """Return a bar of depths; any queue that is not empty is visible."""
    top = len(LEVELS) - 1
    return "".join(LEVELS[-(-depth * top // max(deepest, 1))] for depth in depths)


def _incast_lines(meetings: Sequence[Incast], part: Selection, width: int) -> list[str]:
    if not meetings:
        return []
    lines = ["", "where messages of several ranks met:", *INCAST_SHEET.shown(meetings, part, width)]
    note = "counted while the queue was at least half of its maximum; ranks whose messages were on the way"
    return [*lines, note]


INCAST_SHEET = Sheet(
    (
        SheetColumn("link", side="<"),
        SheetColumn("from", "begin_ns"),
        SheetColumn("for", lambda incast: format_ns(incast.end_ns - incast.begin_ns)),
        SheetColumn("deepest", "deepest_bytes"),
        SheetColumn("messages"),
        SheetColumn("ranks that send", lambda incast: f"{sum(map(len, parse_ranks(incast.ranks))):,}"),
        SheetColumn("", "ranks", "<", key="ranks"),
    ),
    cut={"ranks": 8, "link": 12},
    names=("link",),
    rows=SHOWN_INCASTS,
    more="shallower one",
    hint=": --top, or --json",
)


QUEUES = Forms(queue_lines, queues_data)


SHOWN_PAUSES, NEVER = 30, np.iinfo(np.int64).max
NONE = -1
PAUSE_COLUMNS = ("link", "egress", "asked_ns", "begin_ns", "end_ns", "egress_depth")
UNKNOWN = "a queue that is not known"


class PauseSpread(Struct):
    """A port, and the ports that were paused because of it."""

    link: str
    depth: int  # below the root
    pauses: int = 0  # 0: a root
    paused_ns: int = 0  # sum; pauses without end last until the end of the run
    endless: int = 0  # pauses without end
    first_ns: int = NEVER
    deepest_bytes: int = 0  # largest queue for it when it paused others
    caused: dict[str, PauseSpread] = field(default_factory=dict)


def pause_roots(run: RunDirectory, part: Selection = EVERYTHING) -> list[PauseSpread] | None:
    """Return the queues that caused pauses, the costliest first; None: not recorded."""
    if not run.holds("pauses"):
        return None
    names, egress, requested, begin, end, depth = run.arrays("pauses", PAUSE_COLUMNS).values()
    is_endless = end == NONE
    end = np.where(is_endless, max(run.summary["makespan_ns"], int(begin.max(initial=0))), end)
    roots: dict[str, PauseSpread] = {}
    last: dict[
        str, tuple[int, PauseSpread]
    ] = {}  # the pause of a port that was requested for last: its end, its place
    for row in np.argsort(requested, kind="stable").tolist():
        link = str(names.texts[names.codes[row]])
        cause = egress.texts[egress.codes[row]] or UNKNOWN
        until, above = last.get(cause, (NONE, None))
        if above is None or until < requested[row]:
            above = roots.setdefault(cause, PauseSpread(cause, 0))
        place = above.caused.setdefault(link, PauseSpread(link, above.depth + 1))
        last[link] = (int(end[row]), place)
        if not part.touches(begin[row : row + 1], end[row : row + 1])[0]:
            continue
        start, stop = (int(time) for time in part.clipped(begin[row], end[row]))
        place.pauses += 1
        place.paused_ns += stop - start
        place.endless += int(is_endless[row])
        place.first_ns = min(place.first_ns, int(begin[row]))
        above.deepest_bytes = max(above.deepest_bytes, int(depth[row]))
    pausing = [root for root in roots.values() if any(link.pauses for link in spread(root))]
    return sorted(pausing, key=lambda root: (-sum(link.paused_ns for link in spread(root)), root.link))


def spread(root: PauseSpread) -> Iterator[PauseSpread]:
    """Yield the root and all below it, each before those that it caused, the longest pauses first."""
    waiting = [root]
    while waiting:
        link = waiting.pop()
        yield link
        waiting += sorted(link.caused.values(), key=lambda child: (child.paused_ns, child.link))


def pauses_data(run: RunDirectory, part: Selection = EVERYTHING) -> list[dict[str, Any]] | None:
    """Return each root for `--json`, with the ports that it caused nested below it."""
    roots = pause_roots(run, part)
    return None if roots is None else [_as_dict(root) for root in part.cut(roots)]


def _as_dict(root: PauseSpread) -> dict[str, Any]:
    made: dict[int, dict[str, Any]] = {}
    for link in spread(root):
        entry = {"link": link.link, "deepest_bytes": link.deepest_bytes, "caused": []}
        if link is not root:
            times = {
                "paused_ns": link.paused_ns,
                "first_ns": None if link.first_ns == NEVER else link.first_ns,
            }
            entry |= {"pauses": link.pauses, **times, "never_ended": link.endless}
        made[id(link)] = entry
    for link in spread(root):
        below = sorted(link.caused.values(), key=lambda child: (-child.paused_ns, child.link))
        made[id(link)]["caused"] = [made[id(child)] for child in below]
    return made[id(root)]


def pause_view(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return the pauses as text."""
    return prose(pause_lines(pause_roots(run, part) or [], part, width), width)


PAUSES = Forms(pause_view, pauses_data)


def pause_lines(roots: list[PauseSpread], part: Selection, width: int) -> list[str]:
    """Return a line for each root, and below it one for each port that waited because of it."""
    if not roots:
        return ["no port was paused"]
    lines = []
    for root in roots:
        every = [link for link in spread(root) if link.pauses]
        total = sum(link.paused_ns for link in every)
        counted = plural(sum(link.pauses for link in every), "pause")
        depth = format_bytes(root.deepest_bytes)
        lines.append(cut(f"{root.link}, {depth} waiting: {counted} of {format_ns(total)} in all", width))
        lines += [_line(link, width) for link in every]
    shown = part.cut(lines, SHOWN_PAUSES)
    notes = not_shown(len(lines) - len(shown), "more line", ": --top, or --json")
    notes += ["each was paused by the queue of the one above it; the topmost was not paused"]
    return [*shown, *notes]


def _line(link: PauseSpread, width: int) -> str:
    first = format_ns(link.first_ns)
    text = f"{plural(link.pauses, 'pause')} of {format_ns(link.paused_ns)}, the first at {first}"
    if link.endless:
        text += f"; {plural(link.endless, 'of them never ends', 'of them never end')}"
    indent = "  " * min(link.depth, 10)
    return cut(f"{indent}{link.link}: {text}", width)
