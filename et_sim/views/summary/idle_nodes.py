"""Nodes of whole actors as columns: the stream or thread of each, and the cause of its start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import groups_of
from et_sim.views.run.columns import coded, integers, numbers, words
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import TIMES, communicates, spans

COLUMNS = ("actor", "node", "kind", "name", "lane", *TIMES)
CAUSE = ("start_cause", "start_cause_node")
NONE, MOST_ROWS = -1, 1 << 16
WORKS = ("kernels", "communication", "copies", "else")
# Indices into FIGURES: busy, or the cause of idle time.
BUSY, STREAM, RANKS, HOST, GAP, LAUNCH, OTHER, FINISHED = range(8)


class IdleNodes(Struct, frozen=True, eq=False):
    """Nodes of some actors as columns, actor by actor. A unit is a stream or thread of an actor."""

    actors: Any  # each once
    of_actor: Any  # the index of its actor
    start: Any
    admitted: Any
    moved: Any
    end: Any
    figure: Any  # index into FIGURES: the cause if a device waits for the node
    unit: Any
    on_device: Any  # whether the unit is a stream
    cause: Any  # index, or NONE
    kind: Any
    stem: Any
    units: tuple[tuple[int, str], ...]


class NodeTexts:
    """Kinds and stems of names, which are the same in all blocks."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self.kinds: tuple[str | None, ...] = ()
        self.stems: tuple[str | None, ...] = ()
        self.of_name: Any = np.zeros(0, np.int64)
        self.rows = [name for name in ("recorded_on", "stream", "lane") if name in run.columns("timeline")]
        self.called: dict[str, int] = {}

    def take(self, rows: Any) -> None:
        """Read them from the first batch."""
        if not self.kinds:
            named = self._run.stems
            self.kinds, self.stems, self.of_name = words(rows["kind"]).texts, named.texts, named.codes

    def row_of(self, rows: Any) -> Any:
        """Return the index of the stream or thread of each node, or of its lane if it has neither."""
        row = np.full(len(rows["actor"]), NONE, np.int64)
        for column in self.rows:
            texts = words(rows[column])
            number = [self.called.setdefault(text or "", len(self.called)) for text in texts.texts]
            number[-1] = NONE
            row = np.where(row == NONE, np.array(number, np.int64)[texts.codes], row)
        return np.where(row == NONE, self.called.setdefault("unknown", len(self.called)), row)


def blocks_of(run: RunDirectory, texts: NodeTexts, is_chosen: Any) -> Iterator[IdleNodes]:
    """Yield whole actors: as many at a time as their nodes allow, and at least one."""
    held: list[dict[str, Any]] = []
    for rows in run.batches("timeline", tuple(dict.fromkeys((*COLUMNS, *CAUSE, *texts.rows)))):
        texts.take(rows)
        columns = _columns(rows, texts, run.summary["makespan_ns"])
        of_chosen = np.flatnonzero(is_chosen[columns["actor"]])
        if not len(of_chosen):
            continue
        if len(of_chosen) < len(columns["actor"]):
            columns = {name: values[of_chosen] for name, values in columns.items()}
        until = int(np.searchsorted(columns["actor"], held[-1]["actor"][-1], side="right")) if held else 0
        if sum(len(block["actor"]) for block in held) >= MOST_ROWS and until < len(of_chosen):
            yield _nodes(_joined([*held, {name: values[:until] for name, values in columns.items()}]), texts)
            held, columns = [], {name: values[until:] for name, values in columns.items()}
        held.append(columns)
    if held:
        yield _nodes(_joined(held), texts)


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.concatenate([block[name] for block in parts]) for name in parts[0]}


