"""Waiting and transfer in communication, and the ranks that are waited for, by rank and group.

Waiting ends when the last peer that a node needs has begun; afterwards bytes move or queue for a link, which
is transfer. The last peers count together with all ranks that have the same figures in the whole run, so that
the result does not depend on folding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field, to_builtins

from et_sim.tables.declaration import NOT_COMMUNICATION
from et_sim.views.run.columns import alike, integers, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import OPERATION, TIMES, Grouped, OperationKeys, spans
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.summary.operations import operations
from et_sim.views.summary.rank_table import rank_entries
from et_sim.views.summary.waiting import waiting_parts
from et_sim.views.text import bar, prose, share
from et_sim.views.view import Forms

COLUMNS = (*OPERATION, *TIMES, "waits_for")
ALONE = "sends and receives"
ROWS, BAR, NONE = 12, 16, -1
LEGEND = (
    "▒ transfer   ░ waiting for another rank",
    "for: the ranks that nodes waited for longest, as a share of all waiting; ranks: their own time, where "
    "time that a kernel hides is not waiting; groups and operations: summed over nodes and ranks",
)

UNENDED = "groups and operations leave out nodes that never ended"
Pairs = dict[Any, Counter[int]]  # waiting node's key -> entry of `per_rank` that it waits for -> time


class WaitTable(Struct):
    """Communication of a rank (in time of the rank), or of an operation (summed over nodes and ranks)."""

    name: str
    transfer_ns: int = 0
    waiting_ns: int = 0
    waits_for: str | None = None  # the ranks that were waited for longest
    waits_for_ns: int = 0  # time that nodes waited for these
    nodes_waiting_ns: int = 0  # all waiting of nodes


class WaitTables(Struct):
    """Communication by rank, group and operation, the longest waiting first."""

    ranks: list[WaitTable] = field(default_factory=list)
    groups: list[WaitTable] = field(default_factory=list)
    operations: list[WaitTable] = field(default_factory=list)

    def as_dict(self, top: int | None = None) -> dict[str, Any]:
        """Return it for `--json`."""
        tables = {"ranks": self.ranks, "groups": self.groups, "operations": self.operations}
        return {name: [to_builtins(line) for line in table[:top]] for name, table in tables.items()}


def waits_of(run: RunDirectory, part: Selection = EVERYTHING) -> WaitTables:
    """Return all three tables."""
    ranks = run.actors()["ranks"].to_pylist()
    entries = run.summary["per_rank"]
    names = [entry["ranks"] for entry in entries]
    by_actor, by_operation = _times_waited_for(run, part, _entry_of_actor(entries, ranks))
    return WaitTables(
        _of_ranks(run, part, by_actor, ranks, names), *_of_operations(run, part, by_operation, names)
    )


def _named(line: WaitTable, waited_for: Counter[int], names: Sequence[str]) -> WaitTable:
    line.nodes_waiting_ns = waited_for.total()
    if line.nodes_waiting_ns:
        most = min(waited_for, key=lambda entry: (-waited_for[entry], entry))
        line.waits_for, line.waits_for_ns = names[most], waited_for[most]
    return line


def _longest_first(lines: list[WaitTable]) -> list[WaitTable]:
    return sorted(lines, key=lambda line: (-line.waiting_ns, -line.transfer_ns))


def _of_ranks(
    run: RunDirectory, part: Selection, by_actor: Pairs, ranks: Sequence[str], names: Sequence[str]
) -> list[WaitTable]:
    """Return one line per set of ranks with equal figures; time that a kernel hides is not waiting."""
    entries = rank_entries(run, part)
    selected = [part.names(text) for text in ranks]
    actors = [actor for actor, text in enumerate(selected) if text]
    waits_of_ranks = []
    entry_of = _entry_of_actor(entries, [selected[actor] for actor in actors])
    for actor, number in zip(actors, entry_of.tolist(), strict=True):
        entry = entries[number]
        wait = WaitTable("", entry["exposed_comm_ns"] + entry["hidden_comm_ns"], entry["waiting_ns"])
        _named(wait, by_actor.get(actor, Counter()), names)
        waits_of_ranks.append((selected[actor], tuple(to_builtins(wait).items())[1:]))
    lines = [WaitTable(text, **dict(figures)) for text, figures in alike(waits_of_ranks)]
    return _longest_first([line for line in lines if line.transfer_ns or line.waiting_ns])


def _entry_of_actor(entries: Sequence[Mapping[str, Any]], ranks: Sequence[str]) -> Any:
    """Return the entry that holds the ranks of each actor."""
    firsts, which = [], []
    for number, entry in enumerate(entries):
        for span in entry["ranks"].split(","):
            firsts.append(int(span.partition("-")[0]))
            which.append(number)
    order = np.argsort(firsts)
    starts = np.array(firsts, np.int64)[order]
    first = [int(text.partition("-")[0].partition(",")[0]) for text in ranks]
    return np.array(which, np.int64)[order][np.searchsorted(starts, first, side="right") - 1]


def _of_operations(
    run: RunDirectory, part: Selection, by_operation: Pairs, names: Sequence[str]
) -> tuple[list[WaitTable], list[WaitTable]]:
    """Return the tables of groups and of operations."""
    groups: dict[str, tuple[WaitTable, Counter[int]]] = {}
    of_operations = []
    for operation in operations(run, part):
        if operation.kind in NOT_COMMUNICATION:
            continue
        waited_for = by_operation.get((operation.kind, operation.name, operation.group), Counter())
        moving = operation.total_ns - operation.queued_ns - operation.waiting_ns
        called = f"{operation.name}, {operation.kind}" + (f" in {operation.group}" if operation.group else "")
        of_operations.append(_named(WaitTable(called, moving, operation.waiting_ns), waited_for, names))
        name = operation.group or ALONE
        total, together = groups.setdefault(name, (WaitTable(name), Counter()))
        total.transfer_ns += moving
        total.waiting_ns += operation.waiting_ns
        together.update(waited_for)
    of_groups = [_named(total, waited_for, names) for total, waited_for in groups.values()]
    return _longest_first(of_groups), _longest_first(of_operations)


def _times_waited_for(run: RunDirectory, part: Selection, entry_of: Any) -> tuple[Pairs, Pairs]:
    """Return how long nodes of each actor (one rank) and operation (all ranks) wait for each entry."""
    keys, weights = OperationKeys(run, part), part.weights(run)
    by_actor: Pairs = {}
    by_operation: Pairs = {}
    for rows in run.batches("timeline", COLUMNS):
        waited_for, actor = integers(rows["waits_for"], missing=NONE), numbers(rows["actor"]).astype(np.int64)
        times = spans(rows).cut(part)
        waiting = times.moved - times.admitted
        waiters = np.flatnonzero((waited_for != NONE) & (waiting > 0) & (weights[actor] > 0))
        if not len(waiters):
            continue
        entry, waiting = entry_of[waited_for[waiters]], waiting[waiters]
        of_operation = Grouped(*(column[waiters] for column in keys.columns(rows)), entry)
        for (*codes, number), ns in of_operation.with_keys(of_operation.total(waiting)):
            for key, ranks in keys.operations(*codes):
                by_operation.setdefault(key, Counter())[number] += ranks * ns
        of_actor = Grouped(actor[waiters], entry)
        for (actor_waiting, number), ns in of_actor.with_keys(of_actor.total(waiting)):
            by_actor.setdefault(actor_waiting, Counter())[number] += ns
    return by_actor, by_operation


def waits_data(run: RunDirectory, part: Selection) -> Any:
    """Return the tables for `--json`."""
    average = waiting_parts(run)
    return {**waits_of(run, part).as_dict(part.top), "of_average_rank": average and to_builtins(average)}


def waits_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return three tables, of ranks, groups and operations."""
    waits = waits_of(run, part)
    unended = [UNENDED] if run.summary["status"] != "complete" else []
    if not waits.operations:
        return prose(["there is no communication", *unended], width)
    lines: list[str] = []
    for head, table in (("ranks", waits.ranks), ("group", waits.groups), ("operation", waits.operations)):
        lines += [*_table(head, table, part, width), ""]
    return prose([*lines, *LEGEND, *unended], width)


