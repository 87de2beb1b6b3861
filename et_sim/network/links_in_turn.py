"""Folding of ranks whose messages take turns on links, one message after the other.

One link represents all links of its class if each of them carries, of every kind of message, one from the
ranks of an actor. Where it would carry several, such as the uplink of a leaf whose ranks all send at once,
its sources are alike except for their order: the first of each leaf is like the first of the others. So ranks
that share a link in this way form a *block*, and are distinguished by their places in it (`split`).

`turns_of` describes the order of messages on each link for the search for ties (`engine.observe.ties`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import groups_of
from et_sim.engine.containers import NONE
from et_sim.fold.path_keys import FROM_BLOCK, FROM_ONE, FROM_SEVERAL, TO_BLOCK, LinkTurns, MessageColumns
from et_sim.network.fabric import Wires
from et_sim.network.paths import LinkPaths, PathLinks, Routed
from et_sim.plan.splitmix import splitmix64


class _Crossings(Struct, frozen=True, eq=False):
    """Messages on links, as columns."""

    links: Any
    at: Any  # links that the message has crossed before
    sources: Any
    targets: Any
    kinds: Any


class LinksInTurn(LinkPaths):
    """Paths over links that carry one message at a time."""

    def __init__(
        self, hops: Wires, kinds: Any, most_links: int, ranks: int, later: tuple[Routed, ...] = ()
    ) -> None:
        super().__init__(hops, kinds, most_links, are_shared=True, later=later)
        self._blocks = np.arange(ranks)

    def beside(self, source: Any, target: Any) -> Any:
        """Return whether each pair is in one block, as a number."""
        return (self._blocks[source] == self._blocks[target]).astype(np.uint64)

    def _links(self, source: Any, target: Any) -> PathLinks:
        """Return the links of each path, and their places on it: a link is reached early or late."""
        ways = super()._links(source, target)
        if ways.marks is not None:
            return ways
        links = ways.links
        places = splitmix64(np.arange(links.shape[1]), 34)
        return PathLinks(links, np.broadcast_to(places, links.shape))

    def split(self, messages: Iterable[MessageColumns], colours: Any) -> Any:
        """Return colours that separate ranks of one colour with messages of one kind on a link; None: there
        are no such ranks.
        """
        blocks = self._blocks
        for crossing in self._crossings(messages):
            with np.errstate(over="ignore"):
                words = splitmix64(crossing.kinds, 31) + colours[crossing.sources].astype(np.uint64)
                words = splitmix64(splitmix64(words, 32) + crossing.links.astype(np.uint64), 33)
            order = np.argsort(words, kind="stable")
            again = np.flatnonzero(words[order][1:] == words[order][:-1])
            one, other = crossing.sources[order[again]], crossing.sources[order[again + 1]]
            if len(again) and (one == other).any():  # a message crosses it twice
                return np.arange(len(colours))
            blocks = _joined(blocks, one, other)
        if (blocks == self._blocks).all():
            return None
        self._blocks = blocks
        return colours * len(colours) + _places(blocks, colours)

    def turns_of(self, messages: Iterable[MessageColumns], actor_of_rank: Any) -> LinkTurns:
        """Return which messages each class of links carries, and whether equal ones go equally far round."""
        block_of_rank = groups_of(self._blocks).of_row
        way = _WayRound(block_of_rank, actor_of_rank)
        ranks, from_block, to_block = (_Range(len(self._classes)) for _ in range(3))
        is_later = np.zeros(len(self._classes), bool)
        for crossing in self._crossings(map(way.seen, messages)):
            ranks.add(crossing.links, crossing.sources)
            from_block.add(crossing.links, block_of_rank[crossing.sources])
            to_block.add(crossing.links, block_of_rank[crossing.targets])
            is_later[crossing.links[crossing.at > 0]] = True
        is_ordered, classes = _is_ordered(self._blocks, actor_of_rank), self.classes()
        kinds = np.full(int(classes.max()) + 1, FROM_SEVERAL, np.int8)
        kinds[_are_all(classes, to_block.is_one() & is_ordered & way.is_equal)] = TO_BLOCK
        kinds[_are_all(classes, from_block.is_one() & is_ordered)] = FROM_BLOCK
        kinds[_are_all(classes, ranks.is_one() & ~is_later)] = FROM_ONE
        return LinkTurns(kinds, block_of_rank.astype(np.int32), way.blocks if way.is_equal else 0)

    def _crossings(self, messages: Iterable[MessageColumns]) -> Iterator[_Crossings]:
        """Yield the links that messages cross, a row for each message and link; if paths change with time,
        those of each time by themselves.
        """
        for sources, targets, kinds in messages:
            kinds = np.broadcast_to(np.asarray(kinds).astype(np.uint64), sources.shape)
            for links, _ in self.paths(sources, targets):
                rows, at = np.nonzero(links != NONE)
                yield _Crossings(links[rows, at], at, sources[rows], targets[rows], kinds[rows])


class _Range:
    """The least and the largest of numbers, by link."""

    def __init__(self, links: int) -> None:
        self._least, self._largest = np.full(links, np.iinfo(np.int64).max), np.full(links, NONE)

    def add(self, links: Any, numbers: Any) -> None:
        """Add a number for each of some links."""
        np.minimum.at(self._least, links, numbers)
        np.maximum.at(self._largest, links, numbers)

    def is_one(self) -> Any:
        """Return whether all numbers of each link are the same."""
        return self._least >= self._largest


def _are_all(classes: Any, hold: Any) -> Any:
    """Return whether it holds for all links of each class."""
    found = np.ones(int(classes.max()) + 1, bool)
    found[classes[~hold]] = False
    return found


class _WayRound:
    """The distances that messages go round the blocks, and whether equal ones go equally far."""

    def __init__(self, block_of_rank: Any, actor_of_rank: Any) -> None:
        self._block_of_rank, self._actor_of_rank = block_of_rank, actor_of_rank
        self.blocks, self.is_equal = int(block_of_rank.max()) + 1, True

    def seen(self, messages: MessageColumns) -> MessageColumns:
        """Return the messages, which are compared."""
        sources, targets, kinds = messages
        if self.is_equal:
            actors = self._actor_of_rank
            with np.errstate(over="ignore"):
                words = splitmix64(np.asarray(kinds).astype(np.uint64), 35) + actors[sources].astype(
                    np.uint64
                )
                words = splitmix64(words, 36) + actors[targets].astype(np.uint64)
            order = np.argsort(words, kind="stable")
            ahead = (self._block_of_rank[targets] - self._block_of_rank[sources])[order] % self.blocks
            self.is_equal = not ((np.diff(words[order]) == 0) & (np.diff(ahead) != 0)).any()
        return messages


def _joined(blocks: Any, ones: Any, others: Any) -> Any:
    """Return blocks, each by its lowest rank, of which those of pairs of ranks are joined."""
    while (blocks[ones] != blocks[others]).any():
        lower = np.minimum(blocks[ones], blocks[others])
        blocks = blocks.copy()
        for ends in (ones, others):
            np.minimum.at(blocks, blocks[ends], lower)
        while (blocks != blocks[blocks]).any():
            blocks = blocks[blocks]
    return blocks


def _places(blocks: Any, colours: Any) -> Any:
    """Return the place of each rank among those of its block and colour."""
    order = np.lexsort((colours, blocks))  # ranks ascend, since sorting is stable
    begins = np.ones(len(order), bool)
    begins[1:] = (np.diff(blocks[order]) != 0) | (np.diff(colours[order]) != 0)
    row = np.arange(len(order))
    places = np.empty(len(order), np.int64)
    places[order] = row - np.maximum.accumulate(np.where(begins, row, 0))
    return places


def _is_ordered(blocks: Any, actor_of_rank: Any) -> bool:
    """Return whether the ranks of every block have the order of their actors, and one actor each."""
    order = np.argsort(blocks, kind="stable")
    within = np.diff(blocks[order]) == 0
    return bool((np.diff(actor_of_rank[order])[within] > 0).all())
