"""A large execution trace without a timeline, converted one window after another.

Nodes are numbered as they start, so windows are ranges of ids. A window is read together with a part on
both sides, with all nodes that are open around it, and with the last one of every thread before it.

Not here: large timelines (`conversion`), and what is made of a window (`converters.pytorch.untimed`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from converters.pytorch.columns import HostTrace
from converters.pytorch.graph import Link
from converters.pytorch.groups import Groups, collect_groups, learn_world
from converters.pytorch.linking import is_called, operators_of
from converters.pytorch.rank import ConvertedRank
from converters.pytorch.reading.host import INPUTS, NODES, OUTPUTS
from converters.pytorch.row_file import Overflow, Table
from converters.pytorch.tally import Span, Tally
from converters.pytorch.totals import Totals
from converters.pytorch.untimed import Window, in_order, largest_group, no_operator
from converters.pytorch.windows.emitted import Emitted
from converters.pytorch.windows.groups import described_last
from converters.pytorch.windows.parts import NodeParts, Nodes, sampled_cuts
from converters.pytorch.windows.sizes import Progress, Sizes
from converters.pytorch.windows.tables import host_of


class _ByNodeId:
    """Nodes are in the part of their ids."""

    def of_nodes(self, rows: Table) -> Any:
        return rows["node_id"].astype(np.int64) + 1  # ids from 0 on; 0 would be none


@dataclass(slots=True)
class _Behind:
    """Nodes of earlier parts that a window needs: by id those that are open, by thread the last ones."""

    open: dict[int, Nodes] = field(default_factory=dict)
    last: dict[int, Nodes] = field(default_factory=dict)

    def nodes(self) -> list[Nodes]:
        """All of them, each once, by id."""
        found = dict(self.open)
        found.update({int(one.nodes["node_id"][0]): one for one in self.last.values()})
        return [found[number] for number in sorted(found)]


class LargeExecutionTrace:
    """An execution trace whose nodes are in files."""

    def __init__(self, host: HostTrace, overflow: Overflow, sizes: Sizes) -> None:
        self._head, self._sizes = host, sizes
        cuts = sampled_cuts(overflow.tables[NODES], "node_id", sizes.part_rows)
        self._first_ids = np.concatenate(([-(1 << 62)], cuts, [1 << 62]))
        self._parts = NodeParts(host, overflow, _ByNodeId(), self._first_ids[:-1] + 1)
        self._needed_until: dict[int, int] = {}  # by id of an open node: the last part within it

    def converted(
        self, without: frozenset[Link], totals: Totals, progress: Progress
    ) -> Iterator[ConvertedRank]:
        """What each window adds, as it is counted in `totals`."""
        groups = collect_groups(self._head, None, Tally())
        learn_world(groups, self._look_around())
        emitted, behind = Emitted(), _Behind()
        count, size = len(self._first_ids) - 1, self._sizes.window_parts
        passed = 0
        for first in range(0, count, size):
            last = min(first + size, count)
            passed = self._pass(behind, passed, first - 1)
            rank = self._window(first, last, behind, groups, without, emitted)
            ends = totals.add(rank, emitted.ends_of)
            passed = self._pass(behind, passed, last - 1)
            kept = [int(one.nodes["node_id"][0]) for one in behind.nodes()]
            assert rank.graph.key is not None
            emitted.add(rank.graph.key, ends, kept)
            progress(last / count)
            yield rank
            del rank
        if groups.described():
            described = described_last(emitted.size, groups, self._head, None)
            totals.add(described)
            yield described

    def _look_around(self) -> int:
        """Find out which nodes are open between parts; gives the size of the largest group."""
        largest, found = -1, False
        for part in range(len(self._first_ids) - 1):
            host = self._parts.trace(part, part + 1)
            largest = max(largest, largest_group(host))
            found |= len(operators_of(host)) > 0
            outer = host.parent[(host.parent < self._first_ids[part]) & (host.parent >= 0)]
            self._needed_until.update(dict.fromkeys(np.unique(outer).tolist(), part))
        if not found:
            raise no_operator(self._head)
        for part in range(len(self._first_ids) - 2, -1, -1):
            self._need_callers(part)
        return largest

    def _need_callers(self, part: int) -> None:
        """Who calls an open node of a part is open for as long."""
        first, last = self._first_ids[part : part + 2]
        nodes = self._parts.tables(part, part + 1).nodes
        parent = dict(zip(nodes["node_id"].tolist(), nodes["parent"].tolist(), strict=True))
        left = [one for one in self._needed_until if first <= one < last]
        while left:
            number = left.pop()
            until, caller = self._needed_until[number], parent.get(number, -1)
            if caller >= 0 and self._needed_until.get(caller, -1) < until:
                self._needed_until[caller] = until
                if caller >= first:
                    left.append(caller)

    def _pass(self, behind: _Behind, passed: int, until: int) -> int:
        """Leave the parts before `until` behind."""
        for part in range(passed, until):
            some = self._parts.tables(part, part + 1)
            number, thread = some.nodes["node_id"], some.nodes["thread"]
            needed = np.array([self._needed_until.get(one, -1) for one in number.tolist()])
            for at in np.flatnonzero(needed > part).tolist():
                behind.open[int(number[at])] = some.one(at)
            called = np.flatnonzero(is_called(some.nodes["sort"]))
            called = called[np.argsort(number[called])]
            for at in dict(zip(thread[called].tolist(), called.tolist(), strict=True)).values():
                behind.last[int(thread[at])] = some.one(at)
        behind.open = {one: node for one, node in behind.open.items() if self._needed_until[one] >= until}
        return max(passed, until)

    def _window(
        self,
        first: int,
        last: int,
        behind: _Behind,
        groups: Groups,
        without: frozenset[Link],
        emitted: Emitted,
    ) -> ConvertedRank:
        """What the parts from `first` to before `last` add."""
        some = [*behind.nodes(), self._parts.tables(first - 1, last + 1)]
        tables = (np.concatenate([getattr(one, name) for one in some]) for name in (NODES, INPUTS, OUTPUTS))
        host = host_of(self._head, *tables)
        span = Span(int(self._first_ids[first]), int(self._first_ids[last]))
        tally = Tally(span)
        if first == 0:
            tally.counts.update(groups.tally.counts)
        around = self._first_ids[[max(first - 1, 0), min(last + 1, len(self._first_ids) - 1)]].tolist()
        emitted.past.around = Span(*around)
        window = Window(partial(emitted.share_of_events, span), emitted.past)
        return in_order(host, replace(groups, tally=tally), without, window)
