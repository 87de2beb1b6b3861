"""How busy links were, in slices of time: from the engine's sums to the columns of links.arrow.

Not here: how it is added up (`engine.link_slices`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from et_sim.engine.drive import Outcome
from et_sim.engine.link_slices import BITS, PER_LINK, SHIFT
from et_sim.timeline.keep import Keep, both

SENDING = "all it sends"  # where there are no links
ROWS_AT_ONCE = 1 << 16


class LinkSource:
    """Makes the columns of links.arrow: of every link the slices in which anything happens."""

    def __init__(self, outcome: Outcome) -> None:
        traffic, self._plan = outcome.run.traffic, outcome.plan
        self._slices = traffic.slices
        self._per_link, self._shift, self._bits = (int(traffic.grid[at]) for at in (PER_LINK, SHIFT, BITS))
        self._end_ns = outcome.end_ns
        self._on_links = len(outcome.run.network.links) > 0
        self._wiring = outcome.links
        self.names = tuple(dict.fromkeys(name for one in self._wiring for name in one["ports"])) or (SENDING,)
        self._dimensions = len(outcome.run.network.levels) or len(outcome.run.network.dimensions)

    def blocks(self, keep: Keep) -> Iterator[dict[str, Any]]:
        """Columns of all slices that are kept, link by link; -1 stands for none."""
        at_once = max(ROWS_AT_ONCE // self._per_link, 1) * self._per_link
        actors = keep.actors(self._plan.actor_of_rank)
        for begin in range(0, len(self._slices), at_once):
            part = self._slices[begin : begin + at_once]
            which = np.flatnonzero((part["busy_ns"] > 0) | (part["messages"] > 0) | (part["waiting"] > 0))
            columns = self._columns(part[which], (begin + which) // self._per_link, which % self._per_link)
            touched = keep.touches(columns["start_ns"], columns["end_ns"])
            mask = both(None if actors is None else actors[columns["actor"]], touched)
            yield columns if mask is None else {name: column[mask] for name, column in columns.items()}

    def _columns(self, slices: Any, link: Any, number: Any) -> dict[str, Any]:
        dimension, actor, name = self._who(link)
        width = 1 << self._shift >> self._bits
        none = np.full(len(link), -1)
        return {
            "actor": actor,
            "dimension": dimension,
            "link": name,
            "start_ns": number * width,
            "end_ns": np.minimum((number + 1) * width, np.maximum(self._end_ns, number * width)),
            "busy_ns": slices["busy_ns"] >> self._bits,
            "bytes": slices["bytes"],
            "messages": slices["messages"],
            "wait_ns": slices["waited_ns"] >> self._bits if self._on_links else none,
            "longest_wait_ns": slices["longest_ns"] >> self._bits if self._on_links else none,
            "most_waiting": slices["waiting"] if self._on_links else none,
        }

    def _who(self, link: Any) -> tuple[Any, Any, Any]:
        """(dimension, actor, index of the name) of links."""
        if not self._on_links:
            return link % self._dimensions, link // self._dimensions, np.zeros(len(link), np.int32)
        firsts = np.array([one["first"] for one in self._wiring])
        dimension = np.searchsorted(firsts, link, side="right") - 1
        ports = np.array([len(one["ports"]) for one in self._wiring])
        code = np.zeros((len(ports), max(ports)), np.int32)
        for row, one in zip(code, self._wiring, strict=True):
            row[: len(one["ports"])] = [self.names.index(name) for name in one["ports"]]
        actor, port = np.divmod(link - firsts[dimension], ports[dimension])
        return dimension, actor, code[dimension, port]
