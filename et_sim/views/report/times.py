"""The page's sections on times: headline, ranks, operations, and communication by group.

Transfers of a group are exposed while no kernel or copy runs. Times of actors count once per rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.intervals import Intervals, Unions, together
from et_sim.basics.unique import unique
from et_sim.basics.units import exact_bytes, format_bandwidth, format_bytes, format_ns, memory_text, plural
from et_sim.tables.declaration import COPY, NOT_COMMUNICATION
from et_sim.views.critical.path import CriticalPath
from et_sim.views.drawing.bars import sums_of_parts
from et_sim.views.markup import bar, cut_text, more, section, tag, text
from et_sim.views.run.columns import coded, integers, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import GroupCounts
from et_sim.views.run.selection import EVERYTHING, recorded_part
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.summary.in_short import in_short
from et_sim.views.summary.jobs import job_sheet, jobs_of, slowdown_note
from et_sim.views.summary.operations import LEGEND, OperationTotal, operations
from et_sim.views.summary.parts import NAMES, parts_of
from et_sim.views.summary.rank_table import called, slowest_first
from et_sim.views.summary.sentences import (
    makespan_text,
    per_million_tokens,
    scope_text,
    throughput_text,
    uncertainty_text,
    utilisation_text,
)
from et_sim.views.summary.waiting import WaitingParts, waiting_clause, waiting_parts
from et_sim.views.text import cut, distinct, share, shortened

MESSAGES = "sends and receives"
KERNELS, NEITHER = 0, 1
COLUMNS = ("actor", "kind", "group", "start_ns", "end_ns", "queued_ns", "waiting_ns", "bytes")


class Exposed(Struct):
    """Communication of a group, over all ranks."""

    group: str
    count: int = 0
    bytes: int = 0
    active_ns: int = 0
    exposed_ns: int = 0


def exposed_by_group(run: RunDirectory) -> list[Exposed]:
    """Return all groups, the most exposed first."""
    groups: dict[str, Exposed] = {}
    adding: _Adding | None = None
    for rows in run.batches("timeline", COLUMNS):
        # All batches share their texts.
        adding = adding or _Adding(groups, rows, GroupCounts(run))
        end = integers(rows["end_ns"], missing=-1)
        adding.add(rows, np.where(end < 0, run.summary["makespan_ns"], end))
    if adding is not None:
        adding.unions.close()
    return sorted(groups.values(), key=lambda group: (-group.exposed_ns, -group.active_ns, group.group))


class _Adding:
    """Sums over blocks of the timeline."""

    def __init__(self, exposed_of: dict[str, Exposed], rows: Any, groups: GroupCounts) -> None:
        self._exposed_of, self._groups = exposed_of, groups
        self._texts = (*rows["group"].dictionary.to_pylist(), None)
        kinds = (*rows["kind"].dictionary.to_pylist(), None)
        self._is_kernel = np.array([kind in ("compute", COPY) for kind in kinds])
        self._is_other = np.array([kind is None or kind in NOT_COMMUNICATION for kind in kinds])
        self.unions = Unions(2 + len(self._texts), self._measure)

    def add(self, rows: Any, end: Any) -> None:
        """Add a block, with the ends of its nodes."""
        actor, kind, group = numbers(rows["actor"]), coded(rows["kind"]), coded(rows["group"])
        is_other = self._is_other[kind]
        other_part = np.where(self._is_kernel[kind], KERNELS, NEITHER)
        before = integers(rows["queued_ns"], missing=0) + integers(rows["waiting_ns"], missing=0)
        start = numbers(rows["start_ns"])
        moved = np.clip(start + before, start, end)
        self.unions.add(actor, np.where(is_other, other_part, 2 + group), moved, end)
        communicating = np.flatnonzero(~is_other)
        size = integers(rows["bytes"], missing=0)[communicating]
        for total, ranks, (count, payload) in self._shared_out(
            actor[communicating], group[communicating], np.ones_like(size), size
        ):
            total.count += ranks * count
            total.bytes += ranks * payload

    def _measure(self, unions: list[Intervals]) -> None:
        kernels, _, *groups = unions
        for group, active in enumerate(groups):
            without = kernels.of(unique(active.owner))
            actors = 1 + int(active.owner.max(initial=-1))
            exposed_ns = together((active, without)).lengths(actors) - without.lengths(actors)
            owner = unique(active.owner)
            code, columns = np.full(len(owner), group), (active.lengths(actors)[owner], exposed_ns[owner])
            for total, ranks, (under_way, not_overlapped_ns) in self._shared_out(owner, code, *columns):
                total.active_ns += ranks * under_way
                total.exposed_ns += ranks * not_overlapped_ns

    def _shared_out(
        self, actor: Any, group: Any, *columns: Any
    ) -> Iterator[tuple[Exposed, int, tuple[int, ...]]]:
        """Yield, for every group of any rank of these rows: its number of ranks, and the rows' sums."""
        counts = self._groups.of_groups(actor, group, self._texts)
        for number in unique(counts).tolist():
            here = counts == number
            sums = tuple(int(column[here].sum()) for column in columns)
            for group_name, ranks in self._groups.counts[number]:
                name = group_name or MESSAGES
                yield self._exposed_of.setdefault(name, Exposed(name)), ranks, sums


