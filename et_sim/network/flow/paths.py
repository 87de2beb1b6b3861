"""What folding must tell apart where messages share links: links by what crosses them, paths by their links.

Links begin with the class of their figures. They are told apart by the messages on them: their kinds, the
colours of their ends, and their paths; paths by the classes of their links. When neither ranks nor links can
be told apart further, equal links carry equal messages at equal times, because rates follow from nothing but
which messages cross which links (`docs/folding.md`).

Not here: how links that are alike are simulated as one (`routes`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.compiled.entry_points import entry
from et_sim.compiled.tables_by_reference import Tables
from et_sim.engine.state.run import NONE
from et_sim.fold.path_keys import MessageColumns
from et_sim.network.flow.records import MESSAGE
from et_sim.network.link_queues import is_wired_to_itself, set_out, take_hop
from et_sim.plan.splitmix import splitmix64
from et_sim.plan.tables import table


@dataclass(frozen=True, slots=True)
class _Journeys(Tables):
    """Ways to go, for compiled code."""

    hops: Any
    message: Any  # that goes them
    sources: Any
    targets: Any
    found: Any  # links, by way
    longest: Any


class FlowPaths:
    """Paths by the classes of their links, which are found meanwhile."""

    differ_along_axes = True
    messages_queue = False

    def __init__(self, hops: Any, kinds: Any, most_links: int, *, goes_back: bool) -> None:
        self._hops, self._classes, self._most_links, self._goes_back = hops, kinds, most_links, goes_back

    @property
    def shared_links(self) -> FlowPaths:
        """These very links."""
        return self

    def codes(self, source: Any, target: Any) -> Any:
        """A number for the links of the way there, and of the way back, in their order."""
        source, target = np.broadcast_arrays(source, target)
        there, back = self._code(source, target), self._code(target, source)
        with np.errstate(over="ignore"):
            return splitmix64(splitmix64(there, 0) + back, 0).reshape(source.shape)

    def costs(self, source: Any, target: Any) -> Any:
        """The same: what shares a link with a message decides how long it takes."""
        return self.codes(source, target)

    def can_be_folded(self, _source: Any, _target: Any) -> bool:
        """The codes say all, once links are told apart."""
        return True

    def classes(self) -> Any:
        """A number for each link, from 0 and in the order of the first of each class."""
        _, first, classes = np.unique(self._classes, return_index=True, return_inverse=True)
        place = np.empty(len(first), np.int32)
        place[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
        return place[classes.reshape(-1)]

    def tell_apart(self, messages: Iterable[MessageColumns], colours: Any) -> bool:
        """Tell links apart by the messages on them; whether any now are."""
        seen = np.zeros(len(self._classes), np.uint64)
        for sources, targets, kinds in messages:
            links, back = self._links(sources, targets), self._links(targets, sources)
            with np.errstate(over="ignore"):
                words = splitmix64(kinds, 11) + splitmix64(colours[sources], 12) * np.uint64(3)
                words = splitmix64(words + splitmix64(colours[targets], 13), 14)
                words = splitmix64(words + splitmix64(self._code_of(links), 15) + self._code_of(back), 16)
            _add_on_links(seen, links, words)
            if self._goes_back:
                _add_on_links(seen, back, splitmix64(words, 17))
        before = len(np.unique(self._classes))
        self._classes = self.classes().astype(np.uint64)
        with np.errstate(over="ignore"):
            self._classes = splitmix64(splitmix64(self._classes, 18) + seen, 19)
        return len(np.unique(self._classes)) > before

    def _code(self, source: Any, target: Any) -> Any:
        return self._code_of(self._links(source, target))

    def _code_of(self, links: Any) -> Any:
        code = np.zeros(len(links), np.uint64)
        with np.errstate(over="ignore"):
            for column in links.T:
                known = splitmix64(code + splitmix64(self._classes[column], 20), 21)
                code = np.where(column == NONE, code, known)
        return code

    def _links(self, source: Any, target: Any) -> Any:
        """The links of each way, a row each, NONE behind the last."""
        ends = [np.ascontiguousarray(column, np.int64).reshape(-1) for column in (source, target)]
        found = np.full((len(ends[0]), self._most_links), NONE, np.int32)
        journeys = _Journeys(self._hops, table(MESSAGE, 1), ends[0], ends[1], found, np.zeros(1, np.int64))
        _walk(journeys)
        return found[:, : journeys.longest[0]]


def _add_on_links(sums: Any, links: Any, words: Any) -> None:
    """Add the word of each way to all its links."""
    for column in links.T:
        rows = np.flatnonzero(column != NONE)
        np.add.at(sums, column[rows], words[rows])


@entry(what="the routes", seconds=lambda journeys: len(journeys.sources) * 1e-4)
def _walk(journeys: _Journeys) -> None:
    """Go all the ways, and note the links."""
    hops, message = journeys.hops, journeys.message[0]
    for row in range(len(journeys.sources)):
        if journeys.sources[row] == journeys.targets[row] and not is_wired_to_itself(hops):
            continue
        message.target = journeys.targets[row]
        set_out(hops, message, journeys.sources[row], 0)
        count = 0
        while count == 0 or message.at != message.target or message.via_switch:
            journeys.found[row, count] = take_hop(hops, message)
            count += 1
        journeys.longest[0] = max(journeys.longest[0], count)
