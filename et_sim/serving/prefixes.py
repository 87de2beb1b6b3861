"""Blocks of the cache by their content, so that requests that begin with equal tokens share them.

Content is a path of pieces: of a request with hashes one for each hash, then one of its own tokens; of a
session one piece, which its turns continue. Blocks of a piece are there from its first one on. Blocks without
a running sequence are idle, and go when their room is needed: those released longest ago first, and of one
sequence from its end. So a block never goes before those that follow it, and all blocks of a piece that were
released together are one segment. If several sequences compute equal blocks, the first of them stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from et_sim.serving.requests import HASHED_TOKENS, Request

ENDLESS = 10**18


class Piece(NamedTuple):
    """A part of a path: its key among those with the same blocks before it, and its last block + 1."""

    key: int | tuple[int, int]
    end: int


class Found(NamedTuple):
    """The blocks at the begin of a path that are there, and how many of them running sequences hold."""

    blocks: int
    held: int
    remote: int = 0  # further ones that remote memory has


def path_of(request: Request, block: int) -> tuple[Piece, ...]:
    """Return the content of a request in blocks of some tokens; a block belongs to the piece of its end."""
    pieces, end = [], 0
    for number, each in enumerate(request.hashes, 1):
        before, end = end, min(number * HASHED_TOKENS, request.prompt) // block
        if end > before:
            pieces.append(Piece((each, end), end))
    return (*pieces, Piece(~(request.number if request.hashes else request.stream), ENDLESS))


class _Segment:
    """Idle blocks of a piece that were released together."""

    def __init__(self, node: _Node, first: int, end: int) -> None:
        self.node, self.first, self.end = node, first, end


class _Node:
    """A piece behind the pieces before it."""

    def __init__(self, parent: _Node | None, key: object, first: int) -> None:
        self.parent, self.key, self.first = parent, key, first
        self.following: dict[object, _Node] = {}
        self.blocks = 0
        self.holders: dict[int, int] = {}  # running sequences by their number of blocks
        self.idle: list[_Segment] = []  # the one released last, which has the first blocks, is the last

    @property
    def held(self) -> int:
        return max(self.holders, default=0)

    def hold(self, before: int, now: int) -> None:
        """Change the number of blocks of a holder."""
        if before:
            self.holders[before] -= 1
            if not self.holders[before]:
                del self.holders[before]
        if now:
            self.holders[now] = self.holders.get(now, 0) + 1


class Holding:
    """The blocks that a running sequence holds, from the first one on."""

    def __init__(self, path: Sequence[Piece]) -> None:
        self.path = path
        self.nodes: list[_Node] = []  # of the pieces with blocks of it
        self.blocks = 0


class HeldBlocks(NamedTuple):
    """Blocks of a sequence that has left: their number, and those with content."""

    blocks: int
    held: Holding | None


class PrefixCache:
    """Blocks by content, with at most some idle ones."""

    def __init__(self, most_idle: int) -> None:
        self.most_idle = most_idle
        self.idle = 0
        self._root = _Node(None, None, 0)
        self._segments: dict[_Segment, None] = {}  # idle ones, those released longest ago first

    def find(self, path: Sequence[Piece], most: int) -> Found:
        """Return the blocks at the begin of a path that are there, at most this many."""
        node, blocks, held = self._root, 0, 0
        for key, end in path:
            following = node.following.get(key)
            if following is None or blocks == most:
                break
            node, wanted = following, min(end, most) - blocks
            blocks += min(node.blocks, wanted)
            held += min(node.held, wanted)
            if node.blocks < wanted:
                break
        return Found(blocks, held)

    def advance(self, holding: Holding, blocks: int) -> int:
        """Let a sequence hold its first `blocks`, new ones included; return how many others held before."""
        shared = 0
        while holding.blocks < blocks:
            at = len(holding.nodes) - 1
            if at < 0 or holding.blocks == holding.path[at].end:
                at += 1
                holding.nodes.append(self._following(holding, at))
            node = holding.nodes[at]
            before, now = holding.blocks - node.first, min(blocks, holding.path[at].end) - node.first
            shared += max(min(node.held, now) - before, 0)
            self._take_idle(node, now)
            node.blocks = max(node.blocks, now)
            node.hold(before, now)
            holding.blocks = node.first + now
        return shared

    def release(self, holding: Holding) -> int:
        """Let a sequence hold nothing; return how many of its blocks others hold."""
        shared = 0
        for node in reversed(holding.nodes):
            mine = holding.blocks - node.first
            node.hold(mine, 0)
            shared += min(held := node.held, mine)
            if held < mine:
                self._add_idle(_Segment(node, held, mine))
            holding.blocks = node.first
        holding.nodes.clear()
        return shared

    def put(self, holding: Holding) -> None:
        """Add the blocks of a sequence as idle ones, which were used last."""
        mine = Holding(holding.path)
        self.advance(mine, holding.blocks)
        self.release(mine)
        self.trim(ENDLESS)

    def trim(self, room: int) -> None:
        """Drop idle blocks until they fit this room, and are not more than allowed."""
        excess = self.idle - max(min(room, self.most_idle), 0)
        while excess > 0:
            segment = next(iter(self._segments))
            dropped = min(excess, segment.end - segment.first)
            segment.end -= dropped
            segment.node.blocks -= dropped
            self.idle -= dropped
            excess -= dropped
            if segment.first == segment.end:
                del self._segments[segment]
                segment.node.idle.pop(0)
                self._forget(segment.node)

    def _following(self, holding: Holding, at: int) -> _Node:
        """Return the node of a piece of a path, a new one if there is none."""
        parent = holding.nodes[at - 1] if at else self._root
        key = holding.path[at].key
        if key not in parent.following:
            parent.following[key] = _Node(parent, key, holding.blocks)
        return parent.following[key]

    def _take_idle(self, node: _Node, end: int) -> None:
        """Take the idle ones of the first `end` blocks of a piece."""
        while node.idle and (segment := node.idle[-1]).first < end:
            taken = min(segment.end, end) - segment.first
            segment.first += taken
            self.idle -= taken
            if segment.first < segment.end:
                return
            del self._segments[node.idle.pop()]

    def _add_idle(self, segment: _Segment) -> None:
        segment.node.idle.append(segment)
        self._segments[segment] = None
        self.idle += segment.end - segment.first

    def _forget(self, node: _Node) -> None:
        """Remove a node without blocks, and those before it that are without blocks then."""
        while node.parent is not None and not (node.blocks or node.following or node.holders):
            del node.parent.following[node.key]
            node = node.parent
