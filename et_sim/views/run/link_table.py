"""links.arrow as numpy columns: what each link of each actor did, slice by slice of the time.

Without link model there are no links, and a row is about all that an actor sends along a dimension.

Not here: what is shown of it (`summary.links`, `drawing.network`, `export.counters`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.views.run.columns import coded, integers
from et_sim.views.run.directory import RunDirectory

NONE = -1
WAITING = ("wait_ns", "longest_wait_ns", "most_waiting", "most_at_once")
FIGURES = ("start_ns", "end_ns", "busy_ns", "bytes", "messages", *WAITING)
SUMS = ("busy_ns", "bytes", "messages", "wait_ns")


@dataclass(frozen=True, slots=True, eq=False)
class LinkTable:
    """Links are numbered as they come in the table; `of_row` says which one a slice belongs to."""

    actor: Any  # per link
    dimension: Any
    name: tuple[str, ...]
    tier: tuple[str, ...]
    of_row: Any
    figures: dict[str, Any]  # per slice, by column; -1: there is no link model

    @property
    def has_links(self) -> bool:
        """Whether these are links, which carry one message at a time."""
        return not (self.figures["wait_ns"] == NONE).any()

    def where(self, mask: Any) -> LinkTable:
        """Some of the slices; all links keep their numbers."""
        figures = {name: column[mask] for name, column in self.figures.items()}
        return LinkTable(self.actor, self.dimension, self.name, self.tier, self.of_row[mask], figures)

    def total(self, figure: str) -> Any:
        """Per link, the sum of a figure over its slices."""
        found = np.zeros(len(self.actor), np.int64)
        np.add.at(found, self.of_row, np.maximum(self.figures[figure], 0))
        return found

    def most(self, figure: str) -> Any:
        """Per link, the most of a figure in any slice."""
        found = np.zeros(len(self.actor), np.int64)
        np.maximum.at(found, self.of_row, self.figures[figure])
        return found


def link_table(run: RunDirectory) -> LinkTable | None:
    """The table of a run; None if links were not recorded."""
    if not run.holds("links"):
        return None
    parts: list[dict[str, Any]] = []
    names: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    columns = ("actor", "dimension", "link", "tier", *FIGURES)
    for rows in run.batches("links", columns):
        names, tiers = (tuple(rows[name].dictionary.to_pylist()) for name in ("link", "tier"))
        part = {name: integers(rows[name], missing=NONE) for name in ("actor", "dimension", *FIGURES)}
        parts.append({**part, "link": coded(rows["link"]), "tier": coded(rows["tier"])})
    every = {
        name: np.concatenate([part[name] for part in parts] or [np.zeros(0, np.int64)]) for name in columns
    }
    is_new = np.zeros(len(every["actor"]), np.bool_)
    is_new[:1] = True
    for name in ("actor", "dimension", "link", "tier"):
        is_new[1:] |= np.diff(every[name]) != 0
    first = np.flatnonzero(is_new)
    return LinkTable(
        actor=every["actor"][first],
        dimension=every["dimension"][first],
        name=tuple(names[code] for code in every["link"][first].tolist()),
        tier=tuple(tiers[code] for code in every["tier"][first].tolist()),
        of_row=np.cumsum(is_new) - 1,
        figures={name: every[name] for name in FIGURES},
    )