def _columns(rows: Any, texts: NodeTexts, makespan: int) -> dict[str, Any]:
    times, kinds = spans(rows, makespan), words(rows["kind"])
    waits = kinds.where(lambda kind: kind is None or communicates(kind))
    return {
        "actor": numbers(rows["actor"]).astype(np.int64),
        "node": numbers(rows["node"]),
        "start": times.start,
        "admitted": times.admitted,
        "moved": np.where(waits, times.moved, times.admitted),
        "end": times.end,
        "kind": kinds.codes,
        "stem": texts.of_name[coded(rows["name"])],
        "is_host": words(rows["lane"]).where(lambda lane: lane == "cpu"),
        "row": texts.row_of(rows),
        "has_cause": words(rows["start_cause"]).where(lambda cause: cause not in (None, "begin")),
        "cause": integers(rows["start_cause_node"], missing=0).astype(np.uint64),
    }


def _nodes(columns: dict[str, Any], texts: NodeTexts) -> IdleNodes:
    actor, called = columns["actor"], tuple(texts.called)
    is_new = np.append(True, actor[1:] != actor[:-1])
    actors, of_actor = actor[is_new], np.cumsum(is_new) - 1
    groups = groups_of(of_actor, columns["row"])
    unit, keys = groups.of_row, (actor * len(called) + columns["row"])[groups.first]
    on_device = np.bincount(unit, ~columns["is_host"], len(keys)) > 0
    is_gap = columns["kind"] == (texts.kinds.index("gap") if "gap" in texts.kinds else NONE)
    host = np.where(columns["is_host"], HOST, STREAM)
    figure = np.where(is_gap, np.where(on_device[unit], LAUNCH, GAP), host)
    names = [called[key % len(called)] for key in keys.tolist()]
    works = _works_of(columns, texts, unit, len(keys))
    pairs = zip(names, works, strict=True)
    names = [f"{name} ({work})" if name.startswith("stream ") else name for name, work in pairs]
    units = tuple(zip((keys // len(called)).tolist(), names, strict=True))
    plain = {name: columns[name] for name in ("start", "admitted", "moved", "end", "kind", "stem")}
    return IdleNodes(
        actors=actors,
        of_actor=of_actor,
        **plain,
        figure=figure,
        unit=unit,
        on_device=on_device,
        cause=_causes(columns),
        units=units,
    )


def _works_of(columns: dict[str, Any], texts: NodeTexts, unit: Any, units: int) -> list[str]:
    """Return the main work of each unit."""
    of_kind = np.array([WORKS.index(_work(kind)) for kind in texts.kinds])
    total = np.zeros((units, len(WORKS)), np.int64)
    np.add.at(total, (unit, of_kind[columns["kind"]]), columns["end"] - columns["start"])
    return [WORKS[most] for most in total[:, :-1].argmax(axis=1).tolist()]


def _work(kind: str | None) -> str:
    if kind in ("compute", "copy"):
        return {"compute": "kernels", "copy": "copies"}[kind]
    return "communication" if communicates(kind) else "else"


def _causes(columns: dict[str, Any]) -> Any:
    """Return the index of the node that let each one begin; without a gap in its ids, it is as far away."""
    away = (columns["cause"] - columns["node"]).astype(np.int64)
    cause = np.clip(np.arange(len(away)) + away, 0, len(away) - 1)
    is_there = columns["has_cause"] & (columns["actor"][cause] == columns["actor"])
    is_there &= columns["node"][cause] == columns["cause"]
    if np.array_equal(is_there, columns["has_cause"]):
        return np.where(is_there, cause, NONE)
    return _causes_among(columns)


def _causes_among(columns: dict[str, Any]) -> Any:
    """Return the index of the node that let each one begin, by a search."""
    nodes = groups_of(columns["node"])
    distinct = columns["node"][nodes.first]
    wanted = np.minimum(np.searchsorted(distinct, columns["cause"]), len(distinct) - 1)
    key, wanted_key = (columns["actor"] * len(distinct) + at for at in (nodes.of_row, wanted))
    order = np.argsort(key, kind="stable")
    at = np.minimum(np.searchsorted(key[order], wanted_key), len(key) - 1)
    cause = order[at]
    is_there = columns["has_cause"] & (key[cause] == wanted_key) & (distinct[wanted] == columns["cause"])
    return np.where(is_there, cause, NONE)