MOST_RANKS, MOST_OPERATIONS = 24, 15
OF_RANKS, MOST_LETTERS = ("last to finish", "waited for"), 12

Entry = Mapping[str, Any]


def headline(run: RunDirectory, path: CriticalPath | None) -> str:
    """Return the makespan, a sentence on it, the average rank's time by activity, and key figures."""
    summary = run.summary
    makespan, ranks = summary["makespan_ns"], summary["ranks"]
    sums = sums_of_parts(summary["per_rank"])
    whole = makespan * ranks
    stacked = bar([(key, name, sums[key]) for key, name in NAMES], whole)
    legend = "".join(
        tag("li", f'<i class="{key}"></i>{text(name)} <b>{share(sums[key], whole)}</b>')
        for key, name in NAMES
        if sums[key]
    )
    stalled = "" if summary["status"] == "complete" else _stalled(run)
    exact = f"<small>{makespan:,} ns</small>"
    figure = f'<p class="makespan"><span>makespan</span> <b>{format_ns(makespan)}</b> {exact}</p>'
    off = uncertainty_text(summary)
    profiles = tag("p", text(makespan_text(summary)), class_="note") if summary["other_profile"] else ""
    parts = waiting_parts(run)
    short, limits = in_short(run, path, parts), scope_text(summary.get("scope"))
    average = tag("p", f"time of the average rank by activity{_only_part(run)}", class_="note")
    return section(
        "headline",
        "Overview",
        stalled,
        figure,
        tag("p", f"{text(short[0].upper() + short[1:])}.", class_="short") if short else "",
        profiles,
        tag("p", f"the makespan, {text(off)}", class_="note") if off else "",
        tag("p", f"includes {text(limits)}", class_="note") if limits else "",
        average,
        stacked,
        tag("ul", legend, class_="legend"),
        _tiles(run, parts),
    )


def _only_part(run: RunDirectory) -> str:
    kept = recorded_part(run)
    return (
        f"; timeline, exposed communication and operations are those of the recorded part: {text(kept)}"
        if kept
        else ""
    )


def _stalled(run: RunDirectory) -> str:
    failure = run.summary["out_of_memory"]
    if failure is not None and run.summary["status"] == "out of memory":
        size = exact_bytes(failure["alive_bytes"])
        there = memory_text(failure["capacity_bytes"], failure.get("reserved_bytes", 0))
        failed_ranks = text(called(failure["ranks"], 40))
        message = (
            f"<b>Out of memory:</b> {size} on {failed_ranks} at {format_ns(failure['time_ns'])}, of {there}"
        )
        return tag("p", message, class_="alarm", role="alert")
    cause = run.stall["cause"] if run.stall else "some rank never finished"
    return tag("p", f"<b>Stalled:</b> {text(cause)}", class_="alarm", role="alert")