WAITS = Forms(waits_lines, waits_data)


def _table(head: str, table: Sequence[WaitTable], part: Selection, width: int) -> list[str]:
    shown = part.cut(table, ROWS)
    whole = max((line.transfer_ns + line.waiting_ns for line in shown), default=1)
    sheet = Sheet(
        (
            SheetColumn(head, "name", "<"),
            SheetColumn("transfer", "transfer_ns"),
            SheetColumn("waiting", "waiting_ns"),
            SheetColumn(
                "", lambda line: share(line.waiting_ns, line.transfer_ns + line.waiting_ns), key="share"
            ),
            SheetColumn("for", _for, "<"),
            SheetColumn(
                "",
                lambda line: bar((("▒", line.transfer_ns), ("░", line.waiting_ns)), whole, BAR),
                "<",
                key="bar",
            ),
        ),
        cut={head: 24, "for": 12},
        drop=("bar",),
        names=(head,),
        rows=ROWS,
        more="line",
        hint=" with less waiting: --top",
    )
    return sheet.shown(table, part, width)


def _for(line: WaitTable) -> str:
    if line.waits_for is None:
        return ""
    noun = "rank" if line.waits_for.isdecimal() else "ranks"
    return f"{noun} {line.waits_for} {share(line.waits_for_ns, line.nodes_waiting_ns)}"
