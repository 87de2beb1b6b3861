"""Reads the nodes that a picture draws, from a timeline of any length.

Drawn are nodes that are under way in a window, of chosen ranks; where there is no room for all of them, some
in proportion (`blocks`). Beside them stand the nodes that arrows may join them to: the other members of
their collectives, and messages between the same actors.

Not here: arrows (`flows`), and how the timeline is read (`blocks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.views.drawing.blocks import Blocks, distinct
from et_sim.views.drawing.nodes import NONE, Nodes, Shown
from et_sim.views.run.columns import Words, coded, integers, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.groups import Groups
from et_sim.views.run.selection import Window

JOINED = ("actor", "kind", "group", "sequence", "peer")
MESSAGES = ("send", "receive")


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Nodes as they are shown: one for each node and rank, rank by rank."""

    place: Any  # in Shown.ranks
    row: Any  # in the nodes
    group: Words  # as the rank calls it
    left_out: str

    def __len__(self) -> int:
        return len(self.row)


def visible_nodes(run: RunDirectory, shown: Shown, window: Window, limit: int) -> tuple[Nodes, Slices]:
    """What is drawn of a run, and whatever may be joined to it by arrows, in the order of the timeline."""
    blocks = Blocks(run, shown)
    chosen = blocks.chosen(window, limit)
    rows = distinct(chosen.row)
    rows = distinct(np.concatenate((rows, *(found for found, _ in belonging(blocks, rows)))))
    nodes, row = blocks.nodes(rows), np.searchsorted(rows, chosen.row)
    rank = np.array(shown.ranks, np.int64)[chosen.place]
    group = Groups(run).of_ranks(rank, nodes.actor[row], nodes.group[row], nodes.groups)
    return nodes, Slices(chosen.place, row, group, chosen.left_out)


def belonging(blocks: Blocks, rows: Any) -> list[tuple[Any, Any]]:
    """Of the collectives that one of these rows is a member of, all rows of shown actors, and a number for
    each one's collective; then those of messages between two actors, and a number for each one's two."""
    wanted: list[Any] = [None, None]
    if len(rows) < blocks.rows_shown:
        of_rows = [_keys(batch, at) for batch, at in blocks.at(rows, JOINED)]
        parts = zip(*of_rows, strict=True) if of_rows else ([], [])
        wanted = [distinct(np.concatenate((np.zeros(0, np.int64), *keys))) for keys in parts]
    found: list[list[tuple[Any, Any]]] = [[], []]
    for first, batch in blocks.every(JOINED):
        is_shown = np.flatnonzero(blocks.is_shown(numbers(batch["actor"])))
        for sort, keys in enumerate(_keys(batch, is_shown)):
            there = keys != NONE
            if wanted[sort] is not None:
                there &= np.isin(keys, wanted[sort])
            found[sort].append((first + is_shown[there], keys[there]))
    return [_together(of_sort) for of_sort in found]


def _together(parts: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    rows, keys = zip((np.zeros(0, np.int64), np.zeros(0, np.int64)), *parts, strict=True)
    return np.concatenate(rows), np.concatenate(keys)


def _keys(batch: Any, at: Any) -> tuple[Any, Any]:
    """Of these rows of a batch: numbers for their collective, and for the two ends of their message."""
    sequence = integers(batch["sequence"], missing=NONE)[at]
    groups = len(batch["group"].dictionary) + 1
    collective = np.where(sequence == NONE, NONE, sequence * groups + coded(batch["group"])[at])
    actor, peer = numbers(batch["actor"])[at].astype(np.int64), integers(batch["peer"], missing=NONE)[at]
    is_message = np.array([kind in MESSAGES for kind in (*batch["kind"].dictionary.to_pylist(), None)])
    ends = np.minimum(actor, peer) << 32 | np.maximum(actor, peer)
    return collective, np.where(is_message[coded(batch["kind"])[at]] & (peer != NONE), ends, NONE)