def _tiles(run: RunDirectory, parts: WaitingParts | None) -> str:
    summary = run.summary
    actors, ranks = summary["folded"]["actors"], summary["ranks"]
    last = slowest_first(summary["per_rank"])[0]
    finish = "never finishes" if last["finish_ns"] is None else f"at {format_ns(last['finish_ns'])}"
    tiles = [
        ("ranks", f"{ranks:,}", "each simulated" if actors == ranks else f"as {plural(actors, 'actor')}"),
        ("last to finish", last["ranks"], finish),
        ("network", summary["model"], f"{summary['profile']} profile"),
        ("messages", f"{summary['messages']:,}", "crossed the network"),
        ("nodes", f"{summary['coverage']['nodes']:,}", f"{summary['coverage']['modelled']:,} modelled"),
    ]
    if parts is not None:
        makespan = summary["makespan_ns"]
        _, _, why = waiting_clause(parts, makespan).partition(": ")
        tiles.append(("waiting", share(parts.total_ns, makespan), why))
    elif slowest := summary["slowest"]:
        cost = f"the others wait {format_ns(slowest['cost_ns'])} on average"
        tiles.append(("waited for", slowest["ranks"], cost))
    peaks = [entry["peak_memory_bytes"] for entry in summary["per_rank"]]
    if any(peak is not None for peak in peaks):
        tiles.append(("peak memory", format_bytes(max(peak or 0 for peak in peaks)), "local, of any rank"))
    if throughput := summary["throughput"]:
        done, used = throughput_text(summary["throughput"]), utilisation_text(summary["throughput"])
        rate, _, rest = done.partition(", ")
        tiles.append(("throughput", rate, rest))
        tiles += [("MFU", f"{100 * throughput['mfu']:.1f} %", used)] if throughput["mfu"] is not None else []
        cost = per_million_tokens(summary, "price")
        tiles += [("price", cost, "of NPUs let by the hour")] if cost else []
    items = (
        tag("div", tag("dt", text(name)) + tag("dd", f"<b>{_value(name, value)}</b> {text(note)}"))
        for name, value, note in tiles
    )
    return tag("dl", "".join(items), class_="tiles")


def _value(name: str, value: str) -> str:
    if name not in OF_RANKS:
        return text(value)
    return cut_text(called(value, MOST_LETTERS), called(value, len(value)))


def ranks_section(run: RunDirectory) -> str:
    """Return every rank, the slowest first; equal ranks share a line."""
    makespan = run.summary["makespan_ns"]
    entries = slowest_first(run.summary["per_rank"])
    sheet = _rank_sheet(makespan)
    content = sheet.table(entries[:MOST_RANKS])
    if len(entries) > MOST_RANKS:
        shown = entries[MOST_RANKS : 20 * MOST_RANKS]
        rest = f"{plural(len(entries) - MOST_RANKS, 'faster line')}"
        cut = "" if len(entries) <= 20 * MOST_RANKS else f", of which the first {len(shown)}"
        content += more(f"{rest}{cut}", sheet.table(shown))
    note = (
        "shares of the makespan; exposed: bytes moved, or queued for a link, and no kernel ran; waiting: for "
        "another rank to begin"
    )
    return section("ranks", "Ranks", tag("p", note, class_="note"), content)


def _rank_sheet(makespan: int) -> Sheet:
    def parts_bar(entry: Entry) -> str:
        parts = parts_of(entry)
        return bar([(key, name, parts[key]) for key, name in NAMES], makespan)

    def figure(of: Callable[[Entry], int], entry: Entry) -> str:
        return f"{format_ns(of(entry))} <small>{share(of(entry), makespan)}</small>"

    def waits(entry: Entry) -> str:
        return cut_text(shortened(entry["waits_for"] or "", 16), entry["waits_for"] or "")

    return Sheet(
        (
            SheetColumn(
                "ranks", side="<", markup=lambda of: cut_text(shortened(of["ranks"], 28), of["ranks"])
            ),
            SheetColumn("finish", "finish_ns", missing="never"),
            SheetColumn("", side="<", markup=parts_bar),
            SheetColumn("compute", markup=partial(figure, lambda entry: entry["compute_ns"])),
            SheetColumn("exposed", markup=partial(figure, lambda entry: parts_of(entry)["exposed"])),
            SheetColumn("waiting", markup=partial(figure, lambda entry: parts_of(entry)["waiting"])),
            SheetColumn("waits most for", side="<", markup=waits),
        )
    )


