"""The communication nodes of a run that were issued, many actors at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from et_sim.engine.outcome import Outcome
from et_sim.engine.state.run import NONE
from et_sim.plan.tables import Action

ROWS_AT_ONCE = 1 << 20


class Issued(NamedTuple):
    """Nodes that were issued: their actors, rows of the plan's table of nodes, and rows of the node state."""

    actor: Any
    nodes: Any
    state_row: Any

    def where(self, rows: Any) -> Issued:
        """Some of them."""
        return Issued(*(column[rows] for column in self))


def issued(outcome: Outcome, actions: Iterable[Action]) -> Iterator[Issued]:
    """All that do one of these things, template after template."""
    plan, wanted = outcome.plan, list(actions)
    table = np.asarray(plan.nodes)
    for template, row in enumerate(plan.templates):
        first = int(row["node_first"])
        does = np.isin(table["action"][first : first + int(row["nodes"])], wanted)
        rows = np.flatnonzero(does)
        if not len(rows):
            continue
        actors = np.flatnonzero(plan.actors["template"] == template)
        at_once = max(ROWS_AT_ONCE // len(rows), 1)
        for begin in range(0, len(actors), at_once):
            some = actors[begin : begin + at_once]
            state_row = (plan.actors["node_first"][some][:, None] + rows).reshape(-1)
            every = Issued(np.repeat(some, len(rows)), table[first + np.tile(rows, len(some))], state_row)
            yield every.where(np.flatnonzero(outcome.nodes["start_ns"][state_row] != NONE))
