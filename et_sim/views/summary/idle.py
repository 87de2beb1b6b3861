"""Time of devices, streams and threads, and the causes of their idle time.

Idle time before a node is charged to the chain of events that let the node begin, backwards in time: every
nanosecond counts as the node of the chain that was under way then. A device is idle while none of its streams
is busy. The parts of a row add up to the run, or the window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct, field

from et_sim.basics.intervals import union_with_first
from et_sim.basics.unique import sums_of
from et_sim.basics.units import LONGEST_NS
from et_sim.views.run.columns import alike, together
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import Grouped
from et_sim.views.run.selection import EVERYTHING, Selection, Window
from et_sim.views.summary.idle_nodes import (
    BUSY,
    FINISHED,
    GAP,
    HOST,
    LAUNCH,
    NONE,
    OTHER,
    RANKS,
    STREAM,
    IdleNodes,
    NodeTexts,
    blocks_of,
)

LONGEST = 10
DEVICE = "device"
OWN = (HOST, GAP, LAUNCH, OTHER)  # waiting for the own rank
FIGURES = ("busy", "streams", "ranks", "host", "gaps", "launch", "other", "finished")
MEANINGS = (
    "busy",
    "another stream of the rank",
    "another rank",
    "the host",
    "gaps of a recording's threads",
    "launches, and gaps of streams",
    "before the first node, or of unknown cause",
    "nothing more to do",
)
SHORT = dict(zip(FIGURES, MEANINGS, strict=True))
ORDER = "ranks whose devices wait longest for their own host, gaps and launches come first"


class IdleRow(Struct, frozen=True):
    """A device, stream or thread of ranks that do the same."""

    ranks: str
    row: str
    figures: tuple[int, ...]  # nanoseconds, as in FIGURES

    def as_dict(self) -> dict[str, Any]:
        """Return it for `--json`."""
        figures = {f"{name}_ns": ns for name, ns in zip(FIGURES, self.figures, strict=True)}
        return {"ranks": self.ranks, "row": self.row, **figures}


class Pause(Struct, frozen=True):
    """A time without work of devices, and its main cause."""

    ranks: str
    start_ns: int
    length_ns: int
    waits_for: str  # one of FIGURES
    name: str
    waits_ns: int


class Idle(Struct):
    """Rows; causes of the idle time of devices, over all ranks; and the longest pauses."""

    rows: list[IdleRow] = field(default_factory=list)
    causes: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # figure, kind, name
    pauses: list[Pause] = field(default_factory=list)
    ranks: int = 0


class _Charges(Struct, frozen=True, eq=False):
    """Pieces of pauses by cause."""

    pause: Any
    figure: Any  # index into FIGURES
    node: Any  # NONE: unknown
    ns: Any


def idle_of(run: RunDirectory, part: Selection = EVERYTHING) -> Idle:
    """Return the idle time of all selected ranks."""
    weights, window = part.weights(run), part.window_of(run)
    ranks = part.of_actors(run)
    idle = Idle(ranks=int(weights.sum()))
    of_actor: dict[int, list[tuple[str, tuple[int, ...]]]] = {}
    texts = NodeTexts(run)
    for nodes in blocks_of(run, texts, weights > 0):
        for is_whole in (True, False):
            units, chosen = _units(nodes, is_whole)
            busy, pauses = _pauses(nodes, units, chosen, run.summary["makespan_ns"])
            charges = _walked(nodes, pauses, window)
            figures = _figures(units, busy, pauses, charges, window)
            for (actor, name), values in zip(_named(nodes, is_whole), figures.tolist(), strict=True):
                of_actor.setdefault(actor, []).append((name, tuple(values)))
            if is_whole:
                _explain(idle, nodes, texts, pauses, charges, weights, ranks, window)
    alike_rows = alike((ranks[actor], tuple(_ordered(rows))) for actor, rows in sorted(of_actor.items()))
    alike_rows.sort(key=lambda entry: -sum(entry[1][0][1][figure] for figure in OWN))
    idle.rows = [IdleRow(names, row, figures) for names, rows in alike_rows for row, figures in rows]
    idle.pauses = _together(idle.pauses)
    return idle


def _named(nodes: IdleNodes, is_whole: bool) -> list[tuple[int, str]]:
    if not is_whole:
        return list(nodes.units)
    return [(actor, DEVICE) for actor in nodes.actors.tolist()]


def _units(nodes: IdleNodes, is_whole: bool) -> tuple[Any, Any]:
    """Return the unit of each node, and the nodes that make it busy; a device is one unit."""
    works = (nodes.figure != GAP) & (nodes.figure != LAUNCH)
    if not is_whole:
        return nodes.unit, np.flatnonzero(works)
    return nodes.of_actor, np.flatnonzero(works & nodes.on_device[nodes.unit])


class _Pauses(Struct, frozen=True, eq=False):
    """Times in which a unit is not busy, until `node` begins; NONE: until the end of the run."""

    unit: Any
    start: Any
    end: Any
    node: Any


def _pauses(nodes: IdleNodes, units: Any, chosen: Any, makespan: int) -> tuple[Any, _Pauses]:
    """Return when units are busy, and when not, until the run ends."""
    chosen = chosen[nodes.end[chosen] > nodes.moved[chosen]]
    count = int(units.max(initial=NONE)) + 1
    # The first node of each busy interval ends the pause before it.
    busy, first = union_with_first(units[chosen], nodes.moved[chosen], nodes.end[chosen])
    ending = chosen[first]
    every = np.arange(count)
    unit, owner = np.concatenate((busy.owner, every)), np.concatenate((every, busy.owner))
    # A unit's intervals are in the order of time; its first pause begins at 0, its last ends with the run.
    by_end, by_start = np.argsort(unit, kind="stable"), np.argsort(owner, kind="stable")
    end = np.concatenate((busy.start, np.full(count, makespan)))[by_end]
    node = np.concatenate((ending, np.full(count, NONE)))[by_end]
    start = np.concatenate((np.zeros(count, np.int64), busy.end))[by_start]
    lasting = np.flatnonzero(end > start)
    return busy, _Pauses(*(column[lasting] for column in (unit[by_end], start, end, node)))


def _walked(nodes: IdleNodes, pauses: _Pauses, window: Window) -> _Charges:
    """Return the causes of every pause, backwards from the node that ends it."""
    first_of_pause = np.maximum(pauses.start, window[0])
    pause, at, reached = _steps(nodes, pauses, first_of_pause)
    first, until = first_of_pause[pause], np.minimum(reached, window[1])
    times = (nodes.end, nodes.moved, nodes.admitted, nodes.start)
    ended, moved, admitted, started = (_and_of_none(column, -LONGEST_NS)[at] for column in times)
    unknown = np.where(pauses.node == NONE, FINISHED, OTHER)
    pieces: tuple[tuple[Any, Any, Callable[[Any], Any]], ...] = (
        (ended, until, lambda rows: unknown[pause[rows]]),
        (moved, ended, lambda rows: nodes.figure[at[rows]]),
        (admitted, moved, lambda rows: np.full(len(rows), RANKS)),
        (started, admitted, lambda rows: np.full(len(rows), STREAM)),
    )
    charges = []
    for place, (begin, end, figures) in enumerate(pieces):
        ns = np.minimum(end, until) - np.maximum(begin, first)
        rows = np.flatnonzero(ns > 0)
        node = at[rows] if place else np.full(len(rows), NONE)
        charges.append((rows * len(pieces) + place, pause[rows], figures(rows), node, ns[rows]))
    order, *columns = (np.concatenate(column) for column in zip(*charges, strict=True))
    order = np.argsort(order, kind="stable")  # backwards in time
    return _Charges(*(column[order] for column in columns))


def _and_of_none(column: Any, value: int) -> Any:
    """Return a column with the value that NONE reads, its last one."""
    return np.append(column, value)


def _steps(nodes: IdleNodes, pauses: _Pauses, first_of_pause: Any) -> tuple[Any, Any, Any]:
    """Return the steps backwards from the end of each pause: pause, node, and the time reached before.

    The node of a last step is NONE if nothing is known of the rest of the pause.
    """
    start, cause = _and_of_none(nodes.start, -LONGEST_NS), _and_of_none(nodes.cause, NONE)
    pause, at, reached = np.arange(len(pauses.node)), pauses.node, pauses.end
    steps = [(pause, at, reached)]
    for _ in range(len(cause)):
        reached, at = np.minimum(reached, start[at]), cause[at]
        goes_on = np.flatnonzero(reached > first_of_pause[pause])
        pause, at, reached = pause[goes_on], at[goes_on], reached[goes_on]
        if not len(at):
            break
        steps.append((pause, at, reached))
    else:
        steps[-1] = pause, np.full(len(at), NONE), reached  # causes in a circle
    pause, at, reached = (np.concatenate(column) for column in zip(*steps, strict=True))
    return pause, at, reached


def _figures(units: Any, busy: Any, pauses: _Pauses, charges: _Charges, window: Window) -> Any:
    """Return how long each unit is busy, and the causes of its idle time."""
    shape = int(units.max(initial=NONE)) + 1, len(FIGURES)
    lasted = np.clip(busy.end, *window) - np.clip(busy.start, *window)
    of_busy = busy.owner * np.int64(len(FIGURES)) + BUSY
    of_charges = pauses.unit[charges.pause] * np.int64(len(FIGURES)) + charges.figure
    total = sums_of(of_busy, lasted, shape[0] * shape[1]) + sums_of(
        of_charges, charges.ns, shape[0] * shape[1]
    )
    return total.reshape(shape)


def _explain(
    idle: Idle,
    nodes: IdleNodes,
    texts: NodeTexts,
    pauses: _Pauses,
    charges: _Charges,
    weights: Any,
    ranks: list[str],
    window: Window,
) -> None:
    """Add up the causes of idle devices, and keep their longest pauses."""
    actor_of_pause = nodes.actors[pauses.unit]
    known = np.flatnonzero(charges.node != NONE)
    node, figures = charges.node[known], charges.figure[known]
    spent = Grouped(figures, nodes.kind[node], nodes.stem[node])
    total = spent.total(charges.ns[known] * weights[actor_of_pause[charges.pause[known]]])
    for (figure, kind, stem), ns in spent.with_keys(total):
        idle.causes[FIGURES[figure], str(texts.kinds[kind]), str(texts.stems[stem])] += ns
    idle.pauses += _longest(
        nodes, texts, pauses, charges, [ranks[actor] for actor in actor_of_pause.tolist()], window
    )


def _longest(
    nodes: IdleNodes, texts: NodeTexts, pauses: _Pauses, charges: _Charges, ranks: list[str], window: Window
) -> list[Pause]:
    """Return the longest of these pauses; equal ones are joined."""
    length = np.clip(pauses.end, *window) - np.clip(pauses.start, *window)
    length[pauses.node == NONE] = 0
    order = np.lexsort((-charges.ns, charges.pause))  # the main cause of each pause comes first
    pause, first = np.unique(charges.pause[order], return_index=True)
    most = order[first]
    lasting = np.flatnonzero((length[pause] > 0) & (charges.ns[most] > 0))
    pause, most = pause[lasting], most[lasting]
    node = charges.node[most]
    stem = np.where(node == NONE, NONE, nodes.stem[node])
    begin = np.maximum(pauses.start[pause], window[0])
    same = Grouped(-length[pause], begin, charges.figure[most], stem, charges.ns[most])
    shown = same.keys[same.keys[:, 0] <= same.keys[:LONGEST, 0].max(initial=-LONGEST_NS)]
    members = np.split(np.argsort(same.of_row, kind="stable"), np.cumsum(np.bincount(same.of_row)))
    longest = []
    for (negative, start, figure, name, ns), rows in zip(shown.tolist(), members, strict=False):
        names = together([ranks[number] for number in pause[rows].tolist()])
        text = "" if name == NONE else str(texts.stems[name])
        longest.append(Pause(names, start, -negative, FIGURES[figure], text, ns))
    return longest


def _together(pauses: list[Pause]) -> list[Pause]:
    """Return the longest of all pauses; equal ones are joined."""
    ranks_of: dict[tuple[Any, ...], list[str]] = {}
    for pause in pauses:
        key = -pause.length_ns, pause.start_ns, pause.waits_for, pause.name, -pause.waits_ns
        ranks_of.setdefault(key, []).append(pause.ranks)
    return [
        Pause(together(ranks), start, -length, waits_for, name, -ns)
        for (length, start, waits_for, name, ns), ranks in sorted(ranks_of.items())[:LONGEST]
    ]


def _ordered(rows: list[tuple[str, tuple[int, ...]]]) -> list[tuple[str, tuple[int, ...]]]:
    """Sort rows: the device, streams and others by name, threads last."""

    def key(row: tuple[str, tuple[int, ...]]) -> tuple[bool, bool, str, int]:
        word, _, number = row[0].partition(" (")[0].partition(" ")
        return (
            row[0] != DEVICE,
            word in ("thread", "cpu"),
            word,
            int(number) if number.isdecimal() else 0,
        )

    return sorted(rows, key=key)