def jobs_section(run: RunDirectory) -> str:
    """Return the jobs of a job file; empty for other runs."""
    jobs = jobs_of(run)
    if not jobs:
        return ""
    sheet = job_sheet(jobs)
    note = "".join(slowdown_note(sheet))
    return section("jobs", "Jobs", tag("p", note, class_="note"), sheet.table(jobs))


def operations_section(run: RunDirectory) -> str:
    """Return the longest operations; names that differ only in numbers count together."""
    every = operations(run)
    shown = every[:MOST_OPERATIONS]
    longest = max((operation.total_ns for operation in every), default=1)
    names = [operation.name for operation in shown]
    short = dict(zip(names, distinct(names, 48), strict=True))

    def kind(operation: OperationTotal) -> str:
        name = operation.kind.replace("_", " ")
        return f'<i class="dot" data-kind="{text(operation.kind)}"></i>{text(name)}'

    def length(operation: OperationTotal) -> str:
        name = operation.kind.replace("_", " ")
        return bar([(f"kind-{operation.kind}", name, operation.total_ns)], longest)

    def bytes_each(operation: OperationTotal) -> str:
        return format_bytes(operation.bytes // max(operation.count, 1)) if operation.bytes else ""

    sheet = Sheet(
        (
            SheetColumn("kind", side="<", markup=kind),
            SheetColumn("operation", side="<", markup=lambda of: cut_text(short[of.name], of.name)),
            SheetColumn("count"),
            SheetColumn("total", "total_ns"),
            SheetColumn("", side="<", markup=length),
            SheetColumn("mean", "mean_ns"),
            SheetColumn("bytes each", bytes_each),
            SheetColumn("bus bw", markup=_bandwidth),
        )
    )
    note, left = f"totals over all ranks; a counter in a name is #; {LEGEND}", len(every) - len(shown)
    rest = f"; {plural(left, 'other line')}: et-sim inspect RUN ops" if left else ""
    note = tag("p", text(note + rest), class_="note")
    return section("operations", "Operations", note, sheet.table(shown))


def _bandwidth(operation: OperationTotal) -> str:
    """Return the bus bandwidth, with the algorithm bandwidth as a tooltip."""
    rate = operation.bandwidth
    if not rate.bus or not rate.algorithm:
        return ""
    shown = format_bandwidth(rate.bus / 1e9)
    return f'<span title="algorithm bandwidth {format_bandwidth(rate.algorithm / 1e9)}">{shown}</span>'


def groups_section(run: RunDirectory) -> str:
    """Return communication by group: the time of its transfers, and the exposed part of it."""
    groups = exposed_by_group(run)
    if not groups:
        return ""
    ranks, makespan = int(EVERYTHING.weights(run).sum()), run.summary["makespan_ns"]

    def active(group: Exposed) -> float:
        return group.active_ns / ranks

    def parts_bar(group: Exposed) -> str:
        exposed = group.exposed_ns / ranks
        parts = [("exposed", round(exposed)), ("hidden", round(active(group) - exposed))]
        return bar([(name, name, ns) for name, ns in parts], makespan)

    def exposed(group: Exposed) -> str:
        ns = group.exposed_ns / ranks
        return f"{format_ns(round(ns))} <small>{share(ns, makespan)}</small>"

    sheet = Sheet(
        (
            SheetColumn("group", side="<", markup=lambda group: cut_text(cut(group.group, 40), group.group)),
            SheetColumn("operations", "count"),
            SheetColumn("payload", "bytes"),
            SheetColumn("transfers", lambda group: format_ns(round(active(group)))),
            SheetColumn("", side="<", markup=parts_bar),
            SheetColumn("exposed", markup=exposed),
        )
    )
    note = (
        "times of the average rank, and shares of the makespan; when several groups are exposed at once, "
        "the time counts for each of them"
    )
    return section("groups", "Exposed communication", tag("p", note, class_="note"), sheet.table(groups))
