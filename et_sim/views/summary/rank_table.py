"""Time of ranks: one line per entry of `per_rank`, with shares and a bar.

Shares are of the makespan, or of a window of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.intervals import COMPUTE, COPY, HOST, MEMORY, TRANSFER, WAITING, Spent
from et_sim.basics.units import LONGEST_NS
from et_sim.tables.declaration import COPY as COPY_KIND
from et_sim.tables.declaration import MEMORY_KINDS
from et_sim.views.run.columns import alike, integers, numbers, words
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import TIMES, communicates, spans
from et_sim.views.run.selection import Selection
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.summary.operation_table import USE_LEGEND, use_columns
from et_sim.views.summary.parts import PARTS, TimePart, used
from et_sim.views.text import bar, no_room, not_shown, share, shortened
from et_sim.views.view import Forms

ALWAYS = ("compute_ns", "exposed_comm_ns", "waiting_ns")
BAR_WIDTH = 24
LEAST_BAR = 8

Entry = Mapping[str, Any]


def ranks_text(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return every rank, in rank order; in a window, only times in it count."""
    every, makespan = rank_entries(run, part), run.summary["makespan_ns"]
    entries = part.cut(every)
    lines = rank_lines(entries, makespan, width, part.length_ns(makespan))
    lines += not_shown(len(every) - len(entries), "more line", ": --top")
    use = _use_lines(entries, width) if part.window is None else []
    return [*lines, *(["", *use] if use else [])]


def ranks_data(run: RunDirectory, part: Selection) -> Any:
    """Return the entries for `--json`."""
    return list(part.cut(rank_entries(run, part)))


RANKS = Forms(ranks_text, ranks_data)


def rank_lines(
    entries: Sequence[Entry],
    makespan_ns: int,
    width: int,
    whole_ns: int | None = None,
    more: Sequence[str] = (),
) -> list[str]:
    """Return the table, in the order given, with `more` below; shares are of `whole_ns`, or the makespan.

    Bars take the remaining width; if it is small, only the longest parts have columns.
    """
    whole_ns = makespan_ns if whole_ns is None else whole_ns
    present = used(entries)
    every = [part for part in PARTS if part.figure in ALWAYS or (part in present and part.short != "early")]
    for columns in (every, _largest(every, entries)):
        sheet = _sheet(columns, makespan_ns, whole_ns)
        lacking = no_room([part.short for part in present if part in every and part not in columns], width)
        length = min(BAR_WIDTH, width - max(map(len, sheet.lines(entries))) - 1)
        if length >= LEAST_BAR:
            bars = SheetColumn("", partial(_bar, whole_ns, length), "<")
            lines = replace(sheet, columns=(*sheet.columns, bars)).lines(entries)
            return [*lines, *more, *_legend(present, width), *lacking]
    return [*sheet.lines(entries, width), *lacking, *more]


def _use_lines(entries: Sequence[Entry], width: int) -> list[str]:
    """Return one line per entry with machine use and peak memory; nothing if neither is recorded."""
    kernels = any(entry["compute_utilisation"] is not None for entry in entries)
    memory = any(entry["peak_memory_bytes"] is not None for entry in entries)
    if not kernels and not memory:
        return []
    use = (*(use_columns(dict) if kernels else ()), *([PEAK] if memory else ()))
    table = Sheet((RANKS_COLUMN, *use), cut={"ranks": 6}).lines(entries, width)
    return [*table, *([USE_LEGEND] if kernels else [])]


RANKS_COLUMN = SheetColumn("ranks", lambda entry: shortened(entry["ranks"], 16), "<")
PEAK = SheetColumn("peak memory", "peak_memory_bytes", missing="-")


def _largest(parts: Sequence[TimePart], entries: Sequence[Entry]) -> list[TimePart]:
    """Return the parts with the most time of all entries, as many as are always shown, in their order."""
    total = {
        part.figure: sum(rank_count(entry["ranks"]) * entry[part.figure] for entry in entries)
        for part in parts
    }
    order = sorted(parts, key=lambda part: (-total[part.figure], part.figure not in ALWAYS))
    return [part for part in parts if part in order[: len(ALWAYS)]]


def _legend(parts: Sequence[TimePart], width: int) -> list[str]:
    """Return the meanings of the pieces of bars."""
    lines: list[str] = []
    for text in (f"{part.mark} {part.text}" for part in parts if part.mark.strip()):
        if lines and len(lines[-1]) + 3 + len(text) <= width:
            lines[-1] += f"   {text}"
        else:
            lines.append(text)
    return lines


def slowest_first(entries: Sequence[Entry]) -> list[Entry]:
    """Return entries that never finished, then by finish time; ties stay in rank order."""
    return sorted(
        entries, key=lambda entry: float("-inf") if entry["finish_ns"] is None else -entry["finish_ns"]
    )


def rank_count(ranks: str) -> int:
    """Return the number of ranks in a text such as "0-3,6"."""
    total = 0
    for run in ranks.split(","):
        first, _, last = run.partition("-")
        total += int(last or first) - int(first) + 1
    return total


