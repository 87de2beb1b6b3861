"""The events of the critical path, found by walking backwards from the last one of the run.

Not here: what its time was spent on (`path`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import UsageError
from et_sim.views.critical.events import KINDS, NONE, RecordedEvents, narrow
from et_sim.views.run.columns import Words
from et_sim.views.run.directory import AGAIN

TIMES = ("critical_parent", "other_parent", "start_ns", "end_ns", "kind")
COLUMNS = ("start_ns", "end_ns", "kind", "resource", "actor", "node", "other_parent", "link")
NARROW = ("resource", "actor", "link")


class Chain(Struct, frozen=True, eq=False):
    """Columns of the events of the path, in its order; -1 stands for none."""

    start_ns: Any
    end_ns: Any
    kind: Any
    link: Words
    resource: Any
    actor: Any
    node: Any  # its row
    other_end_ns: Any  # when the other event came that it needed

    def __len__(self) -> int:
        return len(self.kind)


def chain(record: RecordedEvents) -> Chain:
    """Check that events follow from each other, and walk from the last to the first."""
    parent, end_ns, last = _parents(record)
    rows = array("q")
    while last != NONE:
        rows.append(last)
        last = int(parent[last])
    del parent
    on_it = np.frombuffer(rows, np.int64)[::-1]
    texts: tuple[str | None, ...] = (None,)
    parts: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for here, block in _blocks_with(record, on_it):
        texts = block["link"].texts
        for name in COLUMNS:
            column = block["link"].codes if name == "link" else block[name]
            parts[name].append(column[here].astype(np.int32) if name in NARROW else column[here])
    of = {name: np.concatenate(pieces) for name, pieces in parts.items()}
    other_parent = of["other_parent"]
    return Chain(
        start_ns=of["start_ns"],
        end_ns=of["end_ns"],
        kind=of["kind"],
        link=Words(texts, of["link"]),
        resource=of["resource"],
        actor=of["actor"],
        node=record.nodes_of(of["actor"], of["node"]),
        other_end_ns=np.where(other_parent == NONE, NONE, end_ns[other_parent]),
    )


def _parents(record: RecordedEvents) -> tuple[Any, Any, int]:
    """What let each event happen, when it came, and the one at which the run was over.

    That is the end of its last node; in a stall, whatever was last.
    """
    count = len(record)
    parent: Any = np.empty(count, narrow(count))
    end_ns = np.empty(count, np.int64)
    node_end, last, first = KINDS.index("node_end"), NONE if record.makespan_ns else 0, 0
    in_order = count > 0
    for rows in record.blocks(TIMES):
        here = slice(first, first + len(rows["kind"]))
        by, also = rows["critical_parent"], rows["other_parent"]
        numbers = np.arange(here.start, here.stop)
        in_order &= bool((np.maximum(by, also) < numbers).all() and (np.minimum(by, also) >= NONE).all())
        if not in_order:
            break
        parent[here], end_ns[here] = by, rows["end_ns"]
        needed = np.maximum(np.where(by < 0, 0, end_ns[by]), np.where(also < 0, 0, end_ns[also]))
        in_order &= bool((rows["start_ns"] == needed).all())
        over = rows["end_ns"] == record.makespan_ns
        if record.is_complete:
            over &= rows["kind"] == node_end
        last = first + int(np.flatnonzero(over)[-1]) if over.any() else last
        first = here.stop
    if not in_order:
        raise UsageError("its events do not follow from each other", place=record.place, remedy=AGAIN)
    if last == NONE:
        raise UsageError("none of its events is the end of the run", place=record.place, remedy=AGAIN)
    return parent, end_ns, last


def _blocks_with(record: RecordedEvents, rows: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The blocks that hold some of these rows, and where in them these are."""
    bounds = np.cumsum([0, *record.lengths])
    cuts = np.searchsorted(rows, bounds)
    wanted = np.flatnonzero(np.diff(cuts)).tolist()
    for number, block in zip(wanted, record.blocks(COLUMNS, wanted), strict=True):
        yield rows[cuts[number] : cuts[number + 1]] - bounds[number], block