def ranks_named(text: str) -> Any:
    """Return the ranks in a text such as "0-3,6"."""
    spans = (run.partition("-") for run in text.split(","))
    return np.concatenate([np.arange(int(first), int(last or first) + 1) for first, _, last in spans])


def called(ranks: str, width: int) -> str:
    """Return `rank 3` or `ranks 0-3,6`, for a sentence."""
    return f"rank {ranks}" if ranks.isdecimal() else f"ranks {shortened(ranks, width)}"


def _sheet(parts: Sequence[TimePart], makespan_ns: int, whole_ns: int) -> Sheet:
    """Return times and shares; in a narrow table, shares of the last parts are dropped first."""
    times = (("finish", "finish_ns", makespan_ns), *((part.short, part.figure, whole_ns) for part in parts))
    shares = [f"share of {name}" for name, _, _ in times]
    columns = (
        column
        for (name, figure, whole), key in zip(times, shares, strict=True)
        for column in (
            SheetColumn(name, figure, missing="never"),
            SheetColumn("", partial(_share, figure, whole), key=key),
        )
    )
    return Sheet((RANKS_COLUMN, *columns), cut={"ranks": 6}, drop=(shares[0], *shares[:0:-1]), gap=" ")


def _share(figure: str, whole_ns: int, entry: Entry) -> str:
    return "-" if entry[figure] is None else share(entry[figure], whole_ns)


def _bar(whole_ns: int, length: int, entry: Entry) -> str:
    return bar([(part.mark, entry[part.figure]) for part in PARTS], whole_ns, length).rstrip()


COLUMNS = ("actor", "kind", "lane", *TIMES)


def rank_entries(run: RunDirectory, part: Selection) -> list[dict[str, Any]]:
    """Return entries as those of `per_rank` for the selected ranks; in a window, only times in it count."""
    part.check_ranks(run)
    if part.window is None:
        entries = ({**entry, "ranks": part.names(entry["ranks"])} for entry in run.summary["per_rank"])
        return [entry for entry in entries if entry["ranks"]]
    first, last = part.window
    if last == LONGEST_NS:  # the window has no end
        last = max(first, run.summary["makespan_ns"])
    return _measured(run, part, (first, last))


def spans_of(run: RunDirectory, part: Selection, window: tuple[int, int]) -> Iterator[tuple[Any, ...]]:
    """Yield, block by block, the nodes of selected ranks in a window: actor, activity, start, end, admission
    and begin of the transfer; times count from the beginning of the window."""
    weights = part.weights(run)
    for rows in run.batches("timeline", COLUMNS):
        # Nodes that never ended are still under way.
        owner, times = numbers(rows["actor"]), spans(rows, run.summary["makespan_ns"])
        shown = np.flatnonzero(part.touches(times.start, times.end) & (weights > 0)[owner])
        start, admitted, moved, end = (
            np.clip(getattr(times, name)[shown], *window) - window[0]
            for name in ("start", "admitted", "moved", "end")
        )
        yield owner[shown], _activities(rows)[shown], start, end, admitted, moved


def _measured(run: RunDirectory, part: Selection, window: tuple[int, int]) -> list[dict[str, Any]]:
    actors = run.actors()
    finish = integers(actors["finish_ns"], missing=-1)
    end = np.where(finish < 0, run.summary["makespan_ns"], finish)
    present = np.clip(end, *window) - window[0]  # part of the window before the finish
    weights, names, spent = part.weights(run), part.of_actors(run), Spent(len(actors))
    for piece in spans_of(run, part, window):
        spent.add(*piece)
    spent.close()
    parts = spent.parts
    entries = [
        (
            names[actor],
            (
                ("finish_ns", None if finish[actor] < 0 else int(finish[actor])),
                ("compute_ns", int((parts[COMPUTE] + parts[COPY])[actor])),
                ("exposed_comm_ns", int(parts[TRANSFER][actor])),
                ("exposed_memory_ns", int(parts[MEMORY][actor])),
                ("waiting_ns", int(parts[WAITING][actor])),
                ("host_ns", int(parts[HOST][actor])),
                ("idle_ns", int(present[actor] - spent.covered_ns[actor])),
                ("early_ns", int(window[1] - window[0] - present[actor])),
                ("hidden_comm_ns", int(spent.totals[TRANSFER][actor] - parts[TRANSFER][actor])),
            ),
        )
        for actor in np.flatnonzero(weights).tolist()
    ]
    return [{"ranks": ranks, **dict(figures)} for ranks, figures in alike(entries)]


def _activities(rows: Any) -> Any:
    """Return the activity of each row."""
    is_host = words(rows["lane"]).where(lambda lane: lane == "cpu")
    return np.where(is_host, HOST, words(rows["kind"]).where(_activity_of))


def _activity_of(kind: str | None) -> int:
    if kind == "compute":
        return COMPUTE
    if kind == COPY_KIND:
        return COPY
    if kind in MEMORY_KINDS:
        return MEMORY
    return TRANSFER if communicates(kind) else HOST
